// The loops over a gradient's elements: adding, collecting candidates, keeping
// some of them. See [Note: one algorithm, three instruction sets] in
// row_blocks.inl; here the lanes are those of top_k_kernels_*.cpp.

enum class GradKind { kNone, kFloat32, kFloat16, kBFloat16 };

constexpr uint32_t kMagnitudeBits = 0x7FFFFFFFu;
constexpr uint32_t kInfinityBits = 0x7F800000u;
constexpr uint32_t kAllLanes = (1u << kLanes) - 1u;

inline Words magnitude(Floats a) {
  return bitwise_and(words_of(a), splat_word(kMagnitudeBits));
}

// The first `count` lanes, of any count.
inline uint32_t first_lanes(int64_t count) {
  return count >= kLanes ? kAllLanes : count <= 0 ? 0u : (1u << count) - 1u;
}

// As from_fp16(), in lanes.
inline Floats from_fp16_lanes(Words halves) {
  const Words magnitudes =
      shift_left<13>(bitwise_and(halves, splat_word(0x7FFFu)));
  const Mask special = greater(magnitudes, splat_word(0x0F7FFFFFu));
  const Floats scaled = multiply(floats_of(magnitudes), splat(0x1p112f));
  const Floats value = select(
      special, floats_of(bitwise_or(magnitudes, splat_word(kInfinityBits))),
      scaled);
  const Words sign = shift_left<16>(bitwise_and(halves, splat_word(0x8000u)));
  return floats_of(bitwise_or(words_of(value), sign));
}

template <GradKind kGrad>
inline Floats load_grad(const void* grad, int64_t element) {
  if constexpr (kGrad == GradKind::kFloat32) {
    return load(static_cast<const float*>(grad) + element);
  } else {
    const Words halves =
        load_halves(static_cast<const uint16_t*>(grad) + element);
    if constexpr (kGrad == GradKind::kFloat16) {
      return from_fp16_lanes(halves);
    } else {
      return floats_of(shift_left<16>(halves));
    }
  }
}

// What a value leaves: sum - bf16_value(sum), in lanes.
template <ValueType kValue>
inline Floats remainder(Floats sum) {
  if constexpr (kValue == ValueType::kFloat32) {
    return splat(0.0f);
  } else {
    const Words bits = words_of(sum);
    const Words odd = bitwise_and(shift_right<16>(bits), splat_word(1u));
    const Words rounded = bitwise_and(add(add(bits, splat_word(0x7FFFu)), odd),
                                      splat_word(0xFFFF0000u));
    const Mask infinite =
        greater(bitwise_and(rounded, splat_word(kMagnitudeBits)),
                splat_word(kInfinityBits - 1u));
    const Floats largest = floats_of(add(rounded, splat_word(0xFFFF0000u)));
    return subtract(sum, select(infinite, largest, floats_of(rounded)));
  }
}

// A run of elements is added first, noting which vectors have candidates, and
// then searched while it is in the first cache: memory does not wait for
// branches that cannot be predicted. Vectors of a run:
constexpr int64_t kRunVectors = 128;

// What all vectors of a call have in common.
struct CollectConstants {
  Floats scale;
  bool is_scaled;  // not by 1, which is slow for denormals on some CPUs
  Words below_threshold;
};

struct Run {
  int64_t first_element;
  int64_t num_vectors;
  alignas(64) uint16_t chosen[kRunVectors];  // a bit for each lane
};

// Returns the sums of one vector, of which only the lanes `valid` count.
template <GradKind kGrad>
inline Floats add_vector(const CollectConstants& constants,
                         Floats old,
                         Floats grad,
                         uint32_t valid,
                         int64_t& num_nonfinite) {
  if constexpr (kGrad == GradKind::kNone) {
    return old;
  } else {
    const Floats sum =
        add(old, constants.is_scaled ? multiply(grad, constants.scale) : grad);
    const Mask nonfinite =
        greater(magnitude(sum), splat_word(kInfinityBits - 1u));
    if (__builtin_expect(!any(nonfinite), 1)) {
      return sum;
    }
    num_nonfinite += __builtin_popcount(bits_of_mask(nonfinite) & valid);
    return select(nonfinite, old, sum);
  }
}

