#include "log/page_log.h"

#include <algorithm>

#include "zone/canary.h"
#include "zone/check.h"

namespace furrow {

namespace {

// An index that was made for fewer pages tells them apart worse.
constexpr std::uint64_t kGrowthMax = 64;

// What is written by pinning is the newest of its key, and what nobody can read now may be newer.
constexpr Status kMayBeHidden{
    Code::io_error, Origin::log,
    "a newer version of the page may be in a zone that could not be read when the pool was opened; "
    "store the page anew, or open the pool again"};

KeyOp& op_of(Io& io) { return *static_cast<KeyOp*>(io.context); }

}  // namespace

bool PageLog::flushes(const KeyOp& op) const {
  return (op.flushed && !canary(Canary::flush_skipped)) || pool_.unsettled;
}

PageLog::PageLog(PoolContext& pool, const PageLogOptions& options)
    : pool_(pool),
      options_(options),
      quota_max_(std::min<std::uint64_t>(pool.allocator.quota(options.volume) * kGrowthMax,
                                         pool.geometry.zone_count)),
      blocks_(pool.blocks_of(options.volume)),
      index_(pool.allocator.quota(options.volume) * pool.geometry.zone_capacity_lbas,
             index_shape()),
      headers_(pool, [this](ZoneId zone) { return written_lba(zone); }),
      epoch_(pool.epoch.add()),
      segment_pins_max_(options.cache ? pins_of_a_segment(pool) : ~std::uint64_t{0}) {
  for (std::uint8_t number = 0; number <= kStreamMax; ++number) {
    if (number == kUserStream || options.streams.test(number)) make_stream(number);
  }
  collector_ = std::make_unique<Collector>(*this);
  sweep_ = std::make_unique<ExpirySweep>(*this);
}

void PageLog::make_stream(std::uint8_t number) {
  streams_[number] =
      std::make_unique<Stream>(pool_, options_.volume, number, options_.value_bytes_max, *this);
}

Index::Shape PageLog::index_shape() const {
  Index::Shape shape;
  if (blocks_ != nullptr) shape = {kBlockPageBytes, blocks_->order.bits()};
  shape.entries_limit = quota_max_ * pool_.geometry.zone_capacity_lbas;
  return shape;
}

PageLog::~PageLog() { pool_.epoch.remove(epoch_); }

bool PageLog::idle() const {
  return running_ == 0 && !any_stream([](const Stream& stream) { return !stream.idle(); }) &&
         collector_->idle() && sweep_->idle();
}

void PageLog::stop_background() {
  collector_->stop();
  end_shrinking();
}
void PageLog::start_background() { collector_->resume(); }
void PageLog::fail_stranded() {
  if (!collector_->idle()) return;
  const std::uint64_t held = pool_.allocator.held(options_.volume);
  if (held + 1 < zones_max() && !kept_for_copies()) return;
  fail_waiting({Code::aborted, Origin::log, "the pool is being closed"}, false);
}

bool PageLog::close() {
  bool closed = true;
  for (const auto& stream : streams_) {
    if (stream && !stream->close()) closed = false;
  }
  return closed;
}

void PageLog::clear() {
  for (const auto& stream : streams_) {
    if (stream) stream->stop_notes();
  }
  index_.clear();
  stats_.pages = stats_.live_bytes = 0;
  cost_bytes_ = pinned_lbas_ = 0;
  note_used();
}

void PageLog::start() {
  zones_changed();
  collect_torn();
  collector_->kick();
  for (const auto& stream : streams_) {
    if (stream) stream->note_when_idle();
  }
}

void PageLog::resume(unsigned stream, Stream::Resume&& zone) {
  if (!streams_[stream]) {
    // It was written when there was an open zone to spare for it. Its last segment stays unclosed.
    pool_.tables[zone.zone.value].end_lba = static_cast<std::uint32_t>(zone.next_lba);
    return pool_.allocator.set_use(zone.zone, ZoneUse::sealed);
  }
  streams_[stream]->resume(std::move(zone));
}

void PageLog::load(const Recovered& recovered) {
  recovered.pages.load_into(index_);
  cost_bytes_ = recovered.cost_bytes;
  pinned_lbas_ = recovered.pinned_lbas;
  largest_bytes_ = recovered.largest_bytes;
  if (pinned_lbas_ != 0) largest_pinned_bytes_ = largest_bytes_;
  if (pinned_lbas_ > overwritten_pins_max(largest_pinned_bytes_)) find_largest_pinned();
  sweep_->note(recovered.first_expiry_s);
  left_out_ = recovered.expired;
  hidden_ = recovered.hidden;
  first_sequence_ = pool_.next_sequence;
  lost_ = recovered.lost;
  damaged_copies_ = recovered.damaged;
  for (const Outlived& each : recovered.outlived) collector_->note_outlived(each);
  stats_.pages = recovered.pages.size();
  stats_.live_bytes = recovered.live_bytes;
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    if (pool_.allocator.zones()[i].owner == options_.volume) choose_granule(ZoneId{i});
  }
  zones_changed();
  allow_zones();
}

