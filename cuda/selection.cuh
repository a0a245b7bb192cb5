// What the kernels of select_top_k share: their tables, and how a block walks
// through chunks.
//
// [Note: selecting on a device]
// The elements of all selections are dealt to blocks in chunks (share.hpp). The
// threshold is found digit by digit, from the highest of a magnitude's 31 bits:
//   add        adds the gradients, and counts the first digits;
//   find       finds the first digit of each threshold among the counts;
//   divide     reads all sums again, and marks in two bits of each element
//              whether its first digit is above that of the threshold, or tied
//              with it; counts the second digits of those that are tied;
//   find, narrow, find, narrow
//              look at the tied ones only, which are few: they become elements
//              above, stay tied, or are out of it;
//   place      adds up the marks chunk by chunk: where each writes in the
//              section, and how many of its ties, lowest indices first, belong
//              to the selection;
//   write      writes the selected elements, and what they leave.
// So the order in which blocks run decides nothing: integers are added by
// atomics, and everything else has one writer.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "block_scan.cuh"
#include "chunks.cuh"
#include "cuda_select_top_k.hpp"
#include "float_bits.hpp"
#include "section.hpp"
#include "share.hpp"

namespace hvs::cuda {

constexpr int kChunkWords = kChunkSize / kWarpLanes;  // a mark for each element
constexpr int kWarpWords = kChunkWords / kWarps;
constexpr uint32_t kMagnitudeBits = 0x7FFFFFFFu;

// The digits of a magnitude, highest first.
struct Digit {
  int shift;
  int num_bins;
};
constexpr Digit kFirstDigit = {20, 2048};
constexpr Digit kSecondDigit = {10, 1024};
constexpr Digit kThirdDigit = {0, 1024};
constexpr int kMaxBins = kFirstDigit.num_bins;

struct PlacedSelection {
  Selection selection;
  int64_t first_chunk;  // among those of all selections
};

struct Progress {
  uint64_t threshold;  // its digits, as far as they are found
  Count rank;          // of the threshold among those that are tied, from 1
  Count num_nonfinite;
};

struct ChunkStart {
  int64_t position;  // in the section, of its first selected element
  int64_t num_ties;  // that are left for it and the chunks behind it
};

// All in the workspace.
struct SelectionTables {
  PlacedSelection* selections;
  Progress* progress;
  Count*
      bins;  // [selections, kMaxBins]; zeros but between counting and finding
  uint32_t* selection_of_chunk;
  uint32_t* above;  // [chunks, kChunkWords]
  uint32_t* tied;   // [chunks, kChunkWords]
  uint32_t*
      marks;  // [chunks]; how many are above, times 2^16, and how many tied
  ChunkStart* starts;
  int64_t num_selections;
  int64_t num_chunks;
};

// One chunk, of one selection.
struct Chunk {
  uint32_t selection;
  int64_t element;  // its first, in the share
  int64_t place;    // its first, in the parameter
  int size;
};

__device__ inline Chunk chunk_at(const SelectionTables& tables,
                                 int64_t number) {
  const uint32_t selection = tables.selection_of_chunk[number];
  const PlacedSelection& placed = tables.selections[selection];
  const int64_t element = (number - placed.first_chunk) * kChunkElements;
  const int64_t rest = placed.selection.layout.num_elements - element;
  return {selection, element,
          place_of(element, placed.selection.arguments.share),
          rest < kChunkElements ? static_cast<int>(rest) : kChunkSize};
}

// The chunks of a block: neighbours, so that most are of one selection.
__device__ inline int64_t first_chunk_of(int64_t block, int64_t num_chunks) {
  return block * num_chunks / static_cast<int64_t>(gridDim.x);
}

__device__ inline uint32_t magnitude_of(float sum) {
  return bits_of(sum) & kMagnitudeBits;
}

__device__ inline uint32_t digit_of(uint32_t magnitude, Digit digit) {
  return (magnitude >> digit.shift) & static_cast<uint32_t>(digit.num_bins - 1);
}

__device__ inline void clear_bins(unsigned* bins) {
  for (int bin = static_cast<int>(threadIdx.x); bin < kMaxBins;
       bin += kThreads) {
    bins[bin] = 0;
  }
  __syncthreads();
}

// Adds a block's counts to those of a selection, and clears them.
__device__ inline void flush_bins(unsigned* bins, Count* to) {
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < kMaxBins;
       bin += kThreads) {
    if (bins[bin] != 0) {
      atomicAdd(to + bin, static_cast<Count>(bins[bin]));
      bins[bin] = 0;
    }
  }
  __syncthreads();
}

// The kernels, in the order in which they run; block shape: kThreads.
// prepare, find, place: one block a selection. The others: any number of
// blocks.
__global__ void prepare_selections(SelectionTables tables);
__global__ void add_gradients(SelectionTables tables);
__global__ void find_digits(SelectionTables tables,
                            Digit digit,
                            int64_t* report);
__global__ void divide_elements(SelectionTables tables);
__global__ void narrow_ties(SelectionTables tables, Digit digit, Digit next);
__global__ void place_chunks(SelectionTables tables);
__global__ void write_sections(SelectionTables tables);

}  // namespace hvs::cuda
