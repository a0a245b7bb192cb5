// The centroid code: one bit says on which side of the row mean an element
// lies. The order of every sum is written down in pack_rows.hpp.

struct Sides {
  float mean_below;
  float mean_above;
};

// Writes the codes and returns the means of the two sides. The partial block is
// padded with 0, which no sum notices.
inline Sides pack_side_codes(const RowShape& shape,
                             const Row& row,
                             float threshold,
                             uint8_t* out) {
  const Floats zero = splat(0.0f);
  Floats sum_below = zero;
  Floats sum_above = zero;
  int64_t num_above = 0;
  for_blocks(shape, row, [&](int64_t block, const float* columns) {
    uint32_t codes = 0;
    for (int half = 0; half < 2; ++half) {
      const Floats values = load(columns + half * kLanes);
      const Mask above = at_least(values, splat(threshold));
      sum_above = add(sum_above, select(above, values, zero));
      sum_below = add(sum_below, select(above, zero, values));
      codes |= bits_of_mask(above) << (half * kLanes);
    }
    if (block < shape.num_full) {
      std::memcpy(out + block * 4, &codes, sizeof(codes));
    } else {
      codes &= (1u << shape.rest) - 1u;
      std::memcpy(out + block * 4, &codes,
                  static_cast<size_t>(code_bytes(shape.rest, 1)));
    }
    num_above += __builtin_popcount(codes);
  });
  const auto mean = [threshold](Floats sums, int64_t count) {
    return count > 0 ? sum_of_lanes(sums) / static_cast<float>(count)
                     : threshold;
  };
  return {mean(sum_below, shape.num_features - num_above),
          mean(sum_above, num_above)};
}

// Returns whether the row is finite.
inline bool pack_centroid_row(const RowShape& shape, Row& row, uint8_t* out) {
  const Extent extent = find_extent(shape, row);
  if (extent.has_nan || extent.min == extent.max || !is_finite(extent.min) ||
      !is_finite(extent.max)) {
    return pack_uncoded_row(shape, row, extent, out);
  }
  pad_last(shape, 0.0f, row);
  Floats total = splat(0.0f);
  for_blocks(shape, row, [&](int64_t, const float* columns) {
    total = add(add(total, load(columns)), load(columns + kLanes));
  });
  const float threshold =
      sum_of_lanes(total) / static_cast<float>(shape.num_features);
  const Sides sides =
      pack_side_codes(shape, row, threshold, out + kHeaderBytes);
  const RowHeader header = centroid_header(sides.mean_below, sides.mean_above);
  if (!is_finite(threshold) || !is_finite(sides.mean_above) ||
      !is_coded(header, 1.0f)) {
    return pack_uncoded_row(shape, row, extent, out);
  }
  store_header(header, out);
  return true;
}
