// Adds rows to given rows of a matrix; see [Note: a row in eight lanes]. Each
// sum is one group's, in the order of its rows: no atomics, and the same bits
// each time.
#include "cuda_rows.hpp"
#include "launch.cuh"
#include "row_groups.cuh"
#include "row_sums.hpp"
#include "row_tiles.cuh"
#include "unpacked_row.cuh"

namespace hvs::cuda {

using cpu::AddArguments;

namespace {

// A thread looks at one place of each array of numbers.
__global__ void __launch_bounds__(kBlockThreads)
    check_sums_kernel(const AddArguments arguments,
                      int64_t num_places,
                      RowReport* report) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t place =
           static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       place < num_places; place += step) {
    if (!is_right_sum(arguments, place)) {
      note_position(&report->bad_index_position, place);
    }
  }
}

// What is added. The lane's elements of a tile, in the dtype of the sums.
template <int kBits>
class AddedRow {
 public:
  __device__ AddedRow(const AddArguments& arguments, int64_t id, RowPlace place)
      : row_(
            static_cast<const uint8_t*>(arguments.rows) +
                id * (kHeaderBytes + code_bytes(arguments.num_features, kBits)),
            arguments.num_features,
            place) {}
  __device__ RowKind kind() const { return row_.kind(); }
  __device__ void read(const RowTiles& sums,
                       int64_t begin,
                       float (&values)[kLaneColumns]) const {
    sums.read(row_, begin, values);
#pragma unroll
    for (float& value : values) {
      value = rounded(value, sums.type());
    }
  }

 private:
  UnpackedRow<kBits> row_;
};

// A plain row.
template <>
class AddedRow<0> {
 public:
  __device__ AddedRow(const AddArguments& arguments, int64_t id, RowPlace place)
      : rows_(const_cast<void*>(arguments.rows),
              arguments.type,
              arguments.num_features,
              place.lane),
        id_(id) {}
  __device__ RowKind kind() const { return RowKind::kFinite; }
  __device__ void read(const RowTiles&,
                       int64_t begin,
                       float (&values)[kLaneColumns]) const {
    rows_.load(id_, begin, values);
  }

 private:
  RowTiles rows_;
  int64_t id_;
};

// Tiles that registers hold while all rows of a target are added to them.
constexpr int kSumTiles = 4;
constexpr int64_t kSumColumns = kSumTiles * kTileColumns;
constexpr int kAddMinBlocks = 6;

// Adds the rows of a target to columns [begin, begin + kSumColumns) of it.
template <int kBits>
__device__ void add_to_columns(const AddArguments& arguments,
                               const RowTiles& sums,
                               int64_t target,
                               int64_t begin,
                               RowPlace place,
                               RowReport* report) {
  const int64_t id = arguments.targets[target];
  float totals[kSumTiles][kLaneColumns] = {};
#pragma unroll
  for (int tile = 0; tile < kSumTiles; ++tile) {
    sums.load(id, begin + tile * kTileColumns, totals[tile]);
  }
  const int64_t end = arguments.starts[target + 1];
  for (int64_t next = arguments.starts[target]; next < end; ++next) {
    const int64_t position = arguments.order[next];
    const AddedRow<kBits> row(
        arguments,
        arguments.index != nullptr ? arguments.index[position] : position,
        place);
    if (row.kind() != RowKind::kCorrupt) {
#pragma unroll
      for (int tile = 0; tile < kSumTiles; ++tile) {
        float values[kLaneColumns] = {};
        row.read(sums, begin + tile * kTileColumns, values);
#pragma unroll
        for (int number = 0; number < kLaneColumns; ++number) {
          totals[tile][number] += values[number];
        }
      }
    }
    if (begin == 0) {
      note_kind(report, row.kind(), position, place.lane);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kSumTiles; ++tile) {
    sums.store(id, begin + tile * kTileColumns, totals[tile]);
  }
}

// Eight lanes sum a target. Reads and writes each sum once, and reads each
// added row once.
template <int kBits>
__global__ void __launch_bounds__(kBlockThreads, kAddMinBlocks)
    add_kernel(const AddArguments arguments, RowReport* report) {
  if (report->bad_index_position != -1) {
    return;
  }
  const RowPlace place = RowPlace::here();
  const RowTiles sums(arguments.out, arguments.type, arguments.num_features,
                      place.lane);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kUnpackBlockRows;
  for (int64_t target = static_cast<int64_t>(blockIdx.x) * kUnpackBlockRows +
                        threadIdx.x / kRowLanes;
       target < arguments.num_targets; target += step) {
    for (int64_t begin = 0; begin < arguments.num_features;
         begin += kSumColumns) {
      add_to_columns<kBits>(arguments, sums, target, begin, place, report);
    }
  }
}

template <int kBits>
void launch_add(const AddArguments& arguments,
                cudaStream_t stream,
                RowReport* report) {
  launch("add_rows", add_kernel<kBits>,
         grid_for(arguments.num_targets, kUnpackBlockRows), dim3(kBlockThreads),
         stream, arguments, report);
}

}  // namespace

void add_rows(const AddArguments& arguments, void* stream, RowReport* report) {
  if (arguments.num_targets == 0) {
    return;
  }
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const int64_t num_places =
      std::max(arguments.num_added, arguments.num_targets);
  launch("add_rows", check_sums_kernel, grid_for(num_places, kBlockThreads),
         dim3(kBlockThreads), cuda_stream, arguments, num_places, report);
  switch (arguments.bits) {
    case 0:
      return launch_add<0>(arguments, cuda_stream, report);
    case 1:
      return launch_add<1>(arguments, cuda_stream, report);
    case 2:
      return launch_add<2>(arguments, cuda_stream, report);
    case 4:
      return launch_add<4>(arguments, cuda_stream, report);
    default:
      return launch_add<8>(arguments, cuda_stream, report);
  }
}

}  // namespace hvs::cuda
