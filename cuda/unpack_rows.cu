// Gathers packed rows and decodes them; see [Note: a row in eight lanes].
#include "cuda_rows.hpp"
#include "launch.cuh"
#include "row_groups.cuh"
#include "row_tiles.cuh"
#include "unpacked_row.cuh"

namespace hvs::cuda {

using cpu::UnpackArguments;

namespace {

// Eight lanes decode a row. Reads each byte once and writes each element once.
template <int kBits>
__global__ void __launch_bounds__(kBlockThreads, kUnpackMinBlocks)
    unpack_kernel(const UnpackArguments arguments, RowReport* report) {
  if (report->bad_index_position != -1) {
    return;
  }
  const RowPlace place = RowPlace::here();
  const int64_t num_features = arguments.num_features;
  const int64_t row_bytes = kHeaderBytes + code_bytes(num_features, kBits);
  const RowTiles out(arguments.out, arguments.type, num_features, place.lane);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kUnpackBlockRows;
  for (int64_t position = static_cast<int64_t>(blockIdx.x) * kUnpackBlockRows +
                          threadIdx.x / kRowLanes;
       position < arguments.num_unpacked; position += step) {
    const int64_t id =
        arguments.index != nullptr ? arguments.index[position] : position;
    const UnpackedRow<kBits> row(arguments.payload + id * row_bytes,
                                 num_features, place);
    if (row.kind() != RowKind::kCorrupt) {
      for (int64_t begin = 0; begin < num_features; begin += kTileColumns) {
        float values[kLaneColumns] = {};
        out.read(row, begin, values);
        out.store(position, begin, values);
      }
    }
    note_kind(report, row.kind(), position, place.lane);
  }
}

template <int kBits>
void launch_unpack(const UnpackArguments& arguments,
                   cudaStream_t stream,
                   RowReport* report) {
  launch("unpack_rows", unpack_kernel<kBits>,
         grid_for(arguments.num_unpacked, kUnpackBlockRows),
         dim3(kBlockThreads), stream, arguments, report);
}

}  // namespace

void unpack_rows(const UnpackArguments& arguments,
                 void* stream,
                 RowReport* report) {
  if (arguments.num_unpacked == 0) {
    return;
  }
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  if (arguments.index != nullptr) {
    check_index("unpack_rows", arguments.index, arguments.num_unpacked,
                arguments.num_packed, cuda_stream, report);
  }
  switch (arguments.bits) {
    case 1:
      return launch_unpack<1>(arguments, cuda_stream, report);
    case 2:
      return launch_unpack<2>(arguments, cuda_stream, report);
    case 4:
      return launch_unpack<4>(arguments, cuda_stream, report);
    default:
      return launch_unpack<8>(arguments, cuda_stream, report);
  }
}

}  // namespace hvs::cuda
