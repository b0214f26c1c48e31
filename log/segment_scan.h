// SegmentScan: what a segment holds, from its summary, or, where that is missing or damaged, from
// its batch headers one after another. Behind a header that is damaged or unreadable it looks for
// the next one, LBA by LBA: whether that gap is a tear or damage is for the caller to say. A note
// behind it that repeats what the gap hides fills it. Pure: it says what to read next and is fed
// the bytes, so recovery (many threads, blocking) and collection (on an executor) share it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "log/format.h"

namespace furrow {

class SegmentScan {
 public:
  struct Bounds {
    ZoneStamp stamp;
    std::uint64_t begin_lba = 0;  // zone-relative: of the segment (the zone header included)
    std::uint64_t end_lba = 0;
    std::uint64_t written_lba = 0;  // of the zone: nothing lies behind it
    std::uint32_t lba_bytes = 0;
    bool borrow = false;  // records of a summary stay in the bytes fed last: see for_each()
  };
  struct Read {
    std::uint64_t lba = 0;  // zone-relative
    std::uint32_t lbas = 0;
  };

  explicit SegmentScan(const Bounds& bounds);

  std::optional<Read> next() const { return next_; }  // nothing: done
  // The bytes of next(), or the Status that came instead.
  void feed(const Result<std::span<const std::byte>>& bytes);

  // Results, once done.
  // Calls visit(span of some PageRecords) until it had all. With `borrow` this is the way to them;
  // records() has only those of batch headers then.
  template <class Visit>
  void for_each(Visit visit) const;
  const std::vector<PageRecord>& records() const { return records_; }
  std::vector<PageRecord> take_records() { return std::move(records_); }
  const std::vector<std::uint32_t>& batch_lbas() const { return batch_lbas_; }
  bool summarized() const { return summarized_; }
  // LBAs at which a batch header should be and is not readable (summarized: none), nor repeated
  // further on; ascending. The last one may be where writing ended.
  const std::vector<std::uint64_t>& gaps() const { return gaps_; }
  // Of these, the ones in which the device could not read something that may be a batch header:
  // another time it may be there. Ascending.
  const std::vector<std::uint64_t>& unreadable_gaps() const { return unreadable_gaps_; }
  bool unreadable_before(std::uint64_t end_lba) const {
    return !unreadable_gaps_.empty() && unreadable_gaps_.front() < end_lba;
  }
  // The highest flush point that a batch header read here speaks of.
  std::uint64_t flushed_lba() const { return flushed_lba_; }
  // unsupported: before `end_lba` stands an intact structure of this zone's life that is of a newer
  // version. What was found is not all then, and what is missing is not damaged.
  Status version_before(std::uint64_t end_lba) const {
    return newer_lba_ < end_lba ? newer_ : Status();
  }
  // A summary that should be there, or something behind a gap's header, was not readable.
  bool damaged() const { return damaged_; }

 private:
  enum class Step : std::uint8_t { footer, summary, batch, note, search, done };
  void start_chain();
  enum class Extent : std::uint8_t { guess, known };  // of a batch header
  void read_batch_at(std::uint64_t lba, std::uint32_t lbas, Extent extent = Extent::guess);
  void feed_footer(std::span<const std::byte> bytes);
  void feed_summary(std::span<const std::byte> bytes);
  void feed_batch(std::span<const std::byte> bytes);
  void feed_note(const Result<std::span<const std::byte>>& bytes);
  void fill_gaps(const SummaryView& note);
  void feed_search(const Result<std::span<const std::byte>>& bytes);
  void search_from(std::uint64_t lba, std::uint32_t lbas);
  void note_unreadable(std::uint64_t lba);
  void note_version(const Status& decoded, std::uint64_t lba);
  std::uint64_t limit() const { return std::min(bounds_.end_lba, bounds_.written_lba); }
  void end_chain();
  // A checked summary of ours has no others; bytes made to look like one can.
  bool inside(const PageRecord& record) const {
    return record.lba >= bounds_.begin_lba && record.lba < bounds_.end_lba;
  }

  Bounds bounds_;
  Step step_ = Step::footer;
  std::optional<Read> next_;
  Extent extent_ = Extent::guess;  // of what is read next
  std::vector<PageRecord> records_;
  std::optional<SummaryView> borrowed_;
  std::vector<std::uint32_t> batch_lbas_;
  std::vector<std::uint64_t> gaps_, unreadable_gaps_;
  std::uint64_t flushed_lba_ = 0;
  std::uint64_t newer_lba_ = ~std::uint64_t{0};  // the first one, of those that were met
  Status newer_;
  bool summarized_ = false;
  bool damaged_ = false;
};

template <class Visit>
void SegmentScan::for_each(Visit visit) const {
  if (!borrowed_) return visit(std::span<const PageRecord>(records_));
  constexpr std::size_t kBlock = 64;
  std::array<PageRecord, kBlock> block;
  std::size_t used = 0;
  const std::uint32_t count = borrowed_->summary().record_count;
  for (std::uint32_t i = 0; i < count; ++i) {
    block[used] = borrowed_->record(i);
    if (inside(block[used])) ++used;
    if (used == kBlock || i + 1 == count) {
      visit(std::span<const PageRecord>(block).first(used));
      used = 0;
    }
  }
}

}  // namespace furrow
