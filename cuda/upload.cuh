// Brings tables that the host has made to the device as parameters of kernels:
// unlike a copy, that waits for nothing, and the table may go at once.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace hvs::cuda {

// One launch for each 3968 bytes. `bytes` and both addresses are multiples of
// 8.
void upload_bytes(const char* door,
                  const void* from,
                  int64_t bytes,
                  void* to,
                  cudaStream_t stream);

template <typename Entry>
void upload(const char* door,
            const std::vector<Entry>& table,
            Entry* to,
            cudaStream_t stream) {
  static_assert(std::is_trivially_copyable_v<Entry> && sizeof(Entry) % 8 == 0,
                "plain words");
  upload_bytes(door, table.data(),
               static_cast<int64_t>(table.size() * sizeof(Entry)), to, stream);
}

}  // namespace hvs::cuda
