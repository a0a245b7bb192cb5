// What ends a launch from outside of the kernel's own code.
#pragma once

#include <signal.h>

#include <string>

#include "cuda_runtime_api.h"

namespace cuda_shim {

// Keeps an error for cudaGetLastError, with what is known beyond its number,
// and returns it.
cudaError_t fail(cudaError_t error, const std::string& reason);

bool is_stream(cudaStream_t stream);

// While it lives, an access to an address that is not mapped gives up the
// launch.
class CaughtAddresses {
 public:
  CaughtAddresses();
  ~CaughtAddresses();
  CaughtAddresses(const CaughtAddresses&) = delete;
  CaughtAddresses& operator=(const CaughtAddresses&) = delete;

 private:
  struct sigaction segment_;
  struct sigaction bus_;
};

}  // namespace cuda_shim
