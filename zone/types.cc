#include "zone/types.h"

namespace furrow {

const char* to_string(ZoneState state) {
  switch (state) {
    case ZoneState::empty:
      return "empty";
    case ZoneState::implicitly_open:
      return "implicitly open";
    case ZoneState::explicitly_open:
      return "explicitly open";
    case ZoneState::closed:
      return "closed";
    case ZoneState::read_only:
      return "read only";
    case ZoneState::full:
      return "full";
    case ZoneState::offline:
      return "offline";
  }
  return "unknown";
}

}  // namespace furrow
