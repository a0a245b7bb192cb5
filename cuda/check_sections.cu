// How sections from the wire are checked: see [Note: reading sections on a
// device].
#include "sections.cuh"

namespace hvs::cuda {
namespace {

__device__ void fill(uint32_t* to, int64_t count, uint32_t value) {
  for (int64_t place = threadIdx.x; place < count; place += kThreads) {
    to[place] = value;
  }
}

// Notes where the chunks up to that of index `inside` begin, which is at
// `position` and the first of its chunk, or one behind the last chunk.
__device__ inline void begin_chunks(uint32_t* begins,
                                    int previous,
                                    int inside,
                                    int64_t position) {
  const int first = previous < 0 ? 0 : previous / kChunkSize + 1;
  for (int chunk = first; chunk <= inside / kChunkSize; ++chunk) {
    begins[chunk] = static_cast<uint32_t>(position);
  }
}

}  // namespace

// A block fills in the tables of its parameter.
__global__ void prepare_sections(SectionsTables tables) {
  const uint32_t number = blockIdx.x;
  const PlacedSections& parameter = tables.parameters[number];
  const int64_t num_chunks = num_chunks_of(parameter.num_elements);
  if (number == 0) {
    fill(tables.num_corrupt, 1, 0);
  }
  fill(tables.problems + parameter.first_row, parameter.num_rows, 0);
  fill(tables.parameter_of_row + parameter.first_row, parameter.num_rows,
       number);
  fill(tables.parameter_of_block + parameter.first_block,
       parameter.num_rows * parameter.blocks_per_row, number);
  fill(tables.parameter_of_chunk + parameter.first_chunk, num_chunks, number);
}

// A thread looks at the count of one block of its row.
__global__ void check_counts(SectionsTables tables) {
  __shared__ Count warp_sums[kWarps];
  const PlacedSections& parameter =
      tables.parameters[tables.parameter_of_row[blockIdx.x]];
  const int64_t row = blockIdx.x - parameter.first_row;
  const int64_t k = tables.ks[blockIdx.x];
  if (k == 0) {
    return;
  }
  const RowSection section = section_of(parameter, row, k);
  const uint32_t* counts = reinterpret_cast<const uint32_t*>(section.bytes);
  int64_t* begins =
      tables.begins + parameter.first_block + row * parameter.blocks_per_row;
  Count end = 0;
  bool is_wrong = false;
  for (int64_t first = 0; first < section.layout.num_blocks;
       first += kThreads) {
    const int64_t block = first + threadIdx.x;
    const bool is_there = block < section.layout.num_blocks;
    const Count count = is_there ? counts[block] : 0;
    Count total = 0;
    const Count before = sum_before(count, warp_sums, total);
    if (is_there) {
      begins[block] = static_cast<int64_t>(end + before);
      is_wrong |= count > static_cast<Count>(block_size(section.layout, block));
    }
    end += total;
  }
  if (is_wrong || end != static_cast<Count>(k)) {
    atomicOr(tables.problems + blockIdx.x, kBadCounts);
  }
}

// A thread looks at every 256th element of its block. Reads the section once,
// and each index a second time, from the caches.
__global__ void check_elements(SectionsTables tables) {
  const int64_t number = blockIdx.x;
  const PlacedSections& parameter =
      tables.parameters[tables.parameter_of_block[number]];
  const auto [row, block, k] = row_block_at(tables, parameter, number);
  uint32_t* problems = tables.problems + parameter.first_row + row;
  if (k == 0 || (*problems & kBadCounts) != 0) {
    return;
  }
  const RowSection section = section_of(parameter, row, k);
  if (block >= section.layout.num_blocks) {
    return;
  }
  uint32_t* chunk_begins = tables.chunk_begins + number * (kChunksPerBlock + 1);
  const int64_t begin = tables.begins[number];
  const int64_t end = end_of(tables, section.layout, block, number);
  const int size = static_cast<int>(block_size(section.layout, block));
  uint32_t found = 0;
  for (int64_t position = begin + threadIdx.x; position < end;
       position += kThreads) {
    const int inside = index_at(section, position);
    const int previous =
        position > begin ? index_at(section, position - 1) : -1;
    found |= inside <= previous || inside >= size ? kBadIndices : 0;
    found |= is_finite(value_at(section, position)) ? 0 : kBadValues;
    begin_chunks(chunk_begins, previous, inside, position - begin);
    if (position == end - 1) {
      begin_chunks(chunk_begins, inside, kBlockElements, end - begin);
    }
  }
  if (begin == end && threadIdx.x == 0) {
    begin_chunks(chunk_begins, -1, kBlockElements, 0);
  }
  if (found != 0) {
    atomicOr(problems, found);
  }
}

// A thread looks at every 256th row of its parameter.
__global__ void report_problems(SectionsTables tables, int64_t* report) {
  __shared__ int first_row;
  const PlacedSections& parameter = tables.parameters[blockIdx.x];
  const int num_rows = static_cast<int>(parameter.num_rows);
  const uint32_t* problems = tables.problems + parameter.first_row;
  if (threadIdx.x == 0) {
    first_row = num_rows;
  }
  __syncthreads();
  for (int row = static_cast<int>(threadIdx.x); row < num_rows;
       row += kThreads) {
    if (problems[row] != 0) {
      atomicMin(&first_row, row);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const bool is_corrupt = first_row < num_rows;
    if (is_corrupt) {
      atomicAdd(tables.num_corrupt, 1u);
    }
    report[2 * int64_t{blockIdx.x}] = is_corrupt ? first_row : -1;
    report[2 * int64_t{blockIdx.x} + 1] =
        is_corrupt ? __ffs(static_cast<int>(problems[first_row])) : 0;
  }
}

}  // namespace hvs::cuda
