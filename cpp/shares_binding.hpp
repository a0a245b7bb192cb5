#pragma once

#include <pybind11/pybind11.h>

namespace hvs {

// Adds `select_shares`, `add_shares` and `clear_shares` to the module, as
// declared and described in horovod_sylvie/_native.pyi, with the checks of
// register_top_k(). The GIL is released while a kernel runs.
void register_shares(pybind11::module_& module);

}  // namespace hvs
