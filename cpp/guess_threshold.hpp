// Guesses the threshold of a selection from a sample of its sums. Ranks in a
// sample tell the same whatever the distribution is.
#pragma once

#include <cstdint>

#include "top_k_kernels.hpp"

namespace hvs::cpu {

// Words of scratch that guess_threshold() needs.
int64_t guess_scratch_words(int64_t num_elements);

// A threshold that is likely to be a little below that of the selection, or 0.
// `surplus` multiplies the number of candidates that are aimed at. The hint is
// taken if the sample does not speak against it. The sample is of cache lines,
// at places that depend on the number of elements only but are random enough
// that a regular pattern in the data does not meet them.
uint32_t guess_threshold(const SectionLayout& layout,
                         const SelectArguments& arguments,
                         const TopKKernels& kernels,
                         double surplus,
                         uint32_t* scratch);

}  // namespace hvs::cpu
