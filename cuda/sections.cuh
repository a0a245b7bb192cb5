// What the kernels that read sections share: their tables.
//
// [Note: reading sections on a device]
// A row of a parameter has blocks (section.hpp), and each block belongs to one
// block of threads:
//   prepare         fills the tables in;
//   check_counts    adds up the counts of each row: where its blocks begin;
//   check_elements  looks at every index and value, and notes where the chunks
//                   of a block begin in it;
//   report          says for each parameter which row is corrupt first.
// What follows touches nothing if any row is corrupt. So it may trust the
// tables, as indices that ascend fill them in.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "block_scan.cuh"
#include "chunks.cuh"
#include "cuda_sections.hpp"
#include "float_bits.hpp"
#include "section.hpp"
#include "share.hpp"

namespace hvs::cuda {

// What is wrong with a row; the lowest bit counts, as cpu::SectionProblem has
// it.
constexpr uint32_t kBadCounts = 1;
constexpr uint32_t kBadIndices = 2;
constexpr uint32_t kBadValues = 4;

struct PlacedSections {
  const uint8_t* rows;
  int64_t row_bytes;
  int64_t offset;
  int64_t num_rows;
  int64_t num_elements;
  int64_t num_shares;
  void* array;
  ValueType type;
  cpu::ElementType array_type;
  int64_t first_row;       // among the rows of all parameters
  int64_t blocks_per_row;  // of the first row, which has no fewer than others
  int64_t first_block;     // among the blocks of all rows
  int64_t first_chunk;     // among the chunks of all parameters
};

// All in the workspace.
struct SectionsTables {
  PlacedSections* parameters;
  int64_t* ks;         // [rows]
  uint32_t* problems;  // [rows]
  uint32_t* parameter_of_row;
  uint32_t* parameter_of_block;
  uint32_t* parameter_of_chunk;
  int64_t* begins;  // [blocks]; the position of the first selected element
  uint32_t* chunk_begins;  // [blocks, kChunksPerBlock + 1]; from there
  uint32_t* num_corrupt;   // parameters
  int64_t num_parameters;
  int64_t num_rows;
  int64_t num_blocks;
  int64_t num_chunks;
};

// The section of one row.
struct RowSection {
  SectionLayout layout;
  Share share;
  const uint8_t* bytes;
};

__device__ inline RowSection section_of(const PlacedSections& parameter,
                                        int64_t row,
                                        int64_t k) {
  const Share share = {parameter.num_shares,
                       parameter.num_shares == 1 ? 0 : row};
  return {SectionLayout(share_elements(parameter.num_elements, share), k,
                        parameter.type),
          share, parameter.rows + row * parameter.row_bytes + parameter.offset};
}

__device__ inline int index_at(const RowSection& section, int64_t position) {
  return reinterpret_cast<const uint16_t*>(
      section.bytes + section.layout.index_begin)[position];
}

__device__ inline float value_at(const RowSection& section, int64_t position) {
  const uint8_t* values = section.bytes + section.layout.values_begin;
  return section.layout.type == ValueType::kFloat32
             ? reinterpret_cast<const float*>(values)[position]
             : from_bf16(reinterpret_cast<const uint16_t*>(values)[position]);
}

// The selected elements of one block of one row.
struct RowBlock {
  int64_t row;
  int64_t block;
  int64_t k;  // of the row; 0: there is nothing
};

__device__ inline RowBlock row_block_at(const SectionsTables& tables,
                                        const PlacedSections& parameter,
                                        int64_t number) {
  const int64_t place = number - parameter.first_block;
  const int64_t row = place / parameter.blocks_per_row;
  return {row, place % parameter.blocks_per_row,
          tables.ks[parameter.first_row + row]};
}

// Where the elements of a block end, in a section whose counts are right.
__device__ inline int64_t end_of(const SectionsTables& tables,
                                 const SectionLayout& layout,
                                 int64_t block,
                                 int64_t number) {
  return block + 1 < layout.num_blocks ? tables.begins[number + 1] : layout.k;
}

// The kernels, in the order in which they run; block shape: kThreads.
// One block a parameter, row, block, parameter;
__global__ void prepare_sections(SectionsTables tables);
__global__ void check_counts(SectionsTables tables);
__global__ void check_elements(SectionsTables tables);
__global__ void report_problems(SectionsTables tables, int64_t* report);
// and then any number of blocks, or one a block.
__global__ void add_chunks(SectionsTables tables, float scale);
__global__ void clear_elements(SectionsTables tables);
__global__ void restore_elements(SectionsTables tables);

}  // namespace hvs::cuda
