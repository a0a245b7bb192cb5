// The row kernels for AVX2: two registers hold the 16 lanes.
#include <cstring>

#include "counter_rng.hpp"
#include "fp16_bits.hpp"
#include "header_of_code.hpp"
#include "row_header.hpp"
#include "row_kernels.hpp"

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
  __m256 low;
  __m256 high;
};

inline Floats min(Floats a, Floats b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline Floats max(Floats a, Floats b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline float smallest(Floats a) {
  const __m256 eight = _mm256_min_ps(a.low, a.high);
  __m128 lanes = _mm_min_ps(_mm256_castps256_ps128(eight),
                            _mm256_extractf128_ps(eight, 1));
  lanes = _mm_min_ps(lanes, _mm_movehl_ps(lanes, lanes));
  return _mm_cvtss_f32(_mm_min_ss(lanes, _mm_movehdup_ps(lanes)));
}
inline float largest(Floats a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  __m128 lanes = _mm_max_ps(_mm256_castps256_ps128(eight),
                            _mm256_extractf128_ps(eight, 1));
  lanes = _mm_max_ps(lanes, _mm_movehl_ps(lanes, lanes));
  return _mm_cvtss_f32(_mm_max_ss(lanes, _mm_movehdup_ps(lanes)));
}
// Lanes i and i + 8 are added, then i and i + 4, i + 2, i + 1.
inline float sum_of_lanes(Floats a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  __m128 lanes = _mm_add_ps(_mm256_castps256_ps128(eight),
                            _mm256_extractf128_ps(eight, 1));
  lanes = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
  return _mm_cvtss_f32(_mm_add_ss(lanes, _mm_movehdup_ps(lanes)));
}

inline Mask unordered(Floats a, Floats b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_UNORD_Q),
          _mm256_cmp_ps(a.high, b.high, _CMP_UNORD_Q)};
}
inline Mask at_least(Floats a, Floats b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ),
          _mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ)};
}
inline Mask either(Mask a, Mask b) {
  return {_mm256_or_ps(a.low, b.low), _mm256_or_ps(a.high, b.high)};
}
inline uint32_t bits_of_mask(Mask mask) {
  return static_cast<uint32_t>(_mm256_movemask_ps(mask.low) |
                               _mm256_movemask_ps(mask.high) << 8);
}
inline Mask mask_of_bits(uint32_t bits) {
  const __m256i word = _mm256_set1_epi32(static_cast<int>(bits));
  const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i high = _mm256_slli_epi32(low, 8);
  return {
      _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(word, low), low)),
      _mm256_castsi256_ps(
          _mm256_cmpeq_epi32(_mm256_and_si256(word, high), high))};
}
inline bool any(Mask mask) {
  return bits_of_mask(mask) != 0;
}
inline Floats select(Mask mask, Floats yes, Floats no) {
  return {_mm256_blendv_ps(no.low, yes.low, mask.low),
          _mm256_blendv_ps(no.high, yes.high, mask.high)};
}

inline Words splat_word(uint32_t value) {
  return {_mm256_set1_epi32(static_cast<int>(value)),
          _mm256_set1_epi32(static_cast<int>(value))};
}
inline Words multiply(Words a, Words b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
inline Words exclusive_or(Words a, Words b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
inline Words min_word(Words a, Words b) {
  return {_mm256_min_epu32(a.low, b.low), _mm256_min_epu32(a.high, b.high)};
}
inline Mask at_least(Words a, Words b) {
  // a >= b, unsigned: AVX2 compares for equality and signed numbers only.
  return {_mm256_castsi256_ps(
              _mm256_cmpeq_epi32(_mm256_max_epu32(a.low, b.low), a.low)),
          _mm256_castsi256_ps(
              _mm256_cmpeq_epi32(_mm256_max_epu32(a.high, b.high), a.high))};
}
inline Words round_to_word(Floats a) {
  return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
inline Floats to_float(Words a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
#include "x86_codes.inl"

template <int kBits>
inline void store_codes(Words codes, uint8_t* out) {
  // The packs work inside halves of 128 bits: the permutation puts their
  // quarters back in order.
  const __m256i pairs = _mm256_permute4x64_epi64(
      _mm256_packus_epi32(codes.low, codes.high), 0xD8);
  store_code_bytes<kBits>(_mm_packus_epi16(_mm256_castsi256_si128(pairs),
                                           _mm256_extracti128_si256(pairs, 1)),
                          out);
}
template <int kBits>
inline Words load_codes(const uint8_t* codes) {
  if constexpr (kBits == 8) {
    const __m128i bytes =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
    return {_mm256_cvtepu8_epi32(bytes),
            _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  } else {
    uint64_t packed = 0;
    std::memcpy(&packed, codes, 2 * kBits);
    const __m256i shifts =
        _mm256_mullo_epi32(lane_numbers().low, _mm256_set1_epi32(kBits));
    const Words words = {
        _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(packed)), shifts),
        _mm256_srlv_epi32(
            _mm256_set1_epi32(static_cast<int>(packed >> (8 * kBits))),
            shifts)};
    return bitwise_and(words, splat_word((1u << kBits) - 1u));
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
#pragma GCC pop_options
#endif

const RowKernels* avx2_row_kernels() {
  static constexpr RowKernels kKernels = {pack, unpack, add};
  return &kKernels;
}

}  // namespace hvs::cpu

#else

const hvs::cpu::RowKernels* hvs::cpu::avx2_row_kernels() {
  return nullptr;
}

#endif
