#include <algorithm>
#include <vector>

#include "launch.cuh"
#include "processors.cuh"
#include "selection.cuh"
#include "upload.cuh"
#include "workspace.cuh"

namespace hvs::cuda {
namespace {

constexpr const char* kDoor = "select_top_k";
// Enough blocks to fill every multiprocessor twice over: those that end early
// make room for others.
constexpr int64_t kBlocksPerProcessor = 16;

// Lays the tables out; from null, for their size only.
int64_t make_tables(const std::vector<Selection>& selections,
                    void* memory,
                    SelectionTables& tables) {
  tables.num_selections = static_cast<int64_t>(selections.size());
  tables.num_chunks = 0;
  for (const Selection& selection : selections) {
    tables.num_chunks += num_chunks_of(selection.layout.num_elements);
  }
  Workspace workspace(memory);
  tables.selections = workspace.take<PlacedSelection>(tables.num_selections);
  tables.progress = workspace.take<Progress>(tables.num_selections);
  tables.bins = workspace.take<Count>(tables.num_selections * kMaxBins);
  tables.selection_of_chunk = workspace.take<uint32_t>(tables.num_chunks);
  tables.above = workspace.take<uint32_t>(tables.num_chunks * kChunkWords);
  tables.tied = workspace.take<uint32_t>(tables.num_chunks * kChunkWords);
  tables.marks = workspace.take<uint32_t>(tables.num_chunks);
  tables.starts = workspace.take<ChunkStart>(tables.num_chunks);
  return workspace.used();
}

void upload_selections(const std::vector<Selection>& selections,
                       const SelectionTables& tables,
                       cudaStream_t stream) {
  std::vector<PlacedSelection> placed;
  int64_t first_chunk = 0;
  for (const Selection& selection : selections) {
    placed.push_back({selection, first_chunk});
    first_chunk += num_chunks_of(selection.layout.num_elements);
  }
  upload(kDoor, placed, tables.selections, stream);
}

}  // namespace

int64_t select_workspace_bytes(const std::vector<Selection>& selections) {
  SelectionTables tables;
  return make_tables(selections, nullptr, tables);
}

void select_top_k(const std::vector<Selection>& selections,
                  int64_t* report,
                  void* workspace,
                  void* stream_address) {
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_address);
  SelectionTables tables;
  make_tables(selections, workspace, tables);
  upload_selections(selections, tables, stream);

  const dim3 each_selection(static_cast<unsigned>(tables.num_selections));
  const dim3 chunks(static_cast<unsigned>(std::min(
      tables.num_chunks, kBlocksPerProcessor * num_processors(kDoor))));
  const Digit none = {};
  const auto start = [&](dim3 grid, auto kernel, const auto&... arguments) {
    launch(kDoor, kernel, grid, dim3(kThreads), stream, tables, arguments...);
  };
  start(each_selection, prepare_selections);
  start(chunks, add_gradients);
  start(each_selection, find_digits, kFirstDigit, report);
  start(chunks, divide_elements);
  start(each_selection, find_digits, kSecondDigit, report);
  start(chunks, narrow_ties, kSecondDigit, kThirdDigit);
  start(each_selection, find_digits, kThirdDigit, report);
  start(chunks, narrow_ties, kThirdDigit, none);
  start(each_selection, place_chunks);
  start(chunks, write_sections);
}

}  // namespace hvs::cuda
