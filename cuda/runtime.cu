// What CUDA sees on this machine. No kernel runs, and with the static runtime a
// machine without a driver answers too.
#include <cuda_runtime.h>

#include "cuda_runtime.hpp"

namespace hvs {
namespace cuda {
namespace {

// Stands for all kernels: they are built for the same architectures.
__global__ void any_kernel(int*) {}

std::string reason(cudaError_t status) {
  if (status == cudaSuccess) {
    return "";
  }
  // A later launch check must not find this error and blame its kernel
  cudaGetLastError();
  return cudaGetErrorString(status);
}

}  // namespace

CudaRuntime describe_runtime() {
  CudaRuntime runtime{CUDART_VERSION, 0, {}, {}};
  // Without a driver this succeeds and leaves 0
  cudaDriverGetVersion(&runtime.driver_version);
  int num_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&num_devices);
  if (status != cudaSuccess) {
    runtime.problem = reason(status);
    return runtime;
  }
  for (int index = 0; index < num_devices; ++index) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
      runtime.devices.push_back(
          {properties.name, properties.major, properties.minor});
    }
  }
  return runtime;
}

std::string kernel_problem(int device) {
  int before = 0;
  std::string problem = reason(cudaGetDevice(&before));
  if (problem.empty()) {
    problem = reason(cudaSetDevice(device));
  }
  if (problem.empty()) {
    cudaFuncAttributes attributes;
    problem = reason(cudaFuncGetAttributes(&attributes, any_kernel));
    cudaSetDevice(before);
  }
  return problem;
}

}  // namespace cuda
}  // namespace hvs
