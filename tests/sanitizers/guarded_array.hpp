// [Note: guarded arrays]
// Arrays that end where a page ends, before one that nobody may touch. So the
// first byte behind an array is a fault for every instruction; AddressSanitizer
// alone does not see what compilers do not instrument, which streamed stores
// and masked vectors are. Before an array it has poisoned memory, and a pattern
// that must not change.
#pragma once

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "fuzz_target.hpp"

namespace hvs::fuzz {

template <typename Element>
class GuardedArray {
  static_assert(std::is_trivially_copyable_v<Element>);

 public:
  explicit GuardedArray(int64_t count) : count_(static_cast<size_t>(count)) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (nbytes() + page - 1) / page * page + page;
    void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory != MAP_FAILED, "memory");
    begin_ = static_cast<uint8_t*>(memory);
    slack_ = mapped_ - page - nbytes();
    expect(mprotect(begin_ + mapped_ - page, page, PROT_NONE) == 0,
           "a page that can be guarded");
    std::memset(begin_, kPattern, mapped_ - page);
    ASAN_POISON_MEMORY_REGION(begin_, slack_);
  }
  ~GuardedArray() {
    ASAN_UNPOISON_MEMORY_REGION(begin_, slack_);
    for (size_t place = 0; place < slack_; ++place) {
      expect(begin_[place] == kPattern, "no byte written before an array");
    }
    munmap(begin_, mapped_);
  }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  Element* data() { return reinterpret_cast<Element*>(begin_ + slack_); }
  const Element* data() const {
    return reinterpret_cast<const Element*>(begin_ + slack_);
  }
  Element& operator[](int64_t place) { return data()[place]; }
  const Element& operator[](int64_t place) const { return data()[place]; }
  size_t nbytes() const { return count_ * sizeof(Element); }

 private:
  // Of elements that were never written: a finite number in every type
  static constexpr uint8_t kPattern = 0xA5;

  size_t count_;
  size_t mapped_;
  size_t slack_;
  uint8_t* begin_;
};

}  // namespace hvs::fuzz
