// Sums the selected elements of all ranks into a dense array, or into one share
// of it (share.hpp); wire format: section.hpp. The sections are not trusted:
// they are checked first, and whatever their bytes are, nothing outside the
// arrays is read or written. Chunk by chunk, all ranks in turn, so that a chunk
// of sums stays in cache, and each sum has a fixed order: exact for any number
// of threads and any instruction set. O(num_elements + num_ranks * k).
#pragma once

#include <cstdint>

#include "check_section.hpp"
#include "instruction_set.hpp"
#include "pack_rows.hpp"
#include "section.hpp"
#include "share.hpp"

namespace hvs::cpu {

// Pointers and sizes are trusted, the payloads' contents are not. Arrays must
// not overlap.
struct AddArguments {
  const uint8_t* payloads;  // [num_ranks, row_bytes]
  int64_t num_ranks;
  int64_t row_bytes;
  int64_t offset;             // of the section, in every row
  const uint8_t* is_skipped;  // [num_ranks]; such a rank's bytes are not read
  float scale;
  void* out;         // of the whole parameter, element type
  ElementType type;  // sums are rounded to it to nearest, ties to even
  Share share = {};  // only its elements of `out` are written
};

struct AddResult {
  int64_t corrupt_rank = -1;  // the first; nothing is written then
  SectionProblem problem = SectionProblem::kNone;
};

// out[i] = the sum, from +0 and in the order of the ranks, of value * scale,
// each product and sum rounded to fp32. `layout` is of the share.
AddResult add_selected(const SectionLayout& layout,
                       const AddArguments& arguments,
                       int num_threads,
                       InstructionSet instruction_set);

}  // namespace hvs::cpu