// --- a KeyOp's way ---

void PageLog::submit(KeyOp& op) {
  ++running_;
  op.status = Status();
  op.in_epoch = op.overtaken = false;
  op.lock.op = op.header.op = op.write.op = op.flush.op = &op;
  op.io.context = &op;
  op.lock.hash = hash(op.key);
  op.lock.on_locked = [](KeyLockHolder& holder) {
    KeyOp& locked_op = *static_cast<KeyOp::Lock&>(holder).op;
    locked_op.log->locked(locked_op);
  };
  op.log = this;
  locks_.lock(op.lock);
}

void PageLog::locked(KeyOp& op) {
  op.epoch_side = epoch_.enter();  // until all that is read of the medium has been
  op.in_epoch = true;
  op.found = op.expired = false;
  op.candidate = 0;
  op.candidate_count =
      std::min(index_.find(op.lock.hash.order, 0, op.candidates), KeyOp::kCandidatesMax);
  const bool told = op.kind == KeyOp::Kind::rewrite || op.known != nullptr;
  if (!told && blocks_ == nullptr) return confirm_next(op);
  // Whose page that is is known already; a block's entry is no other's.
  const auto end = op.candidates.begin() + op.candidate_count;
  const auto at = std::find_if(op.candidates.begin(), end, [&](const IndexEntry& entry) {
    if (!told) return true;
    return op.known != nullptr ? is_known(entry, *op.known) : entry.lba == op.rewritten_lba;
  });
  op.found = at != end;
  if (op.found) op.old = *at;
  // Whoever knows a page may have been told of a failure that came after another had been written.
  const bool changes = op.kind == KeyOp::Kind::put || op.kind == KeyOp::Kind::remove;
  if (!op.found && op.known != nullptr && blocks_ == nullptr && changes) return confirm_next(op);
  confirmed(op);
}

// Reads the batch header of the next candidate, to see whether its key is this one.
void PageLog::confirm_next(KeyOp& op) {
  if (op.candidate == op.candidate_count) return confirmed(op);
  op.header.page_lba = op.candidates[op.candidate].lba;
  op.header.on_read = [](HeaderRead& read, const Result<BatchView>& view) {
    KeyOp& its_op = *static_cast<KeyOp::Header&>(read).op;
    its_op.log->header_read(its_op, view);
  };
  headers_.read(op.header);
}

void PageLog::header_read(KeyOp& op, const Result<BatchView>& view) {
  const IndexEntry& entry = op.candidates[op.candidate];
  if (!view.ok()) {
    if (view.status().code() != Code::corrupt) return finish(op, view.status());
    // Nothing says any more whose it is, but the page itself by its keyed checksum, if it is whole.
    return read_page(op, entry, [](Io& io) { op_of(io).log->page_read_for_confirm(op_of(io)); });
  }
  for (std::uint32_t i = 0; i < view->header().record_count; ++i) {
    const PageRecord record = view->record(i);
    if (record.lba != pool_.relative_lba(entry.lba) || record.kind != RecordKind::page) continue;
    if (record.key != op.key) break;
    op.found = in_index(op.lock.hash, entry.lba);  // not where it has left it meanwhile
    op.old = entry;
    if (op.whole_record) {
      op.group = record.group;
      op.expires_s = record.expires_s;
      op.pinned = entry.pinned;
    }
    return confirmed(op);
  }
  ++op.candidate;
  confirm_next(op);
}

