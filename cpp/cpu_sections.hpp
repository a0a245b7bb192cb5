// What is done with the sections of many parameters, once all of them are
// checked: nothing is written where any of them has a problem. What is done
// with one is written down in add_selected.hpp and check_section.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "instruction_set.hpp"
#include "sections.hpp"

namespace hvs::cpu {

// The report is [all, 2]: for each parameter the first row whose section has a
// problem, or -1, and the problem as SectionProblem.

// Writes whole arrays: the sum of all rows, or each share from its own row,
// zeros where that is skipped.
void add_selected(const std::vector<Sections>& all,
                  float scale,
                  int num_threads,
                  InstructionSet instruction_set,
                  int64_t* report);

// Of fp32 arrays, on one thread. An element that two rows select is restored
// twice.
void clear_selected(const std::vector<Sections>& all, int64_t* report);
void restore_selected(const std::vector<Sections>& all, int64_t* report);

}  // namespace hvs::cpu
