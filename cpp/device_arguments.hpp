// What the bindings of kernels for both devices are told about the device.
// Included by bindings only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "binding_arguments.hpp"
#include "cuda_runtime.hpp"

namespace hvs {

// Arrays are of the host where there is no stream, else of the current device.
struct DeviceArguments {
  std::optional<uint64_t> stream;
  uint64_t workspace;
  int64_t workspace_bytes;

  void* stream_address() const { return to_pointer<void*>(*stream); }
  void* workspace_address() const { return to_pointer<void*>(workspace); }
};

// Whether kernels run on a device. Raises where this library has none for it.
inline bool is_on_device(const char* door, const DeviceArguments& device) {
  if (device.stream && !kBuiltWithCuda) {
    refuse_stream(door);
  }
  return device.stream.has_value();
}

inline void check_workspace(const char* door,
                            const DeviceArguments& device,
                            int64_t needed) {
  constexpr uint64_t kAlignment = 16;
  if (device.workspace % kAlignment != 0) {
    refuse_argument(door, "workspace", "a multiple of 16",
                    std::to_string(device.workspace));
  }
  check_range_argument(door, "workspace_bytes", device.workspace_bytes, needed,
                       INT64_MAX);
}

// On a device sections are read and written in words.
inline void check_rows_alignment(const char* door,
                                 uint64_t rows,
                                 int64_t row_bytes,
                                 int64_t offset) {
  const uint64_t all =
      rows | static_cast<uint64_t>(row_bytes) | static_cast<uint64_t>(offset);
  if (all % 8 != 0) {
    refuse_argument(door, "rows", "multiples of 8 as address, row and offset",
                    std::to_string(rows) + ", " + std::to_string(row_bytes) +
                        " and " + std::to_string(offset));
  }
}

}  // namespace hvs
