// What the row kernels report. A report is memory of the device that runs the
// kernel, opened by the caller with -1 in all of it: to all fields that means
// that there was nothing to report.
#pragma once

#include <cstdint>

namespace hvs {

// Positions are along `out`, the first of their kind.
struct RowReport {
  int64_t bad_index_position = -1;  // nothing else is done then
  int64_t corrupt_position = -1;
  int64_t nonfinite_position = -1;
  int64_t nonfinite_countdown = -1;  // -1 - number of non-finite rows
};

// Notes a position, of which the first is kept. -1, which is none, is the
// largest as unsigned.
inline void note_least(int64_t& field, int64_t position) {
  if (static_cast<uint64_t>(position) < static_cast<uint64_t>(field)) {
    field = position;
  }
}

}  // namespace hvs
