// What the CUDA half of this library was built with and can see at run time.
//
// The one device #ifdef of the library is here: everything else asks
// kBuiltWithCuda in an `if constexpr`, so that the branch that is not taken
// needs no definition to link against.
#pragma once

#include <string>
#include <vector>

namespace hvs {

#ifdef HVS_WITH_CUDA
inline constexpr bool kBuiltWithCuda = true;
#else
inline constexpr bool kBuiltWithCuda = false;
#endif

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

}  // namespace cuda
}  // namespace hvs
