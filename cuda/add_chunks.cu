// The sum of all ranks' selected elements: the last kernel of add_selected,
// after [Note: reading sections on a device].
#include "fp16_bits.hpp"
#include "sections.cuh"

namespace hvs::cuda {
namespace {

// Rows whose places in a chunk are looked up at once, and those of them whose
// first elements are loaded at once, so that one wait for memory does for all.
constexpr int kRows = 64;
constexpr int kRowsAtOnce = 4;

// A row's selected elements in one chunk.
struct RowPart {
  int64_t begin;
  int count;
};

struct Element {
  int inside;  // its number in the chunk
  float value;
};

__device__ inline Element element_at(const RowSection& section,
                                     int64_t position) {
  return {index_at(section, position) % kChunkSize,
          value_at(section, position)};
}

__device__ RowPart part_of(const SectionsTables& tables,
                           const PlacedSections& parameter,
                           int64_t row,
                           int64_t chunk_of_share) {
  if (tables.ks[parameter.first_row + row] == 0) {
    return {0, 0};
  }
  const int64_t number = parameter.first_block +
                         row * parameter.blocks_per_row +
                         chunk_of_share / kChunksPerBlock;
  const uint32_t* chunk_begins = tables.chunk_begins +
                                 number * (kChunksPerBlock + 1) +
                                 chunk_of_share % kChunksPerBlock;
  return {tables.begins[number] + chunk_begins[0],
          static_cast<int>(chunk_begins[1] - chunk_begins[0])};
}

// Adds rows `first` to `end` of the parameter, at most kRowsAtOnce, in their
// order. Rows meet at a barrier, since an element of two rows has two threads.
__device__ void add_rows(const SectionsTables& tables,
                         const PlacedSections& parameter,
                         int64_t first,
                         int64_t end,
                         const RowPart* parts,
                         float scale,
                         float* sums) {
  const int thread = static_cast<int>(threadIdx.x);
  Element elements[kRowsAtOnce] = {};
  for (int number = 0; number < kRowsAtOnce; ++number) {
    if (first + number < end && thread < parts[number].count) {
      const int64_t row = first + number;
      elements[number] = element_at(
          section_of(parameter, row, tables.ks[parameter.first_row + row]),
          parts[number].begin + thread);
    }
  }
  for (int number = 0; number < kRowsAtOnce; ++number) {
    if (first + number >= end || parts[number].count == 0) {
      continue;  // the whole block
    }
    if (thread < parts[number].count) {
      sums[elements[number].inside] += elements[number].value * scale;
    }
    if (kThreads < parts[number].count) {
      const int64_t row = first + number;
      const RowSection section =
          section_of(parameter, row, tables.ks[parameter.first_row + row]);
      for (int next = thread + kThreads; next < parts[number].count;
           next += kThreads) {
        const Element element = element_at(section, parts[number].begin + next);
        sums[element.inside] += element.value * scale;
      }
    }
    __syncthreads();
  }
}

__device__ void write_chunk(const PlacedSections& parameter,
                            int64_t element,
                            const float* sums) {
  const int64_t rest = parameter.num_elements - element;
  const int size = rest < kChunkElements ? static_cast<int>(rest) : kChunkSize;
  float* floats = static_cast<float*>(parameter.array) + element;
  uint16_t* halves = static_cast<uint16_t*>(parameter.array) + element;
  for (int place = static_cast<int>(threadIdx.x); place < size;
       place += kThreads) {
    if (parameter.array_type == cpu::ElementType::kFloat32) {
      floats[place] = sums[place];
    } else if (parameter.array_type == cpu::ElementType::kFloat16) {
      halves[place] = fp16_nearest(sums[place]);
    } else {
      halves[place] = bf16_nearest(sums[place]);
    }
  }
}

}  // namespace

// A block adds up one chunk after the other in shared memory. Reads the
// selected elements, writes every element. One chunk takes 17 KiB, of which a
// multiprocessor has room for as many as it has threads for.
__global__ void __launch_bounds__(kThreads)
    add_chunks(SectionsTables tables, float scale) {
  __shared__ float sums[kChunkSize];
  __shared__ RowPart parts[kRows];
  const int thread = static_cast<int>(threadIdx.x);
  if (*tables.num_corrupt != 0) {
    return;
  }
  for (int64_t number = blockIdx.x; number < tables.num_chunks;
       number += gridDim.x) {
    const PlacedSections& parameter =
        tables.parameters[tables.parameter_of_chunk[number]];
    const int64_t chunk = number - parameter.first_chunk;
    const bool is_shared = parameter.num_shares > 1;
    const int64_t owner = chunk % parameter.num_shares;
    const int64_t first_row = is_shared ? owner : 0;
    const int64_t end_row = is_shared ? owner + 1 : parameter.num_rows;
    for (int element = thread; element < kChunkSize; element += kThreads) {
      sums[element] = 0.0f;
    }
    for (int64_t row = first_row; row < end_row; row += kRows) {
      __syncthreads();
      if (thread < kRows && row + thread < end_row) {
        parts[thread] = part_of(tables, parameter, row + thread,
                                chunk / parameter.num_shares);
      }
      __syncthreads();
      const int64_t end = row + kRows < end_row ? row + kRows : end_row;
      for (int64_t first = row; first < end; first += kRowsAtOnce) {
        add_rows(tables, parameter, first, end, parts + (first - row), scale,
                 sums);
      }
    }
    __syncthreads();
    write_chunk(parameter, chunk * kChunkElements, sums);
    __syncthreads();
  }
}

}  // namespace hvs::cuda