void PageLog::read_page(KeyOp& op, const IndexEntry& entry, void (*on_complete)(Io&)) {
  const std::uint64_t lbas = pool_.page_lbas(entry.length);
  op.page = AlignedBuffer(lbas * pool_.geometry.lba_bytes);
  op.io.op = Io::Op::read;
  op.io.lba = Lba{entry.lba};
  op.io.set_data(op.page.data(), static_cast<std::uint32_t>(lbas), pool_.geometry.lba_bytes);
  op.io.on_complete = on_complete;
  pool_.queue.submit(op.io);
}

// Header and page both damaged, and no summary or note tells: whichever key it was, nobody will
// ever read it. It is taken for this one, so that the entry can be replaced or removed and does not
// wedge its key.
void PageLog::page_read_for_confirm(KeyOp& op) {
  if (!op.io.status.ok()) return finish(op, op.io.status);
  const IndexEntry& entry = op.candidates[op.candidate];
  op.old = entry;  // diagnose: which one it was that is damaged
  const bool ours = page_checksum({op.page.data(), entry.length}, op.lock.hash) == entry.checksum;
  const bool changes = op.kind == KeyOp::Kind::put || op.kind == KeyOp::Kind::remove;
  if ((!ours && !changes) || op.whole_record) {
    if (op.kind != KeyOp::Kind::diagnose) ++stats_.corrupt_pages;  // else its reader counts
    return finish(op, {Code::corrupt, Origin::log,
                       "a page and its batch header are damaged; run `furrowctl pool check`"});
  }
  op.found = in_index(op.lock.hash, entry.lba);
  op.old = entry;
  confirmed(op);
}

void PageLog::confirmed(KeyOp& op) {
  op.expired = op.found && expired(op.old, pool_.home.wall_s());
  const bool present = op.found && !op.expired;
  switch (op.kind) {
    case KeyOp::Kind::put:
      return confirmed_put(op);
    case KeyOp::Kind::remove:
      // An expired page needs a tombstone as well: its clock may be set back.
      if (op.found || may_come_back()) return append(op, RecordKind::tombstone);
      leave_epoch(op);
      // What removed it before may not be durable yet.
      return finish_durably(op, {Code::not_found, Origin::log});
    case KeyOp::Kind::exist:
      op.value_length = present ? op.old.length : 0;
      op.value_checksum = present ? op.old.checksum : 0;
      return finish(op, present ? Status() : Status(Code::not_found, Origin::log));
    case KeyOp::Kind::diagnose:
      if (!present) return finish(op, {Code::not_found, Origin::log});
      return finish(op, {Code::corrupt, Origin::log, "the page's checksum does not match"});
    case KeyOp::Kind::pin:
    case KeyOp::Kind::unpin:
      if (!present) return finish(op, {Code::not_found, Origin::log});
      return confirmed_pin(op);
    case KeyOp::Kind::rewrite:
      if (!present) return finish(op, {Code::not_found, Origin::log});
      return confirmed_rewrite(op);
  }
}

void PageLog::confirmed_put(KeyOp& op) {
  const bool present = op.found && !op.expired;
  if (op.condition == KeyOp::Condition::if_absent && present) {
    return finish(op, {Code::exists, Origin::log});
  }
  if (op.condition == KeyOp::Condition::if_exists && !present) {
    return finish(op, {Code::not_found, Origin::log});
  }
  const bool shrinks = op.shrinks && op.found && op.length <= op.old.length;
  if (!options_.cache && !shrinks && pool_.device.short_of_room()) {  // what is left is for deletes
    if (collector_->idle()) collect_dead();
    return finish(op, {Code::no_space, Origin::log,
                       "the file system under the device is full; make room there"});
  }
  fold_streams();
  const Status admitted = admit(op.length, op.found ? &op.old : nullptr, op.pinned);
  if (!admitted.ok()) {
    collector_->hurry();
    return sweep_->take(op) ? leave_epoch(op) : finish(op, admitted);
  }
  op.write.record.checksum = page_checksum({op.data, op.length}, op.lock.hash);
  append(op, RecordKind::page);
}

