// Scanner: one thread's part of recovery: what the zones given to it hold. Private to
// log/recovery.cc. Blocking.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "log/page_window.h"
#include "log/pool_context.h"
#include "log/recovered_pages.h"
#include "log/recovery.h"
#include "log/segment_scan.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

// A group's newest deletion.
struct GroupTombstone {
  std::uint64_t sequence = 0;
  std::uint64_t opened_sequence = 0;  // of the zone that it is in
  std::uint64_t sure = 0;  // the sequence of the newest that is not behind what may be torn
  bool operator==(const GroupTombstone&) const = default;

  void add(const GroupTombstone& other) {
    sure = std::max(sure, other.sure);
    if (std::pair(other.sequence, other.opened_sequence) > std::pair(sequence, opened_sequence)) {
      sequence = other.sequence;
      opened_sequence = other.opened_sequence;
    }
  }
};
using GroupTombstones = std::map<std::uint64_t, GroupTombstone>;  // by group, the newest

// What one thread has gathered of one volume.
struct Gathered {
  bool damaged = false;  // records say of pages that they are
  RecordPartitions partitions;
  GroupTombstones group_tombstones;
  GroupTombstones spare_group_tombstones;  // of FoundZone::spare
};

struct FoundZone {
  ZoneInfo info;
  ZoneHeader header;
  bool newest = false;    // of its stream, and not known to be durable
  bool followed = false;  // the newest but for one that may be no more than a header
  bool unsure = false;    // not the newest; a power cut may have ended it, and nothing says where
  bool aside = false;     // an opening before could not read what it holds, or not all
  bool counted = false;   // and has verified the rest, which goes on counting
  bool evicted = false;   // its pages count no more, but as deletions in zones opened after it
  bool stores = false;    // a store's: what can be read another time may still be there then
  bool guessed = false;  // its header cannot be read, and what tells of it may be an earlier life's
  bool spare = false;    // took the last zone of a store's quota: it may hold nothing but copies
};

class Scanner {
 public:
  Scanner(PoolContext& pool, std::unique_ptr<IoQueue> queue, Patience& patience)
      : pool_(pool), queue_(std::move(queue)), patience_(patience) {}

  Status scan(const FoundZone& zone);
  std::vector<PageRecord> records_of(const FoundZone& zone);  // and gathers nothing

  std::unique_ptr<PieceMemory> memory = std::make_unique<PieceMemory>();  // of what is gathered
  std::map<std::uint64_t, Gathered> gathered;
  std::map<std::uint64_t, std::map<unsigned, Stream::Resume>> resumes;
  std::vector<ZoneTrim> trims;
  std::vector<ZoneId> to_finish;
  std::uint64_t highest_sequence = 0;     // that a record had
  std::vector<ZoneId> unreadable;         // something in them could not be read that may name pages
  std::vector<std::uint64_t> unverified;  // pages that may be torn, and could not be read
  std::vector<RecoveryResult::Gap> gaps;

 private:
  Result<std::span<const std::byte>> read(ZoneId zone, std::uint64_t lba, std::uint32_t lbas);
  SegmentScan scan_segment(const FoundZone& zone, std::uint64_t begin);
  std::uint64_t segment_end(std::uint64_t begin) const {
    return std::min(begin + pool_.segment_lbas, pool_.geometry.zone_capacity_lbas);
  }
  void keep(const FoundZone& zone, std::span<const PageRecord> records);
  void keep(const FoundZone& zone, const PageRecord& record, const KeyHash& hash, Gathered& into);
  void note_end(const FoundZone& zone, bool aside);
  void finish(const FoundZone& zone, bool aside = false);
  void note_gaps(ZoneId zone, const std::vector<std::uint64_t>& lbas);
  bool end_newest(const FoundZone& zone, std::vector<SegmentScan>& scans);
  struct Tail {  // zone-relative LBAs of pages, or batch headers, behind the flush point
    std::vector<std::uint32_t> torn, unread;
  };
  Tail verify(const FoundZone& zone, std::vector<PageRecord>& records, std::uint64_t flushed_lba);
  enum class Look : std::uint8_t { whole, torn, unread };
  Look look_at(const FoundZone& zone, const PageRecord& record, PageWindow& window);
  Tail verify_headers(const FoundZone& zone, const std::vector<SegmentScan>& scans,
                      std::uint64_t flushed_lba);
  Result<BatchHeader> batch_header(const FoundZone& zone, std::uint32_t batch_lba);
  std::uint64_t flush_point(const FoundZone& zone);
  std::uint32_t first_unknown(const std::vector<SegmentScan>& scans, std::uint64_t flushed_lba);

  PoolContext& pool_;
  std::unique_ptr<IoQueue> queue_;
  Patience& patience_;
  AlignedBuffer buffer_;
  // Of the zone that is scanned: a page behind the flush point that cannot be read; ~0: none.
  std::uint32_t unread_lba_ = ~std::uint32_t{0};
  // .. and a batch header, likewise: no deletion of a group behind it counts.
  std::uint32_t unknown_lba_ = ~std::uint32_t{0};
};

}  // namespace furrow
