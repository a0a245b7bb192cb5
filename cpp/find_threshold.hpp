// The k-th largest magnitude of candidates, by bisection of its bits: as
// unsigned numbers, the bits of magnitudes are in the order of the magnitudes.
// Counting how many reach a bound is so fast, in vectors, that ten counts cost
// less than one histogram.
#pragma once

#include <cstdint>
#include <vector>

#include "top_k_kernels.hpp"

namespace hvs::cpu {

struct Threshold {
  uint32_t bits;      // of the k-th largest magnitude
  int64_t num_above;  // candidates that are larger
  int64_t num_equal;
};

// Exact, for 1 <= k <= number of candidates, which are finite. No magnitude is
// below `lowest`; the nearer it is to the threshold, the faster. At most some
// 50 counts, whatever the magnitudes are.
Threshold find_threshold(const std::vector<Candidates>& lists,
                         int64_t k,
                         uint32_t lowest,
                         const TopKKernels& kernels);

}  // namespace hvs::cpu
