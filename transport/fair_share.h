// The rule by which connections share what a reactor has (page buffers, memory for commands' data),
// and addresses the places of connections that are being set up. Nobody gets more when that would
// be more than was left to all others, nor of the last quarter, which is for those who have next to
// nothing. So a few that never give anything back cannot keep another one waiting: it takes as many
// as a quarter has units.
#pragma once

#include <cstdint>

namespace furrow::transport {

struct Shared {
  std::uint64_t total = 0;
  std::uint64_t least = 1;  // what everybody may have while there is any
};

// May one who holds `held` have `more`, when `free` are free (all in the same unit)?
constexpr bool within_share(const Shared& shared, std::uint64_t held, std::uint64_t more,
                            std::uint64_t free) {
  if (more > free) return false;
  if (held + more <= shared.least) return true;
  return held + more <= free && free - more >= shared.total / 4;
}

// The same for many that belong together, as a host's connections and an address's hosts. Each of
// them has its share; together they leave the last 1/`part` to others like them that have next to
// nothing.
constexpr bool leaves_reserve(const Shared& shared, std::uint64_t held, std::uint64_t more,
                              std::uint64_t free, std::uint64_t part) {
  if (more > free) return false;
  return held + more <= shared.least || free - more >= shared.total / part;
}

}  // namespace furrow::transport
