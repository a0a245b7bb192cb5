// The row kernels for AVX-512 (F, BW, DQ, VL): one register holds the 16 lanes.
#include <cstring>

#include "counter_rng.hpp"
#include "fp16_bits.hpp"
#include "header_of_code.hpp"
#include "row_header.hpp"
#include "row_kernels.hpp"

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

inline Floats min(Floats a, Floats b) {
  return _mm512_min_ps(a, b);
}
inline Floats max(Floats a, Floats b) {
  return _mm512_max_ps(a, b);
}
inline float smallest(Floats a) {
  return _mm512_reduce_min_ps(a);
}
inline float largest(Floats a) {
  return _mm512_reduce_max_ps(a);
}
// Lanes i and i + 8 are added, then i and i + 4, i + 2, i + 1.
inline float sum_of_lanes(Floats a) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  __m128 lanes = _mm_add_ps(_mm256_castps256_ps128(eight),
                            _mm256_extractf128_ps(eight, 1));
  lanes = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
  return _mm_cvtss_f32(_mm_add_ss(lanes, _mm_movehdup_ps(lanes)));
}

inline Mask unordered(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}
inline Mask at_least(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
inline Mask either(Mask a, Mask b) {
  return static_cast<Mask>(a | b);
}

inline Words multiply(Words a, Words b) {
  return _mm512_mullo_epi32(a, b);
}
inline Words exclusive_or(Words a, Words b) {
  return _mm512_xor_si512(a, b);
}
inline Words min_word(Words a, Words b) {
  return _mm512_min_epu32(a, b);
}
inline Mask at_least(Words a, Words b) {
  return _mm512_cmpge_epu32_mask(a, b);
}
inline Words round_to_word(Floats a) {
  return _mm512_cvtps_epi32(a);
}
inline Floats to_float(Words a) {
  return _mm512_cvtepi32_ps(a);
}

#include "x86_codes.inl"

template <int kBits>
inline void store_codes(Words codes, uint8_t* out) {
  store_code_bytes<kBits>(_mm512_cvtepi32_epi8(codes), out);
}
template <int kBits>
inline Words load_codes(const uint8_t* codes) {
  if constexpr (kBits == 8) {
    return _mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  } else {
    uint64_t packed = 0;
    std::memcpy(&packed, codes, 2 * kBits);
    // Each lane gets the 32 bits that hold its code: with 4 bits, the upper
    // lanes get the upper half.
    const __m512i words = _mm512_mask_set1_epi32(
        splat_word(static_cast<uint32_t>(packed)), kBits == 4 ? 0xFF00 : 0,
        static_cast<int>(packed >> 32));
    const Words lanes =
        bitwise_and(lane_numbers(), splat_word(kBits == 4 ? 7u : 15u));
    const Words shifted =
        _mm512_srlv_epi32(words, multiply(lanes, splat_word(kBits)));
    return bitwise_and(shifted, splat_word((1u << kBits) - 1u));
  }
}

#include "row_blocks.inl"

#include "pack_centroid.inl"
#include "pack_minmax.inl"

#include "pack_rows.inl"
#include "unpack_rows.inl"

#include "add_rows.inl"

}  // namespace

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif

const RowKernels* avx512_row_kernels() {
  static constexpr RowKernels kKernels = {pack, unpack, add};
  return &kKernels;
}

}  // namespace hvs::cpu

#else

const hvs::cpu::RowKernels* hvs::cpu::avx512_row_kernels() {
  return nullptr;
}

#endif
