// Scanner: one thread's part of recovery: what the zones given to it hold. Private to
// log/recovery.cc. Blocking.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "log/pool_context.h"
#include "log/recovery.h"
#include "log/segment_scan.h"
#include "zone/aligned_buffer.h"

namespace furrow {

// One record, as small as a merge of all zones allows.
struct RecoveredRecord {
  KeyHash hash;
  std::uint64_t sequence = 0;
  std::uint64_t lba = 0;  // pool-wide
  std::uint32_t length = 0;
  std::uint32_t checksum = 0;
  std::uint32_t expires_s = 0;
  RecordKind kind = RecordKind::page;
  bool pinned = false;
  bool grouped = false;  // its group: Gathered::groups
};

// Records in the order they came, in pieces: growing moves nothing.
class RecordPile {
 public:
  void add(const RecoveredRecord& record) {
    if (size_ % kPiece == 0) pieces_.push_back(std::make_unique<Piece>());
    (*pieces_.back())[size_++ % kPiece] = record;
  }
  std::size_t size() const { return size_; }
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < size_; ++i) visit((*pieces_[i / kPiece])[i % kPiece]);
  }

 private:
  static constexpr std::size_t kPiece = 128;
  using Piece = std::array<RecoveredRecord, kPiece>;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::size_t size_ = 0;
};

struct RecoveredGroup {
  std::uint64_t lba = 0;
  std::uint64_t group = 0;
};

constexpr unsigned kPartitions = 1024;  // of the hash's high bits: the unit of sorting
constexpr unsigned kPartitionShift = 64 - 10;

// What one thread has gathered of one volume.
struct Gathered {
  std::array<RecordPile, kPartitions> partitions;
  std::vector<RecoveredGroup> groups;
  std::map<std::uint64_t, std::uint64_t> group_tombstones;  // group to highest sequence
};

struct FoundZone {
  ZoneInfo info;
  ZoneHeader header;
  bool newest = false;  // of its stream
};

class Scanner {
 public:
  Scanner(PoolContext& pool, std::unique_ptr<IoQueue> queue)
      : pool_(pool), queue_(std::move(queue)) {}

  Status scan(const FoundZone& zone);

  std::map<std::uint64_t, Gathered> gathered;
  std::map<std::uint64_t, std::map<unsigned, Stream::Resume>> resumes;
  std::vector<ZoneTrim> trims;
  std::vector<ZoneId> to_finish;
  std::vector<std::string> damage;

 private:
  Result<std::span<const std::byte>> read(ZoneId zone, std::uint64_t lba, std::uint32_t lbas);
  SegmentScan scan_segment(const FoundZone& zone, std::uint64_t begin);
  void keep(const FoundZone& zone, const PageRecord& record);
  void end_newest(const FoundZone& zone, std::vector<SegmentScan>& scans);
  std::uint64_t first_bad(const FoundZone& zone, std::vector<PageRecord>& records,
                          std::uint64_t flushed_lba);
  std::uint64_t flush_point(const FoundZone& zone, std::uint32_t batch_lba);

  PoolContext& pool_;
  std::unique_ptr<IoQueue> queue_;
  AlignedBuffer buffer_;
};

}  // namespace furrow
