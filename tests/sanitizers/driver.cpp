// Stands in for libFuzzer, see [Note: fuzzing]:
//
//   PROGRAM [--inputs N] [--seed S] [--first I]   makes inputs I to I + N - 1
//   PROGRAM FILE...                               takes inputs from files
//
// An input is a function of the seed and of its number. Where one ends the
// program, the last line says how to run it alone.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz_target.hpp"

namespace hvs::fuzz {
namespace {

// What is running, for the last line.
struct Running {
  const char* program;
  unsigned long long seed;
  unsigned long long number;
};
Running running;

void say_how_to_repeat() {
  std::fprintf(stderr, "repeat: %s --seed %llu --first %llu --inputs 1\n",
               running.program, running.seed, running.number);
}

void flip_bits(Random& random, Bytes& input) {
  for (uint64_t left = 1 + random.below(4); left > 0; --left) {
    input[random.below(input.size())] ^=
        static_cast<uint8_t>(1u << random.below(8));
  }
}

// Stretches of one byte: zeros, infinities, numbers that are too large.
void write_bytes(Random& random, Bytes& input) {
  constexpr uint8_t kSpecial[] = {0x00, 0x01, 0x7F, 0x80, 0xC0, 0xFF};
  for (uint64_t left = 1 + random.below(4); left > 0; --left) {
    const size_t begin = random.below(input.size());
    const size_t end = std::min(input.size(), begin + 1 + random.below(4));
    std::fill(input.begin() + static_cast<ptrdiff_t>(begin),
              input.begin() + static_cast<ptrdiff_t>(end),
              kSpecial[random.below(std::size(kSpecial))]);
  }
}

// Shorter, or with random bytes behind.
void change_size(Random& random, Bytes& input) {
  if (random.below(2) == 0) {
    input.resize(random.below(input.size()));
  } else {
    for (uint64_t left = 1 + random.below(40); left > 0; --left) {
      input.push_back(static_cast<uint8_t>(random.bits()));
    }
  }
}

// The end of another input, from the same place.
void splice(Random& random, Bytes& input) {
  const Bytes other = make_example(random);
  const size_t place = random.below(std::min(input.size(), other.size()));
  input.resize(place);
  input.insert(input.end(), other.begin() + static_cast<ptrdiff_t>(place),
               other.end());
}

// A stretch of the input in another place.
void copy_within(Random& random, Bytes& input) {
  const size_t count = 1 + random.below(std::min<size_t>(input.size(), 64));
  const size_t from = random.below(input.size() - count + 1);
  const size_t to = random.below(input.size() - count + 1);
  std::memmove(input.data() + to, input.data() + from, count);
}

void randomise(Random& random, Bytes& input) {
  input.resize(random.below(300));
  for (uint8_t& byte : input) {
    byte = static_cast<uint8_t>(random.bits());
  }
}

Bytes make_input(uint64_t seed, uint64_t number) {
  using Mutation = void (*)(Random&, Bytes&);
  constexpr Mutation kMutations[] = {flip_bits, write_bytes, change_size,
                                     splice,    copy_within, randomise};
  Random random(seed ^ mix64(number + 1));
  Bytes input = make_example(random);
  // Most are changed in one way, some in none or in several
  for (uint64_t left = random.below(4) == 0 ? random.below(3) : 1; left > 0;
       --left) {
    if (!input.empty()) {
      kMutations[random.below(std::size(kMutations))](random, input);
    }
  }
  return input;
}

void run_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  expect(file.good(), "a file that can be read");
  const Bytes input{std::istreambuf_iterator<char>(file), {}};
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

void run_made(uint64_t seed, uint64_t first, uint64_t num_inputs) {
  for (uint64_t left = num_inputs; left > 0; --left) {
    running.seed = seed;
    running.number = first++;
    const Bytes input = make_input(running.seed, running.number);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

void print_outcomes(uint64_t num_inputs) {
  std::printf("%llu inputs", static_cast<unsigned long long>(num_inputs));
  for (const auto& [outcome, count] : outcomes()) {
    std::printf("; %s: %lld", std::string(outcome).c_str(),
                static_cast<long long>(count));
  }
  std::printf("\n");
}

int run(int count, char** arguments) {
  uint64_t num_inputs = 1000;
  uint64_t seed = 0;
  uint64_t first = 0;
  int place = 1;
  for (; place + 1 < count && arguments[place][0] == '-'; place += 2) {
    const std::string option = arguments[place];
    const uint64_t value = std::strtoull(arguments[place + 1], nullptr, 10);
    expect(option == "--inputs" || option == "--seed" || option == "--first",
           "--inputs, --seed or --first");
    (option == "--inputs" ? num_inputs
     : option == "--seed" ? seed
                          : first) = value;
  }
  if (place < count) {
    for (; place < count; ++place) {
      run_file(arguments[place]);
    }
    return 0;
  }
  running.program = arguments[0];
  std::signal(SIGABRT, [](int) { say_how_to_repeat(); });
  run_made(seed, first, num_inputs);
  std::signal(SIGABRT, SIG_DFL);  // a leak, found from here on, is of no input
  print_outcomes(num_inputs);
  return 0;
}

}  // namespace
}  // namespace hvs::fuzz

// Sanitizers end the program as expect() does, by a signal that it can catch.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1";
}
extern "C" const char* __ubsan_default_options() {
  return "abort_on_error=1:print_stacktrace=1";
}

int main(int count, char** arguments) {
  return hvs::fuzz::run(count, arguments);
}
