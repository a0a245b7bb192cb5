// The wire format of a section: exactly k selected elements of one parameter
// of D elements, in NB = ceil(D / 65536) blocks, little-endian:
//
//   offset           bytes   meaning
//   0                4 * NB  uint32: selected elements of each block
//   4 * NB           2 * k   uint16: an element's number inside its block,
//                            strictly ascending inside a block
//   4 * NB + 2 * k,  V * k   values in the same order, finite: V = 4 (fp32) or
//   up to 4                  2 (bf16)
//
// The whole is padded to a multiple of 8; all padding is zero.
#pragma once

#include <cstdint>

#include "float_bits.hpp"
#include "host_device.hpp"

namespace hvs {

constexpr int64_t kBlockElements = 65536;
constexpr int64_t kMaxElements = int64_t{1} << 32;  // an index takes 32 bits

enum class ValueType { kFloat32, kBFloat16 };

// What a section holds and where: all but its bytes.
struct SectionLayout {
  int64_t num_elements;
  int64_t k;
  ValueType type;
  int64_t num_blocks;
  int64_t index_begin;  // these are in bytes
  int64_t index_end;
  int64_t values_begin;
  int64_t values_end;
  int64_t nbytes;

  // For 1 <= k <= num_elements <= kMaxElements.
  HVS_HOST_DEVICE SectionLayout(int64_t elements,
                                int64_t selected,
                                ValueType kind)
      : num_elements(elements),
        k(selected),
        type(kind),
        num_blocks((elements + kBlockElements - 1) / kBlockElements),
        index_begin(4 * num_blocks),
        index_end(index_begin + 2 * k),
        values_begin((index_end + 3) / 4 * 4),
        values_end(values_begin + (kind == ValueType::kFloat32 ? 4 : 2) * k),
        nbytes((values_end + 7) / 8 * 8) {}
};

HVS_HOST_DEVICE inline int64_t block_size(const SectionLayout& layout,
                                          int64_t block) {
  const int64_t rest = layout.num_elements - block * kBlockElements;
  return rest < kBlockElements ? rest : kBlockElements;
}

// To nearest, ties to even; but a finite value stays finite.
HVS_HOST_DEVICE inline uint16_t bf16_value(float value) {
  const uint16_t rounded = bf16_nearest(value);
  return static_cast<uint16_t>(rounded - ((rounded & 0x7FFFu) == 0x7F80u));
}

}  // namespace hvs
