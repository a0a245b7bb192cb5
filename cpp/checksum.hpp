// A checksum against accidents: the sum over the 64-bit words w_j of
// mix64(w_j ^ mix64(j + 1)), modulo 2^64 (counter_rng.hpp). mix64 is one to
// one, so that any change inside one word changes the sum; and a sum has no
// order, so that it is the same for any number of threads.
#pragma once

#include <cstdint>

#include "instruction_set.hpp"

namespace hvs::cpu {

// `data` is [8 * num_words], at any address.
uint64_t checksum(const uint8_t* data,
                  int64_t num_words,
                  int num_threads,
                  InstructionSet instruction_set);

}  // namespace hvs::cpu
