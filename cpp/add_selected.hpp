// Sums the selected elements of all ranks into a dense array, or into one share
// of it (share.hpp); wire format: section.hpp. Chunk by chunk, all ranks in
// turn, so that a chunk of sums stays in cache, and each sum has a fixed order:
// exact for any number of threads and any instruction set.
// O(num_elements + num_ranks * k).
#pragma once

#include <cstdint>
#include <vector>

#include "instruction_set.hpp"
#include "pack_rows.hpp"
#include "section.hpp"
#include "share.hpp"

namespace hvs::cpu {

// The section of one rank, as check_section() has found it to be right.
struct RankSection {
  const uint8_t* bytes;
  std::vector<int64_t> begins;  // of each block, and k after them
};

// Trusted. Arrays must not overlap.
struct SumArguments {
  std::vector<RankSection>
      ranks;  // in their order; those that send nothing not
  float scale;
  void* out;         // of the whole parameter, element type
  ElementType type;  // sums are rounded to it to nearest, ties to even
  Share share = {};  // only its elements of `out` are written
};

// out[i] = the sum, from +0 and in the order of the ranks, of value * scale,
// each product and sum rounded to fp32. `layout` is of the share.
void add_selected(const SectionLayout& layout,
                  const SumArguments& arguments,
                  int num_threads,
                  InstructionSet instruction_set);

}  // namespace hvs::cpu
