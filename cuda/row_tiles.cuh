// How eight lanes share the columns of a row; see [Note: a row in eight lanes].
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "fp16_bits.hpp"
#include "unpacked_row.cuh"

namespace hvs::cuda {

constexpr int kTileColumns = kRowLanes * kLaneColumns;

__device__ inline int64_t element_bytes(ElementType type) {
  return type == ElementType::kFloat32 ? 4 : 2;
}

__device__ inline float load_element(const void* from,
                                     ElementType type,
                                     int64_t place) {
  if (type == ElementType::kFloat32) {
    return static_cast<const float*>(from)[place];
  }
  const uint16_t bits = static_cast<const uint16_t*>(from)[place];
  return type == ElementType::kFloat16 ? from_fp16(bits) : from_bf16(bits);
}

// Of half precision.
__device__ inline uint16_t half_of(float value, ElementType type) {
  return type == ElementType::kFloat16 ? fp16_nearest(value)
                                       : bf16_nearest(value);
}

// Rounds a value to the element type.
__device__ inline float rounded(float value, ElementType type) {
  if (type == ElementType::kFloat32) {
    return value;
  }
  const uint16_t bits = half_of(value, type);
  return type == ElementType::kFloat16 ? from_fp16(bits) : from_bf16(bits);
}

// Plain rows, contiguous, in tiles of 32 columns, of which each lane has four.
class RowTiles {
 public:
  __device__ RowTiles(void* rows,
                      ElementType type,
                      int64_t num_features,
                      int lane)
      : rows_(rows), type_(type), num_features_(num_features), lane_(lane) {
    has_fours_ = num_features % kLaneColumns == 0 &&
                 reinterpret_cast<uintptr_t>(rows) %
                         (element_bytes(type) * kLaneColumns) ==
                     0;
  }

  __device__ ElementType type() const { return type_; }

  // The lane's elements of a packed row, or of anything that has the same
  // functions. `begin` is the first column of the tile. Elements behind the end
  // of the row are left as they were.
  template <typename Row>
  __device__ void read(const Row& row,
                       int64_t begin,
                       float (&values)[kLaneColumns]) const {
    if (has_fours_) {
      if (begin + lane_ * kLaneColumns < num_features_) {
        row.four_at(begin + lane_ * kLaneColumns, values);
      }
      return;
    }
#pragma unroll
    for (int number = 0; number < kLaneColumns; ++number) {
      if (column(begin, number) < num_features_) {
        values[number] = row.at(column(begin, number));
      }
    }
  }

  // The same of row `id` of these.
  __device__ void load(int64_t id,
                       int64_t begin,
                       float (&values)[kLaneColumns]) const {
    const int64_t first = id * num_features_;
    const int64_t left = num_features_ - begin - lane_ * kLaneColumns;
    if (!has_fours_) {
#pragma unroll
      for (int number = 0; number < kLaneColumns; ++number) {
        if (column(begin, number) < num_features_) {
          values[number] =
              load_element(rows_, type_, first + column(begin, number));
        }
      }
    } else if (left > 0) {
      load_four(first + begin + lane_ * kLaneColumns, values);
    }
  }

  __device__ void store(int64_t id,
                        int64_t begin,
                        const float (&values)[kLaneColumns]) const {
    const int64_t first = id * num_features_;
    const int64_t left = num_features_ - begin - lane_ * kLaneColumns;
    if (!has_fours_) {
#pragma unroll
      for (int number = 0; number < kLaneColumns; ++number) {
        if (column(begin, number) < num_features_) {
          store_one(first + column(begin, number), values[number]);
        }
      }
    } else if (left > 0) {
      store_four(first + begin + lane_ * kLaneColumns, values);
    }
  }

 private:
  // Where the lane has no four neighbours.
  __device__ int64_t column(int64_t begin, int number) const {
    return begin + number * kRowLanes + lane_;
  }

  __device__ void load_four(int64_t place,
                            float (&values)[kLaneColumns]) const {
    if (type_ == ElementType::kFloat32) {
      const float4 four = *reinterpret_cast<const float4*>(
          static_cast<const float*>(rows_) + place);
      values[0] = four.x;
      values[1] = four.y;
      values[2] = four.z;
      values[3] = four.w;
      return;
    }
    const ushort4 four = *reinterpret_cast<const ushort4*>(
        static_cast<const uint16_t*>(rows_) + place);
    const bool is_fp16 = type_ == ElementType::kFloat16;
    values[0] = is_fp16 ? from_fp16(four.x) : from_bf16(four.x);
    values[1] = is_fp16 ? from_fp16(four.y) : from_bf16(four.y);
    values[2] = is_fp16 ? from_fp16(four.z) : from_bf16(four.z);
    values[3] = is_fp16 ? from_fp16(four.w) : from_bf16(four.w);
  }

  __device__ void store_one(int64_t place, float value) const {
    if (type_ == ElementType::kFloat32) {
      static_cast<float*>(rows_)[place] = value;
    } else {
      static_cast<uint16_t*>(rows_)[place] = half_of(value, type_);
    }
  }

  __device__ void store_four(int64_t place,
                             const float (&values)[kLaneColumns]) const {
    if (type_ == ElementType::kFloat32) {
      *reinterpret_cast<float4*>(static_cast<float*>(rows_) + place) =
          make_float4(values[0], values[1], values[2], values[3]);
    } else {
      *reinterpret_cast<ushort4*>(static_cast<uint16_t*>(rows_) + place) =
          make_ushort4(half_of(values[0], type_), half_of(values[1], type_),
                       half_of(values[2], type_), half_of(values[3], type_));
    }
  }

  void* rows_;
  ElementType type_;
  int64_t num_features_;
  int lane_;
  bool has_fours_;
};

}  // namespace hvs::cuda
