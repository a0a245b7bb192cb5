#include "top_k_binding.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "binding_arguments.hpp"
#include "cuda_select_top_k.hpp"
#include "device_arguments.hpp"
#include "instruction_set.hpp"
#include "section.hpp"
#include "select_top_k.hpp"
#include "selection.hpp"
#include "share.hpp"

namespace hvs {
namespace {

namespace py = pybind11;

using cpu::InstructionSet;

constexpr const char* kDoor = "top_k";

// What is selected from one array: for each share that is not empty, which are
// the first ones.
struct ShareSelections {
  std::vector<Selection> each;
  uint64_t rows;
  int64_t row_bytes;
  int64_t offset;
};

void check_k(int64_t k, int64_t size) {
  check_range_argument(kDoor, "ks", k, size == 0 ? 0 : 1, size);
}

ShareSelections make_selections(uint64_t grad,
                                const std::string& dtype,
                                uint64_t residual,
                                int64_t num_elements,
                                const std::vector<int64_t>& ks,
                                double scale,
                                const std::string& value_dtype,
                                const std::vector<uint32_t>& hints,
                                uint64_t accumulated,
                                uint64_t rows,
                                int64_t rows_bytes,
                                int64_t offset) {
  check_range_argument(kDoor, "num_elements", num_elements, 1, kMaxElements);
  const int64_t num_shares = static_cast<int64_t>(ks.size());
  check_range_argument(kDoor, "len(ks)", num_shares, 1, kMaxElements);
  check_size_argument(kDoor, "len(hints)", static_cast<int64_t>(hints.size()),
                      num_shares);
  const int64_t row_bytes = rows_bytes / num_shares;
  check_size_argument(kDoor, "rows_bytes", rows_bytes, num_shares * row_bytes);
  check_range_argument(kDoor, "offset", offset, 0, row_bytes);
  const ValueType type = to_value_type(kDoor, "value_dtype", value_dtype);
  ShareSelections made = {{}, rows, row_bytes, offset};
  cpu::SelectArguments arguments = {to_pointer<const void*>(grad),
                                    to_element_type(kDoor, "dtype", dtype),
                                    to_pointer<const float*>(residual),
                                    static_cast<float>(scale),
                                    0,
                                    to_pointer<float*>(accumulated),
                                    nullptr};
  for (size_t number = 0; number < ks.size(); ++number) {
    const int64_t row = static_cast<int64_t>(number);
    arguments.share = {num_shares, row};
    arguments.hint = hints[number];
    arguments.section = to_pointer<uint8_t*>(rows) + row * row_bytes + offset;
    const int64_t size = share_elements(num_elements, arguments.share);
    check_k(ks[number], size);
    if (size != 0) {
      const SectionLayout layout(size, ks[number], type);
      check_range_argument(kDoor, "offset", offset, 0,
                           row_bytes - layout.nbytes);
      made.each.push_back({layout, arguments});
    }
  }
  return made;
}

std::vector<Selection> flatten(
    const std::vector<const ShareSelections*>& selections) {
  std::vector<Selection> flat;
  for (const ShareSelections* each : selections) {
    flat.insert(flat.end(), each->each.begin(), each->each.end());
  }
  return flat;
}

int64_t select_workspace_bytes(
    const std::vector<const ShareSelections*>& selections) {
  if constexpr (kBuiltWithCuda) {
    return cuda::select_workspace_bytes(flatten(selections));
  } else {
    return 0;
  }
}

void select_here(const std::vector<Selection>& selections,
                 int64_t* report,
                 int num_threads,
                 InstructionSet instruction_set) {
  for (const Selection& selection : selections) {
    const cpu::SelectResult result = cpu::select_top_k(
        selection.layout, selection.arguments, num_threads, instruction_set);
    *report++ = result.threshold;
    *report++ = result.num_nonfinite;
  }
}

void select_on_device(const std::vector<const ShareSelections*>& selections,
                      const std::vector<Selection>& flat,
                      int64_t* report,
                      const DeviceArguments& device) {
  if constexpr (kBuiltWithCuda) {
    for (const ShareSelections* each : selections) {
      check_rows_alignment(kDoor, each->rows, each->row_bytes, each->offset);
    }
    check_workspace(kDoor, device, cuda::select_workspace_bytes(flat));
    const py::gil_scoped_release release;
    cuda::select_top_k(flat, report, device.workspace_address(),
                       device.stream_address());
  }
}

void select_top_k(const std::vector<const ShareSelections*>& selections,
                  uint64_t report,
                  int64_t report_bytes,
                  int num_threads,
                  const std::optional<std::string>& instruction_set,
                  std::optional<uint64_t> stream,
                  uint64_t workspace,
                  int64_t workspace_bytes) {
  const std::vector<Selection> flat = flatten(selections);
  const int64_t num_rows = static_cast<int64_t>(flat.size());
  check_range_argument(kDoor, "len(selections)", num_rows, 1, INT32_MAX);
  check_size_argument(kDoor, "report_bytes", report_bytes, 16 * num_rows);
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  const DeviceArguments device = {stream, workspace, workspace_bytes};
  if (is_on_device(kDoor, device)) {
    select_on_device(selections, flat, to_pointer<int64_t*>(report), device);
  } else {
    const py::gil_scoped_release release;
    select_here(flat, to_pointer<int64_t*>(report), num_threads, chosen);
  }
}

}  // namespace

void register_top_k(py::module_& module) {
  // Local, as the tests load two builds of this module
  py::class_<ShareSelections>(module, "Selection", py::module_local())
      .def(py::init(&make_selections), py::kw_only(), py::arg("grad"),
           py::arg("dtype"), py::arg("residual"), py::arg("num_elements"),
           py::arg("ks"), py::arg("scale"), py::arg("value_dtype"),
           py::arg("hints"), py::arg("accumulated"), py::arg("rows"),
           py::arg("rows_bytes"), py::arg("offset"));
  module.def("select_workspace_bytes", &select_workspace_bytes,
             py::arg("selections"),
             "Say how much memory selecting on a device needs.");
  module.def("select_top_k", &select_top_k, py::arg("selections"),
             py::kw_only(), py::arg("report"), py::arg("report_bytes"),
             py::arg("num_threads"), py::arg("instruction_set") = py::none(),
             py::arg("stream") = py::none(), py::arg("workspace") = 0,
             py::arg("workspace_bytes") = 0,
             "Add gradients and select the largest sums; see _native.pyi.");
}

}  // namespace hvs
