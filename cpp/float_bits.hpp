// Conversions between fp32 and bf16 by their bits, the same on every
// device and under any compiler flag. All are exact where the value fits;
// "nearest" is to nearest, ties to even, like torch's `.to()`.
#pragma once

#include <cstdint>
#include <cstring>

#include "host_device.hpp"

namespace hvs {

HVS_HOST_DEVICE inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

HVS_HOST_DEVICE inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

HVS_HOST_DEVICE inline bool is_finite(float value) {
  return (bits_of(value) & 0x7F800000u) != 0x7F800000u;
}

HVS_HOST_DEVICE inline float from_bf16(uint16_t bits) {
  return float_of(static_cast<uint32_t>(bits) << 16);
}

// Toward minus infinity. A finite value below the smallest finite bf16 gives
// -inf.
HVS_HOST_DEVICE inline uint16_t bf16_down(float value) {
  const uint32_t bits = bits_of(value);
  return static_cast<uint16_t>((bits + ((bits >> 31) ? 0xFFFFu : 0u)) >> 16);
}

// Toward plus infinity, for values >= +0 only. A finite value above the largest
// finite bf16 gives +inf.
HVS_HOST_DEVICE inline uint16_t bf16_up(float value) {
  return static_cast<uint16_t>((bits_of(value) + 0xFFFFu) >> 16);
}

HVS_HOST_DEVICE inline uint16_t bf16_nearest(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u
                                                                  : rounded);
}

}  // namespace hvs
