// Stream: the way into one open zone after another. Appends are grouped into batches (group
// commit), batches into segments, and a segment is closed with its summary.
//
// Order: appends are written and answered in the order in which they were given, so what was
// answered always lies before what was not, and recovery can stop at the first hole.
//
// Durability of a zone's beginning is known from `flushed_lba` in batch headers; nothing follows a
// zone's header before a flush has covered it and the stream's zone before it. So recovery has
// pages to verify in the newest zone of a stream only, behind the last flush point. When nothing
// follows a flush for a while, a batch without records notes it: damage to what was flushed must
// not look torn. With an older header in a header's place, what an earlier life of the zone left
// behind would count again.
//
// Threads: the pool's home executor.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "log/pool_context.h"
#include "zone/aligned_buffer.h"

namespace furrow {

// One record to write. Intrusive; the caller's again at on_done.
struct Append {
  enum class Priority : std::uint8_t { user, relocation };

  PageRecord record;    // sequence 0: drawn when given; lba is filled in
  bool marker = false;  // writes nothing: answered when all before it are, whatever came of that
  Priority priority = Priority::user;
  std::uint8_t stream = 0;  // the number of that which was given it
  // Pages: `record.length` bytes, then room to round up to LBAs if `capacity` says so. Written from
  // here when aligned and roomy enough (the rounding is zeroed), else copied.
  std::byte* data = nullptr;
  std::uint32_t capacity = 0;
  // `status` and `lba` (pool-wide, of the page; of a tombstone's batch header) are final.
  void (*on_done)(Append&) = nullptr;
  Status status;
  std::uint64_t lba = 0;
  Append* next = nullptr;
};

// First in, first out, intrusive.
class AppendQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  Append* front() { return head_; }
  void push(Append& append) {
    append.next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = &append;
    tail_ = &append;
  }
  Append* pop() {
    Append* first = head_;
    if (first != nullptr) head_ = first->next;
    return first;
  }
  // False: it is not in here.
  bool remove(Append& append) {
    Append* before = nullptr;
    for (Append* at = head_; at != &append; at = at->next) {
      if (at == nullptr) return false;
      before = at;
    }
    (before == nullptr ? head_ : before->next) = append.next;
    if (tail_ == &append) tail_ = before;
    return true;
  }
  bool has_group(std::uint64_t group) const {
    const Append* at = head_;
    while (at != nullptr && at->record.group != group) at = at->next;
    return at != nullptr;
  }
  // The first that removes something; null: none does.
  const Append* deletion() const {
    const Append* at = head_;
    while (at != nullptr && (at->marker || at->record.kind == RecordKind::page)) at = at->next;
    return at;
  }
  void push_front_all(AppendQueue& other) {
    if (other.empty()) return;
    other.tail_->next = head_;
    if (head_ == nullptr) tail_ = other.tail_;
    head_ = other.head_;
    other.head_ = nullptr;
  }

 private:
  Append* head_ = nullptr;
  Append* tail_ = nullptr;
};

class Stream;

// What the stream asks of the log that it belongs to.
class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  // May the next zone be taken now? `relocation`: a relocation waits for it, so the reserve may be
  // used. When the answer is no, the owner calls Stream::kick() once it has changed.
  virtual bool may_open_zone(bool relocation) = 0;
  // May user appends go to the stream's open zone, or is what is left of it kept for relocation?
  virtual bool may_write_user(const Stream&) = 0;
  // May a note take some of it?
  virtual bool may_write_note(const Stream& stream) { return may_write_user(stream); }
  // LBAs of pinned pages that a segment takes at most; where it has none yet, one of any size.
  virtual std::uint64_t segment_pins_max() const { return ~std::uint64_t{0}; }
  virtual void on_zone_opened(ZoneId) = 0;  // quota use has changed
  virtual void on_zone_begun() {}           // its first batch has completed
  // One was sealed before it was full: a write to it failed, or it was ended (origin log).
  virtual void on_zone_abandoned(ZoneId, const Status&) {}
  // So much is given to the device, all included.
  virtual void on_write(const Stream& stream, std::uint64_t bytes) = 0;
};

class Stream {
 public:
  // A zone that recovery found open, to go on in.
  struct Resume {
    ZoneId zone;
    std::uint64_t next_lba = 0;               // zone-relative, where to write
    bool flush_noted = false;                 // the medium says that all of it is durable
    std::vector<PageRecord> segment_records;  // of the segment that next_lba lies in
    std::vector<std::uint32_t> segment_batches;
  };

