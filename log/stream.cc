#include "log/stream.h"

#include <algorithm>

#include "zone/canary.h"
#include "zone/check.h"

namespace furrow {

Stream::Stream(PoolContext& pool, std::uint64_t volume, std::uint8_t number,
               std::uint32_t value_bytes_max, StreamOwner& owner)
    : pool_(pool),
      volume_(volume),
      number_(number),
      owner_(owner),
      value_bytes_max_(value_bytes_max),
      header_bytes_max_((1 + pool.geometry.lbas(batch_header_bytes(kRecordsMax))) *
                        pool.geometry.lba_bytes),
      user_batch_bytes_(user_batch_bytes(pool.geometry, header_bytes_max_)),
      zeroes_(kZeroBytes) {
  const std::size_t bounce_bytes =
      std::max<std::size_t>(kBatchBytes, pool.page_lbas(value_bytes_max) * pool.geometry.lba_bytes);
  for (Batch& batch : batches_) {
    batch.stream = this;
    batch.header = AlignedBuffer(header_bytes_max_);
    batch.bounce = AlignedBuffer();
    batch.records.reserve(kRecordsMax);
    batch.iov.reserve(std::max<std::size_t>(kRecordsMax + 8, bounce_bytes / kZeroBytes + 8));
    batch.io.op = Io::Op::write;
    batch.io.may_fail_over = true;
    batch.io.context = &batch;
    batch.io.on_complete = [](Io& io) {
      auto& done = *static_cast<Batch*>(io.context);
      done.stream->completed(done);
    };
  }
  seal_flush_.stream = header_flush_.stream = issue_task_.stream = this;
  for (FlushPoint& flush_point : flush_points_) {
    flush_point.stream = this;
    flush_point.on_flushed = [](FlushWaiter& waiter) {
      auto& point = static_cast<FlushPoint&>(waiter);
      point.busy = false;
      auto& zone = point.stream->zone_;
      // A failed flush leaves the flush point where it was: recovery then verifies more.
      if (!point.status.ok() || !zone) return;
      if (point.stream->pool_.allocator.zone(zone->id).generation != point.generation) return;
      zone->flushed_lba = std::max(zone->flushed_lba, point.lba);
      point.stream->note_when_idle();
    };
  }
  seal_flush_.on_flushed = [](FlushWaiter& waiter) {
    auto& seal = static_cast<FlushPoint&>(waiter);
    seal.busy = false;
    const bool all = seal.stream->covered_ == seal.stream->filled_;
    if (seal.status.ok() && all) seal.stream->previous_flushed_ = true;
  };
  header_flush_.on_flushed = [](FlushWaiter& waiter) {
    auto& flush = static_cast<FlushPoint&>(waiter);
    flush.busy = false;
    auto& zone = flush.stream->zone_;
    if (!flush.status.ok()) return flush.stream->fail_waiting(flush.status);  // none can be written
    if (zone && zone->header == OpenZone::Header::written) {
      zone->header = OpenZone::Header::durable;
      zone->flushed_lba = std::max<std::uint64_t>(zone->flushed_lba, 1);
      flush.stream->previous_flushed_ = true;
    }
    flush.stream->kick();
  };
  issue_task_.run = [](Task& task) {
    auto& issue_task = static_cast<IssueTask&>(task);
    issue_task.posted = false;
    issue_task.stream->issue();
  };
  note_timer_.stream = this;
  note_timer_.fire = [](Timer& timer) { static_cast<NoteTimer&>(timer).stream->note_time(); };
  finish_io_.context = this;
  finish_io_.on_complete = [](Io& io) { static_cast<Stream*>(io.context)->abandon_zone(); };
}

Stream::~Stream() {
  FURROW_CHECK(in_flight_ == 0 && !issue_task_.posted);
  pool_.home.stop(note_timer_);
}

void Stream::resume(Resume&& zone) {
  FURROW_CHECK(!zone_ && pool_.allocator.zone(zone.zone).use == ZoneUse::open);
  OpenZone open;
  open.id = zone.zone;
  open.next_lba = open.written_lba = open.flushed_lba = zone.next_lba;  // recovery has flushed
  open.segment = zone.next_lba / pool_.segment_lbas;
  open.records = std::move(zone.segment_records);
  open.batches = std::move(zone.segment_batches);
  open.header = OpenZone::Header::durable;
  open.noted_lba = zone.flush_noted ? zone.next_lba : 0;  // else recovery's flush is not noted yet
  open.records_end = zone.next_lba;
  for (const PageRecord& record : open.records) {
    open.groups |= record.group != 0;
    open.expiries |= record.expires_s != 0;
    if (record.pinned) open.pinned_lbas += pool_.page_lbas(record.length);
  }
  open.wide = true;  // whatever the sequences are
  zone_ = std::move(open);
}

void Stream::append(Append& append) {
  if (!append.marker && append.record.sequence == 0) append.record.sequence = pool_.next_sequence++;
  append.status = Status();
  append.stream = number_;
  (append.priority == Append::Priority::relocation ? relocations_ : queue_).push(append);
  queued_bytes_ += append.record.length;
  schedule();
}

void Stream::kick() { schedule(); }

// On the executor's next turn, so that appends of one turn share a batch.
void Stream::schedule() {
  if (issue_task_.posted) return;
  issue_task_.posted = true;
  pool_.home.post(issue_task_);
}

void Stream::fail_waiting(Status status, bool keep_deletions) {
  AppendQueue all[] = {relocations_, queue_};
  queue_ = relocations_ = AppendQueue();
  queued_bytes_ = 0;
  AppendQueue failed;
  for (AppendQueue& queue : all) {
    while (Append* append = queue.pop()) {
      // What makes room may use what is left of the zone. A marker needs none.
      const bool begun = zone_ && zone_->header == OpenZone::Header::durable;
      const bool deletion = append->record.kind != RecordKind::page;
      const bool keep = append->marker || (begun && deletion && keep_deletions);
      (!keep ? failed : &queue == &all[0] ? relocations_ : queue_).push(*append);
    }
  }
  while (Append* append = failed.pop()) {
    append->status = status;
    append->on_done(*append);
  }
  schedule();
}

void Stream::hand_relocations_to(Stream& other) {
  while (Append* append = relocations_.pop()) {
    queued_bytes_ -= append->record.length;
    other.queued_bytes_ += append->record.length;
    append->stream = other.number_;
    other.relocations_.push(*append);
  }
  other.schedule();
}

void Stream::hand_deletions_to(Stream& other) {
  if (zone_) return;
  AppendQueue all = queue_;
  queue_ = AppendQueue();
  while (Append* append = all.pop()) {
    const bool goes = !append->marker && append->record.kind != RecordKind::page;
    if (goes) append->stream = other.number_;
    (goes ? other.queue_ : queue_).push(*append);
  }
  other.schedule();
}

void Stream::fail_relocations(Status status) {
  AppendQueue failed = relocations_;
  relocations_ = AppendQueue();
  while (Append* append = failed.pop()) {
    queued_bytes_ -= append->record.length;
    append->status = status;
    append->on_done(*append);
  }
}

bool Stream::withdraw(Append& append) {
  if (!queue_.remove(append)) return false;
  queued_bytes_ -= append.record.length;
  return true;
}

AppendQueue* Stream::next_queue() {
  if (!relocations_.empty()) return &relocations_;
  if (queue_.empty() || !owner_.may_write_user(*this)) return nullptr;
  return &queue_;
}

// Markers at the front ride on the last batch in flight, or are answered now.
bool Stream::answer_markers() {
  bool some = false;
  while (!queue_.empty() && queue_.front()->marker) {
    Append* marker = queue_.pop();
    some = true;
    if (in_flight_ != 0) {
      batches_[(first_ + in_flight_ - 1) % kBatchesMax].appends.push(*marker);
    } else {
      marker->on_done(*marker);
    }
  }
  return some;
}

void Stream::issue() {
  if (issuing_) return;
  issuing_ = true;
  while (issue_one()) {
  }
  issuing_ = false;
}

// One step; false: nothing more can be done now.
bool Stream::issue_one() {
  if (answer_markers()) return true;
  if (!failure_.ok()) return false;  // until the failed zone has drained
  if (next_queue() == nullptr) return false;
  if (in_flight_ == std::min(kBatchesMax, pool_.geometry.zone_writes_max)) return false;
  if (in_flight_ != 0 && queued_bytes_ < kEagerBytes) return false;
  if (!zone_ && !open_zone()) return false;
  if (zone_->header != OpenZone::Header::durable) return begin_zone();
  // The zone is full to the end; its last writes are in flight.
  if (zone_->next_lba == pool_.geometry.zone_capacity_lbas) return false;
  const PageRecord& next = next_queue()->front()->record;
  if (!fits(0, 0, next)) {
    // Else it would fit nowhere: admission checks the size.
    FURROW_CHECK(zone_->next_lba > std::max<std::uint64_t>(segment_begin(), 1));
    close_segment();
    return true;
  }
  fill(new_batch());
  return true;
}

bool Stream::open_zone() {
  if (!owner_.may_open_zone(!relocations_.empty())) return false;
  const Status noted = pool_.note_cuts ? pool_.note_cuts() : Status();
  if (!noted.ok()) {
    fail_waiting(noted);
    return false;
  }
  const std::uint64_t generation = pool_.next_sequence++;
  const Result<ZoneId> taken = pool_.allocator.take(volume_, number_, generation, generation);
  if (!taken.ok()) return false;  // the owner kicks when one is free
  pool_.forget(*taken);
  zone_ = OpenZone();
  zone_->id = *taken;
  zone_->records = std::move(spare_records_);
  zone_->batches = std::move(spare_batches_);
  zone_->records.clear();
  zone_->batches.clear();
  owner_.on_zone_opened(zone_->id);
  return true;
}

// Others were opened behind one that counts no more, and are gone: naming it would say that none
// was, and its pages would count again.
std::uint64_t Stream::previous_opened() const {
  const std::optional<ZoneId> last = pool_.allocator.opened_last(volume_, zone_->id);
  if (!last || pool_.tables[last->value].evicted) return 0;
  return pool_.allocator.zone(*last).opened_sequence;
}

// Writes the zone's header, then makes it durable, and with it the zone before: until anything
// follows it the header counts for nothing. True: something was submitted.
bool Stream::begin_zone() {
  if (zone_->header == OpenZone::Header::none) {
    Batch& batch = new_batch();
    const ZoneAllocator::Zone& zone = pool_.allocator.zone(zone_->id);
    const std::uint32_t lba_bytes = pool_.geometry.lba_bytes;
    encode(ZoneHeader{pool_.stamp(zone_->id), volume_, zone.opened_sequence, number_,
                      previous_opened()},
           {batch.header.data(), lba_bytes});
    batch.iov.push_back({batch.header.data(), lba_bytes});
    zone_->header = OpenZone::Header::written;
    submit_batch(batch, 1);
    return true;
  }
  // The header's flush would make up for what the other leaves out.
  if (canary(Canary::header_not_durable) || canary(Canary::reset_not_durable)) {
    zone_->header = OpenZone::Header::durable;
    return true;
  }
  if (in_flight_ == 0 && !header_flush_.busy) {
    header_flush_.busy = true;
    pool_.flusher.request(header_flush_);
  }
  return false;
}

}  // namespace furrow
