// The table of contents of horovod_sylvie._native.
#include <pybind11/pybind11.h>

#include "checksum_binding.hpp"
#include "cuda_runtime_binding.hpp"
#include "rows_binding.hpp"
#include "sections_binding.hpp"
#include "top_k_binding.hpp"

namespace {

// To be raised with every change of a binding's signature or meaning, together
// with INTERFACE_VERSION in horovod_sylvie/ops/native.py, which refuses a
// library that an older checkout has built.
constexpr int kInterfaceVersion = 5;

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native kernels of horovod_sylvie. Not a public interface.";
  module.attr("INTERFACE_VERSION") = kInterfaceVersion;
  hvs::register_rows(module);
  hvs::register_top_k(module);
  hvs::register_sections(module);
  hvs::register_checksum(module);
  hvs::register_cuda_runtime(module);
}
