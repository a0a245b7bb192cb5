#include "launch.cuh"
#include "row_groups.cuh"

namespace hvs::cuda {
namespace {

// A thread looks at one number: 8 bytes read, nothing written unless it is
// wrong.
__global__ void __launch_bounds__(kBlockThreads)
    check_index_kernel(const int64_t* __restrict__ index,
                       int64_t count,
                       int64_t limit,
                       RowReport* report) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t position =
           static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       position < count; position += step) {
    // One comparison for both ends: as unsigned, a negative number is large.
    if (static_cast<uint64_t>(index[position]) >=
        static_cast<uint64_t>(limit)) {
      note_position(&report->bad_index_position, position);
    }
  }
}

}  // namespace

void check_index(const char* door,
                 const int64_t* index,
                 int64_t count,
                 int64_t limit,
                 cudaStream_t stream,
                 RowReport* report) {
  launch(door, check_index_kernel, grid_for(count, kBlockThreads),
         dim3(kBlockThreads), stream, index, count, limit, report);
}

}  // namespace hvs::cuda
