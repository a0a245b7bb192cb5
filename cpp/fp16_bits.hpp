// Conversions between fp32 and fp16 by their bits, without branches, the same
// on every device. Exact where the value fits, else to nearest, ties to even.
#pragma once

#include <cstdint>

#include "float_bits.hpp"
#include "host_device.hpp"

namespace hvs {

HVS_HOST_DEVICE inline float from_fp16(uint16_t half) {
  const uint32_t magnitude = (half & 0x7FFFu) << 13;
  // 2^112 moves the exponent from fp16's bias to fp32's, denormals included.
  const uint32_t scaled = bits_of(float_of(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7F800000u;
  const uint32_t bits = (half & 0x7C00u) == 0x7C00u ? special : scaled;
  return float_of(bits | (static_cast<uint32_t>(half & 0x8000u) << 16));
}

HVS_HOST_DEVICE inline uint16_t fp16_nearest(float value) {
  const uint32_t sign = bits_of(value) & 0x80000000u;
  const uint32_t magnitude = bits_of(value) ^ sign;
  // Below 2^-14 the result is denormal: adding 0.5 leaves exactly its ten bits,
  // rounded by the addition.
  const uint32_t denormal = bits_of(float_of(magnitude) + 0.5f) - 0x3F000000u;
  const uint32_t normal =
      (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t special = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
  const uint32_t finite = magnitude < 0x38800000u ? denormal : normal;
  return static_cast<uint16_t>((magnitude >= 0x47800000u ? special : finite) |
                               (sign >> 16));
}

}  // namespace hvs
