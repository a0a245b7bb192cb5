#include "shares_binding.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "add_selected.hpp"
#include "binding_arguments.hpp"
#include "instruction_set.hpp"
#include "section.hpp"
#include "select_top_k.hpp"
#include "shares.hpp"

namespace hvs {
namespace {

namespace py = pybind11;
using cpu::InstructionSet;
using cpu::SharesLayout;

constexpr const char* kDoor = "shares";

SharesLayout to_layout(int64_t num_elements,
                       std::vector<int64_t> ks,
                       const std::string& value_dtype,
                       int64_t rows_bytes,
                       int64_t offset) {
  check_range_argument(kDoor, "num_elements", num_elements, 1, kMaxElements);
  const int64_t num_shares = static_cast<int64_t>(ks.size());
  check_range_argument(kDoor, "len(ks)", num_shares, 1, kMaxElements);
  const int64_t row_bytes = rows_bytes / num_shares;
  check_size_argument(kDoor, "rows_bytes", rows_bytes, num_shares * row_bytes);
  const SharesLayout shares = {num_elements, std::move(ks),
                               to_value_type(kDoor, "value_dtype", value_dtype),
                               row_bytes, offset};
  check_range_argument(kDoor, "offset", offset, 0, row_bytes);
  for (int64_t number = 0; number < num_shares; ++number) {
    const int64_t size = share_elements(num_elements, shares.share(number));
    const int64_t k = shares.ks[static_cast<size_t>(number)];
    check_range_argument(kDoor, "ks", k, size == 0 ? 0 : 1, size);
    if (size != 0) {
      check_range_argument(kDoor, "offset", offset, 0,
                           row_bytes - shares.section(number).nbytes);
    }
  }
  return shares;
}

py::tuple to_tuple(const cpu::AddResult& result) {
  return py::make_tuple(result.corrupt_rank, static_cast<int>(result.problem));
}

py::tuple select_shares(uint64_t grad,
                        const std::string& dtype,
                        uint64_t residual,
                        int64_t num_elements,
                        std::vector<int64_t> ks,
                        double scale,
                        const std::string& value_dtype,
                        std::vector<uint32_t> hints,
                        uint64_t accumulated,
                        uint64_t rows,
                        int64_t rows_bytes,
                        int64_t offset,
                        int num_threads,
                        const std::optional<std::string>& instruction_set) {
  const SharesLayout shares =
      to_layout(num_elements, std::move(ks), value_dtype, rows_bytes, offset);
  check_size_argument(kDoor, "len(hints)", static_cast<int64_t>(hints.size()),
                      shares.num_shares());
  const cpu::SelectArguments arguments = {
      to_pointer<const void*>(grad),
      to_element_type(kDoor, "dtype", dtype),
      to_pointer<const float*>(residual),
      static_cast<float>(scale),
      0,
      to_pointer<float*>(accumulated),
      nullptr};
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  int64_t num_nonfinite;
  {
    const py::gil_scoped_release release;
    num_nonfinite =
        cpu::select_shares(shares, arguments, to_pointer<uint8_t*>(rows), hints,
                           num_threads, chosen);
  }
  return py::make_tuple(hints, num_nonfinite);
}

py::tuple add_shares(uint64_t rows,
                     int64_t rows_bytes,
                     int64_t offset,
                     int64_t num_elements,
                     std::vector<int64_t> ks,
                     const std::string& value_dtype,
                     double scale,
                     uint64_t out,
                     const std::string& dtype,
                     const std::vector<int64_t>& skip,
                     int num_threads,
                     const std::optional<std::string>& instruction_set) {
  const SharesLayout shares =
      to_layout(num_elements, std::move(ks), value_dtype, rows_bytes, offset);
  const std::vector<uint8_t> is_skipped =
      to_skip_flags(kDoor, skip, shares.num_shares());
  const cpu::AddArguments arguments = {to_pointer<const uint8_t*>(rows),
                                       1,
                                       shares.row_bytes,
                                       offset,
                                       is_skipped.data(),
                                       static_cast<float>(scale),
                                       to_pointer<void*>(out),
                                       to_element_type(kDoor, "dtype", dtype)};
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  cpu::AddResult result;
  {
    const py::gil_scoped_release release;
    result = cpu::add_shares(shares, arguments, num_threads, chosen);
  }
  return to_tuple(result);
}

py::tuple clear_shares(uint64_t rows,
                       int64_t rows_bytes,
                       int64_t offset,
                       int64_t num_elements,
                       std::vector<int64_t> ks,
                       const std::string& value_dtype,
                       uint64_t tensor) {
  const SharesLayout shares =
      to_layout(num_elements, std::move(ks), value_dtype, rows_bytes, offset);
  cpu::AddResult result;
  {
    const py::gil_scoped_release release;
    result = cpu::clear_shares(shares, to_pointer<const uint8_t*>(rows),
                               to_pointer<float*>(tensor));
  }
  return to_tuple(result);
}

}  // namespace

void register_shares(py::module_& module) {
  module.def("select_shares", &select_shares, py::kw_only(), py::arg("grad"),
             py::arg("dtype"), py::arg("residual"), py::arg("num_elements"),
             py::arg("ks"), py::arg("scale"), py::arg("value_dtype"),
             py::arg("hints"), py::arg("accumulated"), py::arg("rows"),
             py::arg("rows_bytes"), py::arg("offset"), py::arg("num_threads"),
             py::arg("instruction_set") = py::none(),
             "Add a gradient and select from each share; see _native.pyi.");
  module.def("add_shares", &add_shares, py::kw_only(), py::arg("rows"),
             py::arg("rows_bytes"), py::arg("offset"), py::arg("num_elements"),
             py::arg("ks"), py::arg("value_dtype"), py::arg("scale"),
             py::arg("out"), py::arg("dtype"), py::arg("skip"),
             py::arg("num_threads"), py::arg("instruction_set") = py::none(),
             "Write what the owners of all shares sent; see _native.pyi.");
  module.def("clear_shares", &clear_shares, py::kw_only(), py::arg("rows"),
             py::arg("rows_bytes"), py::arg("offset"), py::arg("num_elements"),
             py::arg("ks"), py::arg("value_dtype"), py::arg("tensor"),
             "Zero the elements that sections select; see _native.pyi.");
}

}  // namespace hvs
