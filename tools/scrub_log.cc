#include "tools/scrub_log.h"

#include <utility>

namespace furrow::tools {

std::optional<std::string> ScrubLog::found(const ScrubFinding& finding) {
  if (++found_ > kToldMax) return std::nullopt;
  return describe(finding);
}

std::optional<std::string> ScrubLog::second_passed() {
  const std::uint64_t found = std::exchange(found_, 0);
  if (found <= kToldMax) return std::nullopt;
  return std::to_string(found - kToldMax) + " more findings within a second";
}

}  // namespace furrow::tools
