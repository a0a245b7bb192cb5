#include "sections_binding.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "binding_arguments.hpp"
#include "cpu_sections.hpp"
#include "cuda_sections.hpp"
#include "device_arguments.hpp"
#include "instruction_set.hpp"
#include "section.hpp"
#include "sections.hpp"

namespace hvs {
namespace {

namespace py = pybind11;

using cpu::InstructionSet;

constexpr const char* kDoor = "selected";

void check_rows(const Sections& sections) {
  for (int64_t row = 0; row < sections.num_rows(); ++row) {
    if (sections.num_shares == 1) {
      check_size_argument(kDoor, "ks", sections.k(row), sections.k(0));
    }
    const int64_t size =
        share_elements(sections.num_elements, sections.share(row));
    check_range_argument(kDoor, "ks", sections.k(row), size == 0 ? 0 : 1, size);
    if (size != 0) {
      check_range_argument(kDoor, "offset", sections.offset, 0,
                           sections.row_bytes - sections.layout(row).nbytes);
    }
  }
}

Sections make_sections(uint64_t rows,
                       int64_t rows_bytes,
                       int64_t offset,
                       int64_t num_elements,
                       std::vector<int64_t> ks,
                       int64_t num_shares,
                       const std::string& value_dtype,
                       const std::vector<int64_t>& skip,
                       uint64_t array,
                       const std::string& dtype) {
  check_range_argument(kDoor, "num_elements", num_elements, 1, kMaxElements);
  const int64_t num_rows = static_cast<int64_t>(ks.size());
  check_range_argument(kDoor, "len(ks)", num_rows, 1, INT32_MAX);
  if (num_shares != 1) {
    check_size_argument(kDoor, "num_shares", num_shares, num_rows);
  }
  const int64_t row_bytes = rows_bytes / num_rows;
  check_size_argument(kDoor, "rows_bytes", rows_bytes, num_rows * row_bytes);
  check_range_argument(kDoor, "offset", offset, 0, row_bytes);
  const Sections sections = {to_pointer<const uint8_t*>(rows),
                             row_bytes,
                             offset,
                             num_elements,
                             to_value_type(kDoor, "value_dtype", value_dtype),
                             num_shares,
                             std::move(ks),
                             to_skip_flags(kDoor, skip, num_rows),
                             to_pointer<void*>(array),
                             to_element_type(kDoor, "dtype", dtype)};
  check_rows(sections);
  return sections;
}

int64_t sections_workspace_bytes(const std::vector<Sections>& all) {
  if constexpr (kBuiltWithCuda) {
    return cuda::sections_workspace_bytes(all);
  } else {
    return 0;
  }
}

void check_report(const std::vector<Sections>& all, int64_t report_bytes) {
  const int64_t count = static_cast<int64_t>(all.size());
  check_range_argument(kDoor, "len(sections)", count, 1, INT32_MAX);
  check_size_argument(kDoor, "report_bytes", report_bytes, 16 * count);
}

void check_device(const std::vector<Sections>& all,
                  const DeviceArguments& device) {
  for (const Sections& each : all) {
    check_rows_alignment(kDoor, reinterpret_cast<uintptr_t>(each.rows),
                         each.row_bytes, each.offset);
  }
  check_workspace(kDoor, device, sections_workspace_bytes(all));
}

void add_selected(const std::vector<Sections>& all,
                  double scale,
                  uint64_t report,
                  int64_t report_bytes,
                  int num_threads,
                  const std::optional<std::string>& instruction_set,
                  std::optional<uint64_t> stream,
                  uint64_t workspace,
                  int64_t workspace_bytes) {
  check_report(all, report_bytes);
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  const float factor = static_cast<float>(scale);
  const DeviceArguments device = {stream, workspace, workspace_bytes};
  int64_t* problems = to_pointer<int64_t*>(report);
  if (!is_on_device(kDoor, device)) {
    const py::gil_scoped_release release;
    cpu::add_selected(all, factor, num_threads, chosen, problems);
  } else if constexpr (kBuiltWithCuda) {
    check_device(all, device);
    const py::gil_scoped_release release;
    cuda::add_selected(all, factor, problems, device.workspace_address(),
                       device.stream_address());
  }
}

using ChangeHere = void (*)(const std::vector<Sections>&, int64_t*);
using ChangeOnDevice = void (*)(const std::vector<Sections>&,
                                int64_t*,
                                void*,
                                void*);

void change_selected(ChangeHere change_here,
                     ChangeOnDevice change_on_device,
                     const std::vector<Sections>& all,
                     uint64_t report,
                     int64_t report_bytes,
                     const DeviceArguments& device) {
  check_report(all, report_bytes);
  int64_t* problems = to_pointer<int64_t*>(report);
  if (!is_on_device(kDoor, device)) {
    const py::gil_scoped_release release;
    change_here(all, problems);
  } else {
    check_device(all, device);
    const py::gil_scoped_release release;
    change_on_device(all, problems, device.workspace_address(),
                     device.stream_address());
  }
}

void clear_selected(const std::vector<Sections>& all,
                    uint64_t report,
                    int64_t report_bytes,
                    std::optional<uint64_t> stream,
                    uint64_t workspace,
                    int64_t workspace_bytes) {
  ChangeOnDevice on_device = nullptr;
  if constexpr (kBuiltWithCuda) {
    on_device = cuda::clear_selected;
  }
  change_selected(cpu::clear_selected, on_device, all, report, report_bytes,
                  {stream, workspace, workspace_bytes});
}

void restore_selected(const std::vector<Sections>& all,
                      uint64_t report,
                      int64_t report_bytes,
                      std::optional<uint64_t> stream,
                      uint64_t workspace,
                      int64_t workspace_bytes) {
  ChangeOnDevice on_device = nullptr;
  if constexpr (kBuiltWithCuda) {
    on_device = cuda::restore_selected;
  }
  change_selected(cpu::restore_selected, on_device, all, report, report_bytes,
                  {stream, workspace, workspace_bytes});
}

}  // namespace

void register_sections(py::module_& module) {
  // Local, as the tests load two builds of this module
  py::class_<Sections>(module, "Sections", py::module_local())
      .def(py::init(&make_sections), py::kw_only(), py::arg("rows"),
           py::arg("rows_bytes"), py::arg("offset"), py::arg("num_elements"),
           py::arg("ks"), py::arg("num_shares"), py::arg("value_dtype"),
           py::arg("skip"), py::arg("array"), py::arg("dtype"));
  module.def("sections_workspace_bytes", &sections_workspace_bytes,
             py::arg("sections"),
             "Say how much memory reading sections on a device needs.");
  module.def("add_selected", &add_selected, py::arg("sections"), py::kw_only(),
             py::arg("scale"), py::arg("report"), py::arg("report_bytes"),
             py::arg("num_threads"), py::arg("instruction_set") = py::none(),
             py::arg("stream") = py::none(), py::arg("workspace") = 0,
             py::arg("workspace_bytes") = 0,
             "Sum the selected elements of all rows; see _native.pyi.");
  module.def("clear_selected", &clear_selected, py::arg("sections"),
             py::kw_only(), py::arg("report"), py::arg("report_bytes"),
             py::arg("stream") = py::none(), py::arg("workspace") = 0,
             py::arg("workspace_bytes") = 0,
             "Zero the elements that sections select; see _native.pyi.");
  module.def("restore_selected", &restore_selected, py::arg("sections"),
             py::kw_only(), py::arg("report"), py::arg("report_bytes"),
             py::arg("stream") = py::none(), py::arg("workspace") = 0,
             py::arg("workspace_bytes") = 0,
             "Add the values of sections to arrays; see _native.pyi.");
}

}  // namespace hvs
