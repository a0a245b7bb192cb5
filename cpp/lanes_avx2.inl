// The lanes of AVX2 that both families of kernels use; each adds its own. See
// [Note: one algorithm, three instruction sets] in row_blocks.inl.

struct Floats {
  __m256 low;
  __m256 high;
};
struct Words {
  __m256i low;
  __m256i high;
};

inline Floats load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
inline void store(float* to, Floats a) {
  _mm256_storeu_ps(to, a.low);
  _mm256_storeu_ps(to + 8, a.high);
}
inline Floats splat(float value) {
  return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
}
inline Floats add(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Floats subtract(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Floats multiply(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Words lane_numbers() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
          _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
inline Words add(Words a, Words b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline Words bitwise_and(Words a, Words b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
template <int kShift>
inline Words shift_right(Words a) {
  return {_mm256_srli_epi32(a.low, kShift), _mm256_srli_epi32(a.high, kShift)};
}
