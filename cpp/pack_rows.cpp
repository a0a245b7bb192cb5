#include "pack_rows.hpp"

#include <vector>

#include "float_environment.hpp"
#include "parallel.hpp"
#include "row_kernels.hpp"

namespace hvs::cpu {

PackResult pack_rows(const PackArguments& arguments,
                     int num_threads,
                     InstructionSet instruction_set) {
  PackResult result;
  result.bad_index_position =
      first_outside(arguments.index, arguments.num_packed, arguments.num_rows);
  if (result.bad_index_position >= 0) {
    return result;
  }
  const RowKernels& kernels = row_kernels(instruction_set);
  const int pieces =
      num_pieces(arguments.num_packed, arguments.num_features, num_threads);
  std::vector<PieceReport> reports(static_cast<size_t>(pieces));
  std::vector<float> scratch(
      static_cast<size_t>(pieces * arguments.num_features));
  parallel_for(
      arguments.num_packed, pieces, [&](int piece, int64_t begin, int64_t end) {
        const DefaultFloatEnvironment environment;
        reports[static_cast<size_t>(piece)] =
            kernels.pack(arguments, begin, end,
                         scratch.data() + piece * arguments.num_features);
      });
  for (const PieceReport& report : reports) {
    result.num_nonfinite += report.num_nonfinite;
    if (result.first_nonfinite_row < 0 && report.first_nonfinite >= 0) {
      result.first_nonfinite_row = arguments.index != nullptr
                                       ? arguments.index[report.first_nonfinite]
                                       : report.first_nonfinite;
    }
  }
  return result;
}

}  // namespace hvs::cpu
