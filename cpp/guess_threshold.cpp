#include "guess_threshold.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "counter_rng.hpp"
#include "find_threshold.hpp"

namespace hvs::cpu {
namespace {

constexpr int64_t kLineElements = 16;
constexpr int64_t kElementsPerLine = 1024;  // one of 64 lines is drawn
constexpr int64_t kMinLines = 64;
constexpr int64_t kMaxLines = 2048;
// Below, all elements are candidates at first.
constexpr int64_t kMinElements = 2 * kMinLines * kLineElements;
// Lines that are asked for ahead.
constexpr int64_t kPrefetchDistance = 16;
// From an earlier threshold down to the guess, in its last places: about half a
// percent. Error feedback crowds elements below the threshold: one percent
// would make a quarter more candidates.
constexpr uint32_t kHintMargin = 1u << 16;
constexpr uint32_t kInfinityBits = 0x7F800000u;

uint32_t magnitude_of(float sum) {
  return bits_of(sum) & 0x7FFFFFFFu;
}

int64_t num_lines(int64_t num_elements) {
  return num_elements < kMinElements
             ? 0
             : std::clamp(num_elements / kElementsPerLine, kMinLines,
                          kMaxLines);
}

// Draws the first elements of lines: one at random from each of equal shares.
void draw_lines(int64_t num_elements,
                uint32_t seed,
                int64_t count,
                uint32_t* elements) {
  const uint64_t share =  // in lines, times 2^32
      (static_cast<uint64_t>(num_elements / kLineElements) << 32) /
      static_cast<uint64_t>(count);
  for (int64_t line = 0; line < count; ++line) {
    const uint64_t number = static_cast<uint64_t>(line);
    const uint64_t random =
        (mix64(static_cast<uint64_t>(seed) << 32 | number) >> 32) *
        (share >> 32);
    elements[line] = static_cast<uint32_t>(
        static_cast<int64_t>((number * share + random) >> 32) * kLineElements);
  }
}

template <typename Element>
void copy_lines(const Element* from,
                const uint32_t* elements,
                int64_t count,
                Element* to) {
  for (int64_t line = 0; line < count; ++line) {
    __builtin_prefetch(from +
                       elements[std::min(line + kPrefetchDistance, count - 1)]);
    std::memcpy(to + line * kLineElements, from + elements[line],
                kLineElements * sizeof(Element));
  }
}

// Copies the gradients and the residuals of the sample, and returns the
// arguments with which they are added.
SelectArguments draw(const SectionLayout& layout,
                     const SelectArguments& arguments,
                     int64_t count,
                     uint32_t* elements,
                     uint32_t* grads,
                     float* residuals) {
  draw_lines(layout.num_elements, arguments.hint, count, elements);
  for (int64_t line = 0; line < count; ++line) {
    elements[line] =  // in the parameter; lines do not cross chunks
        static_cast<uint32_t>(place_of(elements[line], arguments.share));
  }
  copy_lines(arguments.residual, elements, count, residuals);
  SelectArguments drawn = arguments;
  drawn.residual = residuals;
  if (arguments.grad == nullptr) {
    return drawn;
  }
  drawn.grad = grads;
  if (arguments.type == ElementType::kFloat32) {
    copy_lines(static_cast<const uint32_t*>(arguments.grad), elements, count,
               grads);
  } else {
    copy_lines(static_cast<const uint16_t*>(arguments.grad), elements, count,
               reinterpret_cast<uint16_t*>(grads));
  }
  return drawn;
}

// A sum that `rank` of the sample reach: the rank-th largest of the largest in
// each of its groups, which is cheaper to find than that of the whole sample.
uint32_t reached_by(const float* sums,
                    int64_t size,
                    int64_t rank,
                    float* largest,
                    const TopKKernels& kernels) {
  const int64_t num_groups = size / kLineElements;
  if (rank > num_groups) {
    return 0;
  }
  std::memcpy(largest, sums, static_cast<size_t>(num_groups) * sizeof(float));
  for (int64_t member = 1; member < kLineElements; ++member) {
    const float* others = sums + member * num_groups;
    for (int64_t group = 0; group < num_groups; ++group) {
      largest[group] = float_of(
          std::max(magnitude_of(largest[group]), magnitude_of(others[group])));
    }
  }
  return find_threshold({{nullptr, largest, num_groups}}, rank, 0, kernels)
      .bits;
}

}  // namespace

int64_t guess_scratch_words(int64_t num_elements) {
  return 5 * (num_lines(num_elements) * kLineElements + kCandidateSlack);
}

uint32_t guess_threshold(const SectionLayout& layout,
                         const SelectArguments& arguments,
                         const TopKKernels& kernels,
                         double surplus,
                         uint32_t* scratch) {
  const int64_t count = num_lines(layout.num_elements);
  const int64_t size = count * kLineElements;
  const double expected = surplus * static_cast<double>(size) *
                          static_cast<double>(layout.k) /
                          static_cast<double>(layout.num_elements);
  const double deviation = std::sqrt(expected);
  // Neighbours are alike: the sample tells less than its size would.
  const int64_t rank =
      static_cast<int64_t>(1.1 * expected + 4.0 * deviation) + 4;
  if (rank >= size) {
    return 0;
  }
  const auto part = [&](int number) {
    return scratch + number * (size + kCandidateSlack);
  };
  const auto floats = [&](int number) {
    return reinterpret_cast<float*>(part(number));
  };
  uint32_t* grads = part(0);
  float* residuals = floats(1);
  float* sums = floats(2);
  Candidates found = {part(3), floats(4), 0};

  // The places are not needed any more when candidates come there
  SelectArguments drawn =
      draw(layout, arguments, count, found.index, grads, residuals);
  drawn.accumulated = sums;
  const bool has_hint =
      arguments.hint > kHintMargin && arguments.hint < kInfinityBits;
  const uint32_t hinted =
      has_hint ? arguments.hint - kHintMargin : kInfinityBits;
  kernels.collect(drawn, Target::kSeparate, ValueType::kFloat32, 0, size,
                  hinted, found);
  const double num_reaching = static_cast<double>(found.count);
  if (has_hint && num_reaching >= 0.8 * expected - 2.0 * deviation &&
      num_reaching <= 1.5 * expected + 4.0 * deviation) {
    return hinted;
  }
  kernels.keep(kInfinityBits, 0, {}, sums, found);
  const uint32_t lowest = reached_by(sums, size, rank, found.sums, kernels);
  drawn.grad = nullptr;
  drawn.residual = sums;
  kernels.collect(drawn, Target::kResidual, ValueType::kFloat32, 0, size,
                  lowest, found);
  return find_threshold({found}, rank, lowest, kernels).bits;
}

}  // namespace hvs::cpu
