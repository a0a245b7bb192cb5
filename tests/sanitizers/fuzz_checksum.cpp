// checksum: words at any address. See [Note: fuzzing].
#include <cstdint>

#include "checksum.hpp"
#include "counter_rng.hpp"
#include "fuzz_target.hpp"
#include "guarded_array.hpp"

namespace hvs::fuzz {
namespace {

struct Shape {
  uint64_t change;  // to a word
  uint16_t place;
  uint8_t threads_code;
};

uint64_t checksum_twin(const uint8_t* data, int64_t num_words) {
  uint64_t sum = 0;
  for (int64_t place = 0; place < num_words; ++place) {
    uint64_t word = 0;
    for (int byte = 7; byte >= 0; --byte) {
      word = word << 8 | data[8 * place + byte];
    }
    sum += mix64(word ^ mix64(static_cast<uint64_t>(place) + 1));
  }
  return sum;
}

}  // namespace

Bytes make_example(Random& random) {
  Bytes input(sizeof(Shape) + random.below(600));
  for (uint8_t& byte : input) {
    byte = static_cast<uint8_t>(random.bits());
  }
  return input;
}

}  // namespace hvs::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvs::fuzz;
  InputReader reader(data, size);
  const Shape shape = reader.shape<Shape>();
  // The array ends where a page does: so it begins at any address.
  GuardedArray<uint8_t> words(reader.left());
  const int64_t num_words = reader.left() / 8;
  reader.copy(words.data(), words.nbytes());
  const uint8_t* begin = words.data() + words.nbytes() % 8;
  const uint64_t expected = checksum_twin(begin, num_words);
  for (const auto instruction_set : instruction_sets()) {
    expect(hvs::cpu::checksum(begin, num_words, shape.threads_code % 4,
                              instruction_set) == expected,
           "the checksum of the twin");
  }
  note(num_words == 0 ? "nothing" : "words");
  if (num_words > 0 && shape.change != 0) {
    uint8_t* place =
        words.data() + words.nbytes() % 8 + 8 * (shape.place % num_words);
    uint64_t word;
    std::memcpy(&word, place, sizeof(word));
    word ^= shape.change;
    std::memcpy(place, &word, sizeof(word));
    expect(hvs::cpu::checksum(begin, num_words, 1,
                              hvs::cpu::best_instruction_set()) != expected,
           "another checksum after a change inside one word");
  }
  return 0;
}
