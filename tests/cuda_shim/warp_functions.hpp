// What threads do together: barriers, shuffles and votes. Each names the line
// that calls it, since threads that meet must do so in the same place.
#pragma once

#include <cstdint>
#include <cstring>

#include "fibres.hpp"

#define CUDA_SHIM_HERE \
  const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(CUDA_SHIM_HERE) {
  cuda_shim::meet(cuda_shim::kWholeBlock, 0, file, line);
}
inline int __syncthreads_count(int predicate, CUDA_SHIM_HERE) {
  return static_cast<int>(
      cuda_shim::meet(cuda_shim::kWholeBlock, predicate != 0, file, line).sum);
}
inline int __syncthreads_or(int predicate, CUDA_SHIM_HERE) {
  return __syncthreads_count(predicate, file, line) != 0;
}
inline int __syncthreads_and(int predicate, CUDA_SHIM_HERE) {
  return __syncthreads_count(predicate == 0, file, line) == 0;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu, CUDA_SHIM_HERE) {
  cuda_shim::meet(mask, 0, file, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, CUDA_SHIM_HERE) {
  const cuda_shim::Met& met = cuda_shim::meet(mask, predicate != 0, file, line);
  unsigned votes = 0;
  for (int lane = 0; lane < cuda_shim::kWarpSize; ++lane) {
    votes |= static_cast<unsigned>(met.values[lane]) << lane;
  }
  return votes;
}
inline int __any_sync(unsigned mask, int predicate, CUDA_SHIM_HERE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, CUDA_SHIM_HERE) {
  return __ballot_sync(mask, predicate, file, line) == mask;
}

template <typename Value>
inline unsigned __match_any_sync(unsigned mask, Value value, CUDA_SHIM_HERE) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "4 or 8 bytes");
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(value));
  const cuda_shim::Met& met = cuda_shim::meet(mask, word, file, line);
  unsigned equal = 0;
  for (int lane = 0; lane < cuda_shim::kWarpSize; ++lane) {
    equal |= static_cast<unsigned>(met.values[lane] == word) << lane;
  }
  return equal & mask;
}

namespace cuda_shim {

// `source` beyond the end of the section of `width` lanes: the own value.
template <typename Value>
inline Value shuffle(unsigned mask,
                     Value value,
                     int source,
                     int width,
                     const char* file,
                     int line) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "4 or 8 bytes");
  if (width < 1 || width > kWarpSize || (width & (width - 1)) != 0) {
    give_up("a width that is no power of 2 up to 32", file, line);
  }
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(value));
  const Met& met = meet(mask, word, file, line);
  const int first = lane_of_thread() & ~(width - 1);
  if (source < first || source >= first + width) {
    return value;
  }
  if ((mask >> source & 1u) == 0) {
    give_up("a shuffle that reads a lane outside its mask", file, line);
  }
  std::memcpy(&value, &met.values[source], sizeof(value));
  return value;
}

}  // namespace cuda_shim

template <typename Value>
inline Value __shfl_sync(unsigned mask,
                         Value value,
                         int source,
                         int width = cuda_shim::kWarpSize,
                         CUDA_SHIM_HERE) {
  const int first = cuda_shim::lane_of_thread() & ~(width - 1);
  return cuda_shim::shuffle(mask, value, first | (source & (width - 1)), width,
                            file, line);
}
template <typename Value>
inline Value __shfl_xor_sync(unsigned mask,
                             Value value,
                             int lanes,
                             int width = cuda_shim::kWarpSize,
                             CUDA_SHIM_HERE) {
  return cuda_shim::shuffle(mask, value, cuda_shim::lane_of_thread() ^ lanes,
                            width, file, line);
}
template <typename Value>
inline Value __shfl_down_sync(unsigned mask,
                              Value value,
                              unsigned distance,
                              int width = cuda_shim::kWarpSize,
                              CUDA_SHIM_HERE) {
  return cuda_shim::shuffle(
      mask, value, cuda_shim::lane_of_thread() + static_cast<int>(distance),
      width, file, line);
}
template <typename Value>
inline Value __shfl_up_sync(unsigned mask,
                            Value value,
                            unsigned distance,
                            int width = cuda_shim::kWarpSize,
                            CUDA_SHIM_HERE) {
  return cuda_shim::shuffle(
      mask, value, cuda_shim::lane_of_thread() - static_cast<int>(distance),
      width, file, line);
}

#undef CUDA_SHIM_HERE
