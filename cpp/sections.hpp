// The sections of one parameter, one in each row of bytes, and an array of its
// elements: what is added up, cleared and restored, on any device.
#pragma once

#include <cstdint>
#include <vector>

#include "pack_rows.hpp"
#include "section.hpp"
#include "share.hpp"

namespace hvs {

// Trusted, but for the bytes of the sections.
struct Sections {
  const uint8_t* rows;  // [num_rows, row_bytes]
  int64_t row_bytes;
  int64_t offset;        // of the section, in every row
  int64_t num_elements;  // of the parameter
  ValueType type;
  // 1: every row has a section of the whole parameter, with the same k. Else as
  // many as there are rows: row p has one of share p (share.hpp).
  int64_t num_shares;
  std::vector<int64_t> ks;          // [num_rows]; 0 of an empty share
  std::vector<uint8_t> is_skipped;  // [num_rows]; such a row is not read
  void* array;                      // [num_elements]
  cpu::ElementType array_type;

  int64_t num_rows() const { return static_cast<int64_t>(ks.size()); }
  int64_t k(int64_t row) const { return ks[static_cast<size_t>(row)]; }
  bool is_read(int64_t row) const {
    return k(row) != 0 && !is_skipped[static_cast<size_t>(row)];
  }
  Share share(int64_t row) const {
    return {num_shares, num_shares == 1 ? 0 : row};
  }
  // For rows that are not empty.
  SectionLayout layout(int64_t row) const {
    return SectionLayout(share_elements(num_elements, share(row)), k(row),
                         type);
  }
  const uint8_t* section(int64_t row) const {
    return rows + row * row_bytes + offset;
  }
};

}  // namespace hvs
