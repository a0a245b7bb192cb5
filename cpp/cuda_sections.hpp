// What is done with sections on a CUDA device: summed, cleared, restored; for
// many parameters at once. The same bytes as cpu_sections.hpp, and a number of
// launches that does not depend on how many parameters there are, but for
// uploads of 4 KiB of their descriptions each. Nothing is waited for, nothing
// allocated, and no float is added by an atomic. The sections are not trusted:
// whatever their bytes are, nothing outside the arrays is touched. Defined only
// where kBuiltWithCuda.
#pragma once

#include <cstdint>
#include <vector>

#include "sections.hpp"

namespace hvs::cuda {

// Memory that the functions below need while they run: about 80 bytes for each
// block of each row.
int64_t sections_workspace_bytes(const std::vector<Sections>& all);

// array[i] = the sum, from +0 and in the order of the rows, of value * scale,
// each product and sum rounded to fp32; then rounded to the array's type.
// `report` is [all, 2] of the device: the first row whose section is corrupt,
// or -1, and what is wrong with it, as cpu::SectionProblem. Where anything is,
// all arrays are unchanged. Reads the sections twice, and writes each element
// once. All pointers are of the device that is current; `rows`, `row_bytes` and
// `offset` are multiples of 8. `workspace` starts at a multiple of 16,
// `stream` is a cudaStream_t. Throws std::runtime_error where CUDA refuses a
// launch.
void add_selected(const std::vector<Sections>& all,
                  float scale,
                  int64_t* report,
                  void* workspace,
                  void* stream);

// array[i] = +0, and array[i] += value, for the selected elements of fp32
// arrays, whose rows are those of their shares. The rest as above.
void clear_selected(const std::vector<Sections>& all,
                    int64_t* report,
                    void* workspace,
                    void* stream);
void restore_selected(const std::vector<Sections>& all,
                      int64_t* report,
                      void* workspace,
                      void* stream);

}  // namespace hvs::cuda
