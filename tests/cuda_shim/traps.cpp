// Undefined behaviour of a kernel becomes a launch error. A build with
// -fsanitize=... -fno-sanitize-recover calls the functions below; they stand
// here for the sanitizer's own library, which would end the process.
#include "traps.hpp"

#include "fibres.hpp"

namespace cuda_shim {
namespace {

void on_signal(int) {
  give_up("an address that is not mapped, or not writable", nullptr, 0);
}

// How all of the sanitizer's descriptions begin.
struct SourceLocation {
  const char* file;
  unsigned line;
  unsigned column;
};

[[noreturn]] void give_up_at(const void* description, const char* reason) {
  const auto* location = static_cast<const SourceLocation*>(description);
  give_up(reason, location->file, static_cast<int>(location->line));
}

}  // namespace

CaughtAddresses::CaughtAddresses() {
  struct sigaction action{};
  action.sa_handler = &on_signal;
  action.sa_flags = SA_NODEFER;  // the handler does not return
  sigaction(SIGSEGV, &action, &segment_);
  sigaction(SIGBUS, &action, &bus_);
}

CaughtAddresses::~CaughtAddresses() {
  sigaction(SIGSEGV, &segment_, nullptr);
  sigaction(SIGBUS, &bus_, nullptr);
}

}  // namespace cuda_shim

#define CUDA_SHIM_TRAP(name, reason)                                \
  extern "C" [[noreturn]] void __ubsan_handle_##name(void* where) { \
    cuda_shim::give_up_at(where, reason);                           \
  }

CUDA_SHIM_TRAP(type_mismatch_v1_abort, "a misaligned or null address")
CUDA_SHIM_TRAP(out_of_bounds_abort, "an index outside its array")
CUDA_SHIM_TRAP(shift_out_of_bounds_abort, "a shift by too many bits")
CUDA_SHIM_TRAP(add_overflow_abort, "a signed overflow")
CUDA_SHIM_TRAP(sub_overflow_abort, "a signed overflow")
CUDA_SHIM_TRAP(mul_overflow_abort, "a signed overflow")
CUDA_SHIM_TRAP(negate_overflow_abort, "a signed overflow")
CUDA_SHIM_TRAP(divrem_overflow_abort, "a division by zero, or an overflow")
CUDA_SHIM_TRAP(float_cast_overflow_abort, "a number that its type cannot hold")
