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

// Nothing is written where `index` has a position outside the payload. Rows
// that are corrupt, which means that no encoder writes them, are left as they
// were in `out`.
RowReport unpack_rows(const UnpackArguments& arguments,
                      int num_threads,
                      InstructionSet instruction_set);

}  // namespace hvs::cpu
