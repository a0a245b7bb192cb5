// How the elements of one parameter are dealt to owners: in chunks of 4096, in
// turn, so that every owner has a share of every part of it.
#pragma once

#include <cstdint>

#include "host_device.hpp"

namespace hvs {

// Also how far a selection goes between looks at the room that it has left. So
// many elements hide what going on to another place in memory costs.
constexpr int64_t kChunkElements = 4096;

// Element i of a parameter is in chunk i / 4096, and that chunk belongs to
// share number chunk % num_shares. The one share of one is the parameter.
struct Share {
  int64_t num_shares = 1;
  int64_t number = 0;
};

// Of a parameter of so many; 0 where it has fewer chunks than shares.
HVS_HOST_DEVICE inline int64_t share_elements(int64_t num_elements,
                                              const Share& share) {
  const int64_t turn = share.num_shares * kChunkElements;
  const int64_t rest = num_elements % turn - share.number * kChunkElements;
  const int64_t last = rest < kChunkElements ? rest : kChunkElements;
  return num_elements / turn * kChunkElements + (last < 0 ? 0 : last);
}

// Where an element of a share is in the parameter.
HVS_HOST_DEVICE inline int64_t place_of(int64_t element, const Share& share) {
  const int64_t chunk = element / kChunkElements;
  return element +
         (chunk * (share.num_shares - 1) + share.number) * kChunkElements;
}

}  // namespace hvs
