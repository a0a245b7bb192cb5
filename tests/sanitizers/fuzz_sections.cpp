// add_selected, clear_selected and restore_selected: rows with a section of
// each parameter. See [Note: fuzzing].
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu_sections.hpp"
#include "fuzz_target.hpp"
#include "guarded_array.hpp"
#include "packed_row_twin.hpp"
#include "section_example.hpp"
#include "section_twin.hpp"
#include "sections.hpp"
#include "streamed_stores.hpp"

namespace hvs::fuzz {
namespace {

constexpr int64_t kMaxParameters = 2;
constexpr int64_t kMaxRows = 4;

struct Shape {
  uint8_t parameters_code;
  uint8_t rows_code;
  uint8_t shares_code;
  uint8_t value_code;
  uint8_t type_code;
  uint8_t skip_code;
  uint8_t scale_code;
  uint8_t size_kinds[kMaxParameters];
  uint16_t size_codes[kMaxParameters];
  uint16_t k_codes[kMaxParameters];

  int64_t num_parameters() const { return 1 + parameters_code % 2; }
  int64_t num_rows() const { return 1 + rows_code % kMaxRows; }
  cpu::ElementType type() const { return kElementTypes[type_code % 3]; }
  float scale() const {
    constexpr float kScales[] = {1.0f, 0.25f, 0x1p100f, 1.0f / 3.0f};
    return kScales[scale_code % 4];
  }
};

// Of a parameter, at an offset that is past the sections before; all but the
// arrays.
Sections sections_of(const Shape& shape, int64_t parameter, int64_t offset) {
  Sections sections = {};
  sections.offset = offset;
  sections.num_elements =
      elements_of(shape.size_kinds[parameter], shape.size_codes[parameter]);
  sections.type =
      shape.value_code % 2 == 0 ? ValueType::kFloat32 : ValueType::kBFloat16;
  sections.num_shares = shape.shares_code % 2 == 0 ? 1 : shape.num_rows();
  sections.array_type = shape.type();
  for (int64_t row = 0; row < shape.num_rows(); ++row) {
    const int64_t size =
        share_elements(sections.num_elements, sections.share(row));
    sections.ks.push_back(
        std::min<int64_t>(size, 1 + shape.k_codes[parameter] % 900));
    sections.is_skipped.push_back(shape.skip_code >> row & 1);
  }
  return sections;
}

std::vector<Sections> all_sections(const Shape& shape) {
  std::vector<Sections> all;
  int64_t offset = 8;  // the header's place
  for (int64_t parameter = 0; parameter < shape.num_parameters(); ++parameter) {
    all.push_back(sections_of(shape, parameter, offset));
    offset += all.back().layout(0).nbytes;  // the first share is the largest
  }
  for (Sections& sections : all) {
    sections.row_bytes = offset;
  }
  return all;
}

// The arrays of all parameters.
class Arrays {
 public:
  Arrays(const std::vector<Sections>& all, cpu::ElementType type) {
    for (const Sections& sections : all) {
      arrays_.push_back(std::make_unique<GuardedArray<uint8_t>>(
          sections.num_elements * element_bytes(type)));
    }
  }
  uint8_t* operator[](size_t number) { return arrays_[number]->data(); }
  std::vector<Sections> point(std::vector<Sections> all,
                              cpu::ElementType type) {
    for (size_t number = 0; number < all.size(); ++number) {
      all[number].array = arrays_[number]->data();
      all[number].array_type = type;
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<GuardedArray<uint8_t>>> arrays_;
};

// What the twin reads: for each row of a parameter what it selects.
struct ReadRows {
  std::vector<std::vector<Selected>> rows;
  int64_t report[2] = {-1, 0};
};

ReadRows read_rows(const Sections& sections) {
  ReadRows read;
  read.rows.resize(sections.ks.size());
  for (int64_t row = 0; row < sections.num_rows() && read.report[0] < 0;
       ++row) {
    if (sections.is_read(row)) {
      const cpu::SectionProblem problem =
          read_section(sections.layout(row), sections.section(row),
                       read.rows[static_cast<size_t>(row)]);
      constexpr const char* kOutcomes[] = {"right sections", "wrong counts",
                                           "wrong indices", "wrong values"};
      note(kOutcomes[static_cast<int>(problem)]);
      if (problem != cpu::SectionProblem::kNone) {
        read.report[0] = row;
        read.report[1] = static_cast<int64_t>(problem);
      }
    }
  }
  return read;
}

using Change = void (*)(float& element, float value);

void add_twin(const Sections& sections,
              const ReadRows& read,
              float scale,
              uint8_t* array) {
  std::vector<float> sums(static_cast<size_t>(sections.num_elements));
  for (int64_t row = 0; row < sections.num_rows(); ++row) {
    for (const Selected& each : read.rows[static_cast<size_t>(row)]) {
      sums[static_cast<size_t>(place_of(each.element, sections.share(row)))] +=
          each.value * scale;
    }
  }
  for (int64_t place = 0; place < sections.num_elements; ++place) {
    store_element(sums[static_cast<size_t>(place)], sections.array_type, place,
                  array);
  }
}

void change_twin(const Sections& sections,
                 const ReadRows& read,
                 Change change,
                 uint8_t* array) {
  for (int64_t row = 0; row < sections.num_rows(); ++row) {
    for (const Selected& each : read.rows[static_cast<size_t>(row)]) {
      const int64_t place = place_of(each.element, sections.share(row));
      float element = load_element(array, cpu::ElementType::kFloat32, place);
      change(element, each.value);
      store_element(element, cpu::ElementType::kFloat32, place, array);
    }
  }
}

void note_streams(const Sections& sections) {
  if (sections.array_type == cpu::ElementType::kFloat32 &&
      cpu::is_streamed(sections.array, sections.layout(0).num_elements,
                       sections.share(0))) {
    note("large arrays");
  }
}

// Runs a kernel and its twin, and compares reports and arrays.
template <typename Kernel, typename Twin>
void compare(const std::vector<Sections>& all,
             const std::vector<ReadRows>& read,
             cpu::ElementType type,
             Kernel kernel,
             Twin twin) {
  Arrays arrays(all, type);
  Arrays expected(all, type);
  const std::vector<Sections> given = arrays.point(all, type);
  const bool is_right =
      std::all_of(read.begin(), read.end(),
                  [](const ReadRows& each) { return each.report[0] < 0; });
  GuardedArray<int64_t> report(2 * static_cast<int64_t>(all.size()));
  kernel(given, report.data());
  for (size_t number = 0; number < all.size(); ++number) {
    if (is_right) {
      note_streams(given[number]);
      twin(given[number], read[number], expected[number]);
    }
    expect(std::memcmp(report.data() + 2 * number, read[number].report,
                       sizeof(read[number].report)) == 0,
           "the report of the twin");
    expect(same_elements(arrays[number], expected[number], type,
                         all[number].num_elements),
           "the array of the twin, unchanged where a section is wrong");
  }
}

using ChangeKernel = void (*)(const std::vector<Sections>&, int64_t*);

void compare_change(const std::vector<Sections>& all,
                    const std::vector<ReadRows>& read,
                    ChangeKernel kernel,
                    Change change) {
  compare(all, read, cpu::ElementType::kFloat32, kernel,
          [&](const Sections& given, const ReadRows& rows, uint8_t* array) {
            change_twin(given, rows, change, array);
          });
}

void compare_all(const std::vector<Sections>& all, const Shape& shape) {
  std::vector<ReadRows> read;
  for (const Sections& sections : all) {
    read.push_back(read_rows(sections));
  }
  const float scale = shape.scale();
  for (const auto instruction_set : instruction_sets()) {
    compare(
        all, read, shape.type(),
        [&](const auto& given, int64_t* report) {
          cpu::add_selected(given, scale, 1, instruction_set, report);
        },
        [&](const Sections& given, const ReadRows& rows, uint8_t* array) {
          add_twin(given, rows, scale, array);
        });
  }
  compare_change(all, read, cpu::clear_selected,
                 [](float& element, float) { element = 0.0f; });
  compare_change(all, read, cpu::restore_selected,
                 [](float& element, float value) { element += value; });
}

}  // namespace

Bytes make_example(Random& random) {
  Shape shape;
  uint8_t* bytes = reinterpret_cast<uint8_t*>(&shape);
  for (size_t place = 0; place < sizeof(shape); ++place) {
    bytes[place] = static_cast<uint8_t>(random.bits());
  }
  const std::vector<Sections> all = all_sections(shape);
  const int64_t row_bytes = all[0].row_bytes;
  Bytes input;
  append(&shape, sizeof(shape), input);
  input.resize(input.size() +
               static_cast<size_t>(shape.num_rows() * row_bytes));
  for (const Sections& sections : all) {
    for (int64_t row = 0; row < shape.num_rows(); ++row) {
      if (sections.k(row) != 0) {
        write_section(
            sections, row, random,
            input.data() + sizeof(shape) + row * row_bytes + sections.offset);
      }
    }
  }
  return input;
}

}  // namespace hvs::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvs::fuzz;
  InputReader reader(data, size);
  const Shape shape = reader.shape<Shape>();
  std::vector<hvs::Sections> all = all_sections(shape);
  GuardedArray<uint8_t> rows(shape.num_rows() * all[0].row_bytes);
  reader.copy(rows.data(), rows.nbytes());
  for (hvs::Sections& sections : all) {
    sections.rows = rows.data();
  }
  compare_all(all, shape);
  return 0;
}
