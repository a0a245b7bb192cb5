#include "unpack_rows.hpp"

#include <vector>

#include "float_environment.hpp"
#include "parallel.hpp"
#include "row_kernels.hpp"

namespace hvs::cpu {

UnpackResult unpack_rows(const UnpackArguments& arguments,
                         int num_threads,
                         InstructionSet instruction_set) {
  UnpackResult result;
  result.bad_index_position = first_outside(
      arguments.index, arguments.num_unpacked, arguments.num_packed);
  if (result.bad_index_position >= 0) {
    return result;
  }
  const RowKernels& kernels = row_kernels(instruction_set);
  const int pieces =
      num_pieces(arguments.num_unpacked, arguments.num_features, num_threads);
  std::vector<PieceReport> reports(static_cast<size_t>(pieces));
  std::vector<float> scratch(
      static_cast<size_t>(pieces * arguments.num_features));
  parallel_for(arguments.num_unpacked, pieces,
               [&](int piece, int64_t begin, int64_t end) {
                 const DefaultFloatEnvironment environment;
                 reports[static_cast<size_t>(piece)] = kernels.unpack(
                     arguments, begin, end,
                     scratch.data() + piece * arguments.num_features);
               });
  const auto payload_row = [&](int64_t position) {
    return arguments.index != nullptr ? arguments.index[position] : position;
  };
  for (const PieceReport& report : reports) {
    result.num_nonfinite += report.num_nonfinite;
    if (result.first_nonfinite_row < 0 && report.first_nonfinite >= 0) {
      result.first_nonfinite_row = payload_row(report.first_nonfinite);
    }
    if (result.corrupt_row < 0 && report.first_corrupt >= 0) {
      result.corrupt_row = payload_row(report.first_corrupt);
    }
  }
  return result;
}

}  // namespace hvs::cpu
