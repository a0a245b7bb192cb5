#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "launch.cuh"

namespace hvs::cuda {

// How many multiprocessors the current device has. Throws as check().
inline int64_t num_processors(const char* door) {
  int device = 0;
  int count = 0;
  check(door, cudaGetDevice(&device));
  check(door,
        cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace hvs::cuda
