// ZeroAhead: when a write to an emulated device takes zeroes along, to lie ahead of its zone's
// write pointer.
//
// A file system notes for each block of a file that was never written whether it has been by now,
// and a flush after each small write pays for that note each time. Blocks that were written before,
// be it with zeroes, need none. So a zone that is flushed after each of several small writes (a
// log's) gets zeroes some way ahead, in the same request as one write in many. Behind a write
// pointer nothing is read but zeroes anyway.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "zone/zone_table.h"

namespace furrow::emu {

class ZeroAhead {
 public:
  static constexpr std::uint64_t kBytes = 256 << 10;         // ahead, at most
  static constexpr std::uint64_t kWriteBytesMax = 32 << 10;  // a small write
  static constexpr std::uint32_t kStreak = 4;  // flushed one by one, until zeroes are worth it

  // Both outlive it.
  ZeroAhead(const Geometry& geometry, ZoneTable& table);

  // An admitted write is about to go to the medium: how many LBAs of zeroes are to go with it,
  // right behind it. Not 0: other writes to the zone are held until ended().
  std::uint32_t begin(ZoneId zone, Lba first, std::uint32_t lba_count);
  void ended(ZoneId zone) { table_.release(zone); }
  void flushed() { flushes_.fetch_add(1, std::memory_order_relaxed); }
  // What the zone had is given back to the file system.
  void punched(ZoneId zone) { zones_[zone.value].backed_lbas.store(0, std::memory_order_relaxed); }

 private:
  struct Zone {
    std::atomic<std::uint32_t> backed_lbas{0};  // from its start: blocks that were written
    std::atomic<std::uint32_t> streak{0};       // small writes, each flushed before the next
    std::atomic<std::uint64_t> flushes{0};      // flushes_ at the last write
  };
  const Geometry& geometry_;
  ZoneTable& table_;
  std::atomic<std::uint64_t> flushes_{0};
  std::unique_ptr<Zone[]> zones_;
};

}  // namespace furrow::emu
