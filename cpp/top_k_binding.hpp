#pragma once

#include <pybind11/pybind11.h>

namespace hvs {

// Adds `Selection`, `select_top_k` and `select_workspace_bytes` to the module,
// as declared and described in horovod_sylvie/_native.pyi. Arrays come as
// addresses with their sizes; sizes are checked here, addresses cannot be. The
// GIL is released while a kernel runs.
void register_top_k(pybind11::module_& module);

}  // namespace hvs
