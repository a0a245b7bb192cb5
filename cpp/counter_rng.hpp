// Counter-based random numbers: a pure function of (key, row id, column), with
// no state, so that any device and any number of threads give the same bytes,
// and a row that is packed for two receivers gives the same bytes twice.
//
// A call's 64-bit key and a row id give the row's key. Each block of 32 columns
// draws 16 words of 32 bits: word 16 * block + lane gives its low half to
// column 32 * block + lane and its high half to column 32 * block + 16 + lane.
// Not for cryptography. The constants are those of splitmix64 (Steele, Lea,
// Flood, OOPSLA 2014) and of a 32-bit multiply-xorshift hash found by search
// (hash-prospector, public domain).
#pragma once

#include <cstdint>

#include "host_device.hpp"

namespace hvs {

constexpr uint64_t kGolden64 = 0x9E3779B97F4A7C15u;
constexpr uint32_t kGolden32 = 0x9E3779B9u;
constexpr uint32_t kMix32First = 0x21F0AAADu;
constexpr uint32_t kMix32Second = 0x735A2D97u;
constexpr int kColumnsPerBlock = 32;
constexpr int kLanes = 16;

HVS_HOST_DEVICE inline uint64_t mix64(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// `mixed_key` is mix64(key): done once for a call, so that neighbouring keys
// and neighbouring rows do not meet.
HVS_HOST_DEVICE inline uint64_t make_row_key(uint64_t mixed_key,
                                             uint64_t row_id) {
  return mix64(mixed_key + (row_id + 1) * kGolden64);
}

// Both halves of the row key enter, one before and one after the first
// multiplication: with one alone, the streams of two rows would be shifted
// copies of each other.
HVS_HOST_DEVICE inline uint32_t random_word(uint64_t row_key,
                                            uint32_t counter) {
  uint32_t word = counter * kGolden32 + static_cast<uint32_t>(row_key);
  word = (word ^ (word >> 16)) * kMix32First;
  word ^= static_cast<uint32_t>(row_key >> 32);
  word = (word ^ (word >> 15)) * kMix32Second;
  return word ^ (word >> 15);
}

}  // namespace hvs
