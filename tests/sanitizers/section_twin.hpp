// Sections, read one element at a time, as section.hpp says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check_section.hpp"
#include "float_bits.hpp"
#include "fuzz_target.hpp"
#include "section.hpp"

namespace hvs::fuzz {

struct Selected {
  int64_t element;  // of the share
  float value;
};

template <typename Word>
Word load_word(const uint8_t* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Lists what a section selects, or says what is wrong with it.
inline cpu::SectionProblem read_section(const SectionLayout& layout,
                                        const uint8_t* section,
                                        std::vector<Selected>& selected) {
  using cpu::SectionProblem;
  selected.clear();
  std::vector<int64_t> blocks;  // of each position
  for (int64_t block = 0; block < layout.num_blocks; ++block) {
    const int64_t count = load_word<uint32_t>(section + 4 * block);
    const int64_t limit = std::min(block_size(layout, block), layout.k);
    if (count > limit) {
      return SectionProblem::kCounts;
    }
    blocks.insert(blocks.end(), static_cast<size_t>(count), block);
  }
  if (static_cast<int64_t>(blocks.size()) != layout.k) {
    return SectionProblem::kCounts;
  }
  bool is_finite_everywhere = true;
  for (int64_t position = 0; position < layout.k; ++position) {
    const int64_t block = blocks[static_cast<size_t>(position)];
    const int64_t inside =
        load_word<uint16_t>(section + layout.index_begin + 2 * position);
    const int64_t element = block * kBlockElements + inside;
    if (inside >= block_size(layout, block) ||
        (position > 0 && element <= selected.back().element)) {
      return SectionProblem::kIndices;
    }
    const uint8_t* values = section + layout.values_begin;
    const float value =
        layout.type == ValueType::kFloat32
            ? load_word<float>(values + 4 * position)
            : from_bf16(load_word<uint16_t>(values + 2 * position));
    is_finite_everywhere = is_finite_everywhere && is_finite(value);
    selected.push_back({element, value});
  }
  return is_finite_everywhere ? SectionProblem::kNone : SectionProblem::kValues;
}

// Sizes of every kind: mostly small; of some blocks; so large that sums are
// streamed.
inline int64_t elements_of(uint8_t kind, uint16_t code) {
  return kind < 215   ? 1 + code % 6000
         : kind < 250 ? 1 + int64_t{3} * code
                      : (int64_t{1} << 19) + code % 4096 * 16;
}

}  // namespace hvs::fuzz
