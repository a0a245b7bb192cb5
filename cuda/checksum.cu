#include "cuda_checksum.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "block_scan.cuh"
#include "counter_rng.hpp"
#include "launch.cuh"

namespace hvs::cuda {
namespace {

constexpr const char* kDoor = "checksum";
// Of each thread at least, so that adding up a block costs little.
constexpr int64_t kWordsPerThread = 16;
constexpr int64_t kMaxBlocksPerRow = 1024;

// A thread sums up every so many words of a row; a sum of integers has no
// order. Reads each byte once.
__global__ void __launch_bounds__(kThreads) sum_words(const uint64_t* data,
                                                      int64_t words_per_row,
                                                      int64_t blocks_per_row,
                                                      Count* sums) {
  __shared__ Count warp_sums[kWarps];
  const int64_t row = blockIdx.x / blocks_per_row;
  const int64_t block = blockIdx.x % blocks_per_row;
  const uint64_t* words = data + row * words_per_row;
  Count sum = 0;
  for (int64_t place = block * kThreads + threadIdx.x; place < words_per_row;
       place += blocks_per_row * kThreads) {
    sum += mix64(words[place] ^ mix64(static_cast<uint64_t>(place) + 1));
  }
  Count total = 0;
  sum_before(sum, warp_sums, total);
  if (threadIdx.x == 0) {
    atomicAdd(sums + row, total);
  }
}

}  // namespace

void checksum(const uint8_t* data,
              int64_t num_rows,
              int64_t words_per_row,
              uint64_t* sums,
              void* stream_address) {
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_address);
  check(kDoor,
        cudaMemsetAsync(sums, 0, static_cast<size_t>(8 * num_rows), stream));
  const int64_t blocks_per_row = std::clamp<int64_t>(
      words_per_row / (kWordsPerThread * kThreads), 1, kMaxBlocksPerRow);
  launch(kDoor, sum_words,
         dim3(static_cast<unsigned>(blocks_per_row * num_rows)), dim3(kThreads),
         stream, reinterpret_cast<const uint64_t*>(data), words_per_row,
         blocks_per_row, reinterpret_cast<Count*>(sums));
}

}  // namespace hvs::cuda
