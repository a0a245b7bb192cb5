// checksum() of rows of bytes on a CUDA device (checksum.hpp). Two launches;
// nothing is waited for or allocated. Reads the bytes once. Defined only where
// kBuiltWithCuda.
#pragma once

#include <cstdint>

namespace hvs::cuda {

// `data` is [num_rows, 8 * words_per_row] and starts at a multiple of 8; `sums`
// is [num_rows]. Both are of the device that is current; `stream` is a
// cudaStream_t. Throws std::runtime_error where CUDA refuses a launch.
void checksum(const uint8_t* data,
              int64_t num_rows,
              int64_t words_per_row,
              uint64_t* sums,
              void* stream);

}  // namespace hvs::cuda
