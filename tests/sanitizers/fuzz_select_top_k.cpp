// select_top_k: gradients of any bits, and residuals. See [Note: fuzzing].
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "fuzz_target.hpp"
#include "guarded_array.hpp"
#include "packed_row_twin.hpp"
#include "section_twin.hpp"
#include "select_top_k.hpp"
#include "streamed_stores.hpp"

namespace hvs::fuzz {
namespace {

struct Shape {
  uint32_t hint;
  uint16_t size_code;
  uint16_t k_code;
  uint8_t size_kind;
  uint8_t value_code;
  uint8_t grad_code;
  uint8_t scale_code;
  uint8_t shares_code;
  uint8_t in_place;

  int64_t num_elements() const { return elements_of(size_kind, size_code); }
  bool has_grad() const { return grad_code % 4 != 3; }
  cpu::ElementType type() const { return kElementTypes[grad_code % 4 % 3]; }
  ValueType value_type() const {
    return value_code % 2 == 0 ? ValueType::kFloat32 : ValueType::kBFloat16;
  }
  float scale() const { return scale_code % 2 == 0 ? 1.0f : 0x1p-3f; }
  Share share() const {
    const int64_t num_shares = shares_code < 160 ? 1 : 1 + shares_code % 4;
    return {num_shares, shares_code / 4 % num_shares};
  }
};

struct Case {
  Shape shape;
  GuardedArray<uint8_t> grad;
  GuardedArray<float> residual;

  // Elements are those of the input, over and over.
  explicit Case(InputReader reader)
      : shape(reader.shape<Shape>()),
        grad(shape.num_elements() * element_bytes(shape.type())),
        residual(shape.num_elements()) {
    const int64_t width = element_bytes(shape.type());
    const int64_t count = std::clamp<int64_t>(reader.left() / (width + 4), 1,
                                              shape.num_elements());
    reader.copy(grad.data(), static_cast<size_t>(count * width));
    reader.copy(residual.data(), static_cast<size_t>(4 * count));
    for (int64_t place = 0; place < shape.num_elements(); ++place) {
      std::memcpy(grad.data() + place * width,
                  grad.data() + place % count * width,
                  static_cast<size_t>(width));
      const float value = residual[place % count];
      residual[place] = is_finite(value) ? value : 1.0f;
    }
  }
};

// What select_top_k() writes.
struct Outcome {
  GuardedArray<uint8_t> section;
  GuardedArray<float> accumulated;
  cpu::SelectResult result;