  Stream(PoolContext& pool, std::uint64_t volume, std::uint8_t number,
         std::uint32_t value_bytes_max, StreamOwner& owner);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void resume(Resume&& zone);
  void append(Append& append);
  // A device flush is being asked for: its success is noted in the headers of later batches or,
  // when there is none for kNoteDelayNs, in one that has nothing else to say.
  void note_flush();
  // What is durable is to be noted when there is nothing to write for a while.
  void note_when_idle();
  // The zone is about to be taken away: nothing more is noted in it.
  void stop_notes() { noted_ = true; }
  // For an orderly close, when idle(): makes all durable and notes that in the zone, so that the
  // next recovery has nothing to verify. Call it until it is true.
  bool close();
  void kick();  // tries again to write what waits
  // Nothing is on its way to the zone that it writes to: it can be ended.
  bool can_end_zone() const {
    return zone_ && zone_->header == OpenZone::Header::durable && in_flight_ == 0 &&
           failure_.ok() && zone_->next_lba < pool_.geometry.zone_capacity_lbas;
  }
  bool has_zone() const { return zone_.has_value(); }
  // The zone takes no more, full or not: it is finished, and then sealed. When can_end_zone().
  void end_zone();
  // Answers what waits for a zone; or, while there is a zone, the pages that wait for room in it
  // (and the deletions, if they are not to stay).
  void fail_waiting(Status status, bool keep_deletions = true);
  // Gives what collection wants written to another stream, or fails it.
  void hand_relocations_to(Stream& other);
  void fail_relocations(Status status);
  // Gives deletions that wait for a zone to a stream that can_take() them.
  void hand_deletions_to(Stream& other);
  // The first deletion that waits for a zone; null: there is none.
  const PageRecord* waiting_deletion() const {
    const Append* first = zone_ ? nullptr : queue_.deletion();
    return first != nullptr ? &first->record : nullptr;
  }
  // The open zone has room for this record.
  bool can_take(const PageRecord& record) const {
    return zone_ && failure_.ok() &&
           (fits(0, 0, record) || segment_end() < pool_.geometry.zone_capacity_lbas);
  }
  // Takes a user's append back, as if it had never been given. False: it is on its way.
  bool withdraw(Append& append);
  // Nothing waits and nothing is in flight, flushes and the finish of a failed zone included.
  bool idle() const {
    return in_flight_ == 0 && queue_.empty() && relocations_.empty() && failure_.ok() &&
           std::ranges::none_of(flush_points_, &FlushPoint::busy) && !seal_flush_.busy &&
           !header_flush_.busy && !issue_task_.posted;
  }
  bool waits_for_zone() const { return !zone_ && !(queue_.empty() && relocations_.empty()); }
  // Of the zones that were filled, or ended, the last may not be durable yet.
  bool filled_unflushed() const { return !previous_flushed_; }
  // Or something in the open one.
  bool unflushed() const {
    return !previous_flushed_ || (zone_ && zone_->flushed_lba < zone_->records_end);
  }
  // Makes what was filled durable, and tells nobody.
  void flush_filled();
  bool has_waiting_user() const { return !queue_.empty(); }
  bool relocations_wait_for_zone() const { return !zone_ && !relocations_.empty(); }
  // A record of the group has no place in a zone yet.
  bool holds_group(std::uint64_t group) const {
    return queue_.has_group(group) || relocations_.has_group(group) || to_retry_.has_group(group);
  }
  // What is left of the zone that it writes to; 0: there is none.
  std::uint64_t room_lbas() const {
    return zone_ && failure_.ok() ? pool_.geometry.zone_capacity_lbas - zone_->next_lba : 0;
  }
  // Of that, what pages and their batch headers may take: not the summaries, nor what a page of the
  // largest size leaves at a segment's end.
  std::uint64_t room_for_pages_lbas() const;
  // The records of a zone that are to be copied, at most, and in how many batches.
  struct Copies {
    std::uint64_t records = 0, batches = 0;
    std::uint64_t page_lbas = 0, largest_lbas = 0;  // of all pages, and of one
  };
  // The zone that it writes to has room for all of these, in whichever order they come.
  bool surely_takes(const Copies& copies) const;
  // Zone-relative, of a zone that this stream writes to; of any other: ~0.
  std::uint64_t written_lba(ZoneId zone) const {
    return zone_ && zone_->id == zone ? zone_->written_lba : ~std::uint64_t{0};
  }

 private:
  static constexpr unsigned kBatchesMax = 8;               // in flight
  static constexpr std::uint32_t kRecordsMax = 255;        // of a batch
  static constexpr std::uint64_t kBatchBytes = 1 << 20;    // of pages, unless one page is larger
  static constexpr std::uint64_t kEagerBytes = 256 << 10;  // waiting bytes that start another batch
  static constexpr std::size_t kZeroBytes = 256 << 10;     // of zeroes_, a piece of the padding
  static constexpr std::size_t kBounceBytesMin = 64 << 10;
  static constexpr std::uint64_t kNoteDelayNs = 10'000'000;

