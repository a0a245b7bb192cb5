// Gives libFuzzer inputs that an encoder has written, which it would hardly
// find by itself. See [Note: fuzzing].
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fuzz_target.hpp"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data,
                                          size_t size,
                                          size_t max_size,
                                          unsigned int seed) {
  hvs::fuzz::Random random(seed);
  if (random.below(50) != 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const hvs::fuzz::Bytes example = hvs::fuzz::make_example(random);
  const size_t count = std::min(example.size(), max_size);
  std::copy_n(example.begin(), count, data);
  return count;
}
