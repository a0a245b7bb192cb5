// The inner loops of select_top_k, add_selected and checksum, one table for
// each instruction set.
#pragma once

#include <cstdint>

#include "instruction_set.hpp"
#include "pack_rows.hpp"
#include "section.hpp"
#include "select_top_k.hpp"
#include "share.hpp"

namespace hvs::cpu {

// Entries that a kernel may write after the last one that it appends.
constexpr int64_t kCandidateSlack = 16;

// Elements that may be selected, in the order of their indices, which are those
// in the share.
struct Candidates {
  uint32_t* index;
  float* sums;
  int64_t count;
};

// What `accumulated` is.
enum class Target {
  kResidual,  // the residual itself
  kSeparate,  // other memory
  kStreamed,  // other memory, streamed to: element `begin` starts a line there
};

struct TopKKernels {
  // Whether its streamed stores are such: [Note: streamed stores] in
  // streamed_stores.hpp. The kernels leave finishing them to their callers.
  bool streams;
  // Adds elements [begin, end) into `accumulated`. Those whose magnitude's bits
  // are at least `threshold`, which is at most infinity's, become candidates,
  // and leave what their value leaves. There must be room for all of them, and
  // slack. Returns how many sums were not finite.
  int64_t (*collect)(const SelectArguments& arguments,
                     Target target,
                     ValueType value_type,
                     int64_t begin,
                     int64_t end,
                     uint32_t threshold,
                     Candidates& candidates);
  // Keeps the candidates above `threshold`, and of those equal to it the ones
  // at positions before `ties_end`; puts the sums of the others back to where
  // they are in the parameter.
  void (*keep)(uint32_t threshold,
               int64_t ties_end,
               const Share& share,
               float* accumulated,
               Candidates& candidates);
  // Counts the candidates whose magnitude's bits are at least `bits`.
  int64_t (*count_reaching)(const Candidates& candidates, uint32_t bits);
  // Copies the magnitudes' bits that are in [low, high), and returns how many.
  int64_t (*copy_between)(const Candidates& candidates,
                          uint32_t low,
                          uint32_t high,
                          uint32_t* to);
  // Streams sums `to` where a line starts, and sets them to zero.
  void (*stream_out)(float* sums, int64_t count, float* to);
  // Rounds to fp16 or bf16.
  void (*round)(const float* from,
                ElementType type,
                int64_t count,
                uint16_t* to);
  // The part of checksum() of words [begin, end).
  uint64_t (*sum_words)(const uint8_t* data, int64_t begin, int64_t end);
};

// Null where the build's architecture does not have the instruction set.
const TopKKernels* baseline_top_k_kernels();
const TopKKernels* avx2_top_k_kernels();
const TopKKernels* avx512_top_k_kernels();

// The table of `instruction_set`, which must not be above
// best_instruction_set().
const TopKKernels& top_k_kernels(InstructionSet instruction_set);

}  // namespace hvs::cpu
