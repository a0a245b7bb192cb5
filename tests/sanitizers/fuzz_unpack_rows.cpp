// unpack_rows: numbers of rows, then packed rows. See [Note: fuzzing].
#include <cstdint>
#include <vector>

#include "fuzz_target.hpp"
#include "guarded_array.hpp"
#include "packed_row_twin.hpp"
#include "packed_rows_example.hpp"
#include "row_header.hpp"
#include "unpack_rows.hpp"

namespace hvs::fuzz {
namespace {

struct Shape {
  uint8_t bits_code;
  uint8_t type_code;
  uint8_t feature_code;
  uint8_t has_index;
  uint8_t index_code;

  int bits() const { return 1 << bits_code % 4; }
  cpu::ElementType type() const { return kElementTypes[type_code % 3]; }
  int64_t num_features() const { return 1 + feature_code; }
  int64_t row_bytes() const {
    return kHeaderBytes + code_bytes(num_features(), bits());
  }
  int64_t num_index() const { return has_index % 2 == 0 ? 0 : index_code % 16; }
};

struct Case {
  Shape shape;
  int64_t num_packed;
  int64_t num_unpacked;
  GuardedArray<int64_t> index;
  GuardedArray<uint8_t> payload;

  explicit Case(InputReader reader) : Case(reader, reader.shape<Shape>()) {}

 private:
  Case(InputReader& reader, const Shape& read)
      : shape(read),
        num_packed((std::max<int64_t>(reader.left() - shape.num_index(), 0)) /
                   shape.row_bytes()),
        num_unpacked(shape.has_index % 2 == 0 ? num_packed : shape.num_index()),
        index(shape.num_index()),
        payload(num_packed * shape.row_bytes()) {
    for (int64_t place = 0; place < shape.num_index(); ++place) {
      index[place] = reader.number();
    }
    reader.copy(payload.data(), payload.nbytes());
  }

 public:
  int64_t id(int64_t position) const {
    return shape.has_index % 2 == 0 ? position : index[position];
  }
  int64_t first_bad_position() const {
    for (int64_t position = 0; position < num_unpacked; ++position) {
      if (id(position) < 0 || id(position) >= num_packed) {
        return position;
      }
    }
    return -1;
  }
};

// What unpack_rows() must make of `out`, and report.
RowReport unpack_twin(const Case& given, GuardedArray<uint8_t>& out) {
  RowReport report;
  report.bad_index_position = given.first_bad_position();
  if (report.bad_index_position >= 0) {
    note("bad indices");
    return report;
  }
  const int64_t num_features = given.shape.num_features();
  std::vector<float> row;
  for (int64_t position = 0; position < given.num_unpacked; ++position) {
    const RowKind kind = decode_row(
        given.payload.data() + given.id(position) * given.shape.row_bytes(),
        num_features, given.shape.bits(), row);
    note_row(kind);
    if (kind == RowKind::kCorrupt) {
      note_least(report.corrupt_position, position);
      continue;
    }
    if (kind == RowKind::kNonFinite) {
      note_least(report.nonfinite_position, position);
      --report.nonfinite_countdown;
    }
    for (int64_t column = 0; column < num_features; ++column) {
      const float value = row[static_cast<size_t>(column)];
      expect(kind == RowKind::kNonFinite || is_finite(value),
             "rows that decode to finite values");
      store_element(value, given.shape.type(), position * num_features + column,
                    out.data());
    }
  }
  return report;
}

}  // namespace

Bytes make_example(Random& random) {
  const uint64_t num_rows = random.below(8);
  const Shape shape = {
      static_cast<uint8_t>(random.below(4)),
      static_cast<uint8_t>(random.below(3)),
      static_cast<uint8_t>(random.below(256)),
      static_cast<uint8_t>(num_rows == 0 ? 0 : random.below(2)),
      static_cast<uint8_t>(random.below(16))};
  Bytes input;
  append(&shape, sizeof(shape), input);
  for (int64_t left = shape.num_index(); left > 0; --left) {
    input.push_back(static_cast<uint8_t>(random.below(num_rows)));
  }
  append_packed_rows(static_cast<int64_t>(num_rows), shape.num_features(),
                     shape.bits(), random, input);
  return input;
}

}  // namespace hvs::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvs::fuzz;
  Case given(InputReader(data, size));
  const int64_t num_elements = given.num_unpacked * given.shape.num_features();
  const int64_t nbytes = num_elements * element_bytes(given.shape.type());
  GuardedArray<uint8_t> expected(nbytes);
  const hvs::RowReport report = unpack_twin(given, expected);
  for (const auto instruction_set : instruction_sets()) {
    GuardedArray<uint8_t> out(nbytes);
    const hvs::RowReport found = hvs::cpu::unpack_rows(
        {given.payload.data(), given.num_packed, given.shape.num_features(),
         given.shape.bits(),
         given.shape.has_index % 2 == 0 ? nullptr : given.index.data(),
         given.num_unpacked, out.data(), given.shape.type()},
        1, instruction_set);
    expect(std::memcmp(&found, &report, sizeof(report)) == 0,
           "the report of the twin");
    expect(std::memcmp(out.data(), expected.data(), expected.nbytes()) == 0,
           "the rows of the twin, and corrupt ones left alone");
  }
  return 0;
}
