// What one thread does by itself: its place in the grid, bits, atomics.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "vector_types.hpp"

// Of the thread that runs.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
constexpr int warpSize = 32;

using std::max;
using std::min;

inline int __popc(unsigned value) {
  return __builtin_popcount(value);
}
inline int __popcll(unsigned long long value) {
  return __builtin_popcountll(value);
}
inline int __clz(int value) {
  return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value));
}
inline int __clzll(long long value) {
  return value == 0 ? 64
                    : __builtin_clzll(static_cast<unsigned long long>(value));
}
inline int __ffs(int value) {
  return __builtin_ffs(value);
}
inline int __ffsll(long long value) {
  return __builtin_ffsll(value);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  unsigned result = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const unsigned chosen = selector >> (4 * byte) & 7u;
    result |= static_cast<unsigned>(both >> (8 * chosen) & 0xFFu) << (8 * byte);
  }
  return result;
}

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
// To nearest, ties to even.
inline int __float2int_rn(float value) {
  return static_cast<int>(std::nearbyint(value));
}
inline unsigned __float2uint_rn(float value) {
  return static_cast<unsigned>(std::nearbyint(value));
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}

template <typename Value>
inline Value __ldg(const Value* from) {
  return *from;
}
template <typename Value>
inline Value __ldcs(const Value* from) {
  return *from;
}
template <typename Value>
inline void __stcs(Value* to, Value value) {
  *to = value;
}

inline void __threadfence() {}
inline void __threadfence_block() {}

// Integers only: the order in which floats are added would show.
#define CUDA_SHIM_ATOMIC(name, type, after)       \
  inline type name(type* address, type operand) { \
    const type before = *address;                 \
    *address = after;                             \
    return before;                                \
  }
#define CUDA_SHIM_ATOMICS(type)                                    \
  CUDA_SHIM_ATOMIC(atomicAdd, type, before + operand)              \
  CUDA_SHIM_ATOMIC(atomicMin, type, std::min(before, operand))     \
  CUDA_SHIM_ATOMIC(atomicMax, type, std::max(before, operand))     \
  CUDA_SHIM_ATOMIC(atomicAnd, type, before& operand)               \
  CUDA_SHIM_ATOMIC(atomicOr, type, before | operand)               \
  CUDA_SHIM_ATOMIC(atomicXor, type, before ^ operand)              \
  CUDA_SHIM_ATOMIC(atomicExch, type, operand)                      \
  inline type atomicCAS(type* address, type compare, type value) { \
    const type before = *address;                                  \
    *address = before == compare ? value : before;                 \
    return before;                                                 \
  }

CUDA_SHIM_ATOMICS(int)
CUDA_SHIM_ATOMICS(unsigned)
CUDA_SHIM_ATOMICS(unsigned long long)

#undef CUDA_SHIM_ATOMICS
#undef CUDA_SHIM_ATOMIC
// CUDA has these two for signed 64-bit numbers, and no others.
inline long long atomicMin(long long* address, long long operand) {
  const long long before = *address;
  *address = std::min(before, operand);
  return before;
}
inline long long atomicMax(long long* address, long long operand) {
  const long long before = *address;
  *address = std::max(before, operand);
  return before;
}
