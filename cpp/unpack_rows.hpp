// Gathers packed rows and decodes them (wire format: row_header.hpp). The
// payload is not trusted: whatever its bytes are, nothing outside the arrays is
// read or written. Exact for any number of threads and any instruction set.
// O(num_unpacked * num_features). Non-finite rows decode to NaN, and are
// counted.
#pragma once

#include <cstdint>

#include "pack_rows.hpp"

namespace hvs::cpu {

// Pointers and sizes are trusted, the payload's contents are not. Arrays must
// not overlap.
struct UnpackArguments {
  const uint8_t* payload;  // [num_packed, 4 + ceil(num_features * bits / 8)]
  int64_t num_packed;
  int64_t num_features;  // at least 1
  int bits;              // 1, 2, 4, 8
  const int64_t* index;  // [num_unpacked]; null: all, num_unpacked = num_packed
  int64_t num_unpacked;
  void* out;         // [num_unpacked, num_features], element type, contiguous
  ElementType type;  // values are rounded to it to nearest, ties to even
};

struct UnpackResult {
  // First position of `index` outside the payload; nothing is written then.
  int64_t bad_index_position = -1;
  // Payload row of the first in `out` that no encoder writes.
  int64_t corrupt_row = -1;
  int64_t num_nonfinite = 0;
  int64_t first_nonfinite_row = -1;  // its row in `payload`
};

// Rows that are corrupt are left as they were in `out`.
UnpackResult unpack_rows(const UnpackArguments& arguments,
                         int num_threads,
                         InstructionSet instruction_set);

}  // namespace hvs::cpu
