// Placement: does a drive place Zone Appends in the order in which one queue gave them? It need not
// (Zoned Namespace Command Set, 3.4.1). Once it did not, it is not asked to any more.
//
// An append that fails has no place, so those behind it land earlier than foreseen, by as much as
// had failed in front of them, although the drive kept the order: that is the failure's
// consequence. Like any write out of its place they have failed; but only a drive that moves a
// write with nothing to explain it has lost the order. (An error that is told only after what it
// explains excuses nothing: that costs speed, and nothing else.)
//
// Threads: any. Offsets are LBAs from the zone's start.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "zone/types.h"

namespace furrow {

class Placement {
 public:
  bool in_order() const { return misplaced_.load(std::memory_order_relaxed) == 0; }
  // Writes that were out of their place by the drive's own doing.
  std::uint64_t misplaced() const { return misplaced_.load(std::memory_order_relaxed); }

  // An append that was to begin at `offset` has failed, or was given back to be sent again, behind
  // those that followed it.
  void not_placed(ZoneId zone, std::uint64_t offset, std::uint64_t lbas);
  // A write that was to begin at `offset` has succeeded, at `placed`. False: it is out of its
  // place.
  bool check(ZoneId zone, std::uint64_t offset, std::uint64_t placed) {
    if (placed != offset) return misplaced(zone, offset, placed);
    if (any_failed_.load(std::memory_order_relaxed)) landed(zone, offset);
    return true;
  }
  // The zone was reset: nothing is in flight in it.
  void forget(ZoneId zone);

 private:
  struct Failed {
    ZoneId zone;
    std::uint64_t offset, lbas;
  };
  bool misplaced(ZoneId zone, std::uint64_t offset, std::uint64_t placed);
  // One that was sent again explains nothing any more: none behind it has taken its place.
  void landed(ZoneId zone, std::uint64_t offset);

  std::atomic<std::uint64_t> misplaced_{0};
  std::atomic<bool> any_failed_{false};  // is there anything in failed_?
  std::mutex mutex_;
  // Few of a zone: one with a write that has failed is sealed until it is reset.
  std::vector<Failed> failed_;
};

}  // namespace furrow
