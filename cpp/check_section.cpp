#include "check_section.hpp"

#include <cstring>

#include "float_bits.hpp"
#include "float_environment.hpp"

namespace hvs::cpu {
namespace {

#include "section_reader.inl"

// Without branches in it, so that the compiler makes vectors of the loop.
bool ascends(const uint8_t* index, int64_t begin, int64_t end) {
  uint32_t wrong = 0;
  for (int64_t position = begin + 1; position < end; ++position) {
    wrong |= static_cast<uint32_t>(load_word16(index + 2 * position) <=
                                   load_word16(index + 2 * position - 2));
  }
  return wrong == 0;
}

template <ValueType kType>
bool all_finite(const uint8_t* values, int64_t k) {
  uint32_t wrong = 0;
  for (int64_t position = 0; position < k; ++position) {
    wrong |=
        static_cast<uint32_t>(!is_finite(load_value<kType>(values, position)));
  }
  return wrong == 0;
}

template <ValueType kType, typename Function>
SectionProblem for_all_selected(const SectionLayout& layout,
                                const uint8_t* section,
                                const Share& share,
                                Function function) {
  std::vector<int64_t> begins;
  const SectionProblem problem = check_section(layout, section, begins);
  if (problem != SectionProblem::kNone) {
    return problem;
  }
  for (int64_t block = 0; block < layout.num_blocks; ++block) {
    for_selected<kType>(layout, section, begins[static_cast<size_t>(block)],
                        begins[static_cast<size_t>(block) + 1],
                        [&](int64_t inside, float value) {
                          const int64_t element =
                              block * kBlockElements + inside;
                          function(place_of(element, share), value);
                        });
  }
  return SectionProblem::kNone;
}

}  // namespace

SectionProblem check_section(const SectionLayout& layout,
                             const uint8_t* section,
                             std::vector<int64_t>& begins) {
  begins.assign(static_cast<size_t>(layout.num_blocks) + 1, 0);
  for (int64_t block = 0; block < layout.num_blocks; ++block) {
    uint32_t count;
    std::memcpy(&count, section + 4 * block, sizeof(count));
    const int64_t end = begins[static_cast<size_t>(block)] + count;
    if (count > block_size(layout, block) || end > layout.k) {
      return SectionProblem::kCounts;
    }
    begins[static_cast<size_t>(block) + 1] = end;
  }
  if (begins.back() != layout.k) {
    return SectionProblem::kCounts;
  }
  const uint8_t* index = section + layout.index_begin;
  for (int64_t block = 0; block < layout.num_blocks; ++block) {
    const int64_t begin = begins[static_cast<size_t>(block)];
    const int64_t end = begins[static_cast<size_t>(block) + 1];
    if (begin < end &&
        (!ascends(index, begin, end) ||
         load_word16(index + 2 * (end - 1)) >= block_size(layout, block))) {
      return SectionProblem::kIndices;
    }
  }
  const uint8_t* values = section + layout.values_begin;
  const bool finite = layout.type == ValueType::kFloat32
                          ? all_finite<ValueType::kFloat32>(values, layout.k)
                          : all_finite<ValueType::kBFloat16>(values, layout.k);
  return finite ? SectionProblem::kNone : SectionProblem::kValues;
}

SectionProblem restore_selected(const SectionLayout& layout,
                                const uint8_t* section,
                                const Share& share,
                                float* tensor) {
  const DefaultFloatEnvironment environment;
  const auto restore = [tensor](int64_t place, float value) {
    tensor[place] += value;
  };
  return layout.type == ValueType::kFloat32
             ? for_all_selected<ValueType::kFloat32>(layout, section, share,
                                                     restore)
             : for_all_selected<ValueType::kBFloat16>(layout, section, share,
                                                      restore);
}

SectionProblem clear_selected(const SectionLayout& layout,
                              const uint8_t* section,
                              const Share& share,
                              float* tensor) {
  const auto clear = [tensor](int64_t place, float) { tensor[place] = 0.0f; };
  return layout.type == ValueType::kFloat32
             ? for_all_selected<ValueType::kFloat32>(layout, section, share,
                                                     clear)
             : for_all_selected<ValueType::kBFloat16>(layout, section, share,
                                                      clear);
}

}  // namespace hvs::cpu
