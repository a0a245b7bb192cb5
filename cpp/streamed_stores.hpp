// [Note: streamed stores]
// An ordinary store first reads its line of memory into the caches, and the
// line is written back later. A streamed store writes past the caches and reads
// nothing. That is faster where an array is written from end to end that the
// caches cannot hold until it is read, and slower where they can. Only whole
// lines go well: kernels make them in registers or in the first cache, and
// store them once. Streamed stores are not ordered like others.
// finish_streaming() must come before another thread reads what was streamed,
// and before other stores to the same lines.
#pragma once

#include <cstdint>

#include "share.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hvs::cpu {

// Of a parameter. Training was faster from here on, and no faster at half the
// size where the model had little else. In a loop over nothing but these
// arrays, which a third-level cache of 32 MiB holds, streaming costs a third
// more up to about twice the size.
constexpr int64_t kStreamedElements = int64_t{1} << 19;
constexpr uintptr_t kLineBytes = 64;

// Whether to stream into a parameter's array of which a share of `num_elements`
// is written. Chunks start with a line where the array does.
inline bool is_streamed(const void* array,
                        int64_t num_elements,
                        const Share& share) {
  return num_elements * share.num_shares >= kStreamedElements &&
         reinterpret_cast<uintptr_t>(array) % kLineBytes == 0;
}

inline void finish_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace hvs::cpu
