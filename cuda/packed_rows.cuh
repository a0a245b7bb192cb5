// The loop over rows that both codes have in common, and how it is launched.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "launch.cuh"
#include "packed_row.cuh"
#include "row_codes.cuh"

namespace hvs::cuda {

// Columns that fit the registers of 16 lanes, so that a row is read once. The
// narrow form leaves room for 40 warps on a multiprocessor, the wide one for
// 24: short rows need more of them to keep the memory busy.
constexpr int kNarrowSteps = 8;
constexpr int kWideSteps = 32;
constexpr int kPackBlockRows = kBlockThreads / kLanes;
// As many as keep ptxas from trading them for spilled registers.
constexpr int kPackMinBlocks = 5;

// A half-warp packs a row. Reads each element once (kSteps > 0) and writes each
// byte once.
template <typename Code, int kSteps>
__global__ void __launch_bounds__(kBlockThreads, kPackMinBlocks)
    pack_kernel(const PackArguments arguments,
                const Code code,
                RowReport* report) {
  if (report->bad_index_position != -1) {
    return;
  }
  using Number = Count<kSteps>;
  const HalfWarp place = HalfWarp::here();
  const auto num_code_bytes =
      static_cast<Number>(code_bytes(arguments.num_features, arguments.bits));
  const int64_t num_packed = arguments.num_packed;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kPackBlockRows;
  // The warp's first row, so that its halves end together
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kPackBlockRows +
                       threadIdx.x / kWarpLanes * 2;
       first < num_packed; first += step) {
    const int64_t wanted = first + (place.shift != 0);
    const bool exists = wanted < num_packed;
    // A half without a row looks at the other's
    const int64_t position = exists ? wanted : first;
    const int64_t id =
        arguments.index != nullptr ? arguments.index[position] : position;
    RowInRegisters<kSteps> values;
    values.open(arguments, id, place.lane);
    const PackedRow<Number> row = {
        arguments.out + position * (kHeaderBytes + num_code_bytes),
        static_cast<Number>(arguments.num_features), num_code_bytes, exists};
    code.pack(row, place, values, id, position, report);
  }
}

template <typename Code, int kSteps>
void launch_steps(const PackArguments& arguments,
                  const Code& code,
                  cudaStream_t stream,
                  RowReport* report) {
  launch("pack_rows", pack_kernel<Code, kSteps>,
         grid_for(arguments.num_packed, kPackBlockRows), dim3(kBlockThreads),
         stream, arguments, code, report);
}

// Chooses how much of a row registers hold.
template <typename Code>
void launch_pack(const PackArguments& arguments,
                 const Code& code,
                 cudaStream_t stream,
                 RowReport* report) {
  if (arguments.num_features <= kNarrowSteps * kLanes) {
    launch_steps<Code, kNarrowSteps>(arguments, code, stream, report);
  } else if (arguments.num_features <= kWideSteps * kLanes) {
    launch_steps<Code, kWideSteps>(arguments, code, stream, report);
  } else {
    launch_steps<Code, 0>(arguments, code, stream, report);
  }
}

}  // namespace hvs::cuda
