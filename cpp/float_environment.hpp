// Makes a thread round to nearest and keep denormals while a kernel runs, and
// puts its settings back afterwards. Without it the bytes would depend on
// torch.set_flush_denormal() and on libraries linked with -ffast-math, which
// switch denormals off for the whole process when they are loaded.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace hvs::cpu {

class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : saved_(read()) { write(kDefault); }
  ~DefaultFloatEnvironment() { write(saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__SSE__)
  static constexpr uint64_t kDefault = 0x1F80;
  static uint64_t read() { return _mm_getcsr(); }
  static void write(uint64_t value) {
    _mm_setcsr(static_cast<unsigned>(value));
  }
#elif defined(__aarch64__)
  static constexpr uint64_t kDefault = 0;
  static uint64_t read() {
    uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(uint64_t value) {
    asm volatile("msr fpcr, %0" : : "r"(value));
  }
#else
  static constexpr uint64_t kDefault = 0;
  static uint64_t read() { return 0; }
  static void write(uint64_t) {}
#endif

  uint64_t saved_;
};

}  // namespace hvs::cpu
