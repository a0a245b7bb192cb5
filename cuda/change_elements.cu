// What clear_selected and restore_selected do to selected elements, after
// [Note: reading sections on a device].
#include "sections.cuh"

namespace hvs::cuda {
namespace {

// Calls function(element of the array, value) for the selected elements of this
// thread: every 256th of its block.
template <typename Function>
__device__ void for_selected(const SectionsTables& tables, Function function) {
  const int64_t number = blockIdx.x;
  if (*tables.num_corrupt != 0) {
    return;
  }
  const PlacedSections& parameter =
      tables.parameters[tables.parameter_of_block[number]];
  const auto [row, block, k] = row_block_at(tables, parameter, number);
  if (k == 0) {
    return;
  }
  const RowSection section = section_of(parameter, row, k);
  if (block >= section.layout.num_blocks) {
    return;
  }
  float* array = static_cast<float*>(parameter.array);
  const int64_t end = end_of(tables, section.layout, block, number);
  for (int64_t position = tables.begins[number] + threadIdx.x; position < end;
       position += kThreads) {
    const int64_t element =
        block * kBlockElements + index_at(section, position);
    function(array[place_of(element, section.share)],
             value_at(section, position));
  }
}

}  // namespace

__global__ void clear_elements(SectionsTables tables) {
  for_selected(tables, [](float& element, float) { element = 0.0f; });
}

__global__ void restore_elements(SectionsTables tables) {
  for_selected(tables, [](float& element, float value) { element += value; });
}

}  // namespace hvs::cuda
