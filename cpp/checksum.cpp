#include "checksum.hpp"

#include <vector>

#include "parallel.hpp"
#include "top_k_kernels.hpp"

namespace hvs::cpu {

uint64_t checksum(const uint8_t* data,
                  int64_t num_words,
                  int num_threads,
                  InstructionSet instruction_set) {
  const TopKKernels& kernels = top_k_kernels(instruction_set);
  const int pieces = num_pieces(num_words, 1, num_threads);
  std::vector<uint64_t> sums(static_cast<size_t>(pieces));
  parallel_for(num_words, pieces, [&](int piece, int64_t begin, int64_t end) {
    sums[static_cast<size_t>(piece)] = kernels.sum_words(data, begin, end);
  });
  uint64_t total = 0;
  for (const uint64_t sum : sums) {
    total += sum;
  }
  return total;
}

}  // namespace hvs::cpu
