#include "shares.hpp"

namespace hvs::cpu {
namespace {

// Says which section has a problem, if one has. `is_skipped` may be null.
AddResult check_shares(const SharesLayout& shares,
                       const uint8_t* rows,
                       const uint8_t* is_skipped) {
  std::vector<int64_t> begins;
  for (int64_t number = 0; number < shares.num_filled(); ++number) {
    if (is_skipped != nullptr && is_skipped[number]) {
      continue;
    }
    const SectionProblem problem = check_section(
        shares.section(number), rows + shares.section_begin(number), begins);
    if (problem != SectionProblem::kNone) {
      return {number, problem};
    }
  }
  return {};
}

}  // namespace

int64_t select_shares(const SharesLayout& shares,
                      SelectArguments arguments,
                      uint8_t* rows,
                      std::vector<uint32_t>& hints,
                      int num_threads,
                      InstructionSet instruction_set) {
  int64_t num_nonfinite = 0;
  for (int64_t number = 0; number < shares.num_filled(); ++number) {
    uint32_t& hint = hints[static_cast<size_t>(number)];
    arguments.share = shares.share(number);
    arguments.section = rows + shares.section_begin(number);
    arguments.hint = hint;
    const SelectResult result = select_top_k(shares.section(number), arguments,
                                             num_threads, instruction_set);
    hint = result.threshold;
    num_nonfinite += result.num_nonfinite;
  }
  return num_nonfinite;
}

AddResult add_shares(const SharesLayout& shares,
                     AddArguments arguments,
                     int num_threads,
                     InstructionSet instruction_set) {
  const AddResult checked =
      check_shares(shares, arguments.payloads, arguments.is_skipped);
  if (checked.problem != SectionProblem::kNone) {
    return checked;
  }
  arguments.num_ranks = 1;
  arguments.row_bytes = shares.row_bytes;
  arguments.offset = shares.offset;
  for (int64_t number = 0; number < shares.num_filled(); ++number) {
    arguments.share = shares.share(number);
    // Checked once more, which costs little next to writing the share
    add_selected(shares.section(number), arguments, num_threads,
                 instruction_set);
    arguments.payloads += shares.row_bytes;
    ++arguments.is_skipped;
  }
  return {};
}

AddResult clear_shares(const SharesLayout& shares,
                       const uint8_t* rows,
                       float* tensor) {
  const AddResult checked = check_shares(shares, rows, nullptr);
  if (checked.problem != SectionProblem::kNone) {
    return checked;
  }
  for (int64_t number = 0; number < shares.num_filled(); ++number) {
    clear_selected(shares.section(number), rows + shares.section_begin(number),
                   shares.share(number), tensor);
  }
  return {};
}

}  // namespace hvs::cpu
