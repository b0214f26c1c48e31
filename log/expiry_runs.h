// ExpiryRuns: when the pages in each zone expire.
//
// Pages that lie one behind the other and expire at the same time share a run: the first one's LBA
// and the Unix time, 8 bytes. So pages of one time to live cost next to nothing, and those that all
// expire at other times 8 bytes each. A run goes on up to the next one, over pages that never
// expire: only who knows that a page does asks. Where a page lies its expiry never changes, so runs
// are only appended, when its record gets its place in the zone; when it dies nothing happens to
// them; and when the zone has been reset they are dropped.
//
// A zone has its runs in chunks. Which ones they are, and with which LBA each begins, stands in a
// directory: the first 8 of all zones side by side, then the next 8, so that it takes memory where
// there are many runs.
//
// Threads: any number look up without a lock, while one changes a zone's runs (several, each its
// own zone's). A run is there before the count says so, and that before the index has the page for
// whose sake it is. Who looks up is in the epoch (alloc/epoch.h), so that the zone is not reset
// meanwhile. Only a volume's deletion does not wait for that: who still reads its pages finds any
// time, or none. It comes to no harm, as what was a chunk stays one.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "log/reserved_memory.h"
#include "zone/types.h"

namespace furrow {

class ExpiryRuns {
 public:
  explicit ExpiryRuns(const Geometry& geometry);
  ExpiryRuns(const ExpiryRuns&) = delete;
  ExpiryRuns& operator=(const ExpiryRuns&) = delete;

  // The page at `lba` (of the zone) expires then, which is not 0. They come in the order of their
  // LBAs; of bytes made to look like a zone's, what does not is left out. Throws std::bad_alloc
  // when even the address space is gone.
  void add(ZoneId zone, std::uint32_t lba, std::uint32_t expires_s);
  // Of a zone that no page is looked up in any more.
  void drop(ZoneId zone);

  // Any thread. Of a page that expires: Unix time; 0: the zone has been dropped.
  std::uint32_t find(ZoneId zone, std::uint32_t lba) const;
  // DRAM of the zone's runs.
  std::uint64_t bytes(ZoneId zone) const;

 private:
  static constexpr std::uint32_t kChunkRuns = 32;
  static constexpr std::uint32_t kLineChunks = 8;  // of a zone, side by side in the directory
  static constexpr std::uint64_t kChunkBytes = kChunkRuns * 8, kLineBytes = kLineChunks * 8;
  static constexpr std::uint64_t kGroupChunks = 64;  // that a word of used_ speaks of
  static constexpr std::uint64_t kGroupBytes = kGroupChunks * kChunkBytes;
  static constexpr std::uint64_t chunks_for(std::uint64_t runs) {
    return (runs + kChunkRuns - 1) / kChunkRuns;
  }
  static constexpr std::uint64_t lines_for(std::uint64_t chunks) {
    return (chunks + kLineChunks - 1) / kLineChunks;
  }

  // The `number`-th chunk of the zone: {first LBA: 32, chunk: 32}. A run: {LBA: 32, Unix time: 32}.
  std::uint64_t& entry(ZoneId zone, std::uint32_t number) const {
    const std::uint64_t line = std::uint64_t{number / kLineChunks} * counts_.size() + zone.value;
    return directory_.words()[line * kLineChunks + number % kLineChunks];
  }
  std::uint64_t* chunk(std::uint32_t chunk) const {
    return chunks_.words() + std::uint64_t{chunk} * kChunkRuns;
  }
  std::uint64_t& run(ZoneId zone, std::uint32_t number) const;
  std::uint32_t take_chunk();
  void trim();

  std::vector<std::atomic<std::uint32_t>> counts_;  // of each zone's runs
  ReservedMemory directory_, chunks_;
  std::mutex mutex_;                 // of what follows; no reader takes it
  std::vector<std::uint64_t> used_;  // a bit for each chunk, up to the last one in use
  std::size_t full_ = 0;             // words of it, at the beginning, that have no bit left
  std::uint64_t touched_bytes_ = 0;  // of chunks_
};

}  // namespace furrow
