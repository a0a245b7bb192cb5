// How a half-warp writes the bytes of a packed row. See [Note: a row in 16
// lanes].
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "packed_row.cuh"
#include "row_header.hpp"

namespace hvs::cuda {

// What is written of one row. A half without a row writes nothing.
template <typename Number>
struct PackedRow {
  uint8_t* out;
  Number num_features;
  Number num_code_bytes;
  bool exists;

  __device__ void store_code(Number byte, unsigned value) const {
    if (exists && byte < num_code_bytes) {
      out[kHeaderBytes + byte] = static_cast<uint8_t>(value);
    }
  }
};

// One bit per column. The vote of step s is kept by lane s mod 16 and written
// with 15 others, two bytes by each lane.
template <typename Number>
class BitWriter {
 public:
  __device__ BitWriter(const PackedRow<Number>& row, HalfWarp place)
      : row_(row), place_(place) {}

  // For each step, in order; `bit` is whether the lane's column has a one.
  __device__ void add(Number step, bool bit) {
    const unsigned bits = place_.vote(bit);
    const int turn = static_cast<int>(step % kLanes);
    mine_ = place_.lane == turn ? bits : mine_;
    if (turn == kLanes - 1 || (step + 1) * kLanes >= row_.num_features) {
      write(step - turn + place_.lane, place_.lane <= turn);
    }
  }

 private:
  __device__ void write(Number step, bool has_turn) const {
    if (has_turn) {
      const Number left = row_.num_features - step * kLanes;  // columns
      const unsigned in_row = left >= kLanes ? 0xFFFFu : (1u << left) - 1u;
      row_.store_code(2 * step, mine_ & in_row & 0xFFu);
      row_.store_code(2 * step + 1, (mine_ & in_row) >> 8);
    }
  }

  const PackedRow<Number>& row_;
  HalfWarp place_;
  unsigned mine_ = 0;
};

// Two, four or eight bits per column: the first of the lanes that share a byte
// collects it.
template <typename Number, int kBits>
class CodeWriter {
 public:
  __device__ CodeWriter(const PackedRow<Number>& row, HalfWarp place)
      : left_(row.num_features - place.lane),
        own_(row.out + kHeaderBytes + place.lane / kCodesPerByte),
        stores_(row.exists && place.lane % kCodesPerByte == 0) {}

  __device__ void add(Number step, unsigned code) {
    const bool in_row = step * kLanes < left_;
    code = in_row ? code : 0;
#pragma unroll
    for (int codes = 1; codes < kCodesPerByte; codes *= 2) {
      code |= __shfl_down_sync(kWholeWarp, code, codes, kLanes)
              << (codes * kBits);
    }
    // A byte is in the row where its first column is
    if (stores_ && in_row) {
      own_[step * (kLanes / kCodesPerByte)] = static_cast<uint8_t>(code);
    }
  }

 private:
  static constexpr int kCodesPerByte = 8 / kBits;
  Number left_;  // columns from the lane's first on
  uint8_t* own_;
  bool stores_;
};

// After the codes, which are zeros for a literal row but for one bit.
template <typename Number>
__device__ void write_header(const PackedRow<Number>& row,
                             HalfWarp place,
                             RowHeader header) {
  const uint32_t bytes = static_cast<uint32_t>(header.range) << 16 | header.lo;
  if (row.exists && place.lane < kHeaderBytes) {
    row.out[place.lane] = static_cast<uint8_t>(bytes >> (8 * place.lane));
  }
}

// The extent of a row, in every lane of its half.
struct Extent {
  float min;
  float max;
  bool has_nan;

  __device__ bool is_constant() const { return !has_nan && min == max; }
};

template <int kSteps>
__device__ Extent find_extent(const RowInRegisters<kSteps>& values,
                              HalfWarp place) {
  float lowest = values.first();
  float highest = lowest;
  bool nan = false;
  values.for_steps([&](Count<kSteps>, float value) {
    lowest = fminf(lowest, value);
    highest = fmaxf(highest, value);
    nan = nan || value != value;
  });
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    lowest = fminf(lowest, __shfl_xor_sync(kWholeWarp, lowest, lanes));
    highest = fmaxf(highest, __shfl_xor_sync(kWholeWarp, highest, lanes));
  }
  return {lowest, highest, place.vote(nan) != 0};
}

// Writes the header of a row, whose codes are written: zeros where it is not
// coded. Notes a row that is not finite.
template <int kSteps>
__device__ void finish_row(const PackedRow<Count<kSteps>>& row,
                           HalfWarp place,
                           const RowInRegisters<kSteps>& values,
                           const Extent& extent,
                           bool coded,
                           RowHeader header,
                           int64_t position,
                           RowReport* report) {
  const uint32_t pattern =
      bits_of(__shfl_sync(kWholeWarp, values.first(), 0, kLanes));
  const bool literal = extent.is_constant() && is_finite(extent.min);
  if (literal) {
    header = literal_header(pattern);
  } else if (!coded) {
    header = {0, kNonFiniteRange};
  }
  write_header(row, place, header);
  if (row.exists && place.lane == 0) {
    if (literal) {
      row.store_code(0, literal_code(pattern));
    } else if (!coded) {
      note_nonfinite(report, position);
    }
  }
}

}  // namespace hvs::cuda
