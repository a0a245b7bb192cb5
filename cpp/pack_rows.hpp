// Gathers rows, quantises and packs them (wire format: row_header.hpp). Exact:
// the same bytes for any number of threads and any instruction set.
// O(num_packed * num_features); memory is read once.
#pragma once

#include <cstdint>

#include "instruction_set.hpp"
#include "row_report.hpp"

namespace hvs::cpu {

enum class ElementType { kFloat32, kFloat16, kBFloat16 };

// How a row becomes codes. All in fp32, without fused multiply-add; fp16 and
// bf16 elements are converted first.
//   minmax    unbiased stochastic rounding. lo = minimum, rounded down;
//             range = (maximum - lo), rounded up, both to bf16;
//             pre = range < 2^-64 ? 2^64 : 1
//             scale = (L * 65536) / (range * pre)
//             t = round(((x - lo) * pre) * scale), ties to even
//             code = min((t + r) >> 16, L), with r the column's 16 random bits
//             (counter_rng.hpp), drawn for the row's number in `rows`. The
//             expected code is t / 65536: unbiased to 2^-17 of a step.
//   centroid  one bit, deterministic. threshold = sum / F; code = (x >=
//             threshold); lo = mean of the elements below, lo + range = mean of
//             the others, each rounded to nearest; a side without elements has
//             the threshold. Sums run in 16 lanes: lane i adds columns i,
//             i + 16, ... in order to 0.0f (of a side: 0.0f for the other's);
//             then lanes i and i + 8 are added, i and i + 4, i + 2, i + 1.
enum class RowCode { kMinMax, kCentroid };

// Pointers are trusted and must not overlap.
struct PackArguments {
  const void* rows;  // [num_rows, num_features], unit stride along a row
  ElementType type;
  int64_t num_rows;
  int64_t num_features;  // at least 1
  int64_t row_stride;    // elements from one row to the next
  const int64_t* index;  // [num_packed]; null: all rows, num_packed = num_rows
  int64_t num_packed;
  int bits;  // 1, 2, 4, 8; centroid: 1
  RowCode code;
  uint64_t key;
  uint8_t* out;  // [num_packed, 4 + ceil(num_features * bits / 8)]
};

// Nothing is written where `index` has a position outside the rows.
RowReport pack_rows(const PackArguments& arguments,
                    int num_threads,
                    InstructionSet instruction_set);

}  // namespace hvs::cpu
