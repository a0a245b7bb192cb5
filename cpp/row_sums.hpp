// Whether the row numbers of an addition are in range; shared by every device.
#pragma once

#include <cstdint>

#include "add_rows.hpp"
#include "host_device.hpp"

namespace hvs {

HVS_HOST_DEVICE inline bool is_row(int64_t number, int64_t num_rows) {
  // One comparison for both ends: as unsigned, a negative number is large.
  return static_cast<uint64_t>(number) < static_cast<uint64_t>(num_rows);
}

// Whether the numbers at `place` of each array, as far as it goes, are right.
HVS_HOST_DEVICE inline bool is_right_sum(const cpu::AddArguments& arguments,
                                         int64_t place) {
  if (place < arguments.num_added &&
      (!is_row(arguments.order[place], arguments.num_added) ||
       (arguments.index != nullptr &&
        !is_row(arguments.index[place], arguments.num_rows)))) {
    return false;
  }
  return place >= arguments.num_targets ||
         (is_row(arguments.targets[place], arguments.num_out) &&
          is_row(arguments.starts[place], arguments.num_added + 1) &&
          is_row(arguments.starts[place + 1], arguments.num_added + 1));
}

}  // namespace hvs
