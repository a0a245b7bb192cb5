// All shares of one parameter in one call (share.hpp): one row of bytes for
// each owner, with the section of its share. What each call does to a share is
// written down where that is done for one: select_top_k.hpp, add_selected.hpp,
// check_section.hpp. One share after the other, each on all threads.
#pragma once

#include <cstdint>
#include <vector>

#include "add_selected.hpp"
#include "check_section.hpp"
#include "instruction_set.hpp"
#include "section.hpp"
#include "select_top_k.hpp"
#include "share.hpp"

namespace hvs::cpu {

// Trusted. Section p starts at byte p * row_bytes + offset of the rows.
struct SharesLayout {
  int64_t num_elements;     // of the parameter
  std::vector<int64_t> ks;  // in [1, elements of the share]; 0 of an empty one
  ValueType type;
  int64_t row_bytes;
  int64_t offset;

  int64_t num_shares() const { return static_cast<int64_t>(ks.size()); }
  // Empty shares, which have no section, are the last ones.
  int64_t num_filled() const {
    const int64_t num_chunks =
        (num_elements + kChunkElements - 1) / kChunkElements;
    return std::min(num_shares(), num_chunks);
  }
  Share share(int64_t number) const { return {num_shares(), number}; }
  SectionLayout section(int64_t number) const {
    return SectionLayout(share_elements(num_elements, share(number)),
                         ks[static_cast<size_t>(number)], type);
  }
  int64_t section_begin(int64_t number) const {
    return number * row_bytes + offset;
  }
};

// Selects from every share. `hints` ([num_shares]) become the thresholds; the
// hint, the section and the share of `arguments` are not looked at. Returns how
// many sums were not finite.
int64_t select_shares(const SharesLayout& shares,
                      SelectArguments arguments,
                      uint8_t* rows,
                      std::vector<uint32_t>& hints,
                      int num_threads,
                      InstructionSet instruction_set);

// Writes all of `out`: each share from its owner's row, zeros where that is
// skipped. Rows are of owners here; the number of ranks, the row's bytes, the
// offset and the share of `arguments` are not looked at. Every section is
// checked before anything is written.
AddResult add_shares(const SharesLayout& shares,
                     AddArguments arguments,
                     int num_threads,
                     InstructionSet instruction_set);

// Clears what any section selects, unless one of them has a problem.
AddResult clear_shares(const SharesLayout& shares,
                       const uint8_t* rows,
                       float* tensor);

}  // namespace hvs::cpu
