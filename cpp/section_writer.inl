// Writes what was selected into a section, list after list, in the order of the
// indices. Included in an anonymous namespace.

class SectionWriter {
 public:
  SectionWriter(const SectionLayout& layout, uint8_t* section)
      : type_(layout.type),
        counts_(section),
        index_(section + layout.index_begin),
        values_(section + layout.values_begin) {
    std::memset(section, 0, static_cast<size_t>(layout.nbytes));
  }

  void write(const Candidates& kept) {
    count_blocks(kept);
    for (int64_t entry = 0; entry < kept.count; ++entry) {
      const uint16_t inside = static_cast<uint16_t>(kept.index[entry]);
      std::memcpy(index_ + 2 * entry, &inside, sizeof(inside));
    }
    index_ += 2 * kept.count;
    if (type_ == ValueType::kFloat32) {
      std::memcpy(values_, kept.sums,
                  static_cast<size_t>(kept.count) * sizeof(float));
      values_ += 4 * kept.count;
    } else {
      for (int64_t entry = 0; entry < kept.count; ++entry) {
        const uint16_t value = bf16_value(kept.sums[entry]);
        std::memcpy(values_ + 2 * entry, &value, sizeof(value));
      }
      values_ += 2 * kept.count;
    }
  }

 private:
  void count_blocks(const Candidates& kept) {
    int64_t begin = 0;
    while (begin < kept.count) {
      const int64_t block = kept.index[begin] / kBlockElements;
      const uint32_t last =
          static_cast<uint32_t>(block * kBlockElements + kBlockElements - 1);
      const int64_t end =
          std::upper_bound(kept.index + begin, kept.index + kept.count, last) -
          kept.index;
      uint32_t count;
      uint8_t* place = counts_ + 4 * block;
      std::memcpy(&count, place, sizeof(count));
      count += static_cast<uint32_t>(end - begin);
      std::memcpy(place, &count, sizeof(count));
      begin = end;
    }
  }

  ValueType type_;
  uint8_t* counts_;
  uint8_t* index_;  // where the next ones go
  uint8_t* values_;
};
