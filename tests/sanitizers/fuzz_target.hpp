// [Note: fuzzing]
// Each fuzz_*.cpp feeds one decoder, or one encoder, with bytes. They are what
// libFuzzer expects, and driver.cpp stands in for it where there is no clang.
// The first bytes of an input say shapes and options, read so that all of them
// are allowed; the rest is what comes from the wire. A target copies that into
// arrays of exactly the right size (guarded_array.hpp), calls the kernel with
// each instruction set that the machine has, and compares with a twin that goes
// element by element and is written after the headers' contracts alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "counter_rng.hpp"
#include "instruction_set.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace hvs::fuzz {

using Bytes = std::vector<uint8_t>;

// Numbers that are the same everywhere, unlike those of std distributions.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix64(seed)) {}

  uint64_t bits() { return mix64(state_ += kGolden64); }
  uint64_t below(uint64_t limit) { return bits() % limit; }
  // In [-1, 1).
  float number() { return static_cast<float>(bits() >> 40) * 0x1p-23f - 1.0f; }

 private:
  uint64_t state_;
};

// Each target has one: an input as the encoder would write it.
Bytes make_example(Random& random);

// How often each outcome was seen, for the driver to tell.
inline std::map<std::string_view, int64_t>& outcomes() {
  static std::map<std::string_view, int64_t> counts;
  return counts;
}
inline void note(std::string_view outcome) {
  ++outcomes()[outcome];
}

// Ends the program where a kernel breaks its contract.
inline void expect(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "expected %s\n", what);
    std::abort();
  }
}

inline std::vector<cpu::InstructionSet> instruction_sets() {
  std::vector<cpu::InstructionSet> all;
  for (const auto each :
       {cpu::InstructionSet::kBaseline, cpu::InstructionSet::kAvx2,
        cpu::InstructionSet::kAvx512}) {
    if (each <= cpu::best_instruction_set()) {
      all.push_back(each);
    }
  }
  return all;
}

// Reads an input; zeros where it is too short.
class InputReader {
 public:
  InputReader(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  template <typename Shape>
  Shape shape() {
    Shape shape = {};
    copy(&shape, sizeof(shape));
    return shape;
  }
  // A number in [0, 100] as such; other bytes are numbers far out of range too.
  int64_t number() {
    int8_t byte = 0;
    copy(&byte, 1);
    return byte == INT8_MIN   ? INT64_MIN
           : byte == INT8_MAX ? INT64_MAX
           : byte > 100       ? int64_t{1} << (byte - 80)
                              : byte;
  }
  void copy(void* to, size_t size) {
    const size_t count = size < left_ ? size : left_;
    if (count != 0) {
      std::memcpy(to, data_, count);
    }
    if (count < size) {
      std::memset(static_cast<uint8_t*>(to) + count, 0, size - count);
    }
    data_ += count;
    left_ -= count;
  }
  int64_t left() const { return static_cast<int64_t>(left_); }

 private:
  const uint8_t* data_;
  size_t left_;
};

inline void append(const void* from, size_t size, Bytes& to) {
  const uint8_t* bytes = static_cast<const uint8_t*>(from);
  to.insert(to.end(), bytes, bytes + size);
}

}  // namespace hvs::fuzz