// Pinning is part of a page's record: the page is written again with it, so that it lasts.
void PageLog::confirmed_pin(KeyOp& op) {
  op.pinned = op.kind == KeyOp::Kind::pin;
  if (op.old.pinned == op.pinned) return finish(op, Status());
  const Status admitted = admit(op.old.length, &op.old, op.pinned);
  if (!admitted.ok()) return finish(op, admitted);
  // The record's group and expiry stand in its batch header.
  op.header.page_lba = op.old.lba;
  op.header.on_read = [](HeaderRead& read, const Result<BatchView>& view) {
    KeyOp& its_op = *static_cast<KeyOp::Header&>(read).op;
    PageLog& log = *its_op.log;
    if (!view.ok()) return log.finish(its_op, view.status());
    for (std::uint32_t i = 0; i < view->header().record_count; ++i) {
      const PageRecord record = view->record(i);
      if (record.lba != log.pool_.relative_lba(its_op.old.lba)) continue;
      its_op.group = record.group;
      its_op.expires_s = record.expires_s;
      its_op.old_sequence = record.sequence;
    }
    if (log.newer_may_be_hidden(its_op)) return log.finish(its_op, kMayBeHidden);
    log.read_page(its_op, its_op.old, [](Io& io) { op_of(io).log->page_read_for_pin(op_of(io)); });
  };
  headers_.read(op.header);
}

void PageLog::confirmed_rewrite(KeyOp& op) {
  // While this waited for the lock the zone may have been reset, and been given the key's next
  // page.
  const ZoneId zone = pool_.geometry.zone_of(Lba{op.rewritten_lba});
  if (pool_.allocator.zone(zone).generation != op.rewritten_generation) {
    return finish(op, {Code::not_found, Origin::log});
  }
  if (newer_may_be_hidden(op)) return finish(op, kMayBeHidden);
  PageRecord old;
  old.group = op.group;
  old.sequence = op.old_sequence;
  if (removing(old)) return finish(op, {Code::not_found, Origin::log});  // see page_read_for_pin()
  const Status admitted = admit(op.length, &op.old, op.pinned);
  if (!admitted.ok()) return finish(op, admitted);
  op.write.record.checksum = op.old.checksum;
  append(op, RecordKind::page);
}

void PageLog::page_read_for_pin(KeyOp& op) {
  if (!op.io.status.ok()) return finish(op, op.io.status);
  op.data = op.page.data();
  op.length = op.old.length;
  op.capacity = static_cast<std::uint32_t>(op.page.size());
  op.write.record.checksum = page_checksum({op.data, op.length}, op.lock.hash);
  if (op.write.record.checksum != op.old.checksum) {
    ++stats_.corrupt_pages;
    return finish(op, {Code::corrupt, Origin::log, "the page's checksum does not match"});
  }
  // Its group's deletion passes by the key's lock. Written now, the page would outlive it.
  PageRecord old;
  old.group = op.group;
  old.sequence = op.old_sequence;
  if (removing(old) || !in_index(op.lock.hash, op.old.lba)) {
    return finish(op, {Code::not_found, Origin::log});
  }
  append(op, RecordKind::page);
}

bool PageLog::in_index(const KeyHash& hash, std::uint64_t lba) const {
  std::array<IndexEntry, KeyOp::kCandidatesMax> found;
  const auto end =
      found.begin() + std::min(index_.find(hash.order, 0, found), KeyOp::kCandidatesMax);
  return std::ranges::find(found.begin(), end, lba, &IndexEntry::lba) != end;
}

void PageLog::leave_epoch(KeyOp& op) {
  if (op.in_epoch) epoch_.leave(op.epoch_side);
  op.in_epoch = false;
}

