// The loops over candidates, which are few: keeping some of them, counting, and
// copying. After collect_candidates.inl, whose lanes it uses; and three loops
// of others.

void keep(uint32_t threshold,
          int64_t ties_end,
          const Share& share,
          float* accumulated,
          Candidates& candidates) {
  const Words highest_below = splat_word(threshold - 1u);
  const Words highest_tie = splat_word(threshold);
  Candidates kept = {candidates.index, candidates.sums, 0};
  uint32_t dropped_index[2 * kLanes];
  float dropped_sums[2 * kLanes];
  for (int64_t first = 0; first < candidates.count; first += kLanes) {
    const Floats sums = load(candidates.sums + first);
    const Words index = load_words(candidates.index + first);
    const uint32_t valid = first_lanes(candidates.count - first);
    const uint32_t above = bits_of_mask(greater(magnitude(sums), highest_tie));
    const uint32_t at_least =
        bits_of_mask(greater(magnitude(sums), highest_below));
    const uint32_t keeps =
        valid & (above | (at_least & first_lanes(ties_end - first)));
    // In place: never ahead of what is read, since it is in registers by now.
    append(keeps, sums, index, kept);
    if (keeps != valid) {
      Candidates dropped = {dropped_index, dropped_sums, 0};
      append(valid & ~keeps, sums, index, dropped);
      for (int64_t entry = 0; entry < dropped.count; ++entry) {
        accumulated[place_of(dropped.index[entry], share)] =
            dropped.sums[entry];
      }
    }
  }
  candidates.count = kept.count;
}

int64_t count_reaching(const Candidates& candidates, uint32_t bits) {
  // As signed numbers, which any CPU compares in vectors.
  const int32_t limit = static_cast<int32_t>(bits);
  int64_t total = 0;
  constexpr int64_t kCountable = int64_t{1} << 30;
  for (int64_t begin = 0; begin < candidates.count; begin += kCountable) {
    const int64_t left = candidates.count - begin;
    const int64_t end = begin + (left < kCountable ? left : kCountable);
    int32_t count = 0;
    for (int64_t entry = begin; entry < end; ++entry) {
      const uint32_t magnitude =
          bits_of(candidates.sums[entry]) & kMagnitudeBits;
      count += static_cast<int32_t>(magnitude) >= limit;
    }
    total += count;
  }
  return total;
}

int64_t copy_between(const Candidates& candidates,
                     uint32_t low,
                     uint32_t high,
                     uint32_t* to) {
  int64_t count = 0;
  for (int64_t first = 0; first < candidates.count; first += kLanes) {
    const Words magnitudes = magnitude(load(candidates.sums + first));
    const uint32_t chosen =
        bits_of_mask(greater(magnitudes, splat_word(low - 1u))) &
        bits_of_mask(greater(splat_word(high), magnitudes)) &
        first_lanes(candidates.count - first);
    if (chosen != 0) {
      count += append_words(chosen, magnitudes, to + count);
    }
  }
  return count;
}

void stream_out(float* sums, int64_t count, float* to) {
  int64_t element = 0;
  for (; element + kLanes <= count; element += kLanes) {
    stream(to + element, load(sums + element));
    store(sums + element, splat(0.0f));
  }
  for (; element < count; ++element) {
    to[element] = sums[element];
    sums[element] = 0.0f;
  }
}

void round_to_half(const float* from,
                   ElementType type,
                   int64_t count,
                   uint16_t* to) {
  if (type == ElementType::kFloat16) {
    for (int64_t element = 0; element < count; ++element) {
      to[element] = fp16_nearest(from[element]);
    }
  } else {
    for (int64_t element = 0; element < count; ++element) {
      to[element] = bf16_nearest(from[element]);
    }
  }
}

uint64_t sum_words(const uint8_t* data, int64_t begin, int64_t end) {
  uint64_t sum = 0;
  for (int64_t place = begin; place < end; ++place) {
    uint64_t word;
    std::memcpy(&word, data + 8 * place, sizeof(word));
    sum += mix64(word ^ mix64(static_cast<uint64_t>(place) + 1));
  }
  return sum;
}
