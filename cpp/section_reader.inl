// Reads elements of a section that is checked, whatever its address. Included
// in an anonymous namespace.

inline uint16_t load_word16(const uint8_t* from) {
  uint16_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

template <ValueType kType>
inline float load_value(const uint8_t* values, int64_t position) {
  if constexpr (kType == ValueType::kBFloat16) {
    return from_bf16(load_word16(values + 2 * position));
  } else {
    float value;
    std::memcpy(&value, values + 4 * position, sizeof(value));
    return value;
  }
}

// Calls function(index inside its block, value) for the elements at positions
// [begin, end).
template <ValueType kType, typename Function>
inline void for_selected(const SectionLayout& layout,
                         const uint8_t* section,
                         int64_t begin,
                         int64_t end,
                         Function function) {
  const uint8_t* index = section + layout.index_begin;
  const uint8_t* values = section + layout.values_begin;
  for (int64_t position = begin; position < end; ++position) {
    function(load_word16(index + 2 * position),
             load_value<kType>(values, position));
  }
}
