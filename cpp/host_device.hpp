// The one device switch of the headers that the CPU kernels and the CUDA
// kernels share.
#pragma once

#if defined(__CUDACC__)
#define HVS_HOST_DEVICE __host__ __device__
#else
#define HVS_HOST_DEVICE
#endif
