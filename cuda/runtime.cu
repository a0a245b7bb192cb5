// What CUDA sees on this machine. Host code only: no kernel, no context is
// created, and with the static runtime a machine without a driver answers too.
#include <cuda_runtime_api.h>

#include "cuda_runtime.hpp"

namespace hvs {
namespace cuda {

CudaRuntime describe_runtime() {
  CudaRuntime runtime{CUDART_VERSION, 0, {}, {}};
  // Without a driver this succeeds and leaves 0
  cudaDriverGetVersion(&runtime.driver_version);
  int num_devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&num_devices);
  if (status != cudaSuccess) {
    // A later launch check must not find this error and blame its kernel
    cudaGetLastError();
    runtime.problem = cudaGetErrorString(status);
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

}  // namespace cuda
}  // namespace hvs
