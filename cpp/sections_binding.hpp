#pragma once

#include <pybind11/pybind11.h>

namespace hvs {

// Adds `Sections`, `sections_workspace_bytes`, `add_selected`, `clear_selected`
// and `restore_selected` to the module, with the checks of register_top_k().
// The bytes of sections are checked in the kernels.
void register_sections(pybind11::module_& module);

}  // namespace hvs
