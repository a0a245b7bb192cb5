#include "add_rows.hpp"

#include <algorithm>
#include <vector>

#include "float_environment.hpp"
#include "parallel.hpp"
#include "row_kernels.hpp"
#include "row_sums.hpp"

namespace hvs::cpu {
namespace {

int64_t first_wrong(const AddArguments& arguments) {
  const int64_t end = std::max(arguments.num_added, arguments.num_targets);
  for (int64_t place = 0; place < end; ++place) {
    if (!is_right_sum(arguments, place)) {
      return place;
    }
  }
  return -1;
}

}  // namespace

RowReport add_rows(const AddArguments& arguments,
                   int num_threads,
                   InstructionSet instruction_set) {
  RowReport report;
  report.bad_index_position = first_wrong(arguments);
  if (report.bad_index_position >= 0 || arguments.num_targets == 0) {
    return report;
  }
  const RowKernels& kernels = row_kernels(instruction_set);
  const int64_t added_elements =
      arguments.num_features *
      (arguments.num_added / arguments.num_targets + 1);
  const int pieces =
      num_pieces(arguments.num_targets, added_elements, num_threads);
  std::vector<RowReport> reports(static_cast<size_t>(pieces));
  std::vector<float> scratch(
      static_cast<size_t>(2 * pieces * arguments.num_features));
  parallel_for(arguments.num_targets, pieces,
               [&](int piece, int64_t begin, int64_t end) {
                 const DefaultFloatEnvironment environment;
                 reports[static_cast<size_t>(piece)] = kernels.add(
                     arguments, begin, end,
                     scratch.data() + 2 * piece * arguments.num_features);
               });
  return merge_reports(reports);
}

}  // namespace hvs::cpu
