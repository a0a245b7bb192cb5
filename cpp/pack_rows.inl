// The loop of pack_rows over rows. See [Note: one algorithm, three instruction
// sets].

// A gathered row comes from anywhere in memory: ask for 8 KiB ahead, into the
// second cache. Asked for into the first one, long rows wait for each other,
// and packing them takes half as long again.
constexpr int64_t kPrefetchBytes = 8192;
constexpr int64_t kMaxPrefetchRows = 16;
constexpr int64_t kCacheLineBytes = 64;
constexpr int kSecondCache = 2;

inline int64_t prefetch_distance(int64_t row_bytes) {
  const int64_t rows = kPrefetchBytes / row_bytes;
  return rows < 1 ? 1 : rows > kMaxPrefetchRows ? kMaxPrefetchRows : rows;
}

inline void convert_row(const uint16_t* row,
                        ElementType type,
                        int64_t num_features,
                        float* out) {
  if (type == ElementType::kFloat16) {
    for (int64_t column = 0; column < num_features; ++column) {
      out[column] = from_fp16(row[column]);
    }
  } else {
    for (int64_t column = 0; column < num_features; ++column) {
      out[column] = from_bf16(row[column]);
    }
  }
}

// Where the rows of a call are.
class RowReader {
 public:
  RowReader(const PackArguments& arguments, int64_t end, float* scratch)
      : arguments_(arguments),
        end_(end),
        scratch_(scratch),
        element_bytes_(arguments.type == ElementType::kFloat32 ? 4 : 2),
        row_bytes_(arguments.num_features * element_bytes_),
        distance_(prefetch_distance(row_bytes_)) {}

  // Opens the row at `position`, and asks for one further on.
  void open(const RowShape& shape, int64_t position, Row& row) const {
    if (position + distance_ < end_) {
      const char* ahead = address_of(id_at(position + distance_));
      for (int64_t offset = 0; offset < row_bytes_; offset += kCacheLineBytes) {
        __builtin_prefetch(ahead + offset, 0, kSecondCache);
      }
    }
    const int64_t id = id_at(position);
    const char* address = address_of(id);
    const float* values = reinterpret_cast<const float*>(address);
    if (arguments_.type != ElementType::kFloat32) {
      convert_row(reinterpret_cast<const uint16_t*>(address), arguments_.type,
                  arguments_.num_features, scratch_);
      values = scratch_;
    }
    row.values = values;
    row.id = id;
    pad_last(shape, values[0], row);
  }

 private:
  int64_t id_at(int64_t position) const {
    return arguments_.index != nullptr ? arguments_.index[position] : position;
  }
  const char* address_of(int64_t id) const {
    return static_cast<const char*>(arguments_.rows) +
           id * arguments_.row_stride * element_bytes_;
  }

  const PackArguments& arguments_;
  int64_t end_;
  float* scratch_;
  int64_t element_bytes_;
  int64_t row_bytes_;
  int64_t distance_;
};

template <int kBits>
RowReport pack_piece(const PackArguments& arguments,
                     int64_t begin,
                     int64_t end,
                     float* scratch) {
  const RowShape shape(arguments.num_features, kBits);
  const RowReader reader(arguments, end, scratch);
  const uint64_t mixed_key = mix64(arguments.key);
  Row row;
  RowReport report;
  for (int64_t position = begin; position < end; ++position) {
    reader.open(shape, position, row);
    uint8_t* out =
        arguments.out + position * (kHeaderBytes + shape.num_code_bytes);
    bool finite;
    if (kBits == 1 && arguments.code == RowCode::kCentroid) {
      finite = pack_centroid_row(shape, row, out);
    } else {
      finite = pack_minmax_row<kBits>(shape, row, mixed_key, out);
    }
    if (!finite) {
      --report.nonfinite_countdown;
      note_least(report.nonfinite_position, position);
    }
  }
  return report;
}

RowReport pack(const PackArguments& arguments,
               int64_t begin,
               int64_t end,
               float* scratch) {
  switch (arguments.bits) {
    case 1:
      return pack_piece<1>(arguments, begin, end, scratch);
    case 2:
      return pack_piece<2>(arguments, begin, end, scratch);
    case 4:
      return pack_piece<4>(arguments, begin, end, scratch);
    default:
      return pack_piece<8>(arguments, begin, end, scratch);
  }
}
