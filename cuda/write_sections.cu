// The last kernels of select_top_k: see [Note: selecting on a device].
#include "selection.cuh"

namespace hvs::cuda {
namespace {

// Chunks that a thread of place_chunks() adds up by itself.
constexpr int kOwnChunks = 8;

// How many elements of a chunk are selected, of the ties only as many as are
// left.
__device__ inline int64_t taken(int64_t num_tied, int64_t num_ties) {
  return num_tied < num_ties ? num_tied : num_ties;
}

// Writes the counts of a section's blocks, and zeros between its parts.
__device__ void write_counts(const SectionLayout& layout,
                             const ChunkStart* starts,
                             int64_t num_chunks,
                             uint8_t* section) {
  uint32_t* counts = reinterpret_cast<uint32_t*>(section);
  for (int64_t block = threadIdx.x; block < layout.num_blocks;
       block += kThreads) {
    const int64_t next = (block + 1) * kChunksPerBlock;
    const int64_t end = next < num_chunks ? starts[next].position : layout.k;
    counts[block] =
        static_cast<uint32_t>(end - starts[block * kChunksPerBlock].position);
  }
  if (threadIdx.x == 0) {
    for (int64_t byte = layout.index_end; byte < layout.values_begin; ++byte) {
      section[byte] = 0;
    }
    for (int64_t byte = layout.values_end; byte < layout.nbytes; ++byte) {
      section[byte] = 0;
    }
  }
}

// The lowest `count` bits that are set.
__device__ inline uint32_t first_bits(uint32_t word, int64_t count) {
  while (__popc(word) > count) {
    word &= ~(0x80000000u >> __clz(static_cast<int>(word)));
  }
  return word;
}

// Writes one selected element, at a position in the section, and what it
// leaves.
__device__ inline void write_element(const Selection& selection,
                                     int64_t position,
                                     int64_t element,
                                     float* accumulated) {
  const SectionLayout& layout = selection.layout;
  uint8_t* section = selection.arguments.section;
  uint8_t* values = section + layout.values_begin;
  const float sum = *accumulated;
  reinterpret_cast<uint16_t*>(section + layout.index_begin)[position] =
      static_cast<uint16_t>(element % kBlockElements);
  if (layout.type == ValueType::kFloat32) {
    reinterpret_cast<float*>(values)[position] = sum;
    *accumulated = 0.0f;
  } else {
    const uint16_t value = bf16_value(sum);
    reinterpret_cast<uint16_t*>(values)[position] = value;
    *accumulated = sum - from_bf16(value);
  }
}

}  // namespace

// A block adds up the chunks of its selection, 2048 at a time.
__global__ void __launch_bounds__(kThreads)
    place_chunks(SelectionTables tables) {
  __shared__ Count warp_sums[kWarps];
  const PlacedSelection& placed = tables.selections[blockIdx.x];
  const SectionLayout& layout = placed.selection.layout;
  const int64_t num_chunks = num_chunks_of(layout.num_elements);
  const uint32_t* marks = tables.marks + placed.first_chunk;
  ChunkStart* starts = tables.starts + placed.first_chunk;
  const int64_t num_ties =
      static_cast<int64_t>(tables.progress[blockIdx.x].rank);
  int64_t num_above = 0;  // in the chunks before
  int64_t num_tied = 0;
  for (int64_t begin = 0; begin < num_chunks; begin += kThreads * kOwnChunks) {
    const int64_t first = begin + int64_t{threadIdx.x} * kOwnChunks;
    uint32_t own[kOwnChunks];
    Count sum = 0;  // above in the upper half, tied in the lower one
    for (int chunk = 0; chunk < kOwnChunks; ++chunk) {
      own[chunk] = first + chunk < num_chunks ? marks[first + chunk] : 0;
      sum += Count{own[chunk] >> 16} << 32 | (own[chunk] & 0xFFFFu);
    }
    Count total = 0;
    const Count before = sum_before(sum, warp_sums, total);
    int64_t above = num_above + static_cast<int64_t>(before >> 32);
    int64_t tied = num_tied + static_cast<int64_t>(before & 0xFFFFFFFFu);
    for (int chunk = 0; chunk < kOwnChunks; ++chunk) {
      if (first + chunk < num_chunks) {
        starts[first + chunk] = {above + taken(tied, num_ties),
                                 num_ties - taken(tied, num_ties)};
        above += own[chunk] >> 16;
        tied += own[chunk] & 0xFFFFu;
      }
    }
    num_above += static_cast<int64_t>(total >> 32);
    num_tied += static_cast<int64_t>(total & 0xFFFFFFFFu);
  }
  __syncthreads();
  write_counts(layout, starts, num_chunks, placed.selection.arguments.section);
}

// A thread finds out which elements of one word of marks are selected, and
// where the first of them goes; then a warp writes its 512 elements. Reads two
// bits of each element, and the selected ones.
__global__ void __launch_bounds__(kThreads)
    write_sections(SelectionTables tables) {
  __shared__ Count warp_sums[kWarps];
  __shared__ uint32_t selected[kChunkWords];
  __shared__ int offsets[kChunkWords];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t end =
      first_chunk_of(blockIdx.x + int64_t{1}, tables.num_chunks);
  for (int64_t number = first_chunk_of(blockIdx.x, tables.num_chunks);
       number < end; ++number) {
    if (tables.marks[number] == 0) {
      continue;  // the whole block
    }
    const Chunk chunk = chunk_at(tables, number);
    const ChunkStart start = tables.starts[number];
    uint32_t above = 0;
    uint32_t tied = 0;
    if (thread < kChunkWords) {
      above = tables.above[number * kChunkWords + thread];
      tied = tables.tied[number * kChunkWords + thread];
    }
    Count total = 0;
    const int64_t ties_before = static_cast<int64_t>(
        sum_before(static_cast<Count>(__popc(tied)), warp_sums, total));
    const int64_t num_ties =
        start.num_ties - taken(ties_before, start.num_ties);
    const uint32_t word = above | first_bits(tied, num_ties);
    const Count before =
        sum_before(static_cast<Count>(__popc(word)), warp_sums, total);
    if (thread < kChunkWords) {
      selected[thread] = word;
      offsets[thread] = static_cast<int>(before);
    }
    __syncthreads();
    const Selection& selection = tables.selections[chunk.selection].selection;
    for (int own = 0; own < kWarpWords; ++own) {
      const int place = warp_number() * kWarpWords + own;
      const uint32_t bits = selected[place];
      if ((bits >> lane_number() & 1u) != 0) {
        const uint32_t lower = (1u << lane_number()) - 1u;
        const int element = place * kWarpLanes + lane_number();
        write_element(selection,
                      start.position + offsets[place] + __popc(bits & lower),
                      chunk.element + element,
                      selection.arguments.accumulated + chunk.place + element);
      }
    }
    __syncthreads();  // the next chunk's words come there
  }
}

}  // namespace hvs::cuda
