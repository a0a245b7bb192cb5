// The wire format of one packed row, and the arithmetic of its header, shared
// by every device. A row of F columns takes 4 + ceil(F * bits / 8) bytes,
// little-endian, bits in {1, 2, 4, 8}, L = 2^bits - 1:
//
//   offset  bytes               meaning
//   0       2                   lo, bf16
//   2       2                   range, bf16, >= 0; sign bit set: literal row
//   4       ceil(F * bits / 8)  codes: column c in bits [c * bits, (c + 1) *
//                               bits) counted from bit 0 of byte 0; the unused
//                               bits of the last byte are zero
//
// Column c decodes to lo + code * (range / L), each operation rounded.
// Literal row (all elements equal): lo holds the upper 16 bits of the fp32
// pattern, range 0x8000 | its lower 15 bits, bit 0 of the first code byte its
// bit 15; every other code bit is zero; the pattern is finite.
// Non-finite row (an Inf or a NaN in it, or a range that bf16 cannot hold):
// lo = 0, range = 0x7FC0, codes zero.
#pragma once

#include <cstdint>

#include "float_bits.hpp"
#include "host_device.hpp"

namespace hvs {

constexpr int kHeaderBytes = 4;
constexpr uint16_t kLiteralFlag = 0x8000u;
constexpr uint16_t kNonFiniteRange = 0x7FC0u;

struct RowHeader {
  uint16_t lo;
  uint16_t range;
};

HVS_HOST_DEVICE inline int64_t code_bytes(int64_t num_features, int bits) {
  return (num_features * bits + 7) / 8;
}

HVS_HOST_DEVICE inline float row_step(RowHeader header, float levels) {
  return from_bf16(header.range) / levels;
}

// Of a row whose elements all have this pattern; the pattern's bit 15 is left,
// for the first code.
HVS_HOST_DEVICE inline RowHeader literal_header(uint32_t pattern) {
  return {static_cast<uint16_t>(pattern >> 16),
          static_cast<uint16_t>(kLiteralFlag | (pattern & 0x7FFFu))};
}

HVS_HOST_DEVICE inline uint8_t literal_code(uint32_t pattern) {
  return static_cast<uint8_t>(pattern >> 15 & 1u);
}

HVS_HOST_DEVICE inline float literal_value(RowHeader header, uint8_t code) {
  return float_of(static_cast<uint32_t>(header.lo) << 16 |
                  static_cast<uint32_t>(code & 1u) << 15 |
                  (header.range & 0x7FFFu));
}

// Whether the header is of a coded row that decodes to finite values only.
// `levels` is L.
HVS_HOST_DEVICE inline bool is_coded(RowHeader header, float levels) {
  // An infinite lo or range would make the sum infinite or NaN too.
  return !(header.range & kLiteralFlag) &&
         is_finite(from_bf16(header.lo) + levels * row_step(header, levels));
}

}  // namespace hvs
