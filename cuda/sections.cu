#include <algorithm>
#include <vector>

#include "launch.cuh"
#include "processors.cuh"
#include "sections.cuh"
#include "upload.cuh"
#include "workspace.cuh"

namespace hvs::cuda {
namespace {

// Blocks for each multiprocessor: as many as fit, twice over.
constexpr int64_t kBlocksPerProcessor = 16;

int64_t blocks_per_row(const Sections& sections) {
  const int64_t elements =
      share_elements(sections.num_elements, {sections.num_shares, 0});
  return (elements + kBlockElements - 1) / kBlockElements;
}

// Lays the tables out; from null, for their size only.
int64_t make_tables(const std::vector<Sections>& all,
                    void* memory,
                    SectionsTables& tables) {
  tables = {};
  tables.num_parameters = static_cast<int64_t>(all.size());
  for (const Sections& sections : all) {
    tables.num_rows += sections.num_rows();
    tables.num_blocks += sections.num_rows() * blocks_per_row(sections);
    tables.num_chunks += num_chunks_of(sections.num_elements);
  }
  Workspace workspace(memory);
  tables.parameters = workspace.take<PlacedSections>(tables.num_parameters);
  tables.ks = workspace.take<int64_t>(tables.num_rows);
  tables.problems = workspace.take<uint32_t>(tables.num_rows);
  tables.parameter_of_row = workspace.take<uint32_t>(tables.num_rows);
  tables.parameter_of_block = workspace.take<uint32_t>(tables.num_blocks);
  tables.parameter_of_chunk = workspace.take<uint32_t>(tables.num_chunks);
  tables.num_corrupt = workspace.take<uint32_t>(1);
  tables.begins = workspace.take<int64_t>(tables.num_blocks);
  tables.chunk_begins =
      workspace.take<uint32_t>(tables.num_blocks * (kChunksPerBlock + 1));
  return workspace.used();
}

void upload_sections(const char* door,
                     const std::vector<Sections>& all,
                     const SectionsTables& tables,
                     cudaStream_t stream) {
  std::vector<PlacedSections> placed;
  std::vector<int64_t> ks;
  int64_t first_row = 0;
  int64_t first_block = 0;
  int64_t first_chunk = 0;
  for (const Sections& sections : all) {
    placed.push_back({sections.rows, sections.row_bytes, sections.offset,
                      sections.num_rows(), sections.num_elements,
                      sections.num_shares, sections.array, sections.type,
                      sections.array_type, first_row, blocks_per_row(sections),
                      first_block, first_chunk});
    for (size_t row = 0; row < sections.ks.size(); ++row) {
      ks.push_back(sections.is_skipped[row] ? 0 : sections.ks[row]);
    }
    first_row += sections.num_rows();
    first_block += sections.num_rows() * blocks_per_row(sections);
    first_chunk += num_chunks_of(sections.num_elements);
  }
  upload(door, placed, tables.parameters, stream);
  upload(door, ks, tables.ks, stream);
}

dim3 grid_of(int64_t count) {
  return dim3(static_cast<unsigned>(count));
}

// Makes the tables, and checks all sections.
SectionsTables check_all(const char* door,
                         const std::vector<Sections>& all,
                         int64_t* report,
                         void* workspace,
                         cudaStream_t stream) {
  SectionsTables tables;
  make_tables(all, workspace, tables);
  upload_sections(door, all, tables, stream);
  const dim3 block(kThreads);
  launch(door, prepare_sections, grid_of(tables.num_parameters), block, stream,
         tables);
  launch(door, check_counts, grid_of(tables.num_rows), block, stream, tables);
  launch(door, check_elements, grid_of(tables.num_blocks), block, stream,
         tables);
  launch(door, report_problems, grid_of(tables.num_parameters), block, stream,
         tables, report);
  return tables;
}

}  // namespace

int64_t sections_workspace_bytes(const std::vector<Sections>& all) {
  SectionsTables tables;
  return make_tables(all, nullptr, tables);
}

void add_selected(const std::vector<Sections>& all,
                  float scale,
                  int64_t* report,
                  void* workspace,
                  void* stream_address) {
  const char* door = "add_selected";
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_address);
  const SectionsTables tables = check_all(door, all, report, workspace, stream);
  const int64_t num_blocks =
      std::min(tables.num_chunks, kBlocksPerProcessor * num_processors(door));
  launch(door, add_chunks, grid_of(num_blocks), dim3(kThreads), stream, tables,
         scale);
}

void clear_selected(const std::vector<Sections>& all,
                    int64_t* report,
                    void* workspace,
                    void* stream_address) {
  const char* door = "clear_selected";
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_address);
  const SectionsTables tables = check_all(door, all, report, workspace, stream);
  launch(door, clear_elements, grid_of(tables.num_blocks), dim3(kThreads),
         stream, tables);
}

void restore_selected(const std::vector<Sections>& all,
                      int64_t* report,
                      void* workspace,
                      void* stream_address) {
  const char* door = "restore_selected";
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_address);
  const SectionsTables tables = check_all(door, all, report, workspace, stream);
  launch(door, restore_elements, grid_of(tables.num_blocks), dim3(kThreads),
         stream, tables);
}

}  // namespace hvs::cuda
