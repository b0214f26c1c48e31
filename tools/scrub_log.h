// ScrubLog: what furrowd says of what its scrub finds: so many findings a second, then how many
// more there were. A disk that fails has a finding for each of its pages.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "log/scrubber.h"

namespace furrow::tools {

class ScrubLog {
 public:
  static constexpr std::uint64_t kToldMax = 10;  // a second
  // What is to be said of it. Nothing: it is one of those that are only counted.
  std::optional<std::string> found(const ScrubFinding& finding);
  // To be called each second, and at the end. Nothing: all was said.
  std::optional<std::string> second_passed();

 private:
  std::uint64_t found_ = 0;  // in this second
};

}  // namespace furrow::tools
