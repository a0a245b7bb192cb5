#include "top_k_binding.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "add_selected.hpp"
#include "binding_arguments.hpp"
#include "check_section.hpp"
#include "checksum.hpp"
#include "instruction_set.hpp"
#include "section.hpp"
#include "select_top_k.hpp"
#include "share.hpp"

namespace hvs {
namespace {

namespace py = pybind11;

using cpu::ElementType;
using cpu::InstructionSet;

constexpr const char* kDoor = "top_k";

void check_range(const char* argument,
                 int64_t value,
                 int64_t lowest,
                 int64_t highest) {
  check_range_argument(kDoor, argument, value, lowest, highest);
}

void check_size(const char* argument, int64_t size, int64_t expected) {
  check_size_argument(kDoor, argument, size, expected);
}

SectionLayout to_layout(int64_t num_elements,
                        int64_t k,
                        const std::string& value_dtype) {
  check_range("num_elements", num_elements, 1, kMaxElements);
  check_range("k", k, 1, num_elements);
  return SectionLayout(num_elements, k,
                       to_value_type(kDoor, "value_dtype", value_dtype));
}

py::tuple select_top_k(uint64_t grad,
                       const std::string& dtype,
                       uint64_t residual,
                       int64_t num_elements,
                       int64_t k,
                       double scale,
                       const std::string& value_dtype,
                       uint32_t hint,
                       uint64_t accumulated,
                       uint64_t section,
                       int64_t section_bytes,
                       int num_threads,
                       const std::optional<std::string>& instruction_set) {
  const SectionLayout layout = to_layout(num_elements, k, value_dtype);
  check_size("section_bytes", section_bytes, layout.nbytes);
  const cpu::SelectArguments arguments = {
      to_pointer<const void*>(grad),
      to_element_type(kDoor, "dtype", dtype),
      to_pointer<const float*>(residual),
      static_cast<float>(scale),
      hint,
      to_pointer<float*>(accumulated),
      to_pointer<uint8_t*>(section)};
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  cpu::SelectResult result;
  {
    const py::gil_scoped_release release;
    result = cpu::select_top_k(layout, arguments, num_threads, chosen);
  }
  return py::make_tuple(result.threshold, result.num_nonfinite);
}

py::tuple add_selected(uint64_t payloads,
                       int64_t payload_bytes,
                       int64_t num_ranks,
                       int64_t offset,
                       int64_t num_elements,
                       int64_t k,
                       const std::string& value_dtype,
                       double scale,
                       uint64_t out,
                       const std::string& dtype,
                       const std::vector<int64_t>& skip,
                       int num_threads,
                       const std::optional<std::string>& instruction_set) {
  const SectionLayout layout = to_layout(num_elements, k, value_dtype);
  check_range("num_ranks", num_ranks, 1, payload_bytes);
  const int64_t row_bytes = payload_bytes / num_ranks;
  check_size("payload_bytes", payload_bytes, num_ranks * row_bytes);
  check_range("offset", offset, 0, row_bytes - layout.nbytes);
  const std::vector<uint8_t> is_skipped = to_skip_flags(kDoor, skip, num_ranks);
  const cpu::AddArguments arguments = {to_pointer<const uint8_t*>(payloads),
                                       num_ranks,
                                       row_bytes,
                                       offset,
                                       is_skipped.data(),
                                       static_cast<float>(scale),
                                       to_pointer<void*>(out),
                                       to_element_type(kDoor, "dtype", dtype)};
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  cpu::AddResult result;
  {
    const py::gil_scoped_release release;
    result = cpu::add_selected(layout, arguments, num_threads, chosen);
  }
  return py::make_tuple(result.corrupt_rank, static_cast<int>(result.problem));
}

template <cpu::SectionProblem (
    *kFunction)(const SectionLayout&, const uint8_t*, const Share&, float*)>
int change_selected(uint64_t section,
                    int64_t section_bytes,
                    int64_t num_elements,
                    int64_t k,
                    const std::string& value_dtype,
                    uint64_t tensor) {
  const SectionLayout layout = to_layout(num_elements, k, value_dtype);
  check_size("section_bytes", section_bytes, layout.nbytes);
  const py::gil_scoped_release release;
  return static_cast<int>(kFunction(layout, to_pointer<const uint8_t*>(section),
                                    Share{}, to_pointer<float*>(tensor)));
}

uint64_t checksum(uint64_t data,
                  int64_t nbytes,
                  int num_threads,
                  const std::optional<std::string>& instruction_set) {
  if (nbytes < 0 || nbytes % 8 != 0) {
    refuse_argument(kDoor, "nbytes", "a multiple of 8", std::to_string(nbytes));
  }
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  const py::gil_scoped_release release;
  return cpu::checksum(to_pointer<const uint8_t*>(data), nbytes / 8,
                       num_threads, chosen);
}

}  // namespace

void register_top_k(py::module_& module) {
  module.def("select_top_k", &select_top_k, py::kw_only(), py::arg("grad"),
             py::arg("dtype"), py::arg("residual"), py::arg("num_elements"),
             py::arg("k"), py::arg("scale"), py::arg("value_dtype"),
             py::arg("hint"), py::arg("accumulated"), py::arg("section"),
             py::arg("section_bytes"), py::arg("num_threads"),
             py::arg("instruction_set") = py::none(),
             "Add a gradient and select the largest sums; see _native.pyi.");
  module.def("add_selected", &add_selected, py::kw_only(), py::arg("payloads"),
             py::arg("payload_bytes"), py::arg("num_ranks"), py::arg("offset"),
             py::arg("num_elements"), py::arg("k"), py::arg("value_dtype"),
             py::arg("scale"), py::arg("out"), py::arg("dtype"),
             py::arg("skip"), py::arg("num_threads"),
             py::arg("instruction_set") = py::none(),
             "Sum the selected elements of all ranks; see _native.pyi.");
  module.def("restore_selected", &change_selected<cpu::restore_selected>,
             py::kw_only(), py::arg("section"), py::arg("section_bytes"),
             py::arg("num_elements"), py::arg("k"), py::arg("value_dtype"),
             py::arg("residual"),
             "Add a section's values to an array; see _native.pyi.");
  module.def("clear_selected", &change_selected<cpu::clear_selected>,
             py::kw_only(), py::arg("section"), py::arg("section_bytes"),
             py::arg("num_elements"), py::arg("k"), py::arg("value_dtype"),
             py::arg("tensor"),
             "Zero the elements that a section selects; see _native.pyi.");
  module.def("checksum", &checksum, py::kw_only(), py::arg("data"),
             py::arg("nbytes"), py::arg("num_threads"),
             py::arg("instruction_set") = py::none(),
             "Sum up the words of an array; see _native.pyi.");
}

}  // namespace hvs
