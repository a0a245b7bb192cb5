// pack_rows: numbers of rows, then rows of any bits. See [Note: fuzzing].
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "fuzz_target.hpp"
#include "guarded_array.hpp"
#include "pack_rows.hpp"
#include "packed_row_twin.hpp"
#include "packed_rows_example.hpp"
#include "row_header.hpp"

namespace hvs::fuzz {
namespace {

struct Shape {
  uint64_t key;
  uint8_t bits_code;
  uint8_t type_code;
  uint8_t feature_code;
  uint8_t has_index;
  uint8_t row_code;
  uint8_t index_code;
  uint8_t gap_code;
  uint8_t is_centroid;

  int bits() const { return 1 << bits_code % 4; }
  cpu::ElementType type() const { return kElementTypes[type_code % 3]; }
  cpu::RowCode code() const {
    return bits() == 1 && is_centroid % 2 != 0 ? cpu::RowCode::kCentroid
                                               : cpu::RowCode::kMinMax;
  }
  int64_t num_features() const { return 1 + feature_code; }
  int64_t row_stride() const { return num_features() + gap_code % 3; }
  int64_t num_rows() const { return row_code % 8; }
  // Of the array: the last row has no gap behind it.
  int64_t num_elements() const {
    return num_rows() == 0 ? 0
                           : (num_rows() - 1) * row_stride() + num_features();
  }
  int64_t row_bytes() const {
    return kHeaderBytes + code_bytes(num_features(), bits());
  }
  int64_t num_index() const { return has_index % 2 == 0 ? 0 : index_code % 16; }
  int64_t num_packed() const {
    return has_index % 2 == 0 ? num_rows() : num_index();
  }
};

struct Case {
  Shape shape;
  GuardedArray<int64_t> index;
  GuardedArray<uint8_t> rows;

