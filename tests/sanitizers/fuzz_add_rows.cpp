// add_rows: numbers of rows, then packed or plain rows. See [Note: fuzzing].
#include <algorithm>
#include <cstdint>
#include <vector>

#include "add_rows.hpp"
#include "fuzz_target.hpp"
#include "guarded_array.hpp"
#include "packed_row_twin.hpp"
#include "packed_rows_example.hpp"
#include "row_header.hpp"

namespace hvs::fuzz {
namespace {

struct Shape {
  uint8_t bits_code;
  uint8_t type_code;
  uint8_t feature_code;
  uint8_t has_index;
  uint8_t row_code;
  uint8_t index_code;
  uint8_t target_code;
  uint8_t out_code;

  int bits() const { return bits_code % 5 == 4 ? 0 : 1 << bits_code % 5; }
  cpu::ElementType type() const { return kElementTypes[type_code % 3]; }
  int64_t num_features() const { return 1 + feature_code % 80; }
  int64_t row_bytes() const {
    return bits() == 0 ? num_features() * element_bytes(type())
                       : kHeaderBytes + code_bytes(num_features(), bits());
  }
  int64_t num_rows() const { return row_code % 10; }
  int64_t num_index() const { return has_index % 2 == 0 ? 0 : num_added(); }
  int64_t num_added() const {
    return has_index % 2 == 0 ? num_rows() : index_code % 16;
  }
  int64_t num_targets() const { return target_code % 6; }
  int64_t num_out() const { return out_code % 8; }
};

void read_numbers(InputReader& reader,
                  int64_t count,
                  GuardedArray<int64_t>& numbers) {
  for (int64_t place = 0; place < count; ++place) {
    numbers[place] = reader.number();
  }
}

struct Case {
  Shape shape;
  GuardedArray<int64_t> index;
  GuardedArray<int64_t> order;
  GuardedArray<int64_t> targets;
  GuardedArray<int64_t> starts;
  GuardedArray<uint8_t> rows;

  explicit Case(InputReader reader)
      : shape(reader.shape<Shape>()),
        index(shape.num_index()),
        order(shape.num_added()),
        targets(shape.num_targets()),
        starts(shape.num_targets() + 1),
        rows(shape.num_rows() * shape.row_bytes()) {
    read_numbers(reader, shape.num_index(), index);
    read_numbers(reader, shape.num_added(), order);
    read_numbers(reader, shape.num_targets(), targets);
    read_numbers(reader, shape.num_targets() + 1, starts);
    reader.copy(rows.data(), rows.nbytes());
  }

  // The first place where a number of any array is out of range.
  int64_t first_bad_place() const {
    const int64_t end = std::max(shape.num_added(), shape.num_targets());
    for (int64_t place = 0; place < end; ++place) {
      if ((place < shape.num_added() &&
           (is_outside(order[place], shape.num_added()) ||
            (place < shape.num_index() &&
             is_outside(index[place], shape.num_rows())))) ||
          (place < shape.num_targets() &&
           (is_outside(targets[place], shape.num_out()) ||
            is_outside(starts[place], shape.num_added() + 1) ||
            is_outside(starts[place + 1], shape.num_added() + 1)))) {
        return place;
      }
    }
    return -1;
  }

