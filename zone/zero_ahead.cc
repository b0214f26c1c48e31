#include "zone/zero_ahead.h"

namespace furrow::emu {

ZeroAhead::ZeroAhead(const Geometry& geometry, ZoneTable& table)
    : geometry_(geometry), table_(table), zones_(std::make_unique<Zone[]>(geometry.zone_count)) {}

std::uint32_t ZeroAhead::begin(ZoneId id, Lba first, std::uint32_t lba_count) {
  Zone& zone = zones_[id.value];
  const std::uint64_t flushes = flushes_ended_.load();
  const bool was_flushed = zone.flushes.exchange(flushes) != flushes;
  const bool small = std::uint64_t{lba_count} * geometry_.lba_bytes <= kWriteBytesMax;
  const std::uint32_t streak = was_flushed && small ? zone.streak.load() + 1 : 0;
  zone.streak.store(streak);

  const std::uint64_t end = first.value - geometry_.zone_start(id).value + lba_count;
  if (streak < kStreak || end <= zone.until_lbas.load()) return 0;
  const std::uint64_t until = ahead_end_lbas(geometry_, end);
  if (until == end || !table_.hold_behind(id, end)) return 0;
  zone.stored.store(kNever);
  zone.until_lbas.store(until);
  return static_cast<std::uint32_t>(until - end);
}

void ZeroAhead::ended(ZoneId id, bool whole) {
  Zone& zone = zones_[id.value];
  if (whole) {
    zone.zeroed.store(flushes_begun_.load());
  } else {
    zone.until_lbas.store(0);
    zone.streak.store(0);
  }
  table_.release(id);
}

void ZeroAhead::flush_ended(std::uint64_t number) {
  std::uint64_t ended = flushes_ended_.load();
  while (ended < number && !flushes_ended_.compare_exchange_weak(ended, number)) {
  }
}

bool ZeroAhead::slot_may_tell(ZoneId id, std::uint64_t end_lbas) const {
  const Zone& zone = zones_[id.value];
  return end_lbas != 0 && end_lbas < zone.until_lbas.load() && durable(zone.zeroed.load());
}

void ZeroAhead::slot_stored(ZoneId id) {
  Zone& zone = zones_[id.value];
  if (zone.stored.load() == kNever) zone.stored.store(flushes_begun_.load());
}

bool ZeroAhead::data_tells(ZoneId id, std::uint64_t end_lbas) const {
  const Zone& zone = zones_[id.value];
  return durable(zone.stored.load()) && end_lbas <= zone.until_lbas.load();
}

void ZeroAhead::forget(ZoneId id) { zones_[id.value].until_lbas.store(0); }

}  // namespace furrow::emu
