// select_top_k() of arrays on a CUDA device, for many selections at once: the
// same bytes as select_top_k.hpp, whatever the blocks' order. A number of
// launches that does not depend on how many selections there are, but for
// uploads of 4 KiB of their descriptions each. Nothing is waited for, nothing
// allocated, and no float is added by an atomic. Reads and writes each element
// once, and reads its sum a second time; an element above the threshold or near
// it is read twice more. Defined only where kBuiltWithCuda.
#pragma once

#include <cstdint>
#include <vector>

#include "selection.hpp"

namespace hvs::cuda {

// Memory that select_top_k() needs while it runs: about a quarter of a byte for
// each element.
int64_t select_workspace_bytes(const std::vector<Selection>& selections);

// All pointers are of the device that is current. Sections start at multiples
// of 8; hints are not looked at. `report` is [selections, 2] of the device: the
// bits of the smallest selected magnitude, and how many sums were not finite.
// `workspace` starts at a multiple of 16. `stream` is a cudaStream_t. Throws
// std::runtime_error where CUDA refuses a launch.
void select_top_k(const std::vector<Selection>& selections,
                  int64_t* report,
                  void* workspace,
                  void* stream);

}  // namespace hvs::cuda
