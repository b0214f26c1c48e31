#include "zone/placement.h"

namespace furrow {

void Placement::not_placed(ZoneId zone, std::uint64_t offset, std::uint64_t lbas) {
  const std::lock_guard lock(mutex_);
  for (const Failed& each : failed_) {
    if (each.zone == zone && each.offset == offset) return;  // sent again, and again
  }
  failed_.push_back({zone, offset, lbas});
  any_failed_.store(true, std::memory_order_relaxed);
}

bool Placement::misplaced(ZoneId zone, std::uint64_t offset, std::uint64_t placed) {
  const std::lock_guard lock(mutex_);
  std::uint64_t missing = 0;  // in front of it; a drive may have moved its write pointer past some
  bool out_of_turn = false;
  for (const Failed& each : failed_) {
    if (each.zone != zone) continue;
    if (each.offset < offset) missing += each.lbas;
    out_of_turn = out_of_turn || each.offset == offset;
  }
  const bool earlier = placed < offset && offset - placed <= missing;
  if (!earlier && !out_of_turn) misplaced_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void Placement::landed(ZoneId zone, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  std::erase_if(failed_,
                [&](const Failed& each) { return each.zone == zone && each.offset == offset; });
  any_failed_.store(!failed_.empty(), std::memory_order_relaxed);
}

void Placement::forget(ZoneId zone) {
  const std::lock_guard lock(mutex_);
  std::erase_if(failed_, [&](const Failed& each) { return each.zone == zone; });
  any_failed_.store(!failed_.empty(), std::memory_order_relaxed);
}

}  // namespace furrow
