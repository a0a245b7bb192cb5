// Sections as the encoder writes them, some of them damaged.
#pragma once

#include <cstdint>
#include <cstring>

#include "fuzz_target.hpp"
#include "guarded_array.hpp"
#include "section_twin.hpp"
#include "sections.hpp"
#include "select_top_k.hpp"

namespace hvs::fuzz {

// Makes a section wrong in one of the ways that chance alone hardly finds.
inline void damage_section(const SectionLayout& layout,
                           Random& random,
                           uint8_t* section) {
  const int64_t position =
      static_cast<int64_t>(random.below(static_cast<uint64_t>(layout.k)));
  uint8_t* index = section + layout.index_begin + 2 * position;
  uint8_t* last = section + layout.index_end - 2;
  const uint16_t behind = static_cast<uint16_t>(layout.num_elements);
  const uint32_t more = load_word<uint32_t>(section) + 1;
  const uint32_t less = load_word<uint32_t>(section + 4) - 1;
  switch (random.below(4)) {
    case 0:
      std::memcpy(last, &behind, sizeof(behind));
      break;
    case 1:  // the same element twice
      std::memmove(index, index + (position + 1 < layout.k ? 2 : 0), 2);
      break;
    case 2:  // one less in the second block, if any, than in the first
      std::memcpy(section, &more, sizeof(more));
      std::memcpy(section + 4, &less, layout.num_blocks > 1 ? sizeof(less) : 0);
      break;
    default:  // the last value is a NaN
      std::memset(section + layout.values_end - 2, 0xFF, 2);
  }
}

// Selects the largest of random numbers into a section.
inline void write_section(const Sections& sections,
                          int64_t row,
                          Random& random,
                          uint8_t* to) {
  const SectionLayout layout = sections.layout(row);
  GuardedArray<float> residual(sections.num_elements);
  for (int64_t place = 0; place < sections.num_elements; ++place) {
    residual[place] = random.number();
  }
  GuardedArray<uint8_t> section(layout.nbytes);
  cpu::select_top_k(layout,
                    {nullptr, cpu::ElementType::kFloat32, residual.data(), 1.0f,
                     0, residual.data(), section.data(), sections.share(row)},
                    1, cpu::best_instruction_set());
  if (random.below(8) == 0) {
    damage_section(layout, random, section.data());
  }
  std::memcpy(to, section.data(), section.nbytes());
}

}  // namespace hvs::fuzz
