// The inner loops of pack_rows and unpack_rows, one table for each instruction
// set.
#pragma once

#include <cstdint>
#include <vector>

#include "add_rows.hpp"
#include "instruction_set.hpp"
#include "pack_rows.hpp"
#include "row_report.hpp"
#include "unpack_rows.hpp"

namespace hvs::cpu {

// They work on positions, or targets, [begin, end) and trust the row numbers;
// reports are for those. `scratch` is num_features floats for the piece alone,
// and as many again for sums.
struct RowKernels {
  RowReport (*pack)(const PackArguments& arguments,
                    int64_t begin,
                    int64_t end,
                    float* scratch);
  RowReport (*unpack)(const UnpackArguments& arguments,
                      int64_t begin,
                      int64_t end,
                      float* scratch);
  RowReport (*add)(const AddArguments& arguments,
                   int64_t begin,
                   int64_t end,
                   float* scratch);
};

// Null where the build's architecture does not have the instruction set.
const RowKernels* baseline_row_kernels();
const RowKernels* avx2_row_kernels();
const RowKernels* avx512_row_kernels();

// The table of `instruction_set`, which must not be above
// best_instruction_set().
const RowKernels& row_kernels(InstructionSet instruction_set);

// Those of consecutive pieces, as one.
RowReport merge_reports(const std::vector<RowReport>& pieces);

// First position of index[0, count) outside [0, limit), or -1. `index` may be
// null: no position is outside then.
int64_t first_outside(const int64_t* index, int64_t count, int64_t limit);

}  // namespace hvs::cpu
