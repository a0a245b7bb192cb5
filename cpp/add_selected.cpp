#include "add_selected.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "float_bits.hpp"
#include "float_environment.hpp"
#include "parallel.hpp"
#include "top_k_kernels.hpp"

namespace hvs::cpu {
namespace {

#include "section_reader.inl"

struct RankSection {
  const uint8_t* bytes;
  std::vector<int64_t> begins;  // of each block
};

// Sums up one block. `gap` is how many elements of other shares are between two
// chunks where `sums` points.
template <ValueType kType>
void add_block(const SectionLayout& layout,
               const std::vector<RankSection>& sections,
               int64_t block,
               float scale,
               int64_t gap,
               float* sums) {
  const int64_t size = block_size(layout, block);
  const int64_t run = gap == 0 ? size : kChunkElements;
  for (int64_t begin = 0; begin < size; begin += run) {
    std::fill_n(sums + begin + begin / kChunkElements * gap,
                std::min(run, size - begin), 0.0f);
  }
  for (const RankSection& section : sections) {
    for_selected<kType>(
        layout, section.bytes, section.begins[static_cast<size_t>(block)],
        section.begins[static_cast<size_t>(block) + 1],
        [&](uint16_t inside, float value) {
          sums[inside + inside / kChunkElements * gap] += value * scale;
        });
  }
}

// Rounds a block's sums to where they are in the parameter, chunk by chunk.
void round_block(const AddArguments& arguments,
                 const TopKKernels& kernels,
                 int64_t first,
                 int64_t size,
                 const float* sums) {
  for (int64_t begin = 0; begin < size; begin += kChunkElements) {
    const int64_t count = std::min(kChunkElements, size - begin);
    const int64_t place = place_of(first + begin, arguments.share);
    kernels.round(sums + begin, arguments.type, count,
                  static_cast<uint16_t*>(arguments.out) + place);
  }
}

template <ValueType kType>
void add_blocks(const SectionLayout& layout,
                const AddArguments& arguments,
                const std::vector<RankSection>& sections,
                const TopKKernels& kernels,
                int64_t begin,
                int64_t end) {
  const bool direct = arguments.type == ElementType::kFloat32;
  const int64_t gap = (arguments.share.num_shares - 1) * kChunkElements;
  const std::unique_ptr<float[]> scratch(direct ? nullptr
                                                : new float[kBlockElements]);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kBlockElements;
    if (direct) {
      add_block<kType>(layout, sections, block, arguments.scale, gap,
                       static_cast<float*>(arguments.out) +
                           place_of(first, arguments.share));
    } else {
      add_block<kType>(layout, sections, block, arguments.scale, 0,
                       scratch.get());
      round_block(arguments, kernels, first, block_size(layout, block),
                  scratch.get());
    }
  }
}

}  // namespace

AddResult add_selected(const SectionLayout& layout,
                       const AddArguments& arguments,
                       int num_threads,
                       InstructionSet instruction_set) {
  std::vector<RankSection> sections;
  for (int64_t rank = 0; rank < arguments.num_ranks; ++rank) {
    if (arguments.is_skipped[rank]) {
      continue;
    }
    RankSection section = {
        arguments.payloads + rank * arguments.row_bytes + arguments.offset, {}};
    const SectionProblem problem =
        check_section(layout, section.bytes, section.begins);
    if (problem != SectionProblem::kNone) {
      return {rank, problem};
    }
    sections.push_back(std::move(section));
  }
  const TopKKernels& kernels = top_k_kernels(instruction_set);
  const auto add = layout.type == ValueType::kFloat32
                       ? add_blocks<ValueType::kFloat32>
                       : add_blocks<ValueType::kBFloat16>;
  parallel_for(layout.num_blocks,
               num_pieces(layout.num_blocks, kBlockElements, num_threads),
               [&](int, int64_t begin, int64_t end) {
                 const DefaultFloatEnvironment environment;
                 add(layout, arguments, sections, kernels, begin, end);
               });
  return {};
}

}  // namespace hvs::cpu
