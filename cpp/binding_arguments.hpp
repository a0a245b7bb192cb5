// What the bindings check in the same way. Included by bindings only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "instruction_set.hpp"
#include "pack_rows.hpp"
#include "section.hpp"

namespace hvs {

// Raises a ValueError. `door` is the Python module that prepares arguments.
[[noreturn]] void refuse_argument(const char* door,
                                  const char* argument,
                                  const std::string& expected,
                                  const std::string& got);

// Raises a RuntimeError: a stream was given to a build without CUDA.
[[noreturn]] void refuse_stream(const char* door);

void check_size_argument(const char* door,
                         const char* argument,
                         int64_t size,
                         int64_t expected);

void check_range_argument(const char* door,
                          const char* argument,
                          int64_t value,
                          int64_t lowest,
                          int64_t highest);

// "float32", "float16" or "bfloat16".
cpu::ElementType to_element_type(const char* door,
                                 const char* argument,
                                 const std::string& name);

// "float32" or "bfloat16".
ValueType to_value_type(const char* door,
                        const char* argument,
                        const std::string& name);

// None is the best of this machine.
cpu::InstructionSet to_instruction_set(const char* door,
                                       const std::optional<std::string>& name);

// A flag for each of `count` rows; those that `skip` lists are set.
std::vector<uint8_t> to_skip_flags(const char* door,
                                   const std::vector<int64_t>& skip,
                                   int64_t count);

template <typename Pointer>
Pointer to_pointer(uint64_t address) {
  return reinterpret_cast<Pointer>(static_cast<uintptr_t>(address));
}

}  // namespace hvs
