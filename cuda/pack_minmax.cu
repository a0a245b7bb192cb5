// The minmax code: unbiased stochastic rounding to the row's levels, as
// pack_rows.hpp defines it.
#include "counter_rng.hpp"
#include "header_of_code.hpp"
#include "pack_rows.cuh"
#include "packed_rows.cuh"

namespace hvs::cuda {
namespace {

template <int kBits>
struct MinMax {
  static constexpr unsigned kLevels = (1u << kBits) - 1u;
  uint64_t mixed_key;

  template <int kSteps>
  __device__ void pack(const PackedRow<Count<kSteps>>& row,
                       HalfWarp place,
                       const RowInRegisters<kSteps>& values,
                       int64_t id,
                       int64_t position,
                       RowReport* report) const {
    const Extent extent = find_extent(values, place);
    const RowHeader header = minmax_header(extent.min, extent.max);
    const bool coded = !extent.has_nan && extent.min != extent.max &&
                       is_coded(header, static_cast<float>(kLevels));
    const float lo = from_bf16(header.lo);
    const float factor = is_tiny(header) ? kTinyFactor : 1.0f;
    const float scale =
        coded ? code_scale(header, static_cast<float>(kLevels), factor) : 0.0f;
    const uint64_t row_key = make_row_key(mixed_key, static_cast<uint64_t>(id));
    using Number = Count<kSteps>;
    std::conditional_t<kBits == 1, BitWriter<Number>, CodeWriter<Number, kBits>>
        writer(row, place);
    uint32_t word = 0;
    values.for_steps([&](Number step, float value) {
      const auto block = static_cast<uint32_t>(step / 2);
      // The low half of a word is for this step, the high half for the next
      if (step % 2 == 0) {
        word = random_word(row_key, block * kLanes + place.lane);
      } else {
        word >>= 16;
      }
      const unsigned fixed =
          coded ? __float2uint_rn((value - lo) * factor * scale) +
                      (word & 0xFFFFu)
                : 0;
      const unsigned code = fixed >> 16;
      if constexpr (kBits == 1) {
        writer.add(step, code != 0);
      } else {
        writer.add(step, code < kLevels ? code : kLevels);
      }
    });
    finish_row(row, place, values, extent, coded, header, position, report);
  }
};

template <int kBits>
void pack(const PackArguments& arguments,
          cudaStream_t stream,
          RowReport* report) {
  launch_pack(arguments, MinMax<kBits>{mix64(arguments.key)}, stream, report);
}

}  // namespace

void pack_minmax(const PackArguments& arguments,
                 cudaStream_t stream,
                 RowReport* report) {
  switch (arguments.bits) {
    case 1:
      return pack<1>(arguments, stream, report);
    case 2:
      return pack<2>(arguments, stream, report);
    case 4:
      return pack<4>(arguments, stream, report);
    default:
      return pack<8>(arguments, stream, report);
  }
}

}  // namespace hvs::cuda
