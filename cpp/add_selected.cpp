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

template <ValueType kType>
void add_block(const SectionLayout& layout,
               const std::vector<RankSection>& sections,
               int64_t block,
               float scale,
               float* sums) {
  std::fill_n(sums, block_size(layout, block), 0.0f);
  for (const RankSection& section : sections) {
    for_selected<kType>(
        layout, section.bytes, section.begins[static_cast<size_t>(block)],
        section.begins[static_cast<size_t>(block) + 1],
        [&](uint16_t inside, float value) { sums[inside] += value * scale; });
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
  const std::unique_ptr<float[]> scratch(direct ? nullptr
                                                : new float[kBlockElements]);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kBlockElements;
    if (direct) {
      add_block<kType>(layout, sections, block, arguments.scale,
                       static_cast<float*>(arguments.out) + first);
    } else {
      add_block<kType>(layout, sections, block, arguments.scale, scratch.get());
      kernels.round(scratch.get(), arguments.type, block_size(layout, block),
                    static_cast<uint16_t*>(arguments.out) + first);
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
