// How eight lanes write a row of elements; see [Note: a row in eight lanes].
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "fp16_bits.hpp"
#include "unpacked_row.cuh"

namespace hvs::cuda {

class RowStores {
 public:
  // `out`: [rows, num_features], contiguous.
  __device__ RowStores(void* out, ElementType type, int64_t num_features)
      : out_(out), type_(type), num_features_(num_features) {
    const unsigned bytes = (type == ElementType::kFloat32 ? 4 : 2) *
                           kLaneColumns;  // of four elements
    takes_four_ = num_features % kLaneColumns == 0 &&
                  reinterpret_cast<uintptr_t>(out) % bytes == 0;
  }

  // Row `position` becomes `row`.
  template <typename Row>
  __device__ void write(const Row& row, int64_t position, int lane) const {
    const int64_t begin = position * num_features_;
    if (takes_four_) {
      for (int64_t column = lane * kLaneColumns; column < num_features_;
           column += kRowLanes * kLaneColumns) {
        float values[kLaneColumns];
        row.four_at(column, values);
        store_four(begin + column, values);
      }
    } else {
#pragma unroll 4
      for (int64_t column = lane; column < num_features_; column += kRowLanes) {
        store(begin + column, row.at(column));
      }
    }
  }

 private:
  __device__ uint16_t half_of(float value) const {
    return type_ == ElementType::kFloat16 ? fp16_nearest(value)
                                          : bf16_nearest(value);
  }

  __device__ void store(int64_t place, float value) const {
    if (type_ == ElementType::kFloat32) {
      static_cast<float*>(out_)[place] = value;
    } else {
      static_cast<uint16_t*>(out_)[place] = half_of(value);
    }
  }

  __device__ void store_four(int64_t place,
                             const float (&values)[kLaneColumns]) const {
    if (type_ == ElementType::kFloat32) {
      *reinterpret_cast<float4*>(static_cast<float*>(out_) + place) =
          make_float4(values[0], values[1], values[2], values[3]);
    } else {
      *reinterpret_cast<ushort4*>(static_cast<uint16_t*>(out_) + place) =
          make_ushort4(half_of(values[0]), half_of(values[1]),
                       half_of(values[2]), half_of(values[3]));
    }
  }

  void* out_;
  ElementType type_;
  int64_t num_features_;
  bool takes_four_;
};

}  // namespace hvs::cuda
