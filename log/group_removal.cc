#include "log/group_removal.h"

namespace furrow {

// A group that no record on the medium is of, nor one on its way there, has nothing that could come
// back: it needs no tombstone, which a full volume might have no room for. An earlier deletion of
// it may still have to become durable. (In a cache what was evicted comes back where a power cut
// undoes the reset of its zone, or the device has refused it.)
void GroupRemoval::start(PageLog& log, RemoveGroupOp& op) {
  auto* removal = new GroupRemoval(log, op);  // deleted by finish()
  const bool may_come_back = log.hidden_ || (log.options_.cache && log.may_come_back());
  if (!may_come_back && !removal->group_is_known()) return removal->read_headers();
  removal->draw_sequence();
  removal->pass_marker();
}

GroupRemoval::GroupRemoval(PageLog& log, RemoveGroupOp& op)
    : log_(log), op_(op), stream_(&log.fallback()) {
  ++log_.running_;
  write_.removal = marker_.removal = this;
  before_.removal = flush_.removal = this;
  write_.record.kind = RecordKind::group_tombstone;
  write_.record.group = op.group;
  write_.on_done = [](Append& append) { static_cast<Write&>(append).removal->written(); };
  marker_.marker = true;
  marker_.on_done = [](Append& append) { static_cast<Write&>(append).removal->pass_marker(); };
  for (Read& each : reads_) {
    each.removal = this;
    each.whole = true;
    each.on_read = [](HeaderRead& read, const Result<BatchView>& view) {
      static_cast<Read&>(read).removal->header_read(static_cast<Read&>(read), view);
    };
  }
  before_.on_flushed = [](FlushWaiter& waiter) {
    static_cast<Flush&>(waiter).removal->others_flushed(waiter.status);
  };
  flush_.on_flushed = [](FlushWaiter& waiter) {
    static_cast<Flush&>(waiter).removal->finish(waiter.status);
  };
}

// A page that the index has is on the medium: then the runs of all groups need not be searched,
// which are as many as there are files.
bool GroupRemoval::group_is_known() const {
  const auto is_there = [this](const KnownPage& page) { return find(page).has_value(); };
  return std::ranges::any_of(op_.known, is_there) || log_.knows_group(op_.group);
}

// From now on, as what draws its sequence later is stored after this deletion.
void GroupRemoval::draw_sequence() {
  write_.record.sequence = log_.pool_.next_sequence++;
  log_.removing_.push_back({.group = op_.group, .sequence = write_.record.sequence});
}

void GroupRemoval::pass_marker() {
  while (next_stream_ <= kStreamMax) {
    Stream* const stream = log_.users_stream(next_stream_++);
    if (stream != nullptr && stream != stream_) return stream->append(marker_);
  }
  bool unflushed = false;
  for (unsigned number = 0; number <= kStreamMax; ++number) {
    if (!goes_first(number)) continue;
    log_.streams_[number]->flush_filled();
    log_.streams_[number]->note_flush();
    unflushed = true;
  }
  if (!unflushed) return write();
  log_.pool_.flusher.request(before_);
}

// Meanwhile the stream may have ended its zone, and is to get no other for a deletion alone.
void GroupRemoval::write() {
  if (stream_ == &log_.user_stream() || stream_->room_lbas() != 0) return stream_->append(write_);
  stream_ = &log_.fallback();
  next_stream_ = 0;
  pass_marker();
}

// What the stream has must not be lost where the deletion is not: a page there may have taken the
// place of one in the group. And of pages without a lifetime, and deletions, what came first is
// durable first.
bool GroupRemoval::goes_first(unsigned number) const {
  const Stream* const stream = log_.streams_[number].get();
  if (stream == nullptr || stream == stream_ || !stream->unflushed()) return false;
  return !op_.own_keys || number == kUserStream || number == kCollectionStream;
}

// .. also before what comes later, and goes to the user's own stream, where this one did not.
bool GroupRemoval::flushes() const {
  return op_.flushed || log_.pool_.unsettled || (op_.own_keys && write_.stream != kUserStream);
}

void GroupRemoval::others_flushed(const Status& status) { status.ok() ? write() : finish(status); }

void GroupRemoval::written() {
  if (!write_.status.ok()) return finish(write_.status);
  logged_ = true;
  for (PageLog::Removing& each : log_.removing_) {
    each.logged |= each.sequence == write_.record.sequence;
  }
  log_.collector_->note_progress();
  if (op_.known.empty()) gather();
  for (const KnownPage& page : op_.known) remove_known(page);
  read_headers();
}

std::optional<IndexEntry> GroupRemoval::find(const KnownPage& page) const {
  std::array<IndexEntry, KeyOp::kCandidatesMax> found;
  const unsigned count = std::min(log_.lookup(log_.hash(page.key), found), KeyOp::kCandidatesMax);
  for (unsigned i = 0; i < count; ++i) {
    if (PageLog::is_known(found[i], page)) return found[i];
  }
  return std::nullopt;
}

void GroupRemoval::remove_known(const KnownPage& page) {
  const std::optional<IndexEntry> entry = find(page);
  if (entry) (void)log_.unpublish(log_.hash(page.key), *entry);
}

// One batch for each batch that holds pages of the group and is on the medium. Those still on their
// way hold newer pages, or copies that the collector will not publish: a stream writes in order,
// and the marker saw to what another stream had been given.
void GroupRemoval::gather() {
  PoolContext& pool = log_.pool_;
  for (std::uint32_t i = 0; i < pool.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = pool.allocator.zones()[i];
    if (zone.owner != log_.options_.volume) continue;
    const ZoneDirectory& table = pool.tables[i];
    if (!table.groups_had.may_have(op_.group)) continue;
    const std::uint64_t end = log_.written_lba(ZoneId{i});
    for (const ZoneDirectory::GroupRun& run : table.groups) {
      if (run.group != op_.group || run.first_lba >= end) continue;
      batches_.push_back({ZoneId{i}, zone.generation, pool.device_lba(ZoneId{i}, run.first_lba)});
      // A run may go over several batches; each page behind a header is reached through the
      // header's own position plus one.
      const std::uint64_t run_end = std::min<std::uint64_t>(run.last_lba + std::uint64_t{1}, end);
      table.batches.for_each(run.first_lba, run_end, [&](std::uint64_t batch) {
        batches_.push_back({ZoneId{i}, zone.generation, pool.device_lba(ZoneId{i}, batch + 1)});
      });
    }
  }
}

void GroupRemoval::read_headers() {
  for (Read& read : reads_) read_next(read);
  if (reading_ == 0) headers_read();
}

void GroupRemoval::read_next(Read& read) {
  while (next_ != batches_.size()) {
    read.batch = next_++;
    const Batch& batch = batches_[read.batch];
    const ZoneAllocator::Zone& zone = log_.pool_.allocator.zone(batch.zone);
    const bool emptied = log_.pool_.tables[batch.zone.value].batches.empty();  // gone bad since
    if (zone.generation != batch.generation || zone.use == ZoneUse::resetting || emptied) {
      continue;  // its pages were moved (and found there) or evicted
    }
    ++reading_;
    read.side = log_.epoch_.enter();  // no reset until it has been read
    read.page_lba = batch.page_lba;
    return log_.headers_.read(read);
  }
}

void GroupRemoval::header_read(Read& read, const Result<BatchView>& view) {
  const ZoneId zone = batches_[read.batch].zone;
  log_.epoch_.leave(read.side);
  --reading_;
  if (!view.ok() && status_.ok()) status_ = view.status();
  for (std::uint32_t i = 0; view.ok() && i < view->header().record_count; ++i) {
    const PageRecord record = view->record(i);
    if (record.kind != RecordKind::page || record.group != op_.group ||
        record.sequence > write_.record.sequence) {
      continue;
    }
    IndexEntry entry;
    entry.lba = log_.pool_.device_lba(zone, record.lba);
    entry.length = record.length;
    entry.pinned = record.pinned;
    entry.expires = record.expires_s != 0;
    log_.unpublish(log_.hash(record.key), entry);
  }
  read_next(read);
  if (reading_ == 0) headers_read();
}

void GroupRemoval::headers_read() {
  if (!flushes() || !status_.ok()) return finish(status_);
  log_.pool_.flusher.request(flush_);
}

// Where not all of the pages were found, the deletion goes on until another one of the group has
// found them: its tombstone must stay, or the next opening would have some pages and not others.
void GroupRemoval::finish(Status status) {
  RemoveGroupOp& op = op_;
  --log_.running_;
  const std::uint64_t sequence = write_.record.sequence;
  const bool goes_on = logged_ && !status_.ok();
  // Collection may have let go of some of them, which nothing on the medium deletes.
  if (sequence != 0 && !logged_) log_.left_out_ = true;
  std::erase_if(log_.removing_, [&](const auto& each) {
    if (each.sequence == sequence) return !goes_on;
    return logged_ && each.group == op.group && each.sequence < sequence;
  });
  delete this;
  op.status = status;
  op.on_done(op);
}

void PageLog::remove_group(RemoveGroupOp& op) { GroupRemoval::start(*this, op); }

}  // namespace furrow
