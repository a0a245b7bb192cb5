#include "instruction_set.hpp"

namespace hvs::cpu {

InstructionSet best_instruction_set() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) {
    return InstructionSet::kAvx2;
  }
#endif
  return InstructionSet::kBaseline;
}

const char* instruction_set_name(InstructionSet instruction_set) {
  switch (instruction_set) {
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kAvx2:
      return "avx2";
    default:
      return "baseline";
  }
}

}  // namespace hvs::cpu
