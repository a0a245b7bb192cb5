// The threads of a block, of which one runs at a time.
#pragma once

#include <cstdint>

namespace cuda_shim {

constexpr int kWarpSize = 32;
constexpr uint32_t kWholeBlock = 0;  // no mask of a warp

// What a thread learns from those it met.
struct Met {
  uint64_t values[kWarpSize];  // of a warp: by lane, 0 outside the mask
  uint64_t sum;                // of a block
};

// Waits for the threads of `mask` in this thread's warp, or of the whole block,
// and returns what each has brought. Does not return where they do not come.
const Met& meet(uint32_t mask, uint64_t value, const char* file, int line);

// Gives up the launch, with a reason.
[[noreturn]] void give_up(const char* reason, const char* file, int line);

int lane_of_thread();

}  // namespace cuda_shim
