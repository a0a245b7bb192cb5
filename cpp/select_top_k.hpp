// Adds a gradient to the residual and moves the k largest sums, of all elements
// or of one share of them (share.hpp), into a section
// (wire format: section.hpp). Exact: the same bits for any number of threads,
// any instruction set and any hint. O(num_elements), for all but contrived
// data in one pass over memory: see [Note: selecting in one pass] in
// select_top_k.cpp. Scratch of O(k), of which up to 16 MiB are kept per thread
// that calls.
#pragma once

#include <cstdint>

#include "instruction_set.hpp"
#include "pack_rows.hpp"
#include "section.hpp"
#include "share.hpp"

namespace hvs::cpu {

// Pointers are trusted. Arrays must not overlap, except that `accumulated` may
// be `residual`. They are of the whole parameter, of D elements; only those of
// the share are read and written.
struct SelectArguments {
  const void* grad;  // [D], element type; null: nothing new
  ElementType type;
  const float* residual;  // [D], finite
  float scale;
  uint32_t hint;       // threshold of an earlier call; 0: none
  float* accumulated;  // [D]
  uint8_t* section;    // [layout.nbytes]
  Share share = {};
};

struct SelectResult {
  uint32_t threshold = 0;  // the smallest selected magnitude, as fp32 bits
  int64_t num_nonfinite = 0;
};

// sum = residual + grad * scale, each operation rounded; where that is not
// finite, the residual, and it is counted. Selected are the k largest
// magnitudes, the lowest index first among equals. `layout` is of the share.
// accumulated = sum - value there (exact: value is the sum rounded as by
// bf16_value()), else sum.
SelectResult select_top_k(const SectionLayout& layout,
                          const SelectArguments& arguments,
                          int num_threads,
                          InstructionSet instruction_set);

}  // namespace hvs::cpu
