// What the CUDA half of this library was built with and can see at run time.
//
// Everything asks kBuiltWithCuda in an `if constexpr`, so that the branch that
// is not taken needs no definition to link against.
#pragma once

#include <string>
#include <vector>

namespace hvs {

// The build always defines the macro, as 0 or 1.
inline constexpr bool kBuiltWithCuda = HVS_BUILT_WITH_CUDA;

struct CudaDevice {
  std::string name;
  int capability_major;
  int capability_minor;
};

struct CudaRuntime {
  int toolkit_version;  // of the build: 1000 * major + 10 * minor
  int driver_version;   // the newest toolkit the driver takes; 0: no driver
  std::vector<CudaDevice> devices;
  std::string problem;  // CUDA's reason for seeing no device, else empty
};

namespace cuda {

// Needs no driver and throws nothing but std::bad_alloc. Defined only where
// kBuiltWithCuda.
CudaRuntime describe_runtime();

// Why kernels cannot run on a device, or nothing. Needs no driver either.
std::string kernel_problem(int device);

}  // namespace cuda
}  // namespace hvs
