// The centroid code: one bit says on which side of the row mean an element
// lies. Sums run in the order that pack_rows.hpp defines.
#include "header_of_code.hpp"
#include "pack_rows.cuh"
#include "packed_rows.cuh"

namespace hvs::cuda {
namespace {

// Lanes i and i + 8 are added, then i and i + 4, i + 2, i + 1; every lane gets
// the sum, as a + b is b + a.
__device__ inline float sum_of_lanes(float value) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, lanes);
  }
  return value;
}

__device__ inline float mean_of(float sum, int64_t count, float otherwise) {
  const float total = sum_of_lanes(sum);
  return count > 0 ? total / static_cast<float>(count) : otherwise;
}

struct Centroid {
  template <int kSteps>
  __device__ void pack(const PackedRow<Count<kSteps>>& row,
                       HalfWarp place,
                       const RowInRegisters<kSteps>& values,
                       int64_t /*id*/,
                       int64_t position,
                       RowReport* report) const {
    const Extent extent = find_extent(values, place);
    using Number = Count<kSteps>;
    const Number num_features = row.num_features;
    const Number left = num_features - place.lane;  // of the lane's columns
    float total = 0.0f;
    values.for_steps([&](Number step, float value) {
      total += step * kLanes < left ? value : 0.0f;
    });
    const float threshold =
        sum_of_lanes(total) / static_cast<float>(num_features);
    const bool varies = !extent.has_nan && extent.min != extent.max;
    float sum_below = 0.0f;
    float sum_above = 0.0f;
    Number num_above = 0;
    BitWriter<Number> writer(row, place);
    values.for_steps([&](Number step, float value) {
      const bool in_row = step * kLanes < left;
      const bool above = in_row && value >= threshold;
      sum_above += above ? value : 0.0f;
      sum_below += in_row && !above ? value : 0.0f;
      num_above += __popc(place.vote(above));
      writer.add(step, above && varies);
    });
    const float mean_below =
        mean_of(sum_below, num_features - num_above, threshold);
    const float mean_above = mean_of(sum_above, num_above, threshold);
    const RowHeader header = centroid_header(mean_below, mean_above);
    const bool coded = varies && is_finite(extent.min) &&
                       is_finite(extent.max) && is_finite(threshold) &&
                       is_finite(mean_above) && is_coded(header, 1.0f);
    if (__any_sync(kWholeWarp, varies && !coded)) {
      // Written above, before this was known
      BitWriter<Number> zeros(row, place);
      values.for_steps([&](Number step, float value) {
        zeros.add(step, coded && value >= threshold);
      });
    }
    finish_row(row, place, values, extent, coded, header, position, report);
  }
};

}  // namespace

void pack_centroid(const PackArguments& arguments,
                   cudaStream_t stream,
                   RowReport* report) {
  launch_pack(arguments, Centroid{}, stream, report);
}

}  // namespace hvs::cuda
