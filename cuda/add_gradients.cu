// The first kernels of select_top_k: see [Note: selecting on a device].
#include "fp16_bits.hpp"
#include "selection.cuh"

namespace hvs::cuda {
namespace {

enum class GradKind { kNone, kFloat32, kFloat16, kBFloat16 };

// Elements that a thread loads before it uses the first.
constexpr int kLoads = 8;

template <GradKind kGrad>
__device__ inline float load_grad(const void* grad, int64_t element) {
  if constexpr (kGrad == GradKind::kFloat32) {
    return static_cast<const float*>(grad)[element];
  } else if constexpr (kGrad == GradKind::kFloat16) {
    return from_fp16(static_cast<const uint16_t*>(grad)[element]);
  } else {
    return from_bf16(static_cast<const uint16_t*>(grad)[element]);
  }
}

// Adds one chunk, and counts its first digits. Returns how many of the thread's
// sums were not finite.
template <GradKind kGrad>
__device__ int add_chunk(const cpu::SelectArguments& arguments,
                         const Chunk& chunk,
                         unsigned* bins) {
  const float scale = arguments.scale;
  const float* residual = arguments.residual + chunk.place;
  float* accumulated = arguments.accumulated + chunk.place;
  int num_nonfinite = 0;
  for (int begin = static_cast<int>(threadIdx.x); begin < chunk.size;
       begin += kLoads * kThreads) {
    float old[kLoads] = {};
    float grad[kLoads] = {};
    for (int load = 0; load < kLoads; ++load) {
      const int element = begin + load * kThreads;
      if (element < chunk.size) {
        old[load] = residual[element];
        if constexpr (kGrad != GradKind::kNone) {
          grad[load] = load_grad<kGrad>(arguments.grad, chunk.place + element);
        }
      }
    }
    for (int load = 0; load < kLoads; ++load) {
      const int element = begin + load * kThreads;
      if (element < chunk.size) {
        float sum = old[load];
        if constexpr (kGrad != GradKind::kNone) {
          sum += grad[load] * scale;
          if (!is_finite(sum)) {
            sum = old[load];
            ++num_nonfinite;
          }
        }
        accumulated[element] = sum;
        atomicAdd(bins + digit_of(magnitude_of(sum), kFirstDigit), 1u);
      }
    }
  }
  return num_nonfinite;
}

__device__ int add_chunk(const cpu::SelectArguments& arguments,
                         const Chunk& chunk,
                         unsigned* bins) {
  if (arguments.grad == nullptr) {
    return add_chunk<GradKind::kNone>(arguments, chunk, bins);
  }
  switch (arguments.type) {
    case cpu::ElementType::kFloat32:
      return add_chunk<GradKind::kFloat32>(arguments, chunk, bins);
    case cpu::ElementType::kFloat16:
      return add_chunk<GradKind::kFloat16>(arguments, chunk, bins);
    default:
      return add_chunk<GradKind::kBFloat16>(arguments, chunk, bins);
  }
}

}  // namespace

// A block fills in the tables of its selection.
__global__ void prepare_selections(SelectionTables tables) {
  const int64_t number = blockIdx.x;
  const PlacedSelection& placed = tables.selections[number];
  const SectionLayout& layout = placed.selection.layout;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    tables.progress[number] = {0, static_cast<Count>(layout.k), 0};
  }
  for (int bin = thread; bin < kMaxBins; bin += kThreads) {
    tables.bins[number * kMaxBins + bin] = 0;
  }
  const int64_t num_chunks = num_chunks_of(layout.num_elements);
  for (int64_t chunk = thread; chunk < num_chunks; chunk += kThreads) {
    tables.selection_of_chunk[placed.first_chunk + chunk] =
        static_cast<uint32_t>(number);
  }
}

// A thread adds every 256th element of a chunk: neighbours load neighbours,
// whatever the alignment of a gradient is. Reads the gradient and 4 bytes an
// element, writes 4.
__global__ void __launch_bounds__(kThreads)
    add_gradients(SelectionTables tables) {
  __shared__ unsigned bins[kMaxBins];
  __shared__ unsigned num_nonfinite;
  if (threadIdx.x == 0) {
    num_nonfinite = 0;
  }
  clear_bins(bins);
  const int64_t end =
      first_chunk_of(blockIdx.x + int64_t{1}, tables.num_chunks);
  int64_t number = first_chunk_of(blockIdx.x, tables.num_chunks);
  while (number < end) {
    const Chunk chunk = chunk_at(tables, number);
    const int found = add_chunk(
        tables.selections[chunk.selection].selection.arguments, chunk, bins);
    if (found != 0) {
      atomicAdd(&num_nonfinite, static_cast<unsigned>(found));
    }
    ++number;
    if (number == end || tables.selection_of_chunk[number] != chunk.selection) {
      __syncthreads();
      if (threadIdx.x == 0 && num_nonfinite != 0) {
        atomicAdd(&tables.progress[chunk.selection].num_nonfinite,
                  static_cast<Count>(num_nonfinite));
        num_nonfinite = 0;
      }
      flush_bins(bins, tables.bins + int64_t{chunk.selection} * kMaxBins);
    }
  }
}

}  // namespace hvs::cuda
