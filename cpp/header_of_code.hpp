// The header that each code gives a row, and the scale of its codes (their
// arithmetic: pack_rows.hpp), shared by every device. Whether a header can be
// sent, is_coded() says.
#pragma once

#include <cstdint>

#include "float_bits.hpp"
#include "host_device.hpp"
#include "row_header.hpp"

namespace hvs {

// Below this range the scale would overflow: such a row is multiplied by 2^64
// first, which is exact. Other rows are multiplied by 1.
constexpr float kTinyRange = 0x1p-64f;
constexpr float kTinyFactor = 0x1p64f;
// Codes in fixed point: 16 bits behind the point, as many as a column draws.
constexpr float kOne = 65536.0f;

HVS_HOST_DEVICE inline bool is_tiny(RowHeader header) {
  return from_bf16(header.range) < kTinyRange;
}

// Of a minmax row; `factor` is kTinyFactor or 1.
HVS_HOST_DEVICE inline float code_scale(RowHeader header,
                                        float levels,
                                        float factor) {
  return levels * kOne / (from_bf16(header.range) * factor);
}

// lo is rounded down and the range up, so that [lo, lo + range] covers the row
// and stochastic rounding stays unbiased.
HVS_HOST_DEVICE inline RowHeader minmax_header(float row_min, float row_max) {
  const uint16_t lo = bf16_down(row_min + 0.0f);  // -0 becomes +0
  return {lo, bf16_up(row_max - from_bf16(lo))};
}

HVS_HOST_DEVICE inline RowHeader centroid_header(float mean_below,
                                                 float mean_above) {
  const uint16_t lo = bf16_nearest(mean_below);
  const float range = mean_above - from_bf16(lo);
  return {lo, bf16_nearest(range > 0.0f ? range : 0.0f)};
}

}  // namespace hvs
