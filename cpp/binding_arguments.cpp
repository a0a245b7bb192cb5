#include "binding_arguments.hpp"

#include <pybind11/pybind11.h>

#include <stdexcept>

namespace hvs {

using cpu::ElementType;
using cpu::InstructionSet;

void refuse_argument(const char* door,
                     const char* argument,
                     const std::string& expected,
                     const std::string& got) {
  throw pybind11::value_error(
      "_native: expected " + expected + " for '" + argument + "', got " + got +
      ". Call horovod_sylvie.ops." + door + ", which prepares it.");
}

void refuse_stream(const char* door) {
  throw std::runtime_error(
      std::string("_native: expected None for 'stream', got a stream: this "
                  "library was built without CUDA. Call horovod_sylvie.ops.") +
      door + ", which knows that.");
}

void check_size_argument(const char* door,
                         const char* argument,
                         int64_t size,
                         int64_t expected) {
  if (size != expected) {
    refuse_argument(door, argument, std::to_string(expected),
                    std::to_string(size));
  }
}

void check_range_argument(const char* door,
                          const char* argument,
                          int64_t value,
                          int64_t lowest,
                          int64_t highest) {
  if (value < lowest || value > highest) {
    refuse_argument(door, argument,
                    "a number in [" + std::to_string(lowest) + ", " +
                        std::to_string(highest) + "]",
                    std::to_string(value));
  }
}

ElementType to_element_type(const char* door,
                            const char* argument,
                            const std::string& name) {
  if (name == "float32") {
    return ElementType::kFloat32;
  }
  if (name == "float16") {
    return ElementType::kFloat16;
  }
  if (name == "bfloat16") {
    return ElementType::kBFloat16;
  }
  refuse_argument(door, argument, "'float32', 'float16' or 'bfloat16'",
                  "'" + name + "'");
}

ValueType to_value_type(const char* door,
                        const char* argument,
                        const std::string& name) {
  if (name == "float32") {
    return ValueType::kFloat32;
  }
  if (name == "bfloat16") {
    return ValueType::kBFloat16;
  }
  refuse_argument(door, argument, "'float32' or 'bfloat16'", "'" + name + "'");
}

InstructionSet to_instruction_set(const char* door,
                                  const std::optional<std::string>& name) {
  const InstructionSet best = cpu::best_instruction_set();
  if (!name) {
    return best;
  }
  for (const InstructionSet known :
       {InstructionSet::kBaseline, InstructionSet::kAvx2,
        InstructionSet::kAvx512}) {
    if (*name == cpu::instruction_set_name(known) && known <= best) {
      return known;
    }
  }
  refuse_argument(door, "instruction_set",
                  std::string("None or one up to '") +
                      cpu::instruction_set_name(best) + "'",
                  "'" + *name + "'");
}

std::vector<uint8_t> to_skip_flags(const char* door,
                                   const std::vector<int64_t>& skip,
                                   int64_t count) {
  std::vector<uint8_t> is_skipped(static_cast<size_t>(count));
  for (const int64_t row : skip) {
    check_range_argument(door, "skip", row, 0, count - 1);
    is_skipped[static_cast<size_t>(row)] = 1;
  }
  return is_skipped;
}

}  // namespace hvs
