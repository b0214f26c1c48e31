// RecordPile and RecoveredPages: where recovery keeps records until they are in the index. Private
// to log/recovery and those who load from it.
//
// 32 bytes a record of the log, from the scan until the index is loaded:
// winners take the places of the records that they were chosen from. What recovery's time is spent
// on is mostly memory that the process touches for the first time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "log/format.h"
#include "log/index_bucket.h"

namespace furrow {

// Of a cache: a page that was deleted with its group, or a version of a key that is not the newest,
// in a zone that goes after the one that says so.
struct Outlived {
  std::uint64_t group = 0, order = 0;  // or of a key: its hash's
  std::uint64_t opened_sequence = 0;   // of the page's zone
};

// One record, as small as a merge of all zones allows. Keys are told apart by 94 bits of their
// keyed hash: among 10^10 pages two share them with a probability of 3 in 10^9.
struct RecoveredRecord {
  enum class Kind : std::uint32_t { page, tombstone };

  RecoveredRecord() = default;  // not initialized
  RecoveredRecord(const KeyHash& hash, std::uint64_t its_sequence, const IndexEntry& entry,
                  Kind its_kind, bool has_group)
      : order(hash.order),
        sequence(its_sequence),
        position(pack(entry)),
        checksum(entry.checksum),
        identity(static_cast<std::uint32_t>(hash.identity) & kIdentityMask),
        kind(its_kind),
        grouped(has_group) {}

  IndexEntry entry() const { return unpack(position, checksum); }
  std::uint64_t lba() const { return position & kLbaMask; }
  bool same_key(const RecoveredRecord& other) const {
    return order == other.order && identity == other.identity;
  }

  static constexpr std::uint32_t kIdentityMask = (1u << 30) - 1;
  std::uint64_t order;
  std::uint64_t sequence;
  std::uint64_t position;  // as in the index
  std::uint32_t checksum;
  std::uint32_t identity : 30;
  Kind kind : 1;
  bool grouped : 1;  // its group: ZoneDirectory::group_of()
};
static_assert(sizeof(RecoveredRecord) == 32);

using RecordPiece = std::array<RecoveredRecord, 32>;

// Memory for pieces, in huge pages where there are any; given back as a whole. One thread.
class PieceMemory {
 public:
  PieceMemory() = default;
  ~PieceMemory();
  PieceMemory(const PieceMemory&) = delete;
  PieceMemory& operator=(const PieceMemory&) = delete;
  RecordPiece* take();  // not initialized; std::bad_alloc

 private:
  std::vector<void*> blocks_;
  std::size_t used_ = 0;  // pieces of the last block
};

// Records in the order they came, in pieces: growing moves nothing.
class RecordPile {
 public:
  void add(const RecoveredRecord& record, PieceMemory& memory) {
    if (size_ == pieces_.size() * kPiece) pieces_.push_back(memory.take());
    add_in_place(record);
  }
  // Where there is room: after clear_and_take().
  void add_in_place(const RecoveredRecord& record) {
    (*pieces_[size_ / kPiece])[size_ % kPiece] = record;
    ++size_;
  }
  RecoveredRecord& last() { return (*pieces_[(size_ - 1) / kPiece])[(size_ - 1) % kPiece]; }
  // The place of the next record is about to be written.
  void prefetch() const {
    if (size_ < pieces_.size() * kPiece) {
      __builtin_prefetch(&(*pieces_[size_ / kPiece])[size_ % kPiece], 1);
    }
  }
  // Takes the pieces of `other`, and forgets the records of both.
  void clear_and_take(RecordPile& other) {
    pieces_.insert(pieces_.end(), other.pieces_.begin(), other.pieces_.end());
    other.pieces_.clear();
    size_ = other.size_ = 0;
  }
  std::size_t size() const { return size_; }
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < size_; i += kPiece) {
      const RecordPiece& piece = *pieces_[i / kPiece];
      const std::size_t end = size_ - i < kPiece ? size_ - i : kPiece;
      for (std::size_t at = 0; at < end; ++at) visit(piece[at]);
    }
  }

 private:
  static constexpr std::size_t kPiece = std::tuple_size_v<RecordPiece>;
  std::vector<RecordPiece*> pieces_;
  std::size_t size_ = 0;
};

// Records are divided by the hash's high bits: the unit of sorting.
constexpr unsigned kPartitionBits = 10;
constexpr unsigned kPartitions = 1 << kPartitionBits;
using RecordPartitions = std::array<RecordPile, kPartitions>;

// The live pages of a volume, by partition, each sorted by hash. The records lie in memory that
// RecoveryResult owns.
class RecoveredPages {
 public:
  RecoveredPages() = default;
  // `threads`: how many load_into() may use.
  RecoveredPages(std::unique_ptr<RecordPartitions> partitions, unsigned threads);
  std::size_t size() const { return size_; }
  void load_into(Index& index) const;  // which is empty

 private:
  std::unique_ptr<RecordPartitions> partitions_;
  std::size_t size_ = 0;
  unsigned threads_ = 1;
};

}  // namespace furrow
