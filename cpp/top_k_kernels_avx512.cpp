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

#include "lanes_avx512.inl"

inline void stream(float* to, Floats a) {
  _mm512_stream_ps(to, a);
}
inline Words load_words(const uint32_t* from) {
  return _mm512_loadu_si512(from);
}
inline Words load_halves(const uint16_t* from) {
  return _mm512_cvtepu16_epi32(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline Words words_of(Floats a) {
  return _mm512_castps_si512(a);
}
inline Floats floats_of(Words a) {
  return _mm512_castsi512_ps(a);
}
inline Words bitwise_or(Words a, Words b) {
  return _mm512_or_si512(a, b);
}
template <int kShift>
inline Words shift_left(Words a) {
  return _mm512_slli_epi32(a, kShift);
}
// Of signed numbers.
inline Mask greater(Words a, Words b) {
  return _mm512_cmpgt_epi32_mask(a, b);
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
      true,         collect,    keep,          count_reaching,
      copy_between, stream_out, round_to_half, sum_words};
  return &kKernels;
}

}  // namespace hvs::cpu

#else

const hvs::cpu::TopKKernels* hvs::cpu::avx512_top_k_kernels() {
  return nullptr;
}

#endif
