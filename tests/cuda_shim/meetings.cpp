// Who waits for whom, and whether they have met.
#include <cstring>

#include "machine.hpp"

namespace cuda_shim {
namespace {

// The threads that `thread` waits for, by their numbers in the block: those of
// its mask, or all.
size_t first_awaited(size_t thread) {
  return machine().fibres[thread]->mask == kWholeBlock
             ? 0
             : thread / kWarpSize * kWarpSize;
}
size_t end_awaited(size_t thread) {
  return machine().fibres[thread]->mask == kWholeBlock
             ? machine().num_threads
             : first_awaited(thread) + kWarpSize;
}
bool is_awaited(size_t thread, size_t other) {
  const uint32_t mask = machine().fibres[thread]->mask;
  return mask == kWholeBlock || (mask >> (other % kWarpSize) & 1u) != 0;
}

bool meets(const Fibre& one, const Fibre& other) {
  return other.state == State::kWaiting && other.mask == one.mask &&
         other.line == one.line && std::strcmp(other.file, one.file) == 0;
}

// Returns one that `thread` waits for in vain, or end_awaited().
size_t missing(size_t thread) {
  const Fibre& self = *machine().fibres[thread];
  for (size_t other = first_awaited(thread); other < end_awaited(thread);
       ++other) {
    if (is_awaited(thread, other) && (other >= machine().num_threads ||
                                      !meets(self, *machine().fibres[other]))) {
      return other;
    }
  }
  return end_awaited(thread);
}

void release(size_t thread) {
  const uint32_t mask = machine().fibres[thread]->mask;
  const size_t begin = first_awaited(thread);
  const size_t end = end_awaited(thread);
  Met met{};
  for (size_t other = begin; other < end; ++other) {
    if (is_awaited(thread, other)) {
      const uint64_t value = machine().fibres[other]->value;
      met.sum += value;
      if (mask != kWholeBlock) {
        met.values[other - begin] = value;
      }
    }
  }
  for (size_t other = begin; other < end; ++other) {
    if (is_awaited(thread, other)) {
      Fibre& fibre = *machine().fibres[other];
      // A copy for each: the others may meet again before it looks
      fibre.met = met;
      fibre.state = State::kReady;
    }
  }
}

}  // namespace

bool release_all() {
  bool released = false;
  for (size_t thread = 0; thread < machine().num_threads; ++thread) {
    if (machine().fibres[thread]->state == State::kWaiting &&
        missing(thread) == end_awaited(thread)) {
      release(thread);
      released = true;
    }
  }
  return released;
}

std::string complaint() {
  for (size_t thread = 0; thread < machine().num_threads; ++thread) {
    const Fibre& self = *machine().fibres[thread];
    if (self.state != State::kWaiting) {
      continue;
    }
    const size_t other = missing(thread);
    std::string text =
        name_of(thread) + " waits at " + where(self.file, self.line) + " for ";
    if (other >= machine().num_threads) {
      return text + "a thread that the block does not have";
    }
    const Fibre& absent = *machine().fibres[other];
    text += name_of(other);
    return absent.state == State::kDone
               ? text + ", which has ended"
               : text + ", which waits at " + where(absent.file, absent.line) +
                     ", or for others";
  }
  return "";
}

}  // namespace cuda_shim
