#include "row_kernels.hpp"

namespace hvs::cpu {

const RowKernels& row_kernels(InstructionSet instruction_set) {
  switch (instruction_set) {
    case InstructionSet::kAvx512:
      return *avx512_row_kernels();
    case InstructionSet::kAvx2:
      return *avx2_row_kernels();
    default:
      return *baseline_row_kernels();
  }
}

RowReport merge_reports(const std::vector<RowReport>& pieces) {
  RowReport merged;
  for (const RowReport& piece : pieces) {
    note_least(merged.corrupt_position, piece.corrupt_position);
    note_least(merged.nonfinite_position, piece.nonfinite_position);
    merged.nonfinite_countdown += piece.nonfinite_countdown + 1;
  }
  return merged;
}

int64_t first_outside(const int64_t* index, int64_t count, int64_t limit) {
  if (index == nullptr) {
    return -1;
  }
  for (int64_t position = 0; position < count; ++position) {
    // One comparison for both ends: as unsigned, a negative number is large.
    if (static_cast<uint64_t>(index[position]) >=
        static_cast<uint64_t>(limit)) {
      return position;
    }
  }
  return -1;
}

}  // namespace hvs::cpu