  struct Batch {
    Io io;
    Stream* stream = nullptr;
    AlignedBuffer header;                 // batch header; zone header; of a summary: all of it
    AlignedBuffer bounce;                 // pages whose memory could not be written as it is
    std::vector<AlignedBuffer> outgrown;  // .. that were there before it was made larger
    std::vector<PageRecord> records;
    std::vector<iovec> iov;
    AppendQueue appends;
    std::uint64_t end_lba = 0;  // zone-relative, behind it
    bool summary = false;
    bool done = false;
  };
  struct OpenZone {
    ZoneId id;
    std::uint64_t next_lba = 0;     // zone-relative: where the next write goes
    std::uint64_t written_lba = 0;  // all before it has completed
    std::uint64_t flushed_lba = 0;  // all before it is durable
    std::uint64_t noted_lba = 0;    // of that, what the last batch header says
    std::uint64_t records_end = 0;  // behind the last batch with records
    std::uint64_t segment = 0;
    std::uint64_t pinned_lbas = 0;                   // of the segment
    std::vector<PageRecord> records;                 // of the segment
    std::vector<std::uint32_t> batches;              // of the segment
    std::size_t told_records = 0, told_batches = 0;  // of these, by notes
    bool groups = false, expiries = false, wide = false;
    enum class Header : std::uint8_t { none, written, durable } header = Header::none;
  };
  struct FlushPoint : FlushWaiter {
    Stream* stream = nullptr;
    std::uint64_t lba = 0;
    std::uint64_t generation = 0;
    std::uint64_t asked_at = 0;  // flushes begun by then: one more answers it
    bool busy = false;
  };

  // The queue whose first append is next; null: nothing may be written now.
  AppendQueue* next_queue();
  bool answer_markers();
  bool open_zone();
  bool begin_zone();
  std::uint64_t previous_opened() const;  // for the header of the zone that is begun
  void issue();
  bool issue_one();
  void schedule();
  bool fits(std::uint32_t records, std::uint64_t page_lbas, const PageRecord& next) const;
  std::uint64_t segment_begin() const { return zone_->segment * pool_.segment_lbas; }
  std::uint64_t segment_end() const;
  std::uint64_t summary_lbas(std::size_t more_records, const PageRecord* next) const;
  static std::uint64_t user_batch_bytes(const Geometry& geometry, std::size_t header_bytes);
  Batch& new_batch();
  void fill(Batch& batch);
  void add_page(Batch& batch, Append& append, std::uint64_t& bounce_used);
  void place(Batch& batch, std::uint64_t header_lbas, std::uint64_t note_lbas = 0);
  void submit_batch(Batch& batch, std::uint64_t lbas);
  void close_segment();
  void completed(Batch& batch);
  void finish(Batch& batch);
  void zone_failed(Status status);
  void finish_zone();
  void abandon_zone();
  void request_flush_point();
  void seal_zone();
  void note_filled();
  // Is something durable that the zone does not say is?
  bool note_due() const {
    return zone_ && std::min(zone_->flushed_lba, zone_->records_end) > zone_->noted_lba;
  }
  void note_time();
  void write_flush_note();
  std::uint64_t note_lbas() const;
  Summary summary_at(std::uint64_t first_lba, std::uint64_t lbas, std::size_t records) const;

  PoolContext& pool_;
  const std::uint64_t volume_;
  const std::uint8_t number_;
  StreamOwner& owner_;
  const std::uint32_t value_bytes_max_;
  const std::size_t header_bytes_max_;
  const std::uint64_t user_batch_bytes_;
  std::optional<OpenZone> zone_;
  // A zone's memory goes on to the next: in steady state nothing is allocated.
  std::vector<PageRecord> spare_records_;
  std::vector<std::uint32_t> spare_batches_;
  bool previous_flushed_ = true;  // the zone before the open one, or the one to open next
  std::uint64_t filled_ = 0;      // zones, all on the device, or ended
  std::uint64_t covered_ = 0;     // of them when seal_flush_ was asked for
  AppendQueue queue_, relocations_;
  std::uint64_t queued_bytes_ = 0;
  std::array<Batch, kBatchesMax> batches_;
  unsigned first_ = 0, in_flight_ = 0;  // batches_[first_ ..] in the order of submission
  Status failure_;                      // of the open zone: nothing more goes there
  AppendQueue to_retry_;                // what a failed zone did not take
  unsigned failed_zones_ = 0;           // one after another
  AlignedBuffer zeroes_;
  AlignedBuffer note_;          // its summary; one note is in flight at most, and nothing beside it
  FlushPoint flush_points_[3];  // one runs, one waits, one is just being answered
  FlushPoint seal_flush_, header_flush_;
  struct IssueTask : Task {
    Stream* stream = nullptr;
    bool posted = false;
  } issue_task_;
  bool issuing_ = false;
  struct NoteTimer : Timer {
    Stream* stream = nullptr;
  } note_timer_;
  bool seal_asked_ = false, flush_asked_ = false;  // by close()
  bool noted_ = false;  // the last note is written, or there is to be none
  Io finish_io_;
};

}  // namespace furrow
