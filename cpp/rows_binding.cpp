#include "rows_binding.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>

#include "add_rows.hpp"
#include "binding_arguments.hpp"
#include "cuda_rows.hpp"
#include "cuda_runtime.hpp"
#include "instruction_set.hpp"
#include "pack_rows.hpp"
#include "row_header.hpp"
#include "unpack_rows.hpp"

namespace hvs {
namespace {

namespace py = pybind11;

using cpu::ElementType;
using cpu::InstructionSet;
using cpu::RowCode;

// Far above any machine's memory, and low enough that no product of sizes below
// overflows.
constexpr int64_t kMaxElements = int64_t{1} << 56;

constexpr const char* kDoor = "pack_rows";

[[noreturn]] void refuse(const char* argument,
                         const std::string& expected,
                         const std::string& got) {
  refuse_argument(kDoor, argument, expected, got);
}

void check_size(const char* argument, int64_t size, int64_t expected) {
  check_size_argument(kDoor, argument, size, expected);
}

// Checks a [num_rows, width] array: both counts, and that their product is a
// size.
void check_shape(const char* argument, int64_t num_rows, int64_t width) {
  if (num_rows < 0 || width < 1 || num_rows > kMaxElements / width) {
    refuse(argument, "a shape [rows >= 0, features >= 1]",
           "[" + std::to_string(num_rows) + ", " + std::to_string(width) + "]");
  }
}

void check_bits(int bits) {
  if (bits != 1 && bits != 2 && bits != 4 && bits != 8) {
    refuse("bits", "1, 2, 4 or 8", std::to_string(bits));
  }
}

RowCode to_row_code(const std::string& name, int bits) {
  if (name == "minmax") {
    return RowCode::kMinMax;
  }
  if (name == "centroid" && bits == 1) {
    return RowCode::kCentroid;
  }
  refuse("code", "'minmax', or with 1 bit 'centroid'",
         "'" + name + "' with " + std::to_string(bits) + " bits");
}

void pack_rows(uint64_t rows,
               const std::string& dtype,
               int64_t num_rows,
               int64_t num_features,
               int64_t row_stride,
               uint64_t index,
               int64_t num_packed,
               int bits,
               const std::string& code,
               uint64_t key,
               uint64_t out,
               int64_t out_bytes,
               uint64_t report,
               int num_threads,
               std::optional<uint64_t> stream,
               const std::optional<std::string>& instruction_set) {
  check_bits(bits);
  check_shape("rows", num_rows, num_features);
  check_shape("index", num_packed, num_features);
  if (row_stride < 0 || row_stride > kMaxElements / (num_rows + 1)) {
    refuse("row_stride", "a stride >= 0", std::to_string(row_stride));
  }
  check_size("out_bytes", out_bytes,
             num_packed * (kHeaderBytes + code_bytes(num_features, bits)));
  if (index == 0) {
    check_size("num_packed", num_packed, num_rows);
  }
  const cpu::PackArguments arguments = {to_pointer<const void*>(rows),
                                        to_element_type(kDoor, "dtype", dtype),
                                        num_rows,
                                        num_features,
                                        row_stride,
                                        to_pointer<const int64_t*>(index),
                                        num_packed,
                                        bits,
                                        to_row_code(code, bits),
                                        key,
                                        to_pointer<uint8_t*>(out)};
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  RowReport* out_report = to_pointer<RowReport*>(report);
  const py::gil_scoped_release release;
  if (!stream) {
    *out_report = cpu::pack_rows(arguments, num_threads, chosen);
  } else if constexpr (kBuiltWithCuda) {
    cuda::pack_rows(arguments, to_pointer<void*>(*stream), out_report);
  } else {
    refuse_stream(kDoor);
  }
}

void unpack_rows(uint64_t payload,
                 int64_t payload_bytes,
                 int64_t num_packed,
                 int64_t num_features,
                 int bits,
                 uint64_t index,
                 int64_t num_unpacked,
                 uint64_t out,
                 const std::string& dtype,
                 uint64_t report,
                 int num_threads,
                 std::optional<uint64_t> stream,
                 const std::optional<std::string>& instruction_set) {
  check_bits(bits);
  check_shape("payload", num_packed, num_features);
  check_shape("index", num_unpacked, num_features);
  check_size("payload_bytes", payload_bytes,
             num_packed * (kHeaderBytes + code_bytes(num_features, bits)));
  if (index == 0) {
    check_size("num_unpacked", num_unpacked, num_packed);
  }
  const cpu::UnpackArguments arguments = {
      to_pointer<const uint8_t*>(payload),
      num_packed,
      num_features,
      bits,
      to_pointer<const int64_t*>(index),
      num_unpacked,
      to_pointer<void*>(out),
      to_element_type(kDoor, "dtype", dtype)};
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  RowReport* out_report = to_pointer<RowReport*>(report);
  const py::gil_scoped_release release;
  if (!stream) {
    *out_report = cpu::unpack_rows(arguments, num_threads, chosen);
  } else if constexpr (kBuiltWithCuda) {
    cuda::unpack_rows(arguments, to_pointer<void*>(*stream), out_report);
  } else {
    refuse_stream(kDoor);
  }
}

void add_rows(uint64_t rows,
              int64_t rows_bytes,
              int64_t num_rows,
              int64_t num_features,
              int bits,
              uint64_t index,
              uint64_t order,
              int64_t num_added,
              uint64_t targets,
              uint64_t starts,
              int64_t num_targets,
              uint64_t out,
              int64_t num_out,
              const std::string& dtype,
              uint64_t report,
              int num_threads,
              std::optional<uint64_t> stream,
              const std::optional<std::string>& instruction_set) {
  const ElementType type = to_element_type(kDoor, "dtype", dtype);
  check_shape("rows", num_rows, num_features);
  check_shape("order", num_added, num_features);
  check_shape("targets", num_targets, num_features);
  check_shape("out", num_out, num_features);
  int64_t row_bytes = num_features * (type == ElementType::kFloat32 ? 4 : 2);
  if (bits != 0) {
    check_bits(bits);
    row_bytes = kHeaderBytes + code_bytes(num_features, bits);
  }
  check_size("rows_bytes", rows_bytes, num_rows * row_bytes);
  if (index == 0) {
    check_size("num_added", num_added, num_rows);
  }
  const cpu::AddArguments arguments = {to_pointer<const void*>(rows),
                                       num_rows,
                                       num_features,
                                       bits,
                                       to_pointer<const int64_t*>(index),
                                       to_pointer<const int64_t*>(order),
                                       num_added,
                                       to_pointer<const int64_t*>(targets),
                                       to_pointer<const int64_t*>(starts),
                                       num_targets,
                                       to_pointer<void*>(out),
                                       num_out,
                                       type};
  const InstructionSet chosen = to_instruction_set(kDoor, instruction_set);
  RowReport* out_report = to_pointer<RowReport*>(report);
  const py::gil_scoped_release release;
  if (!stream) {
    *out_report = cpu::add_rows(arguments, num_threads, chosen);
  } else if constexpr (kBuiltWithCuda) {
    cuda::add_rows(arguments, to_pointer<void*>(*stream), out_report);
  } else {
    refuse_stream(kDoor);
  }
}

}  // namespace

void register_rows(py::module_& module) {
  module.def(
      "instruction_set",
      [] { return cpu::instruction_set_name(cpu::best_instruction_set()); },
      "Name the vector instructions that the kernels use on this machine.");
  module.def("pack_rows", &pack_rows, py::kw_only(), py::arg("rows"),
             py::arg("dtype"), py::arg("num_rows"), py::arg("num_features"),
             py::arg("row_stride"), py::arg("index"), py::arg("num_packed"),
             py::arg("bits"), py::arg("code"), py::arg("key"), py::arg("out"),
             py::arg("out_bytes"), py::arg("report"), py::arg("num_threads"),
             py::arg("stream") = py::none(),
             py::arg("instruction_set") = py::none(),
             "Gather, quantise and pack rows; see _native.pyi.");
  module.def("unpack_rows", &unpack_rows, py::kw_only(), py::arg("payload"),
             py::arg("payload_bytes"), py::arg("num_packed"),
             py::arg("num_features"), py::arg("bits"), py::arg("index"),
             py::arg("num_unpacked"), py::arg("out"), py::arg("dtype"),
             py::arg("report"), py::arg("num_threads"),
             py::arg("stream") = py::none(),
             py::arg("instruction_set") = py::none(),
             "Gather and decode packed rows; see _native.pyi.");
  module.def("add_rows", &add_rows, py::kw_only(), py::arg("rows"),
             py::arg("rows_bytes"), py::arg("num_rows"),
             py::arg("num_features"), py::arg("bits"), py::arg("index"),
             py::arg("order"), py::arg("num_added"), py::arg("targets"),
             py::arg("starts"), py::arg("num_targets"), py::arg("out"),
             py::arg("num_out"), py::arg("dtype"), py::arg("report"),
             py::arg("num_threads"), py::arg("stream") = py::none(),
             py::arg("instruction_set") = py::none(),
             "Add rows to given rows; see _native.pyi.");
}

}  // namespace hvs
