// What the row kernels share: how blocks and lanes stand to rows, and how rows
// are noted in the report.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "row_report.hpp"

namespace hvs::cuda {

constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
constexpr int kWarpLanes = 32;
// Small blocks: one that has ended makes room for the next at once.
constexpr int kBlockThreads = 128;

// Enough blocks for `num_rows`, of which a block takes `block_rows` at a time;
// kernels go on in steps of the whole grid where CUDA has no room for so many.
inline dim3 grid_for(int64_t num_rows, int block_rows) {
  const int64_t wanted = (num_rows + block_rows - 1) / block_rows;
  return dim3(static_cast<unsigned>(std::min<int64_t>(wanted, 0x7FFFFFFF)));
}

// The first position of a kind: -1, which is none, is the largest as unsigned.
__device__ inline void note_position(int64_t* field, int64_t position) {
  atomicMin(reinterpret_cast<unsigned long long*>(field),
            static_cast<unsigned long long>(position));
}

__device__ inline void note_nonfinite(RowReport* report, int64_t position) {
  note_position(&report->nonfinite_position, position);
  atomicAdd(reinterpret_cast<unsigned long long*>(&report->nonfinite_countdown),
            ~0ull);
}

// Notes the first position of index[0, count) outside [0, limit). Kernels that
// follow in the stream do nothing then.
void check_index(const char* door,
                 const int64_t* index,
                 int64_t count,
                 int64_t limit,
                 cudaStream_t stream,
                 RowReport* report);

}  // namespace hvs::cuda
