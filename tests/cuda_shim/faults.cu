// Kernels that are right, and kernels that are wrong in one way each, for
// test_cuda_shim.py.
#include <cuda_runtime.h>

#include <cstring>

#include "launch.cuh"

namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;

__device__ int* shared_numbers() {
  __shared__ int numbers[32];
  return numbers;
}

// Each thread's inclusive sum of 1, 2, ... over its block, by three means.
__global__ void sums(int* out) {
  __shared__ int warp_sums[32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int sum = static_cast<int>(threadIdx.x) + 1;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(kAll, sum, distance);
    sum += lane >= static_cast<int>(distance) ? before : 0;
  }
  if (lane == 31) {
    warp_sums[warp] = sum;
  }
  __syncthreads();
  for (int other = 0; other < warp; ++other) {
    sum += warp_sums[other];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void votes(int* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned half = lane < 16 ? 0xFFFFu : 0xFFFF0000u;
  int value = lane;
  for (int lanes = 8; lanes > 0; lanes /= 2) {
    value = max(value, __shfl_xor_sync(half, value, lanes, 16));
  }
  const unsigned odd = __ballot_sync(kAll, lane % 2);
  const int count = __syncthreads_count(lane < 5);
  const bool is_right =
      value == (lane < 16 ? 15 : 31) && odd == 0xAAAAAAAAu &&
      count == static_cast<int>(blockDim.x) / 32 * 5 &&
      __shfl_down_sync(kAll, lane, 30) == (lane < 2 ? lane + 30 : lane) &&
      __match_any_sync(kAll, lane / 4) == 0xFu << (lane / 4 * 4) &&
      __any_sync(kAll, lane == 7) && !__all_sync(kAll, lane == 7);
  atomicAdd(out, is_right);
}

__global__ void order(int* out) {
  const int place = atomicAdd(out, 1);
  out[place + 1] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void garbage(int* out) {
  int* numbers = shared_numbers();
  out[blockIdx.x] = numbers[3];
  __syncthreads();
  numbers[threadIdx.x] = 1;
}

__global__ void ends_early(int*) {
  if (threadIdx.x == 3) {
    return;
  }
  __syncthreads();
}

__global__ void meets_elsewhere(int*) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void waits_for_nobody(int*) {
  __syncwarp();
}

__global__ void leaves_itself_out(int*) {
  __syncwarp(1u);
}

__global__ void reads_outside_mask(int*) {
  if (threadIdx.x % 32 < 16) {
    __shfl_xor_sync(0xFFFFu, 1, 16);
  }
}

__global__ void indexes_outside(int* out) {
  __shared__ int numbers[32];
  numbers[threadIdx.x + 1] = 1;
  out[0] = numbers[0];
}

__global__ void misaligns(int* out) {
  *reinterpret_cast<int4*>(out + 1) = make_int4(1, 2, 3, 4);
}

__global__ void leaves_memory(int* out) {
  out[int64_t{1} << 40] = 1;
}

__global__ void overflows(int* out) {
  out[0] = 0x7FFFFFFF;
  out[0] += static_cast<int>(blockDim.x);
}

struct Case {
  const char* name;
  void (*kernel)(int*);
};
constexpr Case kCases[] = {
    {"sums", sums},
    {"votes", votes},
    {"order", order},
    {"garbage", garbage},
    {"ends_early", ends_early},
    {"meets_elsewhere", meets_elsewhere},
    {"waits_for_nobody", waits_for_nobody},
    {"leaves_itself_out", leaves_itself_out},
    {"reads_outside_mask", reads_outside_mask},
    {"indexes_outside", indexes_outside},
    {"misaligns", misaligns},
    {"leaves_memory", leaves_memory},
    {"overflows", overflows},
};

}  // namespace

// Writes into `reason` why the kernel failed, or nothing.
extern "C" __attribute__((visibility("default"))) void run_case(
    const char* name,
    int blocks,
    int threads,
    uintptr_t stream,
    int* out,
    char* reason,
    size_t reason_bytes) {
  reason[0] = 0;
  try {
    for (const Case& each : kCases) {
      if (std::strcmp(each.name, name) == 0) {
        hvs::cuda::launch(name, each.kernel, dim3(blocks), dim3(threads),
                          reinterpret_cast<cudaStream_t>(stream), out);
      }
    }
  } catch (const std::runtime_error& error) {
    std::strncat(reason, error.what(), reason_bytes - 1);
  }
}
