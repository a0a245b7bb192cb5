// How select_top_k finds its thresholds: see [Note: selecting on a device].
#include "selection.cuh"

namespace hvs::cuda {
namespace {

// What a warp knows of its 16 words of marks: lane i holds word i.
struct Marks {
  uint32_t above;
  uint32_t tied;
};

// A vote on one element by each lane becomes word number `word`.
__device__ inline void mark(Marks& marks,
                            int word,
                            bool is_above,
                            bool is_tied) {
  const uint32_t above = __ballot_sync(kWholeWarp, is_above);
  const uint32_t tied = __ballot_sync(kWholeWarp, is_tied);
  if (lane_number() == word) {
    marks.above |= above;
    marks.tied = tied;
  }
}

__device__ inline void count_tied(bool is_tied,
                                  uint32_t magnitude,
                                  Digit digit,
                                  unsigned* bins) {
  if (is_tied && digit.num_bins > 0) {
    atomicAdd(bins + digit_of(magnitude, digit), 1u);
  }
}

__device__ inline uint32_t found_digit(const SelectionTables& tables,
                                       const Chunk& chunk,
                                       Digit digit) {
  return digit_of(
      static_cast<uint32_t>(tables.progress[chunk.selection].threshold), digit);
}

// Marks the elements of a chunk by their first digit.
__device__ Marks divide_chunk(const SelectionTables& tables,
                              const Chunk& chunk,
                              unsigned* bins) {
  const float* sums =
      tables.selections[chunk.selection].selection.arguments.accumulated +
      chunk.place;
  const uint32_t threshold = found_digit(tables, chunk, kFirstDigit);
  const int first = warp_number() * kWarpWords * kWarpLanes + lane_number();
  uint32_t
      magnitudes[kWarpWords];  // all of them, so that all loads fly at once
  for (int word = 0; word < kWarpWords; ++word) {
    const int element = first + word * kWarpLanes;
    magnitudes[word] = element < chunk.size ? magnitude_of(sums[element]) : 0;
  }
  Marks marks = {};
  for (int word = 0; word < kWarpWords; ++word) {
    const bool is_there = first + word * kWarpLanes < chunk.size;
    const uint32_t digit = digit_of(magnitudes[word], kFirstDigit);
    const bool is_tied = is_there && digit == threshold;
    mark(marks, word, is_there && digit > threshold, is_tied);
    count_tied(is_tied, magnitudes[word], kSecondDigit, bins);
  }
  return marks;
}

// Marks the tied elements of a chunk by another digit.
__device__ void narrow_chunk(const SelectionTables& tables,
                             const Chunk& chunk,
                             Digit digit,
                             Digit next,
                             Marks& marks,
                             unsigned* bins) {
  const float* sums =
      tables.selections[chunk.selection].selection.arguments.accumulated +
      chunk.place;
  const uint32_t threshold = found_digit(tables, chunk, digit);
  const int first = warp_number() * kWarpWords * kWarpLanes + lane_number();
  const uint32_t before = marks.tied;
  uint32_t words = __ballot_sync(kWholeWarp, before != 0);
  for (; words != 0; words &= words - 1) {
    const int word = __ffs(static_cast<int>(words)) - 1;
    const bool was_tied =
        (__shfl_sync(kWholeWarp, before, word) >> lane_number() & 1u) != 0;
    const uint32_t magnitude =
        was_tied ? magnitude_of(sums[first + word * kWarpLanes]) : 0;
    const uint32_t found = digit_of(magnitude, digit);
    const bool is_tied = was_tied && found == threshold;
    mark(marks, word, was_tied && found > threshold, is_tied);
    count_tied(is_tied, magnitude, next, bins);
  }
}

// Counts the marks of a chunk when its last digit is found.
__device__ void count_marks(const Marks& marks, unsigned* sum, uint32_t* to) {
  const unsigned count = static_cast<unsigned>(__popc(marks.above)) << 16 |
                         static_cast<unsigned>(__popc(marks.tied));
  if (threadIdx.x == 0) {
    *sum = 0;
  }
  __syncthreads();
  if (count != 0) {
    atomicAdd(sum, count);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    *to = *sum;
  }
}

// The words of this thread's lane, for chunk `number`.
__device__ inline int64_t words_of(int64_t number) {
  return number * kChunkWords + warp_number() * kWarpWords + lane_number();
}

}  // namespace

// A thread adds up a few neighbouring bins, from the largest digit on; the one
// who reaches the rank knows the digit. It clears its bins for the next digit.
__global__ void find_digits(SelectionTables tables,
                            Digit digit,
                            int64_t* report) {
  __shared__ Count warp_sums[kWarps];
  const int64_t number = blockIdx.x;
  Progress& progress = tables.progress[number];
  Count* bins = tables.bins + number * kMaxBins;
  const int num_own = digit.num_bins / kThreads;
  const int highest =
      digit.num_bins - 1 - static_cast<int>(threadIdx.x) * num_own;
  const Count rank = progress.rank;
  Count sum = 0;
  for (int own = 0; own < num_own; ++own) {
    sum += bins[highest - own];
  }
  Count total = 0;
  Count above = sum_before(sum, warp_sums, total);
  const bool finds = above < rank && rank <= above + sum;
  for (int own = 0; own < num_own; ++own) {
    const Count count = bins[highest - own];
    bins[highest - own] = 0;
    if (finds && above < rank && rank <= above + count) {
      progress.threshold |= static_cast<uint64_t>(highest - own) << digit.shift;
      progress.rank = rank - above;
    }
    above += count;
  }
  if (finds && digit.shift == 0) {
    report[2 * number] = static_cast<int64_t>(progress.threshold);
    report[2 * number + 1] = static_cast<int64_t>(progress.num_nonfinite);
  }
}

// A warp marks 512 neighbouring elements. Reads 4 bytes an element, writes two
// bits.
__global__ void __launch_bounds__(kThreads)
    divide_elements(SelectionTables tables) {
  __shared__ unsigned bins[kMaxBins];
  clear_bins(bins);
  const int64_t end =
      first_chunk_of(blockIdx.x + int64_t{1}, tables.num_chunks);
  int64_t number = first_chunk_of(blockIdx.x, tables.num_chunks);
  while (number < end) {
    const Chunk chunk = chunk_at(tables, number);
    const Marks marks = divide_chunk(tables, chunk, bins);
    if (lane_number() < kWarpWords) {
      tables.above[words_of(number)] = marks.above;
      tables.tied[words_of(number)] = marks.tied;
    }
    ++number;
    if (number == end || tables.selection_of_chunk[number] != chunk.selection) {
      flush_bins(bins, tables.bins + int64_t{chunk.selection} * kMaxBins);
    }
  }
}

// As divide_elements, for the elements that are tied. Reads two bits of each
// element, and the tied ones.
__global__ void __launch_bounds__(kThreads)
    narrow_ties(SelectionTables tables, Digit digit, Digit next) {
  __shared__ unsigned bins[kMaxBins];
  __shared__ unsigned sum;
  clear_bins(bins);
  const int64_t end =
      first_chunk_of(blockIdx.x + int64_t{1}, tables.num_chunks);
  int64_t number = first_chunk_of(blockIdx.x, tables.num_chunks);
  while (number < end) {
    const Chunk chunk = chunk_at(tables, number);
    Marks marks = {};
    if (lane_number() < kWarpWords) {
      marks = {tables.above[words_of(number)], tables.tied[words_of(number)]};
    }
    const uint32_t before = marks.tied;
    narrow_chunk(tables, chunk, digit, next, marks, bins);
    if (before != 0) {
      tables.above[words_of(number)] = marks.above;
      tables.tied[words_of(number)] = marks.tied;
    }
    if (digit.shift == 0) {
      count_marks(marks, &sum, tables.marks + number);
    }
    ++number;
    if (next.num_bins > 0 &&
        (number == end ||
         tables.selection_of_chunk[number] != chunk.selection)) {
      flush_bins(bins, tables.bins + int64_t{chunk.selection} * kMaxBins);
    }
  }
}

}  // namespace hvs::cuda
