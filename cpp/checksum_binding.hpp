#pragma once

#include <pybind11/pybind11.h>

namespace hvs {

// Adds `checksum` to the module, with the checks of register_top_k().
void register_checksum(pybind11::module_& module);

}  // namespace hvs
