// Which of the CPU's vector instructions the kernels use, decided when the
// program runs.
#pragma once

namespace hvs::cpu {

// In the order of preference: a machine that has one has those before it.
enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

// The best that this machine, its operating system and this build have. Cheap;
// always the same answer.
InstructionSet best_instruction_set();

// "baseline", "avx2" or "avx512".
const char* instruction_set_name(InstructionSet instruction_set);

}  // namespace hvs::cpu
