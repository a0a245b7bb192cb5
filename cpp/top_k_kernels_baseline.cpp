// The top-k kernels for any CPU, in the vectors of GCC and Clang: what the
// build's architecture always has.
#include <cstring>

#include "counter_rng.hpp"
#include "float_bits.hpp"
#include "fp16_bits.hpp"
#include "top_k_kernels.hpp"

namespace hvs::cpu {
namespace {

// A quarter of the lanes, for which every compiler has vectors.
constexpr int kQuarterLanes = kLanes / 4;
typedef float FloatQuarter __attribute__((vector_size(16)));
typedef uint32_t WordQuarter __attribute__((vector_size(16)));
typedef int32_t IntQuarter __attribute__((vector_size(16)));

struct Floats {
  FloatQuarter quarter[4];
};
struct Words {
  WordQuarter quarter[4];
};
using Mask = Words;  // all bits of a lane, or none

template <typename Result, typename Function>
inline Result for_quarters(Function function) {
  return {{function(0), function(1), function(2), function(3)}};
}
template <typename To, typename From>
inline To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

inline Floats load(const float* from) {
  Floats result;
  std::memcpy(&result, from, sizeof(result));
  return result;
}
inline void store(float* to, const Floats& a) {
  std::memcpy(to, &a, sizeof(a));
}
// An ordinary one: GCC's vectors have no streamed stores.
inline void stream(float* to, const Floats& a) {
  store(to, a);
}
inline Floats splat(float value) {
  const FloatQuarter quarter = {value, value, value, value};
  return {{quarter, quarter, quarter, quarter}};
}
inline Floats add(const Floats& a, const Floats& b) {
  return for_quarters<Floats>(
      [&](int i) { return a.quarter[i] + b.quarter[i]; });
}
inline Floats subtract(const Floats& a, const Floats& b) {
  return for_quarters<Floats>(
      [&](int i) { return a.quarter[i] - b.quarter[i]; });
}
inline Floats multiply(const Floats& a, const Floats& b) {
  return for_quarters<Floats>(
      [&](int i) { return a.quarter[i] * b.quarter[i]; });
}

inline Words load_words(const uint32_t* from) {
  Words result;
  std::memcpy(&result, from, sizeof(result));
  return result;
}
inline void store_words(uint32_t* to, const Words& a) {
  std::memcpy(to, &a, sizeof(a));
}
inline Words load_halves(const uint16_t* from) {
  return for_quarters<Words>([&](int i) {
    const uint16_t* part = from + i * kQuarterLanes;
    return WordQuarter{part[0], part[1], part[2], part[3]};
  });
}
inline Words splat_word(uint32_t value) {
  const WordQuarter quarter = {value, value, value, value};
  return {{quarter, quarter, quarter, quarter}};
}
inline Words lane_numbers() {
  return for_quarters<Words>([](uint32_t i) {
    return WordQuarter{4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
  });
}
inline Words words_of(const Floats& a) {
  return same_bits<Words>(a);
}
inline Floats floats_of(const Words& a) {
  return same_bits<Floats>(a);
}
inline Words add(const Words& a, const Words& b) {
  return for_quarters<Words>(
      [&](int i) { return a.quarter[i] + b.quarter[i]; });
}
inline Words bitwise_and(const Words& a, const Words& b) {
  return for_quarters<Words>(
      [&](int i) { return a.quarter[i] & b.quarter[i]; });
}
inline Words bitwise_or(const Words& a, const Words& b) {
  return for_quarters<Words>(
      [&](int i) { return a.quarter[i] | b.quarter[i]; });
}
template <int kShift>
inline Words shift_left(const Words& a) {
  return for_quarters<Words>([&](int i) { return a.quarter[i] << kShift; });
}
template <int kShift>
inline Words shift_right(const Words& a) {
  return for_quarters<Words>([&](int i) { return a.quarter[i] >> kShift; });
}
// Of signed numbers.
inline Mask greater(const Words& a, const Words& b) {
  return for_quarters<Mask>([&](int i) {
    return same_bits<WordQuarter>(same_bits<IntQuarter>(a.quarter[i]) >
                                  same_bits<IntQuarter>(b.quarter[i]));
  });
}
// All lanes or'ed.
inline uint32_t either_lane(const Words& a) {
  struct Halves {
    uint64_t low;
    uint64_t high;
  };
  const Halves halves = same_bits<Halves>((a.quarter[0] | a.quarter[1]) |
                                          (a.quarter[2] | a.quarter[3]));
  const uint64_t either = halves.low | halves.high;
  return static_cast<uint32_t>(either | either >> 32);
}
inline bool any(const Mask& mask) {
  return either_lane(mask) != 0;
}
inline Words lane_bits() {
  return for_quarters<Words>([](uint32_t i) {
    return WordQuarter{1u << 4 * i, 2u << 4 * i, 4u << 4 * i, 8u << 4 * i};
  });
}
inline uint32_t bits_of_mask(const Mask& mask) {
  return either_lane(bitwise_and(mask, lane_bits()));
}
inline Mask mask_of_bits(uint32_t bits) {
  return greater(bitwise_and(splat_word(bits), lane_bits()), splat_word(0));
}
inline Floats select(const Mask& mask, const Floats& yes, const Floats& no) {
  return for_quarters<Floats>([&](int i) {
    return same_bits<FloatQuarter>(
        (same_bits<WordQuarter>(yes.quarter[i]) & mask.quarter[i]) |
        (same_bits<WordQuarter>(no.quarter[i]) & ~mask.quarter[i]));
  });
}

#include "append_candidates.inl"

#include "collect_candidates.inl"
#include "keep_candidates.inl"

}  // namespace

const TopKKernels* baseline_top_k_kernels() {
  static constexpr TopKKernels kKernels = {
      false,        collect,    keep,          count_reaching,
      copy_between, stream_out, round_to_half, sum_words};
  return &kKernels;
}

}  // namespace hvs::cpu
