// A target with the faults that the others must not have: the input names one.
// See [Note: fuzzing].
#include <cstdint>
#include <string>
#include <thread>

#include "fuzz_target.hpp"
#include "guarded_array.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace hvs::fuzz {
namespace {

void write_behind(volatile uint8_t* array, int64_t place) {
  array[place] = 1;
}

// By a store that no compiler instruments.
void stream_behind(float* place) {
#if defined(__x86_64__)
  _mm_stream_ps(place, _mm_set1_ps(1.0f));
#else
  *place = 1.0f;
#endif
}

void leave_behind() {
  volatile uint8_t* lost = new uint8_t[100];
  lost[0] = 1;
}

int race() {
  int shared = 0;
  std::thread other([&] { ++shared; });
  ++shared;
  other.join();
  return shared;
}

}  // namespace

Bytes make_example(Random& random) {
  constexpr const char* kNames[] = {"overrun", "underrun", "shift", "contract"};
  const std::string name = kNames[random.below(4)];
  return Bytes(name.begin(), name.end());
}

}  // namespace hvs::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvs::fuzz;
  const std::string fault(reinterpret_cast<const char*>(data), size);
  GuardedArray<uint8_t> array(100);
  volatile int number = static_cast<int>(fault.size());
  if (fault == "overrun") {
    write_behind(array.data(), 100);
  } else if (fault == "streamed overrun") {
    GuardedArray<float> floats(32);
    stream_behind(floats.data() + 32);
  } else if (fault == "underrun") {
    write_behind(array.data(), -8);
  } else if (fault == "byte before") {
    write_behind(array.data(), -1);
  } else if (fault == "leak") {
    leave_behind();
  } else if (fault == "shift") {
    number = 1 << (number + 60);
  } else if (fault == "overflow") {
    number = number + INT32_MAX;
  } else if (fault == "cast") {
    number = static_cast<int>(static_cast<float>(number) * 1e30f);
  } else if (fault == "index") {
    array[0] = std::vector<uint8_t>(4)[size];
  } else if (fault == "race") {
    number = race();
  } else {
    expect(fault != "contract", "a contract that is kept");
    note("no fault");
  }
  return 0;
}
