// Adds rows to given rows of a matrix: those of a payload, decoded
// (row_header.hpp), or plain ones. Each row of the matrix is summed by one
// thread, in the order of its rows, in fp32, and rounded to its type at the
// end: the same bits for any number of threads, any instruction set and any
// device. O(num_added * num_features).
#pragma once

#include <cstdint>

#include "instruction_set.hpp"
#include "pack_rows.hpp"
#include "row_report.hpp"

namespace hvs::cpu {

// Pointers and sizes are trusted; bytes of a payload and all row numbers are
// not. Arrays must not overlap.
struct AddArguments {
  const void* rows;  // [num_rows, ...]: packed rows, or plain ones of `type`
  int64_t num_rows;
  int64_t num_features;  // at least 1
  int bits;              // 1, 2, 4, 8; 0: plain rows, contiguous
  const int64_t*
      index;  // [num_added], which rows; null: all, num_added = num_rows
  const int64_t* order;  // [num_added], positions of the index, by target
  int64_t num_added;
  const int64_t* targets;  // [num_targets], rows of `out`, each once
  const int64_t* starts;   // [num_targets + 1], where each begins in `order`
  int64_t num_targets;
  void* out;  // [num_out, num_features], `type`, contiguous
  int64_t num_out;
  ElementType type;  // rows that are decoded are rounded to it, then added
};

// Nothing is added where a number is out of range; its position in its array is
// reported. Corrupt rows are left out. Positions of rows are those of `index`.
RowReport add_rows(const AddArguments& arguments,
                   int num_threads,
                   InstructionSet instruction_set);

}  // namespace hvs::cpu
