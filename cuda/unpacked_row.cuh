// One packed row, as eight lanes read it.
//
// [Note: a row in eight lanes]
// Four rows of a warp at a time: what bounds decoding is how many rows are on
// their way, from index to header to codes, and rows are short. In each step
// the lanes take 32 columns: four neighbours each, so that a store is of 16 (or
// 8) bytes, where the row is aligned for that; else one column of every eight,
// so that each of four stores has no gaps.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "fp16_bits.hpp"
#include "pack_rows.hpp"
#include "row_groups.cuh"
#include "row_header.hpp"

namespace hvs::cuda {

using cpu::ElementType;

constexpr int kRowLanes = 8;
constexpr int kLaneColumns = 4;
constexpr int kUnpackBlockRows = kBlockThreads / kRowLanes;
// 64 registers, of which all lanes find what they need.
constexpr int kUnpackMinBlocks = 8;

// Where a thread stands.
struct RowPlace {
  int lane;       // of 8
  unsigned mask;  // of its 8 lanes in the warp

  __device__ static RowPlace here() {
    const unsigned in_warp = threadIdx.x % kWarpLanes;
    const unsigned lane = in_warp % kRowLanes;
    return {static_cast<int>(lane), 0xFFu << (in_warp - lane)};
  }
};

enum class RowKind { kFinite, kNonFinite, kCorrupt };

// Once for the eight lanes of a row.
__device__ inline void note_kind(RowReport* report,
                                 RowKind kind,
                                 int64_t position,
                                 int lane) {
  if (lane == 0 && kind == RowKind::kCorrupt) {
    note_position(&report->corrupt_position, position);
  }
  if (lane == 0 && kind == RowKind::kNonFinite) {
    note_nonfinite(report, position);
  }
}

// A packed row that is checked. Its bytes are not trusted.
template <int kBits>
class UnpackedRow {
 public:
  static constexpr float kLevels = (1 << kBits) - 1;

  // All eight lanes of the row call this.
  __device__ UnpackedRow(const uint8_t* payload,
                         int64_t num_features,
                         RowPlace place)
      : codes_(payload + kHeaderBytes) {
    const RowHeader header = {read_16(payload), read_16(payload + 2)};
    const int64_t num_code_bytes = code_bytes(num_features, kBits);
    const int used_bits = static_cast<int>(num_features * kBits % 8);
    const bool is_clean =
        used_bits == 0 || codes_[num_code_bytes - 1] >> used_bits == 0;
    is_coded_ = is_coded(header, kLevels);
    if (is_coded_) {
      lo_ = from_bf16(header.lo);
      step_ = row_step(header, kLevels);
      kind_ = is_clean ? RowKind::kFinite : RowKind::kCorrupt;
    } else {
      kind_ = is_clean ? uncoded_kind(header, num_code_bytes, place)
                       : RowKind::kCorrupt;
    }
  }

  __device__ RowKind kind() const { return kind_; }

  // `column` must be in the row, which is not corrupt.
  __device__ float at(int64_t column) const {
    constexpr int kCodesPerByte = 8 / kBits;
    if (!is_coded_) {
      return constant_;
    }
    const int shift = static_cast<int>(column % kCodesPerByte) * kBits;
    return decode(codes_[column / kCodesPerByte] >> shift);
  }

  // The same for four columns from `column`, a multiple of four, on.
  __device__ void four_at(int64_t column, float (&values)[kLaneColumns]) const {
    uint32_t word = 0;  // their codes
    if constexpr (kBits == 1) {
      word = codes_[column / 8] >> (column % 8);
    } else {
#pragma unroll
      for (int byte = 0; byte < kBits / 2; ++byte) {
        word |= static_cast<uint32_t>(codes_[column * kBits / 8 + byte])
                << (8 * byte);
      }
    }
#pragma unroll
    for (int number = 0; number < kLaneColumns; ++number) {
      values[number] = is_coded_ ? decode(word >> (number * kBits)) : constant_;
    }
  }

 private:
  __device__ static uint16_t read_16(const uint8_t* bytes) {
    return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
  }

  __device__ float decode(uint32_t word) const {
    const uint32_t code = word & ((1u << kBits) - 1u);
    return lo_ + static_cast<float>(code) * step_;
  }

  // A literal row or a non-finite one, and whether it is what an encoder
  // writes.
  __device__ RowKind uncoded_kind(RowHeader header,
                                  int64_t num_code_bytes,
                                  RowPlace place) {
    const bool literal = (header.range & kLiteralFlag) != 0;
    constant_ = literal ? literal_value(header, codes_[0])
                        : float_of(0x7FC00000u);  // NaN
    unsigned seen = 0;
    for (int64_t byte = place.lane; byte < num_code_bytes; byte += kRowLanes) {
      // Of a literal row, the lowest bit of all belongs to the value
      seen |= codes_[byte] >> (literal && byte == 0 ? 1 : 0);
    }
    const bool is_zero = __ballot_sync(place.mask, seen != 0) == 0;
    const bool is_right =
        literal ? is_finite(constant_)
                : header.range == kNonFiniteRange && header.lo == 0;
    if (!is_zero || !is_right) {
      return RowKind::kCorrupt;
    }
    return literal ? RowKind::kFinite : RowKind::kNonFinite;
  }

  const uint8_t* codes_;
  float lo_ = 0.0f;
  float step_ = 0.0f;
  float constant_ = 0.0f;
  bool is_coded_;
  RowKind kind_;
};

}  // namespace hvs::cuda
