// The minmax code: unbiased stochastic rounding to the row's levels. The
// arithmetic is written down in pack_rows.hpp.

// The random words of a row, 16 for each block: random_word() of
// counter_rng.hpp.
class RandomWords {
 public:
  explicit RandomWords(uint64_t row_key)
      : low_key_(static_cast<uint32_t>(row_key)),
        high_key_(static_cast<uint32_t>(row_key >> 32)) {}

  Words operator[](int64_t block) const {
    const uint32_t first_counter = static_cast<uint32_t>(block) * kLanes;
    Words word = add(multiply(lane_numbers(), splat_word(kGolden32)),
                     splat_word(first_counter * kGolden32 + low_key_));
    word = multiply(exclusive_or(word, shift_right<16>(word)),
                    splat_word(kMix32First));
    word = exclusive_or(word, splat_word(high_key_));
    word = multiply(exclusive_or(word, shift_right<15>(word)),
                    splat_word(kMix32Second));
    return exclusive_or(word, shift_right<15>(word));
  }

 private:
  uint32_t low_key_;
  uint32_t high_key_;
};

// Rows that are not tiny are multiplied by 1: that step is left out.
template <bool kTiny>
struct Quantiser {
  Floats lo;
  Floats scale;

  Quantiser(RowHeader header, float levels)
      : lo(splat(from_bf16(header.lo))),
        scale(splat(code_scale(header, levels, kTiny ? kTinyFactor : 1.0f))) {}

  // Codes times 2^16, before the random bits are added.
  Words operator()(Floats values) const {
    const Floats above = subtract(values, lo);
    return round_to_word(
        multiply(kTiny ? multiply(above, splat(kTinyFactor)) : above, scale));
  }
};

// Writes the 4 * kBits code bytes of 32 columns.
template <int kBits, bool kTiny>
inline void pack_block(const float* columns,
                       const Quantiser<kTiny>& quantise,
                       Words random,
                       uint8_t* out) {
  const Words low_half =
      add(quantise(load(columns)), bitwise_and(random, splat_word(0xFFFFu)));
  const Words high_half =
      add(quantise(load(columns + kLanes)), shift_right<16>(random));
  if constexpr (kBits == 1) {
    const Words one = splat_word(1u << 16);
    const uint32_t codes = bits_of_mask(at_least(low_half, one)) |
                           bits_of_mask(at_least(high_half, one)) << kLanes;
    std::memcpy(out, &codes, sizeof(codes));
  } else {
    const Words top = splat_word((1u << kBits) - 1u);
    store_codes<kBits>(min_word(shift_right<16>(low_half), top), out);
    store_codes<kBits>(min_word(shift_right<16>(high_half), top),
                       out + 2 * kBits);
  }
}

// Copies the code bytes of the partial block, with the bits behind the last
// column cleared.
template <int kBits>
inline void copy_last_codes(const uint8_t* codes,
                            int64_t num_columns,
                            uint8_t* out) {
  const int64_t num_bytes = code_bytes(num_columns, kBits);
  std::memcpy(out, codes, static_cast<size_t>(num_bytes));
  const int used_bits = static_cast<int>(num_columns * kBits % 8);
  if (used_bits != 0) {
    out[num_bytes - 1] &= static_cast<uint8_t>((1 << used_bits) - 1);
  }
}

template <int kBits, bool kTiny>
inline void pack_codes(const RowShape& shape,
                       const Row& row,
                       RowHeader header,
                       uint64_t row_key,
                       uint8_t* out) {
  const Quantiser<kTiny> quantise(header, (1 << kBits) - 1);
  const RandomWords random(row_key);
  for_blocks(shape, row, [&](int64_t block, const float* columns) {
    uint8_t* codes = out + block * 4 * kBits;
    if (block < shape.num_full) {
      pack_block<kBits>(columns, quantise, random[block], codes);
    } else {
      uint8_t last[kMaxCodeBytesPerBlock];
      pack_block<kBits>(columns, quantise, random[block], last);
      copy_last_codes<kBits>(last, shape.rest, codes);
    }
  });
}

// Returns whether the row is finite.
template <int kBits>
inline bool pack_minmax_row(const RowShape& shape,
                            const Row& row,
                            uint64_t mixed_key,
                            uint8_t* out) {
  const Extent extent = find_extent(shape, row);
  const RowHeader header = minmax_header(extent.min, extent.max);
  if (extent.has_nan || extent.min == extent.max ||
      !is_coded(header, (1 << kBits) - 1)) {
    return pack_uncoded_row(shape, row, extent, out);
  }
  store_header(header, out);
  const uint64_t row_key =
      make_row_key(mixed_key, static_cast<uint64_t>(row.id));
  uint8_t* codes = out + kHeaderBytes;
  if (is_tiny(header)) {
    pack_codes<kBits, true>(shape, row, header, row_key, codes);
  } else {
    pack_codes<kBits, false>(shape, row, header, row_key, codes);
  }
  return true;
}
