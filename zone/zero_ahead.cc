#include "zone/zero_ahead.h"

#include <algorithm>

namespace furrow::emu {

ZeroAhead::ZeroAhead(const Geometry& geometry, ZoneTable& table)
    : geometry_(geometry), table_(table), zones_(std::make_unique<Zone[]>(geometry.zone_count)) {}

std::uint32_t ZeroAhead::begin(ZoneId id, Lba first, std::uint32_t lba_count) {
  constexpr auto relaxed = std::memory_order_relaxed;
  Zone& zone = zones_[id.value];
  const std::uint64_t flushes = flushes_.load(relaxed);
  const bool was_flushed = zone.flushes.exchange(flushes, relaxed) != flushes;
  const bool small = std::uint64_t{lba_count} * geometry_.lba_bytes <= kWriteBytesMax;
  const std::uint32_t streak = was_flushed && small ? zone.streak.load(relaxed) + 1 : 0;
  zone.streak.store(streak, relaxed);

  const std::uint64_t end = first.value - geometry_.zone_start(id).value + lba_count;
  const std::uint64_t backed = zone.backed_lbas.load(relaxed);
  if (end <= backed) return 0;
  const std::uint64_t ahead_lbas = kBytes / geometry_.lba_bytes;
  const std::uint64_t until =
      std::min(end / ahead_lbas * ahead_lbas + ahead_lbas, geometry_.zone_capacity_lbas);
  const bool takes_zeroes = streak >= kStreak && until > end && table_.hold_behind(id, end);
  zone.backed_lbas.store(static_cast<std::uint32_t>(takes_zeroes ? until : end), relaxed);
  return takes_zeroes ? static_cast<std::uint32_t>(until - end) : 0;
}

}  // namespace furrow::emu
