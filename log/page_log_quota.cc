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
  return std::min(shrinks_to_.value_or(quota), quota);
}

// They would fill the zones that copies open as fast as others are freed.
bool PageLog::frees_for_quota() const {
  return shrinks_to_ && pool_.allocator.held(options_.volume) + 1 >= zones_max();
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
