// What a check of options found, in words that a caller can put beside its own name for the option.
#pragma once

#include "zone/status.h"

namespace furrow::transport {

struct OptionsCheck {
  Status status;            // invalid_argument when something is wrong
  const char* option = "";  // the first that is; the subsystem's NQN is "nqn" everywhere
};

}  // namespace furrow::transport
