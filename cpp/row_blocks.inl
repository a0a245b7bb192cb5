// [Note: one algorithm, three instruction sets]
// The *.inl files are the algorithm of the row kernels, included by each
// row_kernels_<instruction set>.cpp. These define 16 lanes of fp32 (Floats),
// of uint32 (Words) and of conditions (Mask) with the same functions, and are
// compiled for their instruction set; so the order of every fp32 operation, and
// with it every byte, is the same. All of it is in an anonymous namespace: the
// linker would merge inline functions of one name and two instruction sets.
//
// Here: a row as blocks of 32 columns, and what both codes ask of it first.

constexpr int64_t kMaxCodeBytesPerBlock = 32;

// What all rows of a call have in common.
struct RowShape {
  int64_t num_features;
  int64_t num_full;  // whole blocks
  int64_t rest;      // columns of the last, partial block, or 0
  int64_t num_code_bytes;

  RowShape(int64_t features, int bits)
      : num_features(features),
        num_full(features / kColumnsPerBlock),
        rest(features % kColumnsPerBlock),
        num_code_bytes(code_bytes(features, bits)) {}
};

struct Row {
  const float* values;
  int64_t id;
  float min;
  float max;
  bool has_nan;
  RowHeader header;                          // of the minmax code
  alignas(64) float last[kColumnsPerBlock];  // the partial block, padded
};

struct Extent {
  float min;
  float max;
  bool has_nan;
};

inline void pad_last(const RowShape& shape, float padding, Row& row) {
  if (shape.rest != 0) {
    store(row.last, splat(padding));
    store(row.last + kLanes, splat(padding));
    std::memcpy(row.last, row.values + shape.num_full * kColumnsPerBlock,
                static_cast<size_t>(shape.rest) * sizeof(float));
  }
}

// Calls function(block, columns) for each block, the last one padded.
template <typename Function>
inline void for_blocks(const RowShape& shape,
                       const Row& row,
                       Function function) {
  for (int64_t block = 0; block < shape.num_full; ++block) {
    function(block, row.values + block * kColumnsPerBlock);
  }
  if (shape.rest != 0) {
    function(shape.num_full, row.last);
  }
}

inline Extent find_extent(const RowShape& shape, const Row& row) {
  Floats lowest = splat(row.values[0]);
  Floats highest = lowest;
  Mask nan = unordered(lowest, lowest);
  for_blocks(shape, row, [&](int64_t, const float* columns) {
    const Floats low_half = load(columns);
    const Floats high_half = load(columns + kLanes);
    lowest = min(lowest, min(low_half, high_half));
    highest = max(highest, max(low_half, high_half));
    nan = either(nan, unordered(low_half, high_half));
  });
  return {smallest(lowest), largest(highest), any(nan)};
}

inline void store_header(RowHeader header, uint8_t* out) {
  std::memcpy(out, &header.lo, 2);
  std::memcpy(out + 2, &header.range, 2);
}

// Writes a row that has no codes of columns, literal or non-finite, and returns
// whether it is finite.
inline bool pack_uncoded_row(const RowShape& shape,
                             const Row& row,
                             const Extent& extent,
                             uint8_t* out) {
  std::memset(out + kHeaderBytes, 0, static_cast<size_t>(shape.num_code_bytes));
  if (extent.has_nan || extent.min != extent.max || !is_finite(extent.min)) {
    store_header({0, kNonFiniteRange}, out);
    return false;
  }
  const uint32_t pattern = bits_of(row.values[0]);
  store_header(literal_header(pattern), out);
  out[kHeaderBytes] = literal_code(pattern);
  return true;
}
