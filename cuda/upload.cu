#include "upload.cuh"

#include <algorithm>
#include <cstring>

#include "launch.cuh"

namespace hvs::cuda {
namespace {

// A kernel's parameters may take 4096 bytes on any device and toolkit.
constexpr int kWords = 496;

struct Words {
  uint64_t words[kWords];
};

// One thread writes one word.
__global__ void write_words(Words from, int count, uint64_t* to) {
  const int place = static_cast<int>(threadIdx.x);
  if (place < count) {
    to[place] = from.words[place];
  }
}

}  // namespace

void upload_bytes(const char* door,
                  const void* from,
                  int64_t bytes,
                  void* to,
                  cudaStream_t stream) {
  const uint8_t* source = static_cast<const uint8_t*>(from);
  for (int64_t begin = 0; begin < bytes / 8; begin += kWords) {
    const int64_t count = std::min<int64_t>(kWords, bytes / 8 - begin);
    Words batch = {};
    std::memcpy(batch.words, source + 8 * begin,
                static_cast<size_t>(8 * count));
    launch(door, write_words, dim3(1), dim3(kWords + 16), stream, batch,
           static_cast<int>(count), static_cast<uint64_t*>(to) + begin);
  }
}

}  // namespace hvs::cuda
