#include "unpack_rows.hpp"

#include <vector>

#include "float_environment.hpp"
#include "parallel.hpp"
#include "row_kernels.hpp"

namespace hvs::cpu {

RowReport unpack_rows(const UnpackArguments& arguments,
                      int num_threads,
                      InstructionSet instruction_set) {
  RowReport report;
  report.bad_index_position = first_outside(
      arguments.index, arguments.num_unpacked, arguments.num_packed);
  if (report.bad_index_position >= 0) {
    return report;
  }
  const RowKernels& kernels = row_kernels(instruction_set);
  const int pieces =
      num_pieces(arguments.num_unpacked, arguments.num_features, num_threads);
  std::vector<RowReport> reports(static_cast<size_t>(pieces));
  std::vector<float> scratch(
      static_cast<size_t>(pieces * arguments.num_features));
  parallel_for(arguments.num_unpacked, pieces,
               [&](int piece, int64_t begin, int64_t end) {
                 const DefaultFloatEnvironment environment;
                 reports[static_cast<size_t>(piece)] = kernels.unpack(
                     arguments, begin, end,
                     scratch.data() + piece * arguments.num_features);
               });
  return merge_reports(reports);
}

}  // namespace hvs::cpu
