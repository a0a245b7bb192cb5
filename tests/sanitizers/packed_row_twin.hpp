// Packed rows, decoded one element at a time, as row_header.hpp says; and
// values of half precision.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "float_bits.hpp"
#include "fp16_bits.hpp"
#include "fuzz_target.hpp"
#include "pack_rows.hpp"
#include "row_header.hpp"

namespace hvs::fuzz {

constexpr cpu::ElementType kElementTypes[] = {cpu::ElementType::kFloat32,
                                              cpu::ElementType::kFloat16,
                                              cpu::ElementType::kBFloat16};

inline int64_t element_bytes(cpu::ElementType type) {
  return type == cpu::ElementType::kFloat32 ? 4 : 2;
}

// Element number `place` of an array of any type.
inline float load_element(const uint8_t* array,
                          cpu::ElementType type,
                          int64_t place) {
  if (type == cpu::ElementType::kFloat32) {
    float value;
    std::memcpy(&value, array + 4 * place, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, array + 2 * place, sizeof(half));
  return type == cpu::ElementType::kFloat16 ? from_fp16(half) : from_bf16(half);
}

inline void store_element(float value,
                          cpu::ElementType type,
                          int64_t place,
                          uint8_t* array) {
  if (type == cpu::ElementType::kFloat32) {
    std::memcpy(array + 4 * place, &value, sizeof(value));
    return;
  }
  const uint16_t half = type == cpu::ElementType::kFloat16
                            ? fp16_nearest(value)
                            : bf16_nearest(value);
  std::memcpy(array + 2 * place, &half, sizeof(half));
}

// Equal bits, or NaN: of two NaNs a sum may keep either.
inline bool same_elements(const uint8_t* one,
                          const uint8_t* other,
                          cpu::ElementType type,
                          int64_t count) {
  const size_t width = static_cast<size_t>(element_bytes(type));
  for (int64_t place = 0; place < count; ++place) {
    const size_t offset = static_cast<size_t>(place) * width;
    const float value = load_element(one, type, place);
    const float other_value = load_element(other, type, place);
    if (std::memcmp(one + offset, other + offset, width) != 0 &&
        (value == value || other_value == other_value)) {
      return false;
    }
  }
  return true;
}

enum class RowKind { kCoded, kLiteral, kNonFinite, kCorrupt };

inline RowKind decode_row(const uint8_t* row,
                          int64_t num_features,
                          int bits,
                          std::vector<float>& out) {
  RowHeader header;
  std::memcpy(&header, row, sizeof(header));
  const uint8_t* bytes = row + kHeaderBytes;
  const uint32_t levels = (1u << bits) - 1u;
  std::vector<uint32_t> codes;
  uint32_t seen = 0;  // in all codes but the first
  for (int64_t column = 0; column < code_bytes(num_features, bits) * 8 / bits;
       ++column) {
    const int64_t bit = column * bits;
    const uint32_t code = bytes[bit / 8] >> (bit % 8) & levels;
    if (column >= num_features && code != 0) {
      return RowKind::kCorrupt;
    }
    seen |= column == 0 ? 0 : code;
    codes.push_back(code);
  }
  out.assign(static_cast<size_t>(num_features), float_of(0x7FC00000u));
  const float lo = from_bf16(header.lo);
  const float step =
      from_bf16(header.range) / static_cast<float>(static_cast<int>(levels));
  const float hi = lo + static_cast<float>(levels) * step;
  if ((header.range & kLiteralFlag) == 0 && is_finite(hi)) {
    for (size_t column = 0; column < out.size(); ++column) {
      out[column] = lo + static_cast<float>(codes[column]) * step;
    }
    return RowKind::kCoded;
  }
  if ((header.range & kLiteralFlag) != 0) {
    const uint32_t pattern = static_cast<uint32_t>(header.lo) << 16 |
                             (codes[0] & 1u) << 15 | (header.range & 0x7FFFu);
    out.assign(out.size(), float_of(pattern));
    return codes[0] <= 1 && seen == 0 && is_finite(float_of(pattern))
               ? RowKind::kLiteral
               : RowKind::kCorrupt;
  }
  return header.lo == 0 && header.range == kNonFiniteRange && codes[0] == 0 &&
                 seen == 0
             ? RowKind::kNonFinite
             : RowKind::kCorrupt;
}

inline void note_row(RowKind kind) {
  note(kind == RowKind::kCoded       ? "coded rows"
       : kind == RowKind::kLiteral   ? "literal rows"
       : kind == RowKind::kNonFinite ? "non-finite rows"
                                     : "corrupt rows");
}

}  // namespace hvs::fuzz
