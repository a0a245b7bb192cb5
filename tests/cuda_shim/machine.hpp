// The state of the launch that runs, for the files of this folder.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "device_functions.hpp"
#include "fibres.hpp"

namespace cuda_shim {

constexpr size_t kStackBytes = size_t{64} << 10;

enum class State { kReady, kWaiting, kDone };

struct Fibre {
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  ucontext_t entry;
  jmp_buf place;
  bool has_begun = false;
  State state = State::kReady;
  uint3 index{};
  // Where it waits, for whom, and what it brings
  const char* file = nullptr;
  int line = 0;
  uint32_t mask = 0;
  uint64_t value = 0;
  Met met{};
};

struct Machine {
  std::mutex mutex;
  std::vector<std::unique_ptr<Fibre>> fibres;
  const std::function<void()>* body = nullptr;
  size_t num_threads = 0;
  long num_launches = 0;
  size_t current = 0;
  jmp_buf scheduler;
  std::string reason;
  std::mt19937 random;
  bool is_random = false;
};

Machine& machine();

// Runs the fibre of machine().current until it waits, ends or gives up.
void enter(Fibre& fibre);

// Lets those go on who have all met. Returns whether there were any.
bool release_all();

// Says why a block is stuck; empty where all its threads have ended.
std::string complaint();

// For messages.
std::string name_of(size_t thread);
std::string where(const char* file, int line);

}  // namespace cuda_shim
