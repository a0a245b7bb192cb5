// The row kernels of the CUDA half: what those of the CPU half do, with the
// same bytes (pack_rows.hpp, unpack_rows.hpp, add_rows.hpp). Defined only where
// kBuiltWithCuda.
//
// All pointers are of the current device, sizes are trusted, and `stream` is a
// cudaStream_t of it. Nothing waits: the kernels run when the stream comes to
// them, and the arrays must live until then. What they meet they note in
// `report`, which is open by then (row_report.hpp). A launch that CUDA refuses
// throws std::runtime_error with CUDA's reason.
#pragma once

#include "add_rows.hpp"
#include "pack_rows.hpp"
#include "row_report.hpp"
#include "unpack_rows.hpp"

namespace hvs::cuda {

void pack_rows(const cpu::PackArguments& arguments,
               void* stream,
               RowReport* report);

void unpack_rows(const cpu::UnpackArguments& arguments,
                 void* stream,
                 RowReport* report);

void add_rows(const cpu::AddArguments& arguments,
              void* stream,
              RowReport* report);

}  // namespace hvs::cuda
