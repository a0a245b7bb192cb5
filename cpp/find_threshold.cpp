#include "find_threshold.hpp"

#include <algorithm>
#include <functional>

namespace hvs::cpu {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000u;
// So many magnitudes are sorted rather than bisected further.
constexpr int64_t kFewMagnitudes = 256;
// Going up from a known lowest magnitude: first past those that are equal to
// it, then in steps that double, the first a quarter of a percent.
constexpr uint32_t kFirstStep = 1;
constexpr uint32_t kSecondStep = 1u << 15;

// Finds the rank-th largest of the magnitudes in [low, high).
Threshold sort_out(const std::vector<Candidates>& lists,
                   uint32_t low,
                   uint32_t high,
                   int64_t rank,
                   int64_t num_above,
                   const TopKKernels& kernels) {
  uint32_t magnitudes[kFewMagnitudes + kCandidateSlack] = {};
  uint32_t* end = magnitudes;
  for (const Candidates& list : lists) {
    end += kernels.copy_between(list, low, high, end);
  }
  uint32_t* nth = magnitudes + rank - 1;
  std::nth_element(magnitudes, nth, end, std::greater<uint32_t>());
  const uint32_t bits = *nth;
  num_above += std::count_if(magnitudes, end,
                             [bits](uint32_t other) { return other > bits; });
  return {bits, num_above, std::count(magnitudes, end, bits)};
}

}  // namespace

Threshold find_threshold(const std::vector<Candidates>& lists,
                         int64_t k,
                         uint32_t lowest,
                         const TopKKernels& kernels) {
  // The threshold is in [low, high), as are `num_low - num_high` magnitudes.
  uint32_t low = lowest;
  uint32_t high = kInfinityBits;
  int64_t num_low = 0;
  int64_t num_high = 0;
  for (const Candidates& list : lists) {
    num_low += list.count;
  }
  const uint32_t second_step = lowest == 0 ? high : kSecondStep;
  uint32_t step = kFirstStep;
  bool goes_up = true;
  while (high - low > 1) {
    if (num_low - num_high <= kFewMagnitudes) {
      return sort_out(lists, low, high, k - num_high, num_high, kernels);
    }
    const uint32_t half = (high - low) / 2;
    const uint32_t middle = low + (goes_up ? std::min(step, half) : half);
    int64_t num_middle = 0;
    for (const Candidates& list : lists) {
      num_middle += kernels.count_reaching(list, middle);
    }
    if (num_middle >= k) {
      low = middle;
      num_low = num_middle;
      step = std::max(2 * step, second_step);
    } else {
      high = middle;
      num_high = num_middle;
      goes_up = false;
    }
  }
  return {low, num_high, num_low - num_high};
}

}  // namespace hvs::cpu
