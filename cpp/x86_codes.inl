// 16 codes in 16 bytes to their packed bits, for the two x86 instruction sets.
// Included where SSE4.1 is on.

template <int kBits>
inline void store_code_bytes(__m128i codes, uint8_t* out) {
  if constexpr (kBits == 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), codes);
  } else if constexpr (kBits == 4) {
    // Neighbours into one code of twice the width: even + odd * 16.
    const __m128i pairs = _mm_maddubs_epi16(codes, _mm_set1_epi16(16 << 8 | 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out),
                     _mm_packus_epi16(pairs, pairs));
  } else {
    static_assert(kBits == 2);
    const __m128i pairs = _mm_maddubs_epi16(codes, _mm_set1_epi16(4 << 8 | 1));
    const __m128i fours = _mm_madd_epi16(pairs, _mm_set1_epi32(16 << 16 | 1));
    const __m128i halves = _mm_packus_epi32(fours, fours);
    const int word = _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves));
    std::memcpy(out, &word, sizeof(word));
  }
}
