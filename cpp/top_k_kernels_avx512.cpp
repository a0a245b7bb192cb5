// The top-k kernels for AVX-512 (F, BW, DQ, VL): one register holds the 16
// lanes.
#include <cstring>

#include "counter_rng.hpp"
#include "float_bits.hpp"
#include "fp16_bits.hpp"
#include "top_k_kernels.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

// Everything shared is included by now: an inline function seen after this line
// could reach a CPU without AVX-512.
#if defined(__clang__)
#pragma clang attribute push(                                      \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), \
    apply_to = function)
#else
#pragma GCC push_options
// GCC 12 warns about its own intrinsics (its bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

namespace hvs::cpu {
namespace {

using Floats = __m512;
using Words = __m512i;
using Mask = __mmask16;

inline Floats load(const float* from) {
  return _mm512_loadu_ps(from);
}
inline void store(float* to, Floats a) {
  _mm512_storeu_ps(to, a);
}
inline Floats splat(float value) {
  return _mm512_set1_ps(value);
}
inline Floats add(Floats a, Floats b) {
  return _mm512_add_ps(a, b);
}
inline Floats subtract(Floats a, Floats b) {
  return _mm512_sub_ps(a, b);
}
inline Floats multiply(Floats a, Floats b) {
  return _mm512_mul_ps(a, b);
}
inline Floats select(Mask mask, Floats yes, Floats no) {
  return _mm512_mask_blend_ps(mask, no, yes);
}

inline Words load_words(const uint32_t* from) {
  return _mm512_loadu_si512(from);
}
inline Words load_halves(const uint16_t* from) {
  return _mm512_cvtepu16_epi32(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline Words splat_word(uint32_t value) {
  return _mm512_set1_epi32(static_cast<int>(value));
}
inline Words lane_numbers() {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                           15);
}
inline Words words_of(Floats a) {
  return _mm512_castps_si512(a);
}
inline Floats floats_of(Words a) {
  return _mm512_castsi512_ps(a);
}
inline Words add(Words a, Words b) {
  return _mm512_add_epi32(a, b);
}
inline Words bitwise_and(Words a, Words b) {
  return _mm512_and_si512(a, b);
}
inline Words bitwise_or(Words a, Words b) {
  return _mm512_or_si512(a, b);
}
template <int kShift>
inline Words shift_left(Words a) {
  return _mm512_slli_epi32(a, kShift);
}
template <int kShift>
inline Words shift_right(Words a) {
  return _mm512_srli_epi32(a, kShift);
}
// Of signed numbers.
inline Mask greater(Words a, Words b) {
  return _mm512_cmpgt_epi32_mask(a, b);
}
inline bool any(Mask mask) {
  return mask != 0;
}
inline uint32_t bits_of_mask(Mask mask) {
  return mask;
}

inline Mask mask_of_bits(uint32_t bits) {
  return static_cast<Mask>(bits);
}

// Appends the words of some lanes, and returns how many. Compressed in a
// register: compressing into memory is slow on AMD's Zen 4.
inline int64_t append_words(uint32_t lanes, Words words, uint32_t* to) {
  _mm512_storeu_si512(
      to, _mm512_maskz_compress_epi32(static_cast<Mask>(lanes), words));
  return __builtin_popcount(lanes);
}
inline void append(uint32_t lanes,
                   Floats sums,
                   Words index,
                   Candidates& candidates) {
  _mm512_storeu_ps(candidates.sums + candidates.count,
                   _mm512_maskz_compress_ps(static_cast<Mask>(lanes), sums));
  candidates.count +=
      append_words(lanes, index, candidates.index + candidates.count);
}

#include "collect_candidates.inl"
#include "keep_candidates.inl"

}  // namespace

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif

const TopKKernels* avx512_top_k_kernels() {
  static constexpr TopKKernels kKernels = {
      collect, keep, count_reaching, copy_between, round_to_half, sum_words};
  return &kKernels;
}

}  // namespace hvs::cpu

#else

const hvs::cpu::TopKKernels* hvs::cpu::avx512_top_k_kernels() {
  return nullptr;
}

#endif
