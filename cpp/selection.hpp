#pragma once

#include "section.hpp"
#include "select_top_k.hpp"

namespace hvs {

// One selection of many, on any device; what that is, and what is trusted, is
// written down in select_top_k.hpp. `layout` is of the share.
struct Selection {
  SectionLayout layout;
  cpu::SelectArguments arguments;
};

}  // namespace hvs
