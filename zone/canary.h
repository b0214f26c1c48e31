// Canaries: bugs planted on purpose, to see whether the simulation finds them. Each is a promise of
// the crash design with one step left out. They exist in the builds `asan` and `canary` alone
// (CMake option FURROW_CANARIES, for tests/sim), where none is planted unless asked for;
// everywhere else canary() is false at compile time.
#pragma once

#include <cstdint>
#include <string_view>

namespace furrow {

enum class Canary : std::uint8_t {
  none,
  flush_skipped,           // a put or delete at `flushed` is answered without a flush
  acknowledged_early,      // pages are published and answered before their batch is written
  header_not_durable,      // pages follow a zone header before it and the zone before are durable
  copies_not_durable,      // a victim is reset before its copies are durable
  reset_not_durable,       // pages go to a zone again before its reset is durable
  not_noted_durable,       // a stream's newest zone is reset, and the one before it not vouched for
  reset_under_read,        // a zone is reset while it may be read
  tombstone_dropped,       // collection does not take tombstones along
  checkpoint_not_durable,  // the older checkpoint goes before the newer is durable
  summary_unchecked,       // a summary's records are trusted without their checksum
  header_counts,           // a zone with nothing but its header is taken for a stream's newest
  tail_unchecked,          // recovery trusts pages behind the last flush without looking at them
  zone_limits_ignored,     // MOR and MAR are ignored
  zones_not_flushed,       // a finish or reset of a host's zone is answered without a flush
};

inline constexpr std::string_view kCanaryNames[] = {
    "none",
    "flush_skipped",
    "acknowledged_early",
    "header_not_durable",
    "copies_not_durable",
    "reset_not_durable",
    "not_noted_durable",
    "reset_under_read",
    "tombstone_dropped",
    "checkpoint_not_durable",
    "summary_unchecked",
    "header_counts",
    "tail_unchecked",
    "zone_limits_ignored",
    "zones_not_flushed",
};

#ifdef FURROW_CANARIES
inline Canary planted_canary = Canary::none;
inline bool canary(Canary which) { return planted_canary == which; }
#else
constexpr bool canary(Canary) { return false; }
#endif

}  // namespace furrow
