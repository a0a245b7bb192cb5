// Chunks (share.hpp) as the kernels of gradients deal them to blocks: each is
// in one place in memory, whatever the share, and a block of a section has a
// whole number of them.
#pragma once

#include <cstdint>

#include "host_device.hpp"
#include "section.hpp"
#include "share.hpp"

namespace hvs::cuda {

constexpr int kChunkSize = static_cast<int>(kChunkElements);
constexpr int kChunksPerBlock =
    static_cast<int>(kBlockElements / kChunkElements);

HVS_HOST_DEVICE inline int64_t num_chunks_of(int64_t num_elements) {
  return (num_elements + kChunkElements - 1) / kChunkElements;
}

}  // namespace hvs::cuda
