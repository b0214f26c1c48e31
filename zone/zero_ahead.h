// ZeroAhead: zeroes that an emulated device writes ahead of a zone's write pointer, and what they
// save.
//
// A file system notes for each block of a file that was never written whether it has been by now,
// and a flush after each small write pays for that note each time. Blocks that were written before,
// be it with zeroes, need none. So a zone that is flushed after each of several small writes (a
// log's) gets zeroes up to the next multiple of kAheadBytes, in the same request as one write in
// many. Behind a write pointer nothing is read but zeroes anyway.
//
// Nor is the zone table written for each of them. Once the zeroes are durable, a slot of the table
// says that the data tells: the zone is written up to the last LBA, below that multiple, which is
// not all zeroes. Once that is durable too, writes that end below it with such an LBA need no slot,
// and a flush has their data to write, and nothing else.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

#include "zone/emu_layout.h"
#include "zone/zone_table.h"

namespace furrow::emu {

class ZeroAhead {
 public:
  static constexpr std::uint64_t kWriteBytesMax = 32 << 10;  // a small write
  static constexpr std::uint32_t kStreak = 4;  // flushed one by one, until zeroes are worth it

  // Both outlive it.
  ZeroAhead(const Geometry& geometry, ZoneTable& table);

  // An admitted write is about to go to the medium: how many LBAs of zeroes are to go with it,
  // right behind it. Not 0: other writes to the zone are held until ended().
  std::uint32_t begin(ZoneId zone, Lba first, std::uint32_t lba_count);
  // `whole`: the medium has all of the zeroes. Else the next few writes get none, nor the same one
  // when it is done again.
  void ended(ZoneId zone, bool whole);

  // A flush begins; when it has been done, what it returned goes to flush_ended().
  std::uint64_t flush_begins() { return flushes_begun_.fetch_add(1) + 1; }
  void flush_ended(std::uint64_t number);

  // Is a slot that says that the zone is written up to `end_lbas` from its start to say that the
  // data tells of more? If so, slot_stored() when that is done. One thread at a time in a zone.
  bool slot_may_tell(ZoneId zone, std::uint64_t end_lbas) const;
  void slot_stored(ZoneId zone);
  // Needs a write that ends there, with an LBA that is not all zeroes, no slot?
  bool data_tells(ZoneId zone, std::uint64_t end_lbas) const;
  // The zone is empty again; nothing is admitted to it meanwhile.
  void forget(ZoneId zone);

 private:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  struct Zone {
    std::atomic<std::uint64_t> until_lbas{0};   // from its start: how far the zeroes go
    std::atomic<std::uint64_t> zeroed{kNever};  // flushes begun when the medium had the zeroes
    std::atomic<std::uint64_t> stored{kNever};  // ... when a slot said that the data tells
    std::atomic<std::uint32_t> streak{0};       // small writes, each flushed before the next
    std::atomic<std::uint64_t> flushes{0};      // flushes_ended_ at the last write
  };
  // Has a flush been done that began after `begun` of them had?
  bool durable(std::uint64_t begun) const { return begun < flushes_ended_.load(); }

  const Geometry& geometry_;
  ZoneTable& table_;
  std::atomic<std::uint64_t> flushes_begun_{0};
  std::atomic<std::uint64_t> flushes_ended_{0};  // the highest number of one that was done
  std::unique_ptr<Zone[]> zones_;
};

}  // namespace furrow::emu