  explicit Case(InputReader reader)
      : shape(reader.shape<Shape>()),
        index(shape.num_index()),
        rows(shape.num_elements() * element_bytes(shape.type())) {
    for (int64_t place = 0; place < shape.num_index(); ++place) {
      index[place] = reader.number();
    }
    reader.copy(rows.data(), rows.nbytes());
  }
  int64_t id(int64_t position) const {
    return shape.has_index % 2 == 0 ? position : index[position];
  }
  std::vector<float> row(int64_t position) const {
    std::vector<float> row;
    for (int64_t column = 0; column < shape.num_features(); ++column) {
      row.push_back(load_element(rows.data(), shape.type(),
                                 id(position) * shape.row_stride() + column));
    }
    return row;
  }
  int64_t first_bad_position() const {
    for (int64_t position = 0; position < shape.num_packed(); ++position) {
      if (id(position) < 0 || id(position) >= shape.num_rows()) {
        return position;
      }
    }
    return -1;
  }
};

// Whether decoded elements are within a step, and what rounding adds to it, of
// those that were packed.
bool is_close(const uint8_t* packed,
              int bits,
              const std::vector<float>& row,
              const std::vector<float>& decoded) {
  RowHeader header;
  std::memcpy(&header, packed, sizeof(header));
  const double range = from_bf16(header.range);
  const double step = range / ((1 << bits) - 1);
  const double rounding =
      0x1p-22 * (std::fabs(from_bf16(header.lo)) + range) + 0x1p-147;
  for (size_t column = 0; column < row.size(); ++column) {
    const double error = std::fabs(static_cast<double>(row[column]) -
                                   static_cast<double>(decoded[column]));
    if (error > step + rounding) {
      return false;
    }
  }
  return true;
}

// Checks a packed row, and returns whether it is finite.
bool check_row(const Case& given, int64_t position, const uint8_t* packed) {
  const Shape& shape = given.shape;
  const std::vector<float> row = given.row(position);
  std::vector<float> decoded;
  const RowKind kind =
      decode_row(packed, shape.num_features(), shape.bits(), decoded);
  note_row(kind);
  expect(kind != RowKind::kCorrupt, "rows that are not corrupt");
  const bool is_all_finite = std::all_of(row.begin(), row.end(), is_finite);
  const bool is_constant = std::all_of(
      row.begin(), row.end(),
      [&](float value) { return bits_of(value) == bits_of(row[0]); });
  if (is_all_finite && is_constant) {
    expect(kind == RowKind::kLiteral && bits_of(decoded[0]) == bits_of(row[0]),
           "constant rows to be exact");
  }
  expect(is_all_finite || kind == RowKind::kNonFinite,
         "rows with an Inf or a NaN to be non-finite");
  const auto [low, high] = std::minmax_element(row.begin(), row.end());
  if (is_all_finite && std::fabs(*low) < 1e38f && std::fabs(*high) < 1e38f) {
    expect(kind != RowKind::kNonFinite, "rows of usual numbers to be finite");
  }
  if (kind == RowKind::kCoded && shape.code() == cpu::RowCode::kMinMax) {
    expect(is_close(packed, shape.bits(), row, decoded),
           "elements that are within a step");
  }
  return kind != RowKind::kNonFinite;
}

void check_rows(const Case& given,
                const RowReport& report,
                const GuardedArray<uint8_t>& packed) {
  const int64_t bad = given.first_bad_position();
  expect(report.bad_index_position == bad, "the first bad index");
  if (bad >= 0) {
    note("bad indices");
    const GuardedArray<uint8_t> untouched(
        static_cast<int64_t>(packed.nbytes()));
    expect(std::memcmp(packed.data(), untouched.data(), packed.nbytes()) == 0,
           "nothing written where an index is bad");
    return;
  }
  RowReport expected;
  for (int64_t position = 0; position < given.shape.num_packed(); ++position) {
    if (!check_row(given, position,
                   packed.data() + position * given.shape.row_bytes())) {
      note_least(expected.nonfinite_position, position);
      --expected.nonfinite_countdown;
    }
  }
  expect(std::memcmp(&expected, &report, sizeof(report)) == 0,
         "non-finite rows to be reported");
}

}  // namespace

Bytes make_example(Random& random) {
  Shape shape;
  for (uint8_t* byte = &shape.bits_code; byte <= &shape.is_centroid; ++byte) {
    *byte = static_cast<uint8_t>(random.bits());
  }
  shape.key = random.bits();
  Bytes input;
  append(&shape, sizeof(shape), input);
  for (int64_t left = shape.num_index(); left > 0; --left) {
    input.push_back(static_cast<uint8_t>(random.below(
        static_cast<uint64_t>(std::max<int64_t>(shape.num_rows(), 1)))));
  }
  std::vector<float> row(static_cast<size_t>(shape.row_stride()));
  for (int64_t left = shape.num_rows(); left > 0; --left) {
    fill_row(random, shape.row_stride(), row.data());
    for (const float value : row) {
      uint8_t element[4];
      store_element(value, shape.type(), 0, element);
      append(element, static_cast<size_t>(element_bytes(shape.type())), input);
    }
  }
  return input;
}

}  // namespace hvs::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvs::fuzz;
  Case given(InputReader(data, size));
  const Shape& shape = given.shape;
  const auto pack = [&](hvs::cpu::InstructionSet instruction_set,
                        GuardedArray<uint8_t>& packed) {
    return hvs::cpu::pack_rows(
        {given.rows.data(), shape.type(), shape.num_rows(),
         shape.num_features(), shape.row_stride(),
         shape.has_index % 2 == 0 ? nullptr : given.index.data(),
         shape.num_packed(), shape.bits(), shape.code(), shape.key,
         packed.data()},
        1, instruction_set);
  };
  const int64_t nbytes = shape.num_packed() * shape.row_bytes();
  GuardedArray<uint8_t> expected(nbytes);
  const hvs::RowReport report =
      pack(hvs::cpu::InstructionSet::kBaseline, expected);
  check_rows(given, report, expected);
  for (const auto instruction_set : instruction_sets()) {
    GuardedArray<uint8_t> packed(nbytes);
    const hvs::RowReport found = pack(instruction_set, packed);
    expect(
        std::memcmp(&found, &report, sizeof(report)) == 0 &&
            std::memcmp(packed.data(), expected.data(), expected.nbytes()) == 0,
        "the same bytes with every instruction set");
  }
  return 0;
}
