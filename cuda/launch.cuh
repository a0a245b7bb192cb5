// How kernels are launched. A typed function, and not <<<>>>, so that a C++
// compiler takes cuda/*.cu too: that is how they are tested without a GPU
// (tests/cuda_shim).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>

namespace hvs::cuda {

// Throws std::runtime_error with CUDA's reason, unless there is none. `door` is
// the function that was called.
inline void check(const char* door, cudaError_t status) {
  if (status != cudaSuccess) {
    const std::string reason = cudaGetErrorString(status);
    cudaGetLastError();  // the next check must not find it and blame its kernel
    throw std::runtime_error(std::string(door) +
                             ": CUDA refused to run a kernel: " + reason);
  }
}

// Starts `kernel` in the stream and does not wait for it. Throws as check().
// Arguments are converted to the kernel's parameters, which are values.
template <typename... Parameters, typename... Arguments>
void launch(const char* door,
            void (*kernel)(Parameters...),
            dim3 grid,
            dim3 block,
            cudaStream_t stream,
            const Arguments&... arguments) {
  std::tuple<std::decay_t<Parameters>...> values(arguments...);
  std::apply(
      [&](auto&... each) {
        void* addresses[] = {&each...};
        check(door,
              cudaLaunchKernel(kernel, grid, block, addresses, 0, stream));
      },
      values);
}

}  // namespace hvs::cuda
