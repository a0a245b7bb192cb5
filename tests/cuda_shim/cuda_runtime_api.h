// The part of CUDA's runtime that cuda/ may use; see cuda_runtime.h beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "vector_types.hpp"

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
};

enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };

// Only its address matters.
struct CUstream_st;
using cudaStream_t = CUstream_st*;

struct cudaDeviceProp {
  char name[256];
  int major;
  int minor;
  int multiProcessorCount;
};

struct cudaFuncAttributes {
  int numRegs;
};

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value,
                                   cudaDeviceAttr attribute,
                                   int device);
cudaError_t cudaMemsetAsync(void* to,
                            int value,
                            size_t bytes,
                            cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to,
                            const void* from,
                            size_t bytes,
                            cudaMemcpyKind kind,
                            cudaStream_t stream);

template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                  void (*)(Parameters...)) {
  attributes->numRegs = 32;
  return cudaSuccess;
}

namespace cuda_shim {

// Runs `body` once for each thread of the grid.
cudaError_t run_grid(dim3 grid,
                     dim3 block,
                     cudaStream_t stream,
                     const std::function<void()>& body);

template <typename... Parameters, size_t... kPlaces>
std::function<void()> call_of(void (*kernel)(Parameters...),
                              void** arguments,
                              std::index_sequence<kPlaces...>) {
  const std::tuple<std::decay_t<Parameters>...> values(
      *static_cast<std::decay_t<Parameters>*>(arguments[kPlaces])...);
  return [=] { std::apply(kernel, values); };
}

}  // namespace cuda_shim

template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...),
                             dim3 grid,
                             dim3 block,
                             void** arguments,
                             size_t /*shared_bytes*/ = 0,
                             cudaStream_t stream = nullptr) {
  return cuda_shim::run_grid(
      grid, block, stream,
      cuda_shim::call_of(kernel, arguments,
                         std::index_sequence_for<Parameters...>()));
}