template <GradKind kGrad>
inline Floats add_elements(const SelectArguments& arguments,
                           const CollectConstants& constants,
                           int64_t element,
                           int64_t& num_nonfinite) {
  Floats grad = splat(0.0f);
  if constexpr (kGrad != GradKind::kNone) {
    grad = load_grad<kGrad>(arguments.grad, element);
  }
  return add_vector<kGrad>(constants, load(arguments.residual + element), grad,
                           kAllLanes, num_nonfinite);
}

// The sums of a run, all of whose vectors are whole. In memory of its own, what
// they leave: that can be streamed, since nothing is stored there again.
template <GradKind kGrad, ValueType kValue, Target kTarget>
inline int64_t add_run(const SelectArguments& arguments,
                       const CollectConstants& constants,
                       Run& run) {
  int64_t num_nonfinite = 0;
  for (int64_t vector = 0; vector < run.num_vectors; ++vector) {
    const int64_t element = run.first_element + vector * kLanes;
    const Floats sums =
        add_elements<kGrad>(arguments, constants, element, num_nonfinite);
    const Mask chosen = greater(magnitude(sums), constants.below_threshold);
    run.chosen[vector] = static_cast<uint16_t>(bits_of_mask(chosen));
    float* place = arguments.accumulated + element;
    if constexpr (kTarget == Target::kResidual) {
      store(place, sums);
    } else {
      const Floats left = select(chosen, remainder<kValue>(sums), sums);
      if constexpr (kTarget == Target::kStreamed) {
        stream(place, left);
      } else {
        store(place, left);
      }
    }
  }
  return num_nonfinite;
}

// Appends the candidates of a run, and leaves what their values leave, if that
// is not done. Sums that are not there any more are added once more, which is
// cheaper than keeping them all.
template <GradKind kGrad, ValueType kValue, Target kTarget>
inline void search_run(const SelectArguments& arguments,
                       const CollectConstants& constants,
                       Run& run,
                       Candidates& candidates) {
  uint32_t vectors[kRunVectors + kLanes];
  int64_t num_vectors = 0;
  for (int64_t first = 0; first < run.num_vectors; first += kLanes) {
    const Words chosen = load_halves(run.chosen + first);
    const uint32_t some = bits_of_mask(greater(chosen, splat_word(0u))) &
                          first_lanes(run.num_vectors - first);
    const Words numbers =
        add(splat_word(static_cast<uint32_t>(first)), lane_numbers());
    num_vectors += append_words(some, numbers, vectors + num_vectors);
  }
  for (int64_t entry = 0; entry < num_vectors; ++entry) {
    const uint32_t vector = vectors[entry];
    const int64_t element = run.first_element + vector * kLanes;
    const uint32_t chosen = run.chosen[vector];
    const Words index =
        add(splat_word(static_cast<uint32_t>(element)), lane_numbers());
    if constexpr (kTarget == Target::kResidual) {
      const Floats sums = load(arguments.accumulated + element);
      append(chosen, sums, index, candidates);
      store(arguments.accumulated + element,
            select(mask_of_bits(chosen), remainder<kValue>(sums), sums));
    } else {
      int64_t num_nonfinite = 0;  // they are counted
      append(chosen,
             add_elements<kGrad>(arguments, constants, element, num_nonfinite),
             index, candidates);
    }
  }
}

