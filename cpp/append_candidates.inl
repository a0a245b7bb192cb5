// How lanes are appended to arrays without an instruction that compresses
// vectors: one by one.

inline int64_t append_words(uint32_t lanes, const Words& words, uint32_t* to) {
  uint32_t all_words[kLanes];
  store_words(all_words, words);
  int64_t count = 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    to[count++] = all_words[__builtin_ctz(lanes)];
  }
  return count;
}

inline void append(uint32_t lanes,
                   const Floats& sums,
                   const Words& index,
                   Candidates& candidates) {
  float all_sums[kLanes];
  uint32_t all_index[kLanes];
  store(all_sums, sums);
  store_words(all_index, index);
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    candidates.sums[candidates.count] = all_sums[lane];
    candidates.index[candidates.count] = all_index[lane];
    ++candidates.count;
  }
}
