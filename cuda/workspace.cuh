// Cuts a kernel's workspace into arrays.
#pragma once

#include <cstdint>

namespace hvs::cuda {

class Workspace {
 public:
  // Of null, arrays are counted only.
  explicit Workspace(void* memory) : memory_(static_cast<uint8_t*>(memory)) {}

  template <typename Element>
  Element* take(int64_t count) {
    uint8_t* begin = memory_ == nullptr ? nullptr : memory_ + used_;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(Element));
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<Element*>(begin);
  }

  int64_t used() const { return used_; }

 private:
  static constexpr int64_t kAlignment = 256;

  uint8_t* memory_;
  int64_t used_ = 0;
};

}  // namespace hvs::cuda
