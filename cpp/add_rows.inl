// The algorithm of add_rows, included after unpack_rows.inl. See [Note: one
// algorithm, three instruction sets].

// A row of `out` while rows are added to it: in place, or where it is of half
// precision in fp32, rounded once at the end.
class Sums {
 public:
  Sums(const AddArguments& arguments, int64_t id, float* scratch)
      : type_(arguments.type), num_features_(arguments.num_features) {
    if (type_ == ElementType::kFloat32) {
      values_ = static_cast<float*>(arguments.out) + id * num_features_;
    } else {
      out_ = static_cast<uint16_t*>(arguments.out) + id * num_features_;
      values_ = scratch;
      convert_row(out_, type_, num_features_, values_);
    }
  }

  void add(const float* row) const {
    for (int64_t column = 0; column < num_features_; ++column) {
      values_[column] += row[column];
    }
  }

  void finish() const {
    if (out_ != nullptr) {
      round_row(values_, type_, num_features_, out_);
    }
  }

 private:
  ElementType type_;
  int64_t num_features_;
  float* values_;
  uint16_t* out_ = nullptr;
};

// Rounds decoded elements to half precision.
inline void round_in_place(ElementType type, int64_t num_features, float* row) {
  if (type == ElementType::kFloat16) {
    for (int64_t column = 0; column < num_features; ++column) {
      row[column] = from_fp16(fp16_nearest(row[column]));
    }
  } else if (type == ElementType::kBFloat16) {
    for (int64_t column = 0; column < num_features; ++column) {
      row[column] = from_bf16(bf16_nearest(row[column]));
    }
  }
}

// Gives the elements of a row, and what is wrong with it. kBits = 0: a plain
// row.
template <int kBits>
inline RowKind read_row(const AddArguments& arguments,
                        int64_t id,
                        float* scratch,
                        const float*& values) {
  const int64_t num_features = arguments.num_features;
  values = scratch;
  if constexpr (kBits > 0) {
    const int64_t row_bytes = kHeaderBytes + code_bytes(num_features, kBits);
    const RowKind kind = unpack_row<kBits>(
        static_cast<const uint8_t*>(arguments.rows) + id * row_bytes,
        num_features, scratch);
    if (kind != RowKind::kCorrupt) {
      round_in_place(arguments.type, num_features, scratch);
    }
    return kind;
  } else if (arguments.type == ElementType::kFloat32) {
    values = static_cast<const float*>(arguments.rows) + id * num_features;
  } else {
    convert_row(
        static_cast<const uint16_t*>(arguments.rows) + id * num_features,
        arguments.type, num_features, scratch);
  }
  return RowKind::kFinite;
}

template <int kBits>
RowReport add_piece(const AddArguments& arguments,
                    int64_t begin,
                    int64_t end,
                    float* scratch) {
  RowReport report;
  for (int64_t target = begin; target < end; ++target) {
    const Sums sums(arguments, arguments.targets[target],
                    scratch + arguments.num_features);
    for (int64_t place = arguments.starts[target];
         place < arguments.starts[target + 1]; ++place) {
      const int64_t position = arguments.order[place];
      const int64_t id =
          arguments.index != nullptr ? arguments.index[position] : position;
      const float* values;
      const RowKind kind = read_row<kBits>(arguments, id, scratch, values);
      if (kind == RowKind::kCorrupt) {
        note_least(report.corrupt_position, position);
        continue;
      }
      if (kind == RowKind::kNonFinite) {
        --report.nonfinite_countdown;
        note_least(report.nonfinite_position, position);
      }
      sums.add(values);
    }
    sums.finish();
  }
  return report;
}

RowReport add(const AddArguments& arguments,
              int64_t begin,
              int64_t end,
              float* scratch) {
  switch (arguments.bits) {
    case 0:
      return add_piece<0>(arguments, begin, end, scratch);
    case 1:
      return add_piece<1>(arguments, begin, end, scratch);
    case 2:
      return add_piece<2>(arguments, begin, end, scratch);
    case 4:
      return add_piece<4>(arguments, begin, end, scratch);
    default:
      return add_piece<8>(arguments, begin, end, scratch);
  }
}
