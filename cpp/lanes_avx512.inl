// The lanes of AVX-512 that both families of kernels use; each adds its own.
// See [Note: one algorithm, three instruction sets] in row_blocks.inl.

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
inline uint32_t bits_of_mask(Mask mask) {
  return mask;
}
inline Mask mask_of_bits(uint32_t bits) {
  return static_cast<Mask>(bits);
}
inline bool any(Mask mask) {
  return mask != 0;
}
inline Floats select(Mask mask, Floats yes, Floats no) {
  return _mm512_mask_blend_ps(mask, no, yes);
}
inline Words splat_word(uint32_t value) {
  return _mm512_set1_epi32(static_cast<int>(value));
}
inline Words lane_numbers() {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                           15);
}
inline Words add(Words a, Words b) {
  return _mm512_add_epi32(a, b);
}
template <int kShift>
inline Words shift_right(Words a) {
  return _mm512_srli_epi32(a, kShift);
}
inline Words bitwise_and(Words a, Words b) {
  return _mm512_and_si512(a, b);
}