  Outcome(const Case& given, const SectionLayout& layout)
      : section(layout.nbytes), accumulated(given.shape.num_elements()) {
    if (given.shape.in_place % 2 != 0) {
      std::memcpy(accumulated.data(), given.residual.data(),
                  accumulated.nbytes());
    }
  }
};

// The elements of the share, with sums in place of values.
std::vector<Selected> sums_twin(const Case& given,
                                const SectionLayout& layout,
                                cpu::SelectResult& result) {
  std::vector<Selected> sums;
  for (int64_t element = 0; element < layout.num_elements; ++element) {
    const int64_t place = place_of(element, given.shape.share());
    float sum = given.residual[place];
    if (given.shape.has_grad()) {
      const float product =
          load_element(given.grad.data(), given.shape.type(), place) *
          given.shape.scale();
      sum += product;
      if (!is_finite(sum)) {
        ++result.num_nonfinite;
        sum = given.residual[place];
      }
    }
    sums.push_back({element, sum});
  }
  return sums;
}

uint32_t magnitude_of(float value) {
  return bits_of(value) & 0x7FFFFFFFu;
}

// Moves the k largest to the front, in the order of their indices.
void put_largest_first(int64_t k, std::vector<Selected>& sums) {
  const auto middle = sums.begin() + k;
  std::nth_element(sums.begin(), middle - 1, sums.end(),
                   [](const Selected& one, const Selected& other) {
                     const uint32_t magnitude = magnitude_of(one.value);
                     const uint32_t other_magnitude = magnitude_of(other.value);
                     return magnitude != other_magnitude
                                ? magnitude > other_magnitude
                                : one.element < other.element;
                   });
  std::sort(sums.begin(), middle,
            [](const Selected& one, const Selected& other) {
              return one.element < other.element;
            });
}

// What select_top_k() must make of the arrays.
void select_twin(const Case& given,
                 const SectionLayout& layout,
                 std::vector<Selected>& values,
                 Outcome& out) {
  values = sums_twin(given, layout, out.result);
  put_largest_first(layout.k, values);
  out.result.threshold = UINT32_MAX;
  for (int64_t number = 0; number < layout.num_elements; ++number) {
    Selected& each = values[static_cast<size_t>(number)];
    float left = each.value;
    if (number < layout.k) {
      out.result.threshold =
          std::min(out.result.threshold, magnitude_of(each.value));
      if (layout.type == ValueType::kBFloat16) {
        each.value = from_bf16(bf16_value(each.value));
      }
      left -= each.value;
    }
    out.accumulated[place_of(each.element, given.shape.share())] = left;
  }
  values.resize(static_cast<size_t>(layout.k));
}

void check_section_of(const SectionLayout& layout,
                      const GuardedArray<uint8_t>& section,
                      const std::vector<Selected>& values) {
  std::vector<Selected> selected;
  expect(read_section(layout, section.data(), selected) ==
             cpu::SectionProblem::kNone,
         "a section that is right");
  expect(
      std::equal(selected.begin(), selected.end(), values.begin(), values.end(),
                 [](const Selected& one, const Selected& other) {
                   return one.element == other.element &&
                          bits_of(one.value) == bits_of(other.value);
                 }),
      "the k largest, and their values");
  for (int64_t place = layout.index_end; place < layout.values_begin; ++place) {
    expect(section[place] == 0, "padding of zeros behind the indices");
  }
  for (int64_t place = layout.values_end; place < layout.nbytes; ++place) {
    expect(section[place] == 0, "padding of zeros behind the values");
  }
}

cpu::SelectResult select(const Case& given,
                         const SectionLayout& layout,
                         cpu::InstructionSet instruction_set,
                         Outcome& out) {
  const Shape& shape = given.shape;
  return cpu::select_top_k(
      layout,
      {shape.has_grad() ? given.grad.data() : nullptr, shape.type(),
       shape.in_place % 2 != 0 ? out.accumulated.data() : given.residual.data(),
       shape.scale(), shape.hint, out.accumulated.data(), out.section.data(),
       shape.share()},
      1, instruction_set);
}

void check(const Case& given, const SectionLayout& layout) {
  Outcome expected(given, layout);
  std::vector<Selected> values;
  select_twin(given, layout, values, expected);
  if (given.shape.in_place % 2 == 0 &&
      cpu::is_streamed(expected.accumulated.data(), layout.num_elements,
                       given.shape.share())) {
    note("large arrays");
  }
  note(expected.result.num_nonfinite == 0 ? "finite sums" : "non-finite sums");
  for (const auto instruction_set : instruction_sets()) {
    Outcome out(given, layout);
    out.result = select(given, layout, instruction_set, out);
    expect(out.result.threshold == expected.result.threshold,
           "the threshold of the twin");
    expect(out.result.num_nonfinite == expected.result.num_nonfinite,
           "as many non-finite sums as the twin has");
    expect(std::memcmp(out.accumulated.data(), expected.accumulated.data(),
                       out.accumulated.nbytes()) == 0,
           "what the twin leaves");
    check_section_of(layout, out.section, values);
  }
}

}  // namespace

Bytes make_example(Random& random) {
  Shape shape;
  uint8_t* bytes = reinterpret_cast<uint8_t*>(&shape);
  for (size_t place = 0; place < sizeof(shape); ++place) {
    bytes[place] = static_cast<uint8_t>(random.bits());
  }
  if (random.below(2) == 0) {
    shape.hint = bits_of(random.number()) & 0x7FFFFFFFu;
  }
  Bytes input;
  append(&shape, sizeof(shape), input);
  const uint64_t count = 1 + random.below(1500);
  for (uint64_t left = count; left > 0; --left) {
    uint8_t element[4];
    store_element(random.number(), shape.type(), 0, element);
    append(element, static_cast<size_t>(element_bytes(shape.type())), input);
  }
  for (uint64_t left = count; left > 0; --left) {
    const float value = random.below(3) == 0 ? 0.0f : random.number();
    append(&value, sizeof(value), input);
  }
  return input;
}

}  // namespace hvs::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvs::fuzz;
  const Case given(InputReader(data, size));
  const Shape& shape = given.shape;
  const int64_t num_elements =
      hvs::share_elements(shape.num_elements(), shape.share());
  if (num_elements == 0) {
    note("empty shares");
    return 0;
  }
  const int64_t k = 1 + shape.k_code % num_elements;
  check(given, hvs::SectionLayout(num_elements, k, shape.value_type()));
  return 0;
}
