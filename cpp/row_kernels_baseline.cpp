// The row kernels in plain C++, for any CPU: each loop over the lanes is one
// the compiler can make vectors of.
#include <cstring>

#include "counter_rng.hpp"
#include "fp16_bits.hpp"
#include "header_of_code.hpp"
#include "row_header.hpp"
#include "row_kernels.hpp"

namespace hvs::cpu {
namespace {

struct Floats {
  float lane[kLanes];
};
struct Words {
  uint32_t lane[kLanes];
};
struct Mask {
  bool lane[kLanes];
};

template <typename Result, typename Function>
inline Result for_lanes(Function function) {
  Result result;
  for (int lane = 0; lane < kLanes; ++lane) {
    result.lane[lane] = function(lane);
  }
  return result;
}

inline Floats load(const float* from) {
  return for_lanes<Floats>([&](int i) { return from[i]; });
}
inline void store(float* to, const Floats& a) {
  std::memcpy(to, a.lane, sizeof(a.lane));
}
inline Floats splat(float value) {
  return for_lanes<Floats>([&](int) { return value; });
}
inline Floats add(const Floats& a, const Floats& b) {
  return for_lanes<Floats>([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats subtract(const Floats& a, const Floats& b) {
  return for_lanes<Floats>([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Floats multiply(const Floats& a, const Floats& b) {
  return for_lanes<Floats>([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Floats min(const Floats& a, const Floats& b) {
  return for_lanes<Floats>(
      [&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Floats max(const Floats& a, const Floats& b) {
  return for_lanes<Floats>(
      [&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline float smallest(const Floats& a) {
  float result = a.lane[0];
  for (float value : a.lane) {
    result = value < result ? value : result;
  }
  return result;
}
inline float largest(const Floats& a) {
  float result = a.lane[0];
  for (float value : a.lane) {
    result = value > result ? value : result;
  }
  return result;
}
// Lanes i and i + 8 are added, then i and i + 4, i + 2, i + 1.
inline float sum_of_lanes(Floats a) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) {
      a.lane[lane] += a.lane[lane + half];
    }
  }
  return a.lane[0];
}

inline Mask unordered(const Floats& a, const Floats& b) {
  return for_lanes<Mask>(
      [&](int i) { return a.lane[i] != a.lane[i] || b.lane[i] != b.lane[i]; });
}
inline Mask at_least(const Floats& a, const Floats& b) {
  return for_lanes<Mask>([&](int i) { return a.lane[i] >= b.lane[i]; });
}
inline Mask either(const Mask& a, const Mask& b) {
  return for_lanes<Mask>([&](int i) { return a.lane[i] || b.lane[i]; });
}
inline uint32_t bits_of_mask(const Mask& mask) {
  uint32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    bits |= static_cast<uint32_t>(mask.lane[lane]) << lane;
  }
  return bits;
}
inline Mask mask_of_bits(uint32_t bits) {
  return for_lanes<Mask>([&](int i) { return (bits >> i & 1u) != 0; });
}
inline bool any(const Mask& mask) {
  return bits_of_mask(mask) != 0;
}
inline Floats select(const Mask& mask, const Floats& yes, const Floats& no) {
  return for_lanes<Floats>(
      [&](int i) { return mask.lane[i] ? yes.lane[i] : no.lane[i]; });
}

inline Words splat_word(uint32_t value) {
  return for_lanes<Words>([&](int) { return value; });
}
inline Words lane_numbers() {
  return for_lanes<Words>([&](int i) { return static_cast<uint32_t>(i); });
}
inline Words add(const Words& a, const Words& b) {
  return for_lanes<Words>([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Words multiply(const Words& a, const Words& b) {
  return for_lanes<Words>([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Words exclusive_or(const Words& a, const Words& b) {
  return for_lanes<Words>([&](int i) { return a.lane[i] ^ b.lane[i]; });
}
inline Words min_word(const Words& a, const Words& b) {
  return for_lanes<Words>(
      [&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
template <int kShift>
inline Words shift_right(const Words& a) {
  return for_lanes<Words>([&](int i) { return a.lane[i] >> kShift; });
}
inline Words bitwise_and(const Words& a, const Words& b) {
  return for_lanes<Words>([&](int i) { return a.lane[i] & b.lane[i]; });
}
inline Mask at_least(const Words& a, const Words& b) {
  return for_lanes<Mask>([&](int i) { return a.lane[i] >= b.lane[i]; });
}
// To nearest, ties to even, for 0 <= a < 2^31. By hand: lrint() is a call.
inline Words round_to_word(const Floats& a) {
  return for_lanes<Words>([&](int i) {
    const int32_t whole = static_cast<int32_t>(a.lane[i]);
    const float rest = a.lane[i] - static_cast<float>(whole);
    const int32_t odd = whole & 1;
    return static_cast<uint32_t>(whole +
                                 ((rest > 0.5f) | ((rest == 0.5f) & odd)));
  });
}
inline Floats to_float(const Words& a) {
  return for_lanes<Floats>([&](int i) {
    return static_cast<float>(static_cast<int32_t>(a.lane[i]));
  });
}

template <int kBits>
inline void store_codes(const Words& codes, uint8_t* out) {
  constexpr int kCodesPerByte = 8 / kBits;
  for (int byte = 0; byte < 2 * kBits; ++byte) {
    uint32_t value = 0;
    for (int code = 0; code < kCodesPerByte; ++code) {
      value |= codes.lane[byte * kCodesPerByte + code] << (code * kBits);
    }
    out[byte] = static_cast<uint8_t>(value);
  }
}
template <int kBits>
inline Words load_codes(const uint8_t* codes) {
  constexpr int kCodesPerByte = 8 / kBits;
  return for_lanes<Words>([&](int i) {
    return static_cast<uint32_t>(codes[i / kCodesPerByte]) >>
               (i % kCodesPerByte * kBits) &
           ((1u << kBits) - 1u);
  });
}

#include "row_blocks.inl"

#include "pack_centroid.inl"
#include "pack_minmax.inl"

#include "pack_rows.inl"
#include "unpack_rows.inl"

#include "add_rows.inl"

}  // namespace

const RowKernels* baseline_row_kernels() {
  static constexpr RowKernels kKernels = {pack, unpack, add};
  return &kKernels;
}

}  // namespace hvs::cpu
