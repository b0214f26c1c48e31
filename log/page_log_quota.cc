// The page log's quota: what it could be, and zones freed for a smaller one.
#include <algorithm>

#include "log/page_log.h"

namespace furrow {

// Collection's zone, and those of the user's streams, are part of it, and bad zones, which nothing
// can be written to any more.
std::uint64_t PageLog::quota_min() const {
  const ZoneAllocator& allocator = pool_.allocator;
  const std::uint64_t bad = allocator.bad(options_.volume);
  const std::uint64_t quota = allocator.quota(options_.volume);
  const auto suffices = [&](std::uint64_t zones) {
    if (!options_.cache) return used_bytes() <= usable_bytes(largest_bytes_, zones);
    return pinned_lbas_ + pending_pinned_lbas_ <= pinned_lbas_max(largest_bytes_, zones);
  };
  std::uint64_t zones =
      zones_min(pool_.geometry, options_.cache, options_.value_bytes_max) + users_streams() - 1;
  while (zones + bad < quota && !suffices(zones)) ++zones;
  return std::min(zones + bad, quota);
}

std::uint64_t PageLog::zones_max() const {
  const std::uint64_t quota = pool_.allocator.quota(options_.volume);
  const std::uint64_t held_max = pool_.allocator.held_max(options_.volume);
  const std::uint64_t most = held_max == quota ? quota : std::min(zones_needed(), held_max);
  return std::min(shrinks_to_.value_or(most), most);
}

// The quota, unless zones are back that an opening went without, or pages that had expired until
// the clock was set back: what was stored meanwhile had their room. With as many as are returned
// here a zone is sure to gain something by its collection, and deletes bring the store back to its
// quota. (Tombstones alone do not count: there would be no end to what those may take.)
std::uint64_t PageLog::zones_needed() const {
  constexpr std::uint64_t kOthers = 2;  // collection's, and one that is partly written
  std::uint64_t zones = pool_.allocator.quota(options_.volume);
  const auto usable = [=, this](std::uint64_t of) {
    return usable_in_zones(largest_bytes_, of - std::min(of, kOthers));
  };
  if (options_.cache || cost_bytes_ <= usable(zones)) return zones;
  while (zones < pool_.geometry.zone_count && used_bytes() > usable(zones)) ++zones;
  return zones;
}

// What it holds, and a zone for copies, stays.
std::uint64_t PageLog::zones_to_spare() const {
  const std::uint64_t quota = pool_.allocator.quota(options_.volume);
  const std::uint64_t least = std::max(quota_min(), pool_.allocator.held(options_.volume) + 1);
  const bool beyond = pool_.allocator.held_max(options_.volume) != quota;
  return beyond ? 0 : quota - std::min(quota, least);
}

bool PageLog::sheds_zones() {
  const std::uint64_t quota = pool_.allocator.quota(options_.volume);
  if (pool_.allocator.held_max(options_.volume) <= quota) return false;
  if (!sweep_->idle()) return true;  // what has expired counts until it has been taken out
  if (zones_max() > quota || collector_->idle()) return false;
  collector_->hurry();
  return true;
}

// Before anything is written. A volume that has its whole quota, or more, has no zone to empty
// others into, nor, where power cuts have ended those that it wrote to, any for a deletion: zones
// are back, perhaps since an earlier opening. It gets one for copies, which users do not get, so
// that what it holds only shrinks.
void PageLog::allow_zones() {
  ZoneAllocator& allocator = pool_.allocator;
  const std::uint64_t held = allocator.held(options_.volume);
  if (held >= allocator.quota(options_.volume)) allocator.allow(options_.volume, held + 1);
  allocator.allow(options_.volume, zones_needed());
}

void PageLog::allow_fewer_zones() {
  ZoneAllocator& allocator = pool_.allocator;
  const std::uint64_t volume = options_.volume;
  if (allocator.held_max(volume) == allocator.quota(volume)) return;
  allocator.allow_no_more(volume, std::max(allocator.held(volume) + 1, zones_needed()));
}

bool PageLog::freeing() const {
  return shrinks_to_ && pool_.allocator.held(options_.volume) >= *shrinks_to_;
}

// They would fill the zones that copies open as fast as others are freed. (Of a volume that holds
// more than its quota, until what was asked for is free, not until it is within that.)
bool PageLog::frees_for_quota() const {
  return shrinks_to_ && pool_.allocator.held(options_.volume) + 1 >= *shrinks_to_;
}

void PageLog::shrink(std::uint64_t zones) {
  shrinks_to_ = zones;
  shrinking_failed_ = Status();
  collector_->kick();
}

void PageLog::end_shrinking(const Status& why) {
  if (!shrinks_to_) return;
  shrinks_to_.reset();
  shrinking_failed_ = why;
  kick();
}

void PageLog::resized() {
  shrinks_to_.reset();
  shrinking_failed_ = Status();
  kick();
  collector_->note_progress();
  collector_->kick();
}

}  // namespace furrow