 private:
  static bool is_outside(int64_t number, int64_t limit) {
    return number < 0 || number >= limit;
  }
};

// The elements of row number `id`, rounded to the type of `out`.
RowKind read_row(const Case& given, int64_t id, std::vector<float>& row) {
  const Shape& shape = given.shape;
  const uint8_t* bytes = given.rows.data() + id * shape.row_bytes();
  if (shape.bits() == 0) {
    row.clear();
    for (int64_t column = 0; column < shape.num_features(); ++column) {
      row.push_back(load_element(bytes, shape.type(), column));
    }
    note("plain rows");
    return RowKind::kCoded;
  }
  const RowKind kind =
      decode_row(bytes, shape.num_features(), shape.bits(), row);
  note_row(kind);
  for (float& value : row) {
    uint8_t rounded[4];
    store_element(value, shape.type(), 0, rounded);
    value = load_element(rounded, shape.type(), 0);
  }
  return kind;
}

void add_to_target(const Case& given,
                   int64_t target,
                   uint8_t* out,
                   RowReport& report) {
  const cpu::ElementType type = given.shape.type();
  std::vector<float> sums;
  for (int64_t column = 0; column < given.shape.num_features(); ++column) {
    sums.push_back(load_element(out, type, column));
  }
  std::vector<float> row;
  for (int64_t place = given.starts[target]; place < given.starts[target + 1];
       ++place) {
    const int64_t position = given.order[place];
    const bool has_index = given.shape.has_index % 2 != 0;
    const RowKind kind =
        read_row(given, has_index ? given.index[position] : position, row);
    if (kind == RowKind::kCorrupt) {
      note_least(report.corrupt_position, position);
      continue;
    }
    if (kind == RowKind::kNonFinite) {
      note_least(report.nonfinite_position, position);
      --report.nonfinite_countdown;
    }
    for (size_t column = 0; column < sums.size(); ++column) {
      sums[column] += row[column];
    }
  }
  for (size_t column = 0; column < sums.size(); ++column) {
    store_element(sums[column], type, static_cast<int64_t>(column), out);
  }
}

// What add_rows() must make of `out`, and report.
RowReport add_twin(const Case& given, GuardedArray<uint8_t>& out) {
  RowReport report;
  report.bad_index_position = given.first_bad_place();
  if (report.bad_index_position >= 0) {
    note("bad numbers");
    return report;
  }
  const int64_t width =
      given.shape.num_features() * element_bytes(given.shape.type());
  for (int64_t target = 0; target < given.shape.num_targets(); ++target) {
    add_to_target(given, target, out.data() + given.targets[target] * width,
                  report);
  }
  return report;
}

// Numbers that are right: each position goes to one target.
void append_numbers(const Shape& shape, Random& random, Bytes& to) {
  for (int64_t left = shape.num_index(); left > 0; --left) {
    to.push_back(static_cast<uint8_t>(random.below(
        static_cast<uint64_t>(std::max<int64_t>(shape.num_rows(), 1)))));
  }
  for (int64_t position = 0; position < shape.num_added(); ++position) {
    to.push_back(
        static_cast<uint8_t>((position + shape.bits_code) % shape.num_added()));
  }
  for (int64_t target = 0; target < shape.num_targets(); ++target) {
    to.push_back(static_cast<uint8_t>(shape.num_targets() - 1 - target));
  }
  uint8_t start = 0;
  for (int64_t target = 0; target < shape.num_targets(); ++target) {
    to.push_back(start);
    start = static_cast<uint8_t>(std::min<int64_t>(
        start + static_cast<int64_t>(random.below(6)), shape.num_added()));
  }
  to.push_back(static_cast<uint8_t>(shape.num_added()));
}

}  // namespace

Bytes make_example(Random& random) {
  Shape shape;
  for (uint8_t* byte = &shape.bits_code; byte <= &shape.out_code; ++byte) {
    *byte = static_cast<uint8_t>(random.below(240));
  }
  shape.out_code = static_cast<uint8_t>(shape.num_targets() + random.below(3));
  Bytes input;
  append(&shape, sizeof(shape), input);
  append_numbers(shape, random, input);
  if (shape.bits() != 0) {
    append_packed_rows(shape.num_rows(), shape.num_features(), shape.bits(),
                       random, input);
    return input;
  }
  std::vector<uint8_t> element(4);
  for (int64_t left = shape.num_rows() * shape.num_features(); left > 0;
       --left) {
    store_element(random.number(), shape.type(), 0, element.data());
    append(element.data(), static_cast<size_t>(element_bytes(shape.type())),
           input);
  }
  return input;
}

}  // namespace hvs::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvs::fuzz;
  Case given(InputReader(data, size));
  const Shape& shape = given.shape;
  const int64_t num_elements = shape.num_out() * shape.num_features();
  const int64_t nbytes = num_elements * element_bytes(shape.type());
  GuardedArray<uint8_t> expected(nbytes);
  const hvs::RowReport report = add_twin(given, expected);
  for (const auto instruction_set : instruction_sets()) {
    GuardedArray<uint8_t> out(nbytes);
    const hvs::RowReport found = hvs::cpu::add_rows(
        {given.rows.data(), shape.num_rows(), shape.num_features(),
         shape.bits(), shape.has_index % 2 == 0 ? nullptr : given.index.data(),
         given.order.data(), shape.num_added(), given.targets.data(),
         given.starts.data(), shape.num_targets(), out.data(), shape.num_out(),
         shape.type()},
        1, instruction_set);
    expect(std::memcmp(&found, &report, sizeof(report)) == 0,
           "the report of the twin");
    expect(
        same_elements(out.data(), expected.data(), shape.type(), num_elements),
        "the sums of the twin");
  }
  return 0;
}
