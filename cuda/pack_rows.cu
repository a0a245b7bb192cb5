#include "pack_rows.cuh"

#include "cuda_rows.hpp"
#include "row_groups.cuh"

namespace hvs::cuda {

void pack_rows(const cpu::PackArguments& arguments,
               void* stream,
               RowReport* report) {
  if (arguments.num_packed == 0) {
    return;
  }
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  if (arguments.index != nullptr) {
    check_index("pack_rows", arguments.index, arguments.num_packed,
                arguments.num_rows, cuda_stream, report);
  }
  if (arguments.code == cpu::RowCode::kCentroid) {
    pack_centroid(arguments, cuda_stream, report);
  } else {
    pack_minmax(arguments, cuda_stream, report);
  }
}

}  // namespace hvs::cuda
