// Checks sections that come from the wire (format: section.hpp), and undoes
// selections. Whatever the bytes are, nothing outside the arrays is touched.
// O(num_blocks + k), on one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "section.hpp"
#include "share.hpp"

namespace hvs::cpu {

enum class SectionProblem { kNone, kCounts, kIndices, kValues };

// `section` is [layout.nbytes], at any address. Unless there is a problem,
// `begins` gets the position of each block's first selected element, and k
// after them: [num_blocks + 1].
SectionProblem check_section(const SectionLayout& layout,
                             const uint8_t* section,
                             std::vector<int64_t>& begins);

// tensor[i] += value, and tensor[i] = +0, for the selected elements. `tensor`
// is of the whole parameter, `layout` of the share; it is unchanged where there
// is a problem.
SectionProblem restore_selected(const SectionLayout& layout,
                                const uint8_t* section,
                                const Share& share,
                                float* tensor);
SectionProblem clear_selected(const SectionLayout& layout,
                              const uint8_t* section,
                              const Share& share,
                              float* tensor);

}  // namespace hvs::cpu
