// The kernels of both codes, which pack_rows.cu chooses from.
#pragma once

#include <cuda_runtime.h>

#include "pack_rows.hpp"
#include "row_report.hpp"

namespace hvs::cuda {

// The index is checked, and num_packed not 0.
void pack_minmax(const cpu::PackArguments& arguments,
                 cudaStream_t stream,
                 RowReport* report);
void pack_centroid(const cpu::PackArguments& arguments,
                   cudaStream_t stream,
                   RowReport* report);

}  // namespace hvs::cuda
