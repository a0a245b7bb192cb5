// A block's threads as fibres: each has a stack of its own, and runs until it
// meets others. _setjmp and _longjmp switch without a system call.
#include "fibres.hpp"

#include "machine.hpp"

namespace cuda_shim {
namespace {

// Apart, so that no variable lives on across the switch.
__attribute__((noinline)) void switch_to(jmp_buf& from, jmp_buf& to) {
  if (_setjmp(from) == 0) {
    _longjmp(to, 1);
  }
}

void run_fibre() {
  for (;;) {
    Fibre& self = *machine().fibres[machine().current];
    (*machine().body)();
    self.state = State::kDone;
    switch_to(self.place, machine().scheduler);
  }
}

}  // namespace

Machine& machine() {
  static Machine the_machine;
  return the_machine;
}

__attribute__((noinline)) void enter(Fibre& fibre) {
  if (_setjmp(machine().scheduler) != 0) {
    return;
  }
  if (fibre.has_begun) {
    _longjmp(fibre.place, 1);
  }
  fibre.has_begun = true;
  getcontext(&fibre.entry);
  fibre.entry.uc_stack.ss_sp = fibre.stack.get();
  fibre.entry.uc_stack.ss_size = kStackBytes;
  fibre.entry.uc_link = nullptr;
  makecontext(&fibre.entry, &run_fibre, 0);
  setcontext(&fibre.entry);
}

std::string name_of(size_t thread) {
  const uint3& index = machine().fibres[thread]->index;
  return "thread (" + std::to_string(index.x) + ", " + std::to_string(index.y) +
         ", " + std::to_string(index.z) + ") of block (" +
         std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
         std::to_string(blockIdx.z) + ")";
}

std::string where(const char* file, int line) {
  return std::string(file) + ":" + std::to_string(line);
}

const Met& meet(uint32_t mask, uint64_t value, const char* file, int line) {
  Machine& self = machine();
  Fibre& fibre = *self.fibres[self.current];
  const size_t thread = self.current;
  if (mask != kWholeBlock && (mask >> (thread % kWarpSize) & 1u) == 0) {
    give_up("a thread that is not in its own mask", file, line);
  }
  fibre.mask = mask;
  fibre.value = value;
  fibre.file = file;
  fibre.line = line;
  fibre.state = State::kWaiting;
  switch_to(fibre.place, self.scheduler);
  return fibre.met;
}

void give_up(const char* reason, const char* file, int line) {
  Machine& self = machine();
  self.reason = name_of(self.current) + ": " + reason;
  if (file != nullptr) {
    self.reason += " at " + where(file, line);
  }
  _longjmp(self.scheduler, 1);
}

int lane_of_thread() {
  return static_cast<int>(machine().current % kWarpSize);
}

}  // namespace cuda_shim
