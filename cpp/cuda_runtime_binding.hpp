#pragma once

#include <pybind11/pybind11.h>

namespace hvs {

// Adds `cuda_runtime() -> dict | None` to the module: None in a build without
// CUDA, else "toolkit" and "driver" (text such as "13.0"; "driver" is None
// where there is no driver), "devices" (a list of dicts with "name" and
// "compute_capability") and "problem" (text, or None).
// Adds `cuda_problem(device_index) -> str | None`: why kernels cannot run on a
// device, also that the build has no CUDA.
void register_cuda_runtime(pybind11::module_& module);

}  // namespace hvs
