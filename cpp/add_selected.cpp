#include "add_selected.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "float_bits.hpp"
#include "float_environment.hpp"
#include "parallel.hpp"
#include "streamed_stores.hpp"
#include "top_k_kernels.hpp"

namespace hvs::cpu {
namespace {

#include "section_reader.inl"

// What is left of a rank's elements in a block.
struct Cursor {
  const uint8_t* index;
  const uint8_t* values;
  int64_t position;
  int64_t end;
};

// Adds the elements that are in chunk number `chunk` of the block.
template <ValueType kType>
void add_chunk(int64_t chunk, float scale, float* sums, Cursor& cursor) {
  int64_t position = cursor.position;  // in a register
  for (; position < cursor.end; ++position) {
    const int64_t inside = load_word16(cursor.index + 2 * position);
    if (inside / kChunkElements != chunk) {
      break;
    }
    sums[inside % kChunkElements] +=
        load_value<kType>(cursor.values, position) * scale;
  }
  cursor.position = position;
}

// Sums up a block, chunk by chunk: where the sums belong, or in `scratch`.
template <ValueType kType>
void add_block(const SectionLayout& layout,
               const SumArguments& arguments,
               const TopKKernels& kernels,
               bool streams,
               int64_t block,
               std::vector<Cursor>& cursors,
               float* scratch) {
  const bool is_float32 = arguments.type == ElementType::kFloat32;
  float* floats = static_cast<float*>(arguments.out);
  uint16_t* halves = static_cast<uint16_t*>(arguments.out);
  const int64_t size = block_size(layout, block);
  for (int64_t begin = 0; begin < size; begin += kChunkElements) {
    const int64_t count = std::min(kChunkElements, size - begin);
    const int64_t place =
        place_of(block * kBlockElements + begin, arguments.share);
    float* sums = is_float32 && !streams ? floats + place : scratch;
    if (!streams) {
      std::fill_n(sums, count, 0.0f);
    }
    for (Cursor& cursor : cursors) {
      add_chunk<kType>(begin / kChunkElements, arguments.scale, sums, cursor);
    }
    if (streams) {
      kernels.stream_out(sums, count, floats + place);
    } else if (!is_float32) {
      kernels.round(sums, arguments.type, count, halves + place);
    }
  }
}

template <ValueType kType>
void add_blocks(const SectionLayout& layout,
                const SumArguments& arguments,
                const TopKKernels& kernels,
                int64_t begin,
                int64_t end) {
  std::vector<Cursor> cursors;
  for (const RankSection& section : arguments.ranks) {
    cursors.push_back({section.bytes + layout.index_begin,
                       section.bytes + layout.values_begin,
                       section.begins[static_cast<size_t>(begin)], 0});
  }
  const bool streams =
      kernels.streams && arguments.type == ElementType::kFloat32 &&
      is_streamed(arguments.out, layout.num_elements, arguments.share);
  alignas(kLineBytes) float scratch[kChunkElements];
  if (streams) {
    std::fill_n(scratch, kChunkElements, 0.0f);  // streaming leaves it so
  }
  for (int64_t block = begin; block < end; ++block) {
    for (size_t rank = 0; rank < cursors.size(); ++rank) {
      cursors[rank].end =
          arguments.ranks[rank].begins[static_cast<size_t>(block) + 1];
    }
    add_block<kType>(layout, arguments, kernels, streams, block, cursors,
                     scratch);
  }
  finish_streaming();
}

}  // namespace

void add_selected(const SectionLayout& layout,
                  const SumArguments& arguments,
                  int num_threads,
                  InstructionSet instruction_set) {
  const TopKKernels& kernels = top_k_kernels(instruction_set);
  const auto add = layout.type == ValueType::kFloat32
                       ? add_blocks<ValueType::kFloat32>
                       : add_blocks<ValueType::kBFloat16>;
  parallel_for(layout.num_blocks,
               num_pieces(layout.num_blocks, kBlockElements, num_threads),
               [&](int, int64_t begin, int64_t end) {
                 const DefaultFloatEnvironment environment;
                 add(layout, arguments, kernels, begin, end);
               });
}

}  // namespace hvs::cpu
