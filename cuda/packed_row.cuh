// One row in a half-warp, as pack_rows reads it.
//
// [Note: a row in 16 lanes]
// Lane i of 16 takes columns i, i + 16, ..., as the lanes of the CPU kernels do
// (row_blocks.inl). That is the order in which the centroid code sums; it gives
// each random word, whose halves belong to columns that are 16 apart, to one
// lane; and each load of a warp is of two pieces of 16 elements without a gap.
// Both halves of a warp go through the same code, whatever their rows are, so
// that votes and shuffles are those of the whole warp.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "counter_rng.hpp"
#include "fp16_bits.hpp"
#include "pack_rows.hpp"
#include "row_groups.cuh"
#include "row_header.hpp"

namespace hvs::cuda {

using cpu::ElementType;
using cpu::PackArguments;

// Counts columns, and what follows from them. Of rows that registers hold: half
// the registers for every number of a column.
template <int kSteps>
using Count = std::conditional_t<kSteps == 0, int64_t, int>;

// Where a thread stands.
struct HalfWarp {
  int lane;        // of 16
  unsigned shift;  // of this half's 16 bits in a vote

  __device__ static HalfWarp here() {
    return {static_cast<int>(threadIdx.x) % kLanes, threadIdx.x & 16u};
  }
  // What this half's lanes have voted. [16 bits]
  __device__ unsigned vote(bool yes) const {
    return __ballot_sync(kWholeWarp, yes) >> shift & 0xFFFFu;
  }
};

// Loads steps of 16 columns from `first_step` on, as far as the row goes. A
// lane beyond the end of the row reads a column of the row again, so that it
// changes no minimum and no maximum.
template <typename Number, int kLoads, typename Element, typename Convert>
__device__ void load_elements(const Element* __restrict__ row,
                              Number num_features,
                              Number first_step,
                              int lane,
                              Convert convert,
                              float (&values)[kLoads]) {
  const Element* own = row + lane;
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    const Number begin = (first_step + load) * kLanes;
    if (begin + kLanes <= num_features) {
      values[load] = convert(own[begin]);  // one address for all loads
    } else if (begin < num_features) {
      values[load] =
          convert(begin + lane < num_features ? own[begin] : row[begin]);
    }
  }
}

template <typename Number, int kLoads>
__device__ void load_steps(const PackArguments& arguments,
                           int64_t id,
                           Number first_step,
                           int lane,
                           float (&values)[kLoads]) {
  const int64_t offset = id * arguments.row_stride;
  const auto num_features = static_cast<Number>(arguments.num_features);
  if (arguments.type == ElementType::kFloat32) {
    load_elements(
        static_cast<const float*>(arguments.rows) + offset, num_features,
        first_step, lane, [](float value) { return value; }, values);
  } else if (arguments.type == ElementType::kFloat16) {
    load_elements(
        static_cast<const uint16_t*>(arguments.rows) + offset, num_features,
        first_step, lane, [](uint16_t bits) { return from_fp16(bits); },
        values);
  } else {
    load_elements(
        static_cast<const uint16_t*>(arguments.rows) + offset, num_features,
        first_step, lane, [](uint16_t bits) { return from_bf16(bits); },
        values);
  }
}

// A row of up to 16 * kSteps columns, read once and kept in registers; with
// kSteps = 0, of any number of columns, read again for each pass over it, which
// the caches answer.
template <int kSteps>
class RowInRegisters {
 public:
  __device__ void open(const PackArguments& arguments, int64_t id, int lane) {
    num_features_ = static_cast<int>(arguments.num_features);
    load_steps(arguments, id, 0, lane, values_);
  }
  // Calls function(step, value) for each step, in order.
  template <typename Function>
  __device__ void for_steps(Function function) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step * kLanes < num_features_) {
        function(step, values_[step]);
      }
    }
  }
  // Of a lane that is in the row.
  __device__ float first() const { return values_[0]; }

 private:
  int num_features_;
  float values_[kSteps];
};

template <>
class RowInRegisters<0> {
 public:
  __device__ void open(const PackArguments& arguments, int64_t id, int lane) {
    arguments_ = &arguments;
    id_ = id;
    lane_ = lane;
  }
  template <typename Function>
  __device__ void for_steps(Function function) const {
    const int64_t end = (arguments_->num_features + kLanes - 1) / kLanes;
    for (int64_t begin = 0; begin < end; begin += kChunk) {
      float values[kChunk];
      load_steps(*arguments_, id_, begin, lane_, values);
#pragma unroll
      for (int step = 0; step < kChunk; ++step) {
        if (begin + step < end) {
          function(begin + step, values[step]);
        }
      }
    }
  }
  __device__ float first() const {
    float values[1];
    load_steps(*arguments_, id_, 0, lane_, values);
    return values[0];
  }

 private:
  static constexpr int kChunk = 8;  // loads on their way at a time
  const PackArguments* arguments_;
  int64_t id_;
  int lane_;
};

}  // namespace hvs::cuda
