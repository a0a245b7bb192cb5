#include "cpu_sections.hpp"

#include <cstddef>
#include <utility>

#include "add_selected.hpp"
#include "check_section.hpp"

namespace hvs::cpu {
namespace {

// What is known of each row of a parameter; nothing of those that are not read.
using CheckedRows = std::vector<RankSection>;

// Checks a parameter's rows, up to the first that has a problem, and reports
// that. Returns whether there is none.
bool check_rows(const Sections& sections, CheckedRows& rows, int64_t* report) {
  report[0] = -1;
  report[1] = static_cast<int64_t>(SectionProblem::kNone);
  rows.resize(sections.ks.size());
  for (int64_t row = 0; row < sections.num_rows(); ++row) {
    if (sections.is_read(row)) {
      RankSection& checked = rows[static_cast<size_t>(row)];
      checked.bytes = sections.section(row);
      const SectionProblem problem =
          check_section(sections.layout(row), checked.bytes, checked.begins);
      if (problem != SectionProblem::kNone) {
        report[0] = row;
        report[1] = static_cast<int64_t>(problem);
        return false;
      }
    }
  }
  return true;
}

bool check_all(const std::vector<Sections>& all,
               std::vector<CheckedRows>& rows,
               int64_t* report) {
  rows.resize(all.size());
  bool is_right = true;
  for (size_t number = 0; number < all.size(); ++number) {
    is_right &= check_rows(all[number], rows[number], report + 2 * number);
  }
  return is_right;
}

// Adds up the rows of the whole parameter, or one row of a share, and takes
// them.
void add_rows(const Sections& sections,
              CheckedRows& rows,
              int64_t begin,
              int64_t end,
              float scale,
              int num_threads,
              InstructionSet instruction_set) {
  SumArguments arguments = {
      {}, scale, sections.array, sections.array_type, sections.share(begin)};
  for (int64_t row = begin; row < end; ++row) {
    if (sections.is_read(row)) {
      arguments.ranks.push_back(std::move(rows[static_cast<size_t>(row)]));
    }
  }
  add_selected(sections.layout(begin), arguments, num_threads, instruction_set);
}

template <typename Function>
void change_all(const std::vector<Sections>& all,
                int64_t* report,
                Function change) {
  std::vector<CheckedRows> rows;
  if (!check_all(all, rows, report)) {
    return;
  }
  for (const Sections& sections : all) {
    for (int64_t row = 0; row < sections.num_rows(); ++row) {
      if (sections.is_read(row)) {
        change(sections.layout(row), sections.section(row), sections.share(row),
               static_cast<float*>(sections.array));
      }
    }
  }
}

}  // namespace

void add_selected(const std::vector<Sections>& all,
                  float scale,
                  int num_threads,
                  InstructionSet instruction_set,
                  int64_t* report) {
  std::vector<CheckedRows> rows;
  if (!check_all(all, rows, report)) {
    return;
  }
  for (size_t number = 0; number < all.size(); ++number) {
    const Sections& sections = all[number];
    const int64_t step = sections.num_shares == 1 ? sections.num_rows() : 1;
    for (int64_t row = 0; row < sections.num_rows(); row += step) {
      if (sections.k(row) != 0) {
        add_rows(sections, rows[number], row, row + step, scale, num_threads,
                 instruction_set);
      }
    }
  }
}

void clear_selected(const std::vector<Sections>& all, int64_t* report) {
  change_all(all, report,
             [](const auto&... each) { cpu::clear_selected(each...); });
}

void restore_selected(const std::vector<Sections>& all, int64_t* report) {
  change_all(all, report,
             [](const auto&... each) { cpu::restore_selected(each...); });
}

}  // namespace hvs::cpu
