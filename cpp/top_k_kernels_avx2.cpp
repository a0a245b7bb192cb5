// The top-k kernels for AVX2: two registers hold the 16 lanes.
#include <cstring>

#include "counter_rng.hpp"
#include "float_bits.hpp"
#include "fp16_bits.hpp"
#include "top_k_kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

// Everything shared is included by now: an inline function seen after this line
// could reach a CPU without AVX2.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

namespace hvs::cpu {
namespace {

#include "lanes_avx2.inl"

struct Mask {
  __m256i low;
  __m256i high;
};

inline void stream(float* to, Floats a) {
  _mm256_stream_ps(to, a.low);
  _mm256_stream_ps(to + 8, a.high);
}
inline Floats select(Mask mask, Floats yes, Floats no) {
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_castsi256_ps(mask.low)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_castsi256_ps(mask.high))};
}

inline __m256i load_integers(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
inline Words load_words(const uint32_t* from) {
  return {load_integers(from), load_integers(from + 8)};
}
inline void store_words(uint32_t* to, Words a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), a.high);
}
inline Words load_halves(const uint16_t* from) {
  const __m256i halves = load_integers(from);
  return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(halves)),
          _mm256_cvtepu16_epi32(_mm256_extracti128_si256(halves, 1))};
}
inline Words splat_word(uint32_t value) {
  const __m256i eight = _mm256_set1_epi32(static_cast<int>(value));
  return {eight, eight};
}
inline Words words_of(Floats a) {
  return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}
inline Floats floats_of(Words a) {
  return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
inline Words bitwise_or(Words a, Words b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
template <int kShift>
inline Words shift_left(Words a) {
  return {_mm256_slli_epi32(a.low, kShift), _mm256_slli_epi32(a.high, kShift)};
}
// Of signed numbers.
inline Mask greater(Words a, Words b) {
  return {_mm256_cmpgt_epi32(a.low, b.low), _mm256_cmpgt_epi32(a.high, b.high)};
}
inline uint32_t bits_of_mask(Mask mask) {
  const int low = _mm256_movemask_ps(_mm256_castsi256_ps(mask.low));
  const int high = _mm256_movemask_ps(_mm256_castsi256_ps(mask.high));
  return static_cast<uint32_t>(low | high << 8);
}
inline bool any(Mask mask) {
  const __m256i either = _mm256_or_si256(mask.low, mask.high);
  return !_mm256_testz_si256(either, either);
}

inline __m256i mask_of_byte(uint32_t bits) {
  const __m256i lane_bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
  return _mm256_cmpeq_epi32(_mm256_and_si256(all, lane_bits), lane_bits);
}
inline Mask mask_of_bits(uint32_t bits) {
  return {mask_of_byte(bits), mask_of_byte(bits >> 8)};
}

#include "append_candidates.inl"

#include "collect_candidates.inl"
#include "keep_candidates.inl"

}  // namespace

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

const TopKKernels* avx2_top_k_kernels() {
  static constexpr TopKKernels kKernels = {
      true,         collect,    keep,          count_reaching,
      copy_between, stream_out, round_to_half, sum_words};
  return &kKernels;
}

}  // namespace hvs::cpu

#else

const hvs::cpu::TopKKernels* hvs::cpu::avx2_top_k_kernels() {
  return nullptr;
}

#endif
