// The header that each code gives a row (their arithmetic: pack_rows.hpp),
// shared by every device. Whether it can be sent, is_coded() says.
#pragma once

#include <cstdint>

#include "float_bits.hpp"
#include "host_device.hpp"
#include "row_header.hpp"

namespace hvs {

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
