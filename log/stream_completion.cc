// What becomes of a stream's batches: answered in order, or given to another zone; flush points,
// and the orderly close.
#include <algorithm>
#include <utility>

#include "log/stream.h"
#include "zone/check.h"

namespace furrow {

// All that there will be of a zone is on the device: the next flush to be asked for covers it, and
// none before did.
void Stream::note_filled() {
  previous_flushed_ = false;
  ++filled_;
}

void Stream::seal_zone() {
  note_filled();
  pool_.tables[zone_->id.value].compact();
  pool_.allocator.set_use(zone_->id, ZoneUse::sealed);
  spare_records_ = std::move(zone_->records);
  spare_batches_ = std::move(zone_->batches);
  zone_.reset();
}

void Stream::completed(Batch& batch) {
  batch.done = true;
  while (in_flight_ != 0 && batches_[first_].done) {
    Batch& oldest = batches_[first_];
    first_ = (first_ + 1) % kBatchesMax;
    --in_flight_;
    finish(oldest);
  }
  if (!failure_.ok() && in_flight_ == 0) zone_failed(failure_);
  issue();
}

// In the order of submission.
void Stream::finish(Batch& batch) {
  const bool first = failure_.ok();
  if (!batch.io.status.ok() && first) failure_ = batch.io.status;
  pool_.device_full = failure_.code() == Code::no_space;
  if (!failure_.ok() && first && !pool_.device_full) {
    ++pool_.failed_writes;
    pool_.write_failure = failure_;
  }
  if (!failure_.ok()) {  // this batch failed, or one before it: its place in the log is not safe
    while (Append* append = batch.appends.pop()) to_retry_.push(*append);
    return;
  }
  if (!batch.appends.empty()) failed_zones_ = 0;
  const bool begun = std::exchange(zone_->written_lba, batch.end_lba) == 1;
  const bool sealed = batch.end_lba == pool_.geometry.zone_capacity_lbas;
  if (batch.summary && !sealed) request_flush_point();
  if (sealed) seal_zone();
  if (begun) owner_.on_zone_begun();
  note_when_idle();
  while (Append* append = batch.appends.pop()) append->on_done(*append);
}

void Stream::note_flush() {
  if (zone_) request_flush_point();
}

void Stream::note_when_idle() {
  if (note_due() && !noted_) pool_.home.start(note_timer_, kNoteDelayNs);
}

// What waits or is in flight brings this up again when it is on the device, or has noted it.
void Stream::note_time() {
  const bool quiet = in_flight_ == 0 && queue_.empty() && relocations_.empty() && failure_.ok();
  if (!quiet || !note_due() || noted_ || !fits(0, 0, PageRecord())) return;
  if (owner_.may_write_note(*this)) write_flush_note();  // else what is left is kept for copies
}

bool Stream::close() {
  if (!idle()) return false;
  if (!previous_flushed_ && !seal_asked_) {  // the zone that was filled last
    seal_asked_ = true;
    flush_filled();
    return false;
  }
  if (!zone_ || noted_ || zone_->next_lba == pool_.geometry.zone_capacity_lbas) return true;
  if (zone_->flushed_lba < zone_->records_end) {
    if (flush_asked_) return true;  // it failed: the next recovery verifies instead
    flush_asked_ = true;
    request_flush_point();
    return false;
  }
  noted_ = true;
  if (!note_due() || !fits(0, 0, PageRecord())) return true;  // nothing new, or no room
  write_flush_note();
  return false;
}

void Stream::flush_filled() {
  if (previous_flushed_ || seal_flush_.busy) return;
  seal_flush_.busy = true;
  covered_ = filled_;
  pool_.flusher.request(seal_flush_);
}

void Stream::request_flush_point() {
  if (zone_->written_lba == zone_->flushed_lba) return;
  const std::uint64_t begun = pool_.flusher.begun();
  // One whose flush has not begun covers what has been written since as well.
  FlushPoint* point = std::ranges::find_if(flush_points_, [begun](const FlushPoint& each) {
    return each.busy && each.asked_at == begun;
  });
  const bool asked = point != std::end(flush_points_);
  if (!asked) point = std::ranges::find(flush_points_, false, &FlushPoint::busy);
  FURROW_CHECK(point != std::end(flush_points_));
  point->lba = zone_->written_lba;
  point->generation = pool_.allocator.zone(zone_->id).generation;
  point->asked_at = begun;
  if (asked) return;
  point->busy = true;
  pool_.flusher.request(*point);
}

void Stream::end_zone() {
  FURROW_CHECK(can_end_zone());
  failure_ = Status(Code::aborted, Origin::log, "the zone has been ended");
  finish_zone();
}

// Gives the zone's open slot back. A full zone does not say where its data ends, so that is noted
// first. One without a durable header holds nothing, and nobody could tell.
void Stream::finish_zone() {
  const bool begun = zone_->header == OpenZone::Header::durable;
  if (begun && pool_.on_zone_cut) {
    pool_.on_zone_cut(zone_->id, static_cast<std::uint32_t>(zone_->written_lba));
  }
  finish_io_.op = begun ? Io::Op::finish : Io::Op::reset;
  finish_io_.zone = zone_->id;
  finish_io_.lba = pool_.geometry.zone_start(zone_->id);
  pool_.queue.submit(finish_io_);
}

// All that was in flight to a zone that failed a write has come back: the zone is finished and what
// it did not take goes to another zone, or fails when the cause is one that another zone will not
// mend.
void Stream::zone_failed(Status status) {
  constexpr unsigned kFailedZonesMax = 3;
  const bool hopeless = status.code() == Code::no_space || ++failed_zones_ >= kFailedZonesMax;
  AppendQueue again = to_retry_;
  to_retry_ = AppendQueue();
  const bool begun = zone_->header == OpenZone::Header::durable;
  finish_zone();
  AppendQueue users;
  AppendQueue moves;
  while (Append* append = again.pop()) {
    if (hopeless) {
      append->status = status;
      append->on_done(*append);
      continue;
    }
    queued_bytes_ += append->record.length;
    (append->priority == Append::Priority::relocation ? moves : users).push(*append);
  }
  queue_.push_front_all(users);
  relocations_.push_front_all(moves);
  // A zone's header carries no append that could be told.
  if (hopeless && !begun) fail_waiting(status);
}

// The finish (or reset) of a zone that failed, or was ended, is answered. Whether it worked or not,
// the zone takes no more writes; it is drained like any sealed one, and its reset tells whether it
// can be used again.
void Stream::abandon_zone() {
  const ZoneId zone = zone_->id;
  pool_.allocator.set_use(zone, ZoneUse::sealed);
  ZoneDirectory& table = pool_.tables[zone.value];
  table.end_lba = static_cast<std::uint32_t>(zone_->written_lba);
  table.truncate(table.end_lba);
  table.compact();
  zone_.reset();
  note_filled();
  const Status why = std::exchange(failure_, Status());
  schedule();
  owner_.on_zone_abandoned(zone, why);
}

}  // namespace furrow
