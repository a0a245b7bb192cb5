// The algorithm of unpack_rows, included after pack_rows.inl. See [Note: one
// algorithm, three instruction sets] there.

inline bool all_zero(const uint8_t* bytes, int64_t count) {
  uint8_t seen = 0;
  for (int64_t offset = 0; offset < count; ++offset) {
    seen |= bytes[offset];
  }
  return seen == 0;
}

template <int kBits>
inline void unpack_block(const uint8_t* codes,
                         Floats lo,
                         Floats step,
                         float* out) {
  if constexpr (kBits == 1) {
    uint32_t word;
    std::memcpy(&word, codes, sizeof(word));
    const Floats zero_code = add(lo, multiply(splat(0.0f), step));
    const Floats one_code = add(lo, step);
    store(out, select(mask_of_bits(word), one_code, zero_code));
    store(out + kLanes,
          select(mask_of_bits(word >> kLanes), one_code, zero_code));
  } else {
    store(out, add(lo, multiply(to_float(load_codes<kBits>(codes)), step)));
    store(out + kLanes,
          add(lo,
              multiply(to_float(load_codes<kBits>(codes + 2 * kBits)), step)));
  }
}

template <int kBits>
inline void unpack_codes(const uint8_t* codes,
                         int64_t num_features,
                         Floats lo,
                         Floats step,
                         float* out) {
  const int64_t num_full = num_features / kColumnsPerBlock;
  for (int64_t block = 0; block < num_full; ++block) {
    unpack_block<kBits>(codes + block * 4 * kBits, lo, step,
                        out + block * kColumnsPerBlock);
  }
  const int64_t rest = num_features % kColumnsPerBlock;
  if (rest != 0) {
    uint8_t last_codes[kMaxCodeBytesPerBlock] = {};
    float last[kColumnsPerBlock];
    std::memcpy(last_codes, codes + num_full * 4 * kBits,
                static_cast<size_t>(code_bytes(rest, kBits)));
    unpack_block<kBits>(last_codes, lo, step, last);
    std::memcpy(out + num_full * kColumnsPerBlock, last,
                static_cast<size_t>(rest) * sizeof(float));
  }
}

inline void fill_row(float value, int64_t num_features, float* out) {
  for (int64_t column = 0; column < num_features; ++column) {
    out[column] = value;
  }
}

enum class RowKind { kFinite, kNonFinite, kCorrupt };

// Decodes one row, or says what is wrong with it and leaves `out` alone if it
// is corrupt.
template <int kBits>
inline RowKind unpack_row(const uint8_t* payload,
                          int64_t num_features,
                          float* out) {
  constexpr float kLevels = (1 << kBits) - 1;
  const int64_t num_code_bytes = code_bytes(num_features, kBits);
  const uint8_t* codes = payload + kHeaderBytes;
  RowHeader header;
  std::memcpy(&header.lo, payload, 2);
  std::memcpy(&header.range, payload + 2, 2);
  const int used_bits = static_cast<int>(num_features * kBits % 8);
  if (used_bits != 0 && codes[num_code_bytes - 1] >> used_bits != 0) {
    return RowKind::kCorrupt;
  }
  if (is_coded(header, kLevels)) {
    unpack_codes<kBits>(codes, num_features, splat(from_bf16(header.lo)),
                        splat(row_step(header, kLevels)), out);
    return RowKind::kFinite;
  }
  if (header.range & kLiteralFlag) {
    const float value = literal_value(header, codes[0]);
    if (!is_finite(value) || codes[0] > 1 ||
        !all_zero(codes + 1, num_code_bytes - 1)) {
      return RowKind::kCorrupt;
    }
    fill_row(value, num_features, out);
    return RowKind::kFinite;
  }
  if (header.range != kNonFiniteRange || header.lo != 0 ||
      !all_zero(codes, num_code_bytes)) {
    return RowKind::kCorrupt;
  }
  fill_row(float_of(0x7FC00000u), num_features, out);
  return RowKind::kNonFinite;
}

inline void round_row(const float* row,
                      ElementType type,
                      int64_t num_features,
                      uint16_t* out) {
  if (type == ElementType::kFloat16) {
    for (int64_t column = 0; column < num_features; ++column) {
      out[column] = fp16_nearest(row[column]);
    }
  } else {
    for (int64_t column = 0; column < num_features; ++column) {
      out[column] = bf16_nearest(row[column]);
    }
  }
}

template <int kBits>
RowReport unpack_piece(const UnpackArguments& arguments,
                       int64_t begin,
                       int64_t end,
                       float* scratch) {
  const int64_t num_features = arguments.num_features;
  const int64_t packed_bytes = kHeaderBytes + code_bytes(num_features, kBits);
  RowReport report;
  for (int64_t position = begin; position < end; ++position) {
    const int64_t id =
        arguments.index != nullptr ? arguments.index[position] : position;
    const uint8_t* payload = arguments.payload + id * packed_bytes;
    RowKind kind;
    if (arguments.type == ElementType::kFloat32) {
      kind = unpack_row<kBits>(
          payload, num_features,
          static_cast<float*>(arguments.out) + position * num_features);
    } else {
      kind = unpack_row<kBits>(payload, num_features, scratch);
      if (kind != RowKind::kCorrupt) {
        round_row(
            scratch, arguments.type, num_features,
            static_cast<uint16_t*>(arguments.out) + position * num_features);
      }
    }
    if (kind == RowKind::kCorrupt) {
      note_least(report.corrupt_position, position);
    } else if (kind == RowKind::kNonFinite) {
      --report.nonfinite_countdown;
      note_least(report.nonfinite_position, position);
    }
  }
  return report;
}

RowReport unpack(const UnpackArguments& arguments,
                 int64_t begin,
                 int64_t end,
                 float* scratch) {
  switch (arguments.bits) {
    case 1:
      return unpack_piece<1>(arguments, begin, end, scratch);
    case 2:
      return unpack_piece<2>(arguments, begin, end, scratch);
    case 4:
      return unpack_piece<4>(arguments, begin, end, scratch);
    default:
      return unpack_piece<8>(arguments, begin, end, scratch);
  }
}
