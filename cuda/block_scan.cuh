// What the threads of a block know of those before them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace hvs::cuda {

// All kernels that use this have blocks of so many threads: small enough that a
// multiprocessor holds eight of them, whose loads hide each other's latency.
constexpr int kThreads = 256;
constexpr int kWarpLanes = 32;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

using Count = unsigned long long;  // what CUDA's atomics take

__device__ inline int lane_number() {
  return static_cast<int>(threadIdx.x) % kWarpLanes;
}

__device__ inline int warp_number() {
  return static_cast<int>(threadIdx.x) / kWarpLanes;
}

// Returns the sum of the threads before this one; `total` is that of all. The
// whole block must call it; `warp_sums` is shared, [kWarps].
__device__ inline Count sum_before(Count value,
                                   Count* warp_sums,
                                   Count& total) {
  Count sum = value;
  for (int distance = 1; distance < kWarpLanes; distance *= 2) {
    const Count other =
        __shfl_up_sync(kWholeWarp, sum, static_cast<unsigned>(distance));
    sum += lane_number() >= distance ? other : 0;
  }
  if (lane_number() == kWarpLanes - 1) {
    warp_sums[warp_number()] = sum;
  }
  __syncthreads();
  Count before = 0;
  total = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    before += warp < warp_number() ? warp_sums[warp] : 0;
    total += warp_sums[warp];
  }
  __syncthreads();  // the next call writes there again
  return before + sum - value;
}

}  // namespace hvs::cuda
