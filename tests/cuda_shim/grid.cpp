// A launch: blocks one after the other, and a block's threads in turns.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "cuda_runtime_api.h"
#include "float_environment.hpp"
#include "machine.hpp"
#include "traps.hpp"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

// The linker's names for the ends of all __shared__ arrays; null without any.
extern "C" {
extern char __start_hvs_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_hvs_shared[] __attribute__((weak, visibility("hidden")));
}

namespace cuda_shim {
namespace {

constexpr unsigned kMaxBlockThreads = 1024;

void set_index(Fibre& fibre, size_t thread) {
  const unsigned number = static_cast<unsigned>(thread);
  fibre.index = {number % blockDim.x, number / blockDim.x % blockDim.y,
                 number / blockDim.x / blockDim.y};
}

// Returns whether the block came to its end.
bool run_block() {
  Machine& self = machine();
  if (__start_hvs_shared != nullptr) {
    // NaN as floats, -1 as integers, and something else the next time
    const int garbage = (blockIdx.x & 1u) != 0 ? 0x5A : 0xFF;
    std::memset(__start_hvs_shared, garbage,
                static_cast<size_t>(__stop_hvs_shared - __start_hvs_shared));
  }
  std::vector<size_t> order(self.num_threads);
  std::iota(order.begin(), order.end(), size_t{0});
  for (const size_t thread : order) {
    set_index(*self.fibres[thread], thread);
    self.fibres[thread]->state = State::kReady;
  }
  do {
    if (self.is_random) {
      std::shuffle(order.begin(), order.end(), self.random);
    }
    for (const size_t thread : order) {
      if (self.fibres[thread]->state == State::kReady) {
        self.current = thread;
        threadIdx = self.fibres[thread]->index;
        enter(*self.fibres[thread]);
        if (!self.reason.empty()) {
          return false;
        }
      }
    }
  } while (release_all());
  self.reason = complaint();
  return self.reason.empty();
}

void seed() {
  const char* text = std::getenv("HVS_CUDA_SHIM_SEED");
  const unsigned long number =
      text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
  machine().is_random = number != 0;
  machine().random.seed(static_cast<unsigned>(number));
}

// Runs all blocks; stops at the first that fails.
void run_blocks(dim3 grid) {
  const size_t num_blocks = size_t{grid.x} * grid.y * grid.z;
  std::vector<size_t> order(num_blocks);
  std::iota(order.begin(), order.end(), size_t{0});
  if (machine().is_random) {
    std::shuffle(order.begin(), order.end(), machine().random);
  }
  for (const size_t block : order) {
    blockIdx = {static_cast<unsigned>(block % grid.x),
                static_cast<unsigned>(block / grid.x % grid.y),
                static_cast<unsigned>(block / grid.x / grid.y)};
    if (!run_block()) {
      return;
    }
  }
}

bool is_valid(dim3 grid, dim3 block) {
  const bool grid_fits = grid.x > 0 && grid.x <= 0x7FFFFFFFu && grid.y > 0 &&
                         grid.y <= 65535 && grid.z > 0 && grid.z <= 65535;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return grid_fits && threads > 0 && threads <= kMaxBlockThreads &&
         block.z <= 64;
}

}  // namespace

cudaError_t run_grid(dim3 grid,
                     dim3 block,
                     cudaStream_t stream,
                     const std::function<void()>& body) {
  if (!is_valid(grid, block)) {
    return fail(cudaErrorInvalidConfiguration, "");
  }
  if (!is_stream(stream)) {
    return fail(cudaErrorInvalidResourceHandle, "");
  }
  Machine& self = machine();
  const std::lock_guard<std::mutex> one_at_a_time(self.mutex);
  ++self.num_launches;
  const hvs::cpu::DefaultFloatEnvironment environment;
  gridDim = grid;
  blockDim = block;
  self.num_threads = size_t{block.x} * block.y * block.z;
  while (self.fibres.size() < self.num_threads) {
    self.fibres.push_back(std::make_unique<Fibre>());
  }
  self.body = &body;
  self.reason.clear();
  seed();
  {
    const CaughtAddresses caught;
    run_blocks(grid);
  }
  if (self.reason.empty()) {
    return cudaSuccess;
  }
  for (const auto& fibre : self.fibres) {
    fibre->has_begun = false;  // what it was doing is given up
  }
  return fail(cudaErrorLaunchFailure, self.reason);
}

}  // namespace cuda_shim

// For tests: launches since the library was loaded.
extern "C" __attribute__((visibility("default"))) long
cuda_shim_num_launches() {
  return cuda_shim::machine().num_launches;
}
