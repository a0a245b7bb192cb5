#pragma once

#include <pybind11/pybind11.h>

namespace hvs {

// Adds `pack_rows`, `unpack_rows` and `instruction_set` to the module, as
// declared and described in horovod_sylvie/_native.pyi. Arrays come as
// addresses with their sizes; sizes and index values are checked here and in
// the kernels, addresses cannot be. The GIL is released while a kernel runs.
void register_rows(pybind11::module_& module);

}  // namespace hvs