void PageLog::append(KeyOp& op, RecordKind kind) {
  leave_epoch(op);  // the append may wait for a zone, and a zone's reset must not wait for it
  // It had waited for a zone that could not be freed then, and was not there to be told.
  if (op.overtaken && op.failures_before != collector_->attempts_failed()) {
    return finish(op, collector_->last_failure());
  }
  const bool page = kind == RecordKind::page;
  PageRecord& record = op.write.record;
  const std::uint32_t checksum = page ? record.checksum : 0;
  record = PageRecord();
  record.kind = kind;
  record.pinned = page && op.pinned;
  record.key = op.key;
  record.group = page ? op.group : 0;
  record.length = page ? op.length : 0;
  record.checksum = checksum;
  record.expires_s = page ? op.expires_s : 0;
  op.write.data = op.data;
  op.write.capacity = op.capacity;
  op.write.on_done = [](Append& append) {
    KeyOp& its_op = *static_cast<KeyOp::Write&>(append).op;
    its_op.log->written(its_op);
  };
  count_pending(op, true);
  op.lock.writing = true;
  op.value_checksum = checksum;
  stream_of(record, op.lifetime).append(op.write);
}

void PageLog::overtake(KeyLockHolder& waiter) {
  KeyLockHolder* holder = locks_.holder(waiter.hash);
  if (holder == nullptr || !holder->writing) return;
  KeyOp& op = *static_cast<KeyOp::Lock&>(*holder).op;
  Stream& stream = *streams_[op.write.stream];
  if (!stuck(stream) || !stream.withdraw(op.write)) return;
  op.lock.writing = false;
  count_pending(op, false);
  if (!op.overtaken) op.failures_before = collector_->attempts_failed();
  op.overtaken = true;
  locks_.overtake(*holder, waiter);
}

void PageLog::written(KeyOp& op) {
  const PageRecord& record = op.write.record;
  const bool page = record.kind == RecordKind::page;
  op.lock.writing = false;
  count_pending(op, false);
  if (!op.write.status.ok()) return finish(op, op.write.status);
  collector_->note_progress();
  if (page) {
    publish(op.lock.hash, op.found ? &op.old : nullptr,
            {op.write.lba, record.length, record.checksum, record.pinned, record.expires_s != 0},
            record.expires_s, record.sequence);
  } else if (op.found) {
    unpublish(op.lock.hash, op.old);
  }
  const bool removed_nothing = !page && (!op.found || op.expired);
  if (flushes(op)) streams_[op.write.stream]->note_flush();
  finish_durably(op, removed_nothing ? Status(Code::not_found, Origin::log) : Status());
}

void PageLog::finish_durably(KeyOp& op, const Status& status) {
  if (!flushes(op)) return finish(op, status);
  op.status = status;
  op.flush.on_flushed = [](FlushWaiter& waiter) {
    KeyOp& its_op = *static_cast<KeyOp::Flush&>(waiter).op;
    its_op.log->finish(its_op, waiter.status.ok() ? its_op.status : waiter.status);
  };
  pool_.flusher.request(op.flush);
}

void PageLog::finish(KeyOp& op, Status status) {
  leave_epoch(op);
  op.status = status;
  switch (op.kind) {
    case KeyOp::Kind::put:
      ++stats_.puts;
      if (status.ok()) stats_.put_bytes += op.length;
      break;
    case KeyOp::Kind::remove:
      ++stats_.removes;
      break;
    case KeyOp::Kind::exist:
      ++stats_.exists;
      break;
    default:
      break;
  }
  stats_.header_reads.store(headers_.reads(), std::memory_order_relaxed);
  locks_.unlock(op.lock);
  --running_;
  op.on_done(op);
}

void PageLog::flush(FlushOp& op) {
  ++stats_.flushes;
  op.log = this;
  op.marker.marker = true;
  op.marker.op = &op;
  op.next_stream = 0;
  op.marker.on_done = [](Append& marker) {
    FlushOp& its_op = *static_cast<FlushOp::Marker&>(marker).op;
    its_op.log->pass_marker(its_op);
  };
  pass_marker(op);
}

void PageLog::pass_marker(FlushOp& op) {
  while (op.next_stream <= kStreamMax) {
    Stream* const stream = users_stream(op.next_stream++);
    if (stream != nullptr) return stream->append(op.marker);
  }
  for (const auto& stream : streams_) {
    if (stream) stream->note_flush();
  }
  pool_.flusher.request(op);
}

}  // namespace furrow
