#include "top_k_kernels.hpp"

namespace hvs::cpu {

const TopKKernels& top_k_kernels(InstructionSet instruction_set) {
  switch (instruction_set) {
    case InstructionSet::kAvx512:
      return *avx512_top_k_kernels();
    case InstructionSet::kAvx2:
      return *avx2_top_k_kernels();
    default:
      return *baseline_top_k_kernels();
  }
}

}  // namespace hvs::cpu
