// CUDA's short vectors, with the alignment that their loads and stores need.
#pragma once

#include <cstddef>

#define CUDA_SHIM_VECTORS(name, type, bytes)                      \
  struct __attribute__((aligned(bytes / 2))) name##2 {            \
    type x, y;                                                    \
  };                                                              \
  struct name##3 {                                                \
    type x, y, z;                                                 \
  };                                                              \
  struct __attribute__((aligned(bytes))) name##4 {                \
    type x, y, z, w;                                              \
  };                                                              \
  inline name##2 make_##name##2(type x, type y) {                 \
    return {x, y};                                                \
  }                                                               \
  inline name##4 make_##name##4(type x, type y, type z, type w) { \
    return {x, y, z, w};                                          \
  }

CUDA_SHIM_VECTORS(uchar, unsigned char, 4)
CUDA_SHIM_VECTORS(ushort, unsigned short, 8)
CUDA_SHIM_VECTORS(int, int, 16)
CUDA_SHIM_VECTORS(uint, unsigned, 16)
CUDA_SHIM_VECTORS(float, float, 16)

#undef CUDA_SHIM_VECTORS

struct __attribute__((aligned(16))) ulonglong2 {
  unsigned long long x, y;
};
struct __attribute__((aligned(16))) longlong2 {
  long long x, y;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
      : x(x_), y(y_), z(z_) {}
};
