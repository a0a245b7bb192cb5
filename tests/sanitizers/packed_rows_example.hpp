// Rows as the encoder packs them, for inputs that are mostly right.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "fuzz_target.hpp"
#include "guarded_array.hpp"
#include "pack_rows.hpp"
#include "row_header.hpp"

namespace hvs::fuzz {

// Of numbers of every size; some constant, some with an Inf or a NaN.
inline void fill_row(Random& random, int64_t num_features, float* row) {
  const float scale =
      std::ldexp(1.0f, static_cast<int>(random.below(200)) - 100);
  const uint64_t kind = random.below(8);
  for (int64_t column = 0; column < num_features; ++column) {
    row[column] = kind == 0 && column > 0 ? row[0] : random.number() * scale;
  }
  if (kind == 1) {
    row[random.below(static_cast<uint64_t>(num_features))] =
        random.below(2) == 0 ? INFINITY : NAN;
  }
}

inline void append_packed_rows(int64_t num_rows,
                               int64_t num_features,
                               int bits,
                               Random& random,
                               Bytes& to) {
  GuardedArray<float> rows(num_rows * num_features);
  for (int64_t row = 0; row < num_rows; ++row) {
    fill_row(random, num_features, rows.data() + row * num_features);
  }
  GuardedArray<uint8_t> packed(num_rows *
                               (kHeaderBytes + code_bytes(num_features, bits)));
  const bool is_centroid = bits == 1 && random.below(2) == 0;
  cpu::pack_rows({rows.data(), cpu::ElementType::kFloat32, num_rows,
                  num_features, num_features, nullptr, num_rows, bits,
                  is_centroid ? cpu::RowCode::kCentroid : cpu::RowCode::kMinMax,
                  random.bits(), packed.data()},
                 1, cpu::best_instruction_set());
  append(packed.data(), packed.nbytes(), to);
}

}  // namespace hvs::fuzz
