#include "checksum_binding.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>

#include "binding_arguments.hpp"
#include "checksum.hpp"
#include "cuda_checksum.hpp"
#include "device_arguments.hpp"
#include "instruction_set.hpp"

namespace hvs {
namespace {

namespace py = pybind11;

using cpu::InstructionSet;

constexpr const char* kDoor = "checksum";

void checksum_here(const uint8_t* rows,
                   int64_t num_rows,
                   int64_t row_bytes,
                   uint64_t* sums,
                   int num_threads,
                   InstructionSet instruction_set) {
  for (int64_t row = 0; row < num_rows; ++row) {
    sums[row] = cpu::checksum(rows + row * row_bytes, row_bytes / 8,
                              num_threads, instruction_set);
  }
}

void checksum(uint64_t rows,
              int64_t rows_bytes,
              int64_t num_rows,
              uint64_t sums,
              int num_threads,
              const std::optional<std::string>& instruction_set,
              std::optional<uint64_t> stream) {
  check_range_argument(kDoor, "num_rows", num_rows, 1, INT32_MAX);
  const int64_t row_bytes = rows_bytes / num_rows;
  check_size_argument(kDoor, "rows_bytes", rows_bytes, num_rows * row_bytes);
  if (row_bytes < 0 || row_bytes % 8 != 0) {
    refuse_argument(kDoor, "rows_bytes", "a multiple of 8 for each row",
                    std::to_string(row_bytes));
  }
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  const uint8_t* bytes = to_pointer<const uint8_t*>(rows);
  if (!is_on_device(kDoor, {stream, 0, 0})) {
    const py::gil_scoped_release release;
    checksum_here(bytes, num_rows, row_bytes, to_pointer<uint64_t*>(sums),
                  num_threads, chosen);
    return;
  }
  if constexpr (kBuiltWithCuda) {
    check_rows_alignment(kDoor, rows, row_bytes, 0);
    const py::gil_scoped_release release;
    cuda::checksum(bytes, num_rows, row_bytes / 8, to_pointer<uint64_t*>(sums),
                   to_pointer<void*>(*stream));
  }
}

}  // namespace

void register_checksum(py::module_& module) {
  module.def("checksum", &checksum, py::kw_only(), py::arg("rows"),
             py::arg("rows_bytes"), py::arg("num_rows"), py::arg("sums"),
             py::arg("num_threads"), py::arg("instruction_set") = py::none(),
             py::arg("stream") = py::none(),
             "Sum up the words of each row; see _native.pyi.");
}

}  // namespace hvs
