// [Note: CUDA sources on the host]
// This folder stands first on the include path of a build for tests, in which a
// C++ compiler takes cuda/*.cu as C++: kernels then run on the CPU, one block
// after the other and, in a block, one thread until it meets others
// (__syncthreads, __syncwarp, shuffles, votes), then the next. So it is known,
// on a machine without a GPU, that a kernel's arithmetic, indices and meetings
// are right; not that it is fast, nor that nvcc compiles it as meant.
//
// Beyond what a GPU checks, these are launch errors that name a line:
//   - a thread that ends, or meets elsewhere, while others of its block or of
//     its mask wait for it; a shuffle that reads a lane outside its mask;
//   - an index outside an array, a misaligned vector, a shift that is too far,
//     a signed overflow (the compiler's sanitizer; traps.cpp);
//   - an address that is not mapped.
// Shared arrays hold garbage when a block begins. HVS_CUDA_SHIM_SEED=n in the
// environment, n > 0, runs blocks and threads in a random order.
//
// Not here, so that using it does not compile: waiting for the device,
// allocating, dynamic shared memory, floating-point atomics, __activemask.
// The compiler keeps a __shared__ array of a template apart from the others,
// where it is not found: it belongs into a function that is no template.
#pragma once

#include "cuda_runtime_api.h"

#define __host__
#define __device__
#define __global__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("hvs_shared")))

#include "device_functions.hpp"
#include "warp_functions.hpp"