// The elements after the last whole vector.
template <GradKind kGrad, ValueType kValue>
inline int64_t collect_rest(const SelectArguments& arguments,
                            const CollectConstants& constants,
                            int64_t begin,
                            int64_t end,
                            Candidates& candidates) {
  const size_t rest = static_cast<size_t>(end - begin);
  const uint32_t valid = first_lanes(end - begin);
  float last[kLanes] = {};
  std::memcpy(last, arguments.residual + begin, rest * sizeof(float));
  Floats grad = splat(0.0f);
  if constexpr (kGrad != GradKind::kNone) {
    constexpr size_t kBytes = kGrad == GradKind::kFloat32 ? 4 : 2;
    float last_grad[kLanes] = {};
    std::memcpy(last_grad,
                static_cast<const uint8_t*>(arguments.grad) +
                    static_cast<size_t>(begin) * kBytes,
                rest * kBytes);
    grad = load_grad<kGrad>(last_grad, 0);
  }
  int64_t num_nonfinite = 0;
  const Floats sums =
      add_vector<kGrad>(constants, load(last), grad, valid, num_nonfinite);
  const Mask chosen = greater(magnitude(sums), constants.below_threshold);
  const Words index =
      add(splat_word(static_cast<uint32_t>(begin)), lane_numbers());
  append(bits_of_mask(chosen) & valid, sums, index, candidates);
  store(last, select(chosen, remainder<kValue>(sums), sums));
  std::memcpy(arguments.accumulated + begin, last, rest * sizeof(float));
  return num_nonfinite;
}

template <GradKind kGrad, ValueType kValue, Target kTarget>
int64_t collect_range(const SelectArguments& arguments,
                      int64_t begin,
                      int64_t end,
                      uint32_t threshold,
                      Candidates& candidates) {
  const CollectConstants constants = {splat(arguments.scale),
                                      arguments.scale != 1.0f,
                                      splat_word(threshold - 1u)};
  Candidates found = candidates;  // in registers
  int64_t num_nonfinite = 0;
  Run run = {};
  run.first_element = begin;
  int64_t vectors_left = (end - begin) / kLanes;
  while (vectors_left > 0) {
    run.num_vectors = vectors_left < kRunVectors ? vectors_left : kRunVectors;
    num_nonfinite += add_run<kGrad, kValue, kTarget>(arguments, constants, run);
    search_run<kGrad, kValue, kTarget>(arguments, constants, run, found);
    run.first_element += run.num_vectors * kLanes;
    vectors_left -= run.num_vectors;
  }
  if (run.first_element < end) {
    num_nonfinite += collect_rest<kGrad, kValue>(arguments, constants,
                                                 run.first_element, end, found);
  }
  candidates = found;
  return num_nonfinite;
}

template <Target kTarget, ValueType kValue>
constexpr auto collect_of(GradKind grad) {
  return grad == GradKind::kNone
             ? collect_range<GradKind::kNone, kValue, kTarget>
         : grad == GradKind::kFloat32
             ? collect_range<GradKind::kFloat32, kValue, kTarget>
         : grad == GradKind::kFloat16
             ? collect_range<GradKind::kFloat16, kValue, kTarget>
             : collect_range<GradKind::kBFloat16, kValue, kTarget>;
}

template <Target kTarget>
constexpr auto collect_of(ValueType value, GradKind grad) {
  return value == ValueType::kFloat32
             ? collect_of<kTarget, ValueType::kFloat32>(grad)
             : collect_of<kTarget, ValueType::kBFloat16>(grad);
}

inline GradKind grad_kind(const SelectArguments& arguments) {
  return arguments.grad == nullptr                 ? GradKind::kNone
         : arguments.type == ElementType::kFloat32 ? GradKind::kFloat32
         : arguments.type == ElementType::kFloat16 ? GradKind::kFloat16
                                                   : GradKind::kBFloat16;
}

int64_t collect(const SelectArguments& arguments,
                Target target,
                ValueType value_type,
                int64_t begin,
                int64_t end,
                uint32_t threshold,
                Candidates& candidates) {
  const GradKind grad = grad_kind(arguments);
  const auto chosen = target == Target::kResidual
                          ? collect_of<Target::kResidual>(value_type, grad)
                      : target == Target::kSeparate
                          ? collect_of<Target::kSeparate>(value_type, grad)
                          : collect_of<Target::kStreamed>(value_type, grad);
  return chosen(arguments, begin, end, threshold, candidates);
}
