#include "log/stream.h"

#include <algorithm>
#include <cstring>

#include "zone/canary.h"
#include "zone/check.h"

namespace furrow {

namespace {
constexpr std::size_t kZeroBytes = 256 << 10;

// Grows only: in steady state nothing is allocated.
void grow(AlignedBuffer& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) buffer = AlignedBuffer(bytes);
}
}  // namespace

Stream::Stream(PoolContext& pool, std::uint64_t volume, std::uint8_t number,
               std::uint32_t value_bytes_max, StreamOwner& owner)
    : pool_(pool),
      volume_(volume),
      number_(number),
      owner_(owner),
      value_bytes_max_(value_bytes_max),
      header_bytes_max_((1 + pool.geometry.lbas(batch_header_bytes(kRecordsMax))) *
                        pool.geometry.lba_bytes),
      zeroes_(kZeroBytes) {
  const std::size_t bounce_bytes =
      std::max<std::size_t>(kBatchBytes, pool.page_lbas(value_bytes_max) * pool.geometry.lba_bytes);
  for (Batch& batch : batches_) {
    batch.stream = this;
    batch.header = AlignedBuffer(header_bytes_max_);
    batch.bounce = AlignedBuffer();
    batch.records.reserve(kRecordsMax);
    batch.iov.reserve(std::max<std::size_t>(kRecordsMax + 2, bounce_bytes / kZeroBytes + 8));
    batch.io.op = Io::Op::write;
    batch.io.context = &batch;
    batch.io.on_complete = [](Io& io) {
      auto& done = *static_cast<Batch*>(io.context);
      done.stream->completed(done);
    };
  }
  flush_point_.stream = seal_flush_.stream = header_flush_.stream = issue_task_.stream = this;
  flush_point_.on_flushed = [](FlushWaiter& waiter) {
    auto& point = static_cast<FlushPoint&>(waiter);
    point.busy = false;
    auto& zone = point.stream->zone_;
    // A failed flush leaves the flush point where it was: recovery then verifies more.
    if (!point.status.ok() || !zone) return;
    if (point.stream->pool_.allocator.zone(zone->id).generation != point.generation) return;
    zone->flushed_lba = std::max(zone->flushed_lba, point.lba);
  };
  seal_flush_.on_flushed = [](FlushWaiter& waiter) {
    auto& seal = static_cast<FlushPoint&>(waiter);
    seal.busy = false;
    if (seal.status.ok()) {
      seal.stream->previous_flushed_ = true;
      seal.stream->kick();
    } else {
      seal.stream->fail_waiting(seal.status);
    }
  };
  header_flush_.on_flushed = [](FlushWaiter& waiter) {
    auto& flush = static_cast<FlushPoint&>(waiter);
    flush.busy = false;
    auto& zone = flush.stream->zone_;
    if (!flush.status.ok()) return flush.stream->fail_waiting(flush.status);  // none can be written
    if (zone && zone->header == OpenZone::Header::written) {
      zone->header = OpenZone::Header::durable;
      zone->flushed_lba = std::max<std::uint64_t>(zone->flushed_lba, 1);
    }
    flush.stream->kick();
  };
  issue_task_.run = [](Task& task) {
    auto& issue_task = static_cast<IssueTask&>(task);
    issue_task.posted = false;
    issue_task.stream->issue();
  };
  finish_io_.context = this;
  finish_io_.on_complete = [](Io& io) { static_cast<Stream*>(io.context)->abandon_zone(); };
}

Stream::~Stream() { FURROW_CHECK(in_flight_ == 0 && !issue_task_.posted); }

void Stream::resume(Resume&& zone) {
  FURROW_CHECK(!zone_ && pool_.allocator.zone(zone.zone).use == ZoneUse::open);
  OpenZone open;
  open.id = zone.zone;
  open.next_lba = open.written_lba = open.flushed_lba = zone.next_lba;  // recovery has flushed
  open.segment = zone.next_lba / pool_.segment_lbas;
  open.records = std::move(zone.segment_records);
  open.batches = std::move(zone.segment_batches);
  open.header = OpenZone::Header::durable;
  note_wanted_ = !zone.flush_noted;  // recovery's flush is not noted yet
  for (const PageRecord& record : open.records) {
    open.groups |= record.group != 0;
    open.expiries |= record.expires_s != 0;
  }
  open.wide = true;  // whatever the sequences are
  zone_ = std::move(open);
}

void Stream::append(Append& append) {
  if (!append.marker && append.record.sequence == 0) append.record.sequence = pool_.next_sequence++;
  append.status = Status();
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

void Stream::fail_waiting(Status status) {
  AppendQueue all[] = {relocations_, queue_};
  queue_ = relocations_ = AppendQueue();
  queued_bytes_ = 0;
  AppendQueue failed;
  for (AppendQueue& queue : all) {
    while (Append* append = queue.pop()) {
      // What makes room may use what is left of the zone.
      const bool begun = zone_ && zone_->header == OpenZone::Header::durable;
      const bool keep = begun && (append->marker || append->record.kind != RecordKind::page);
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
    other.relocations_.push(*append);
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
  if (queue_.empty() || !owner_.may_write_user()) return nullptr;
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
    FURROW_CHECK(!zone_->records.empty());  // else it would fit nowhere: admission checks the size
    close_segment();
    return true;
  }
  fill(new_batch());
  return true;
}

bool Stream::open_zone() {
  if (!previous_flushed_) {
    if (!seal_flush_.busy) {
      seal_flush_.busy = true;
      pool_.flusher.request(seal_flush_);
    }
    return false;
  }
  if (!owner_.may_open_zone(!relocations_.empty())) return false;
  const std::uint64_t generation = pool_.next_sequence++;
  const Result<ZoneId> taken = pool_.allocator.take(volume_, number_, generation, generation);
  if (!taken.ok()) return false;  // the owner kicks when one is free
  pool_.tables[taken->value] = ZoneDirectory();
  zone_ = OpenZone();
  zone_->id = *taken;
  zone_->records = std::move(spare_records_);
  zone_->batches = std::move(spare_batches_);
  zone_->records.clear();
  zone_->batches.clear();
  owner_.on_zone_opened();
  return true;
}

// Writes the zone's header, then makes it durable. True: something was submitted.
bool Stream::begin_zone() {
  if (zone_->header == OpenZone::Header::none) {
    Batch& batch = new_batch();
    const ZoneAllocator::Zone& zone = pool_.allocator.zone(zone_->id);
    const std::uint32_t lba_bytes = pool_.geometry.lba_bytes;
    encode(ZoneHeader{pool_.stamp(zone_->id), volume_, zone.opened_sequence, number_},
           {batch.header.data(), lba_bytes});
    batch.iov.push_back({batch.header.data(), lba_bytes});
    zone_->header = OpenZone::Header::written;
    submit_batch(batch, 1);
    return true;
  }
  if (canary(Canary::header_not_durable)) {
    zone_->header = OpenZone::Header::durable;
    return true;
  }
  if (in_flight_ == 0 && !header_flush_.busy) {
    header_flush_.busy = true;
    pool_.flusher.request(header_flush_);
  }
  return false;
}

std::uint64_t Stream::segment_end() const {
  return std::min((zone_->segment + 1) * pool_.segment_lbas, pool_.geometry.zone_capacity_lbas);
}

std::uint64_t Stream::room_for_pages_lbas() const {
  const std::uint64_t room = room_lbas();
  if (room == 0) return 0;
  constexpr std::uint64_t kEmptySummaryLbas = 4;
  const std::uint64_t segments_behind =
      (pool_.geometry.zone_capacity_lbas - segment_end() + pool_.segment_lbas - 1) /
      pool_.segment_lbas;
  const std::uint64_t lost =
      summary_lbas(0, nullptr) + kEmptySummaryLbas +
      segments_behind * (pool_.page_lbas(value_bytes_max_) + kEmptySummaryLbas);
  return room > lost ? room - lost : 0;
}

// LBAs of the segment's summary if so many records and one more batch joined it.
std::uint64_t Stream::summary_lbas(std::size_t more_records, const PageRecord* next) const {
  const bool groups = zone_->groups || (next != nullptr && next->group != 0);
  const bool expiries = zone_->expiries || (next != nullptr && next->expires_s != 0);
  return pool_.geometry.lbas(summary_bytes(zone_->records.size() + more_records,
                                           zone_->batches.size() + (next != nullptr ? 1 : 0),
                                           groups, expiries, true));
}

bool Stream::fits(std::uint32_t records, std::uint64_t page_lbas, const PageRecord& next) const {
  const std::uint64_t header = pool_.geometry.lbas(batch_header_bytes(records + 1));
  return zone_->next_lba + header + page_lbas + pool_.page_lbas(next.length) +
             summary_lbas(records + 1, &next) <=
         segment_end();
}

Stream::Batch& Stream::new_batch() {
  Batch& batch = batches_[(first_ + in_flight_) % kBatchesMax];
  batch.records.clear();
  batch.iov.clear();
  batch.appends = AppendQueue();
  batch.summary = batch.done = false;
  return batch;
}

// Takes what fits into one batch and submits it.
void Stream::fill(Batch& batch) {
  std::uint64_t page_lbas = 0;
  std::uint64_t bounce_used = 0;
  batch.iov.push_back({});  // the headers, whose size is known at the end
  while (AppendQueue* queue = next_queue()) {
    Append& append = *queue->front();
    if (!append.marker) {
      const std::uint64_t lbas = pool_.page_lbas(append.record.length);
      const auto records = static_cast<std::uint32_t>(batch.records.size());
      if (records == kRecordsMax) break;
      if (records != 0 && (page_lbas + lbas) * pool_.geometry.lba_bytes > kBatchBytes) break;
      if (!fits(records, page_lbas, append.record)) break;
      // Groups and expiries must be counted before the next one asks whether it fits.
      zone_->groups |= append.record.group != 0;
      zone_->expiries |= append.record.expires_s != 0;
      if (lbas != 0) add_page(batch, append, bounce_used);
      append.lba = page_lbas;  // from the batch's first page; made absolute by place()
      page_lbas += lbas;
      batch.records.push_back(append.record);
    }
    queued_bytes_ -= append.record.length;
    batch.appends.push(*queue->pop());
  }
  const std::uint64_t header_lbas = pool_.geometry.lbas(batch_header_bytes(batch.records.size()));
  place(batch, header_lbas);
  submit_batch(batch, header_lbas + page_lbas);
  if (canary(Canary::acknowledged_early)) {
    while (Append* append = batch.appends.pop()) append->on_done(*append);
  }
}

void Stream::add_page(Batch& batch, Append& append, std::uint64_t& bounce_used) {
  const std::uint32_t length = append.record.length;
  const std::uint64_t rounded = pool_.page_lbas(length) * pool_.geometry.lba_bytes;
  std::byte* data = append.data;
  const bool as_it_is = append.capacity >= rounded &&
                        reinterpret_cast<std::uintptr_t>(data) % pool_.geometry.lba_bytes == 0;
  if (!as_it_is) {
    if (batch.bounce.size() < bounce_used + rounded) {
      // Sized once for the largest batch; pages already there are only ever in a buffer that was
      // large enough for all of them.
      FURROW_CHECK(bounce_used == 0);
      grow(batch.bounce, std::max(rounded, kBatchBytes));
    }
    data = batch.bounce.data() + bounce_used;
    std::memcpy(data, append.data, length);
    bounce_used += rounded;
  }
  std::memset(data + length, 0, rounded - length);
  iovec& last = batch.iov.back();
  if (last.iov_base != nullptr && static_cast<std::byte*>(last.iov_base) + last.iov_len == data) {
    last.iov_len += rounded;
  } else {
    batch.iov.push_back({data, rounded});
  }
}

// Gives every record its place, and writes the headers.
void Stream::place(Batch& batch, std::uint64_t header_lbas) {
  const std::uint32_t lba_bytes = pool_.geometry.lba_bytes;
  const ZoneStamp stamp = pool_.stamp(zone_->id);
  const std::uint64_t header_lba = zone_->next_lba;
  ZoneDirectory& table = pool_.tables[zone_->id.value];
  std::uint64_t end = header_lba + header_lbas;
  std::size_t i = 0;
  AppendQueue walk = batch.appends;
  while (Append* append = walk.pop()) {
    if (append->marker) continue;
    PageRecord& record = batch.records[i++];
    const bool page = record.kind == RecordKind::page;
    const std::uint64_t lba = page ? header_lba + header_lbas + append->lba : header_lba;
    record.lba = append->record.lba = static_cast<std::uint32_t>(lba);
    append->lba = pool_.device_lba(zone_->id, lba);
    if (page) end = lba + pool_.page_lbas(record.length);
    if (page && record.group != 0) table.add_group(record.group, record.lba);
    if (!page) {
      ++(record.kind == RecordKind::tombstone ? table.tombstones : table.group_tombstones);
    }
    pool_.allocator.note_sequence(zone_->id, record.sequence);
    zone_->records.push_back(record);
  }
  table.records += batch.records.size();
  zone_->batches.push_back(static_cast<std::uint32_t>(header_lba));
  table.batch_lbas.push_back(static_cast<std::uint32_t>(header_lba));
  const BatchHeader fixed{stamp,
                          static_cast<std::uint32_t>(header_lba),
                          static_cast<std::uint32_t>(header_lbas),
                          static_cast<std::uint32_t>(end - header_lba),
                          static_cast<std::uint32_t>(zone_->flushed_lba),
                          static_cast<std::uint32_t>(batch.records.size()),
                          pool_.allocator.zone(zone_->id).stream};
  encode(fixed, batch.records, {batch.header.data(), header_lbas * lba_bytes});
  batch.iov.front() = {batch.header.data(), header_lbas * lba_bytes};
}

void Stream::submit_batch(Batch& batch, std::uint64_t lbas) {
  batch.io.zone = zone_->id;
  batch.io.lba = Lba{pool_.device_lba(zone_->id, zone_->next_lba)};
  batch.io.lba_count = static_cast<std::uint32_t>(lbas);
  batch.io.iov = batch.iov.data();
  batch.io.iov_count = static_cast<std::uint32_t>(batch.iov.size());
  zone_->next_lba += lbas;
  batch.end_lba = zone_->next_lba;
  ++in_flight_;
  owner_.on_write(lbas * pool_.geometry.lba_bytes);
  pool_.queue.submit(batch.io);
}

// Pads up to the summary, writes it, and goes on to the next segment.
void Stream::close_segment() {
  const std::uint32_t lba_bytes = pool_.geometry.lba_bytes;
  const std::uint64_t end = segment_end();
  const std::uint64_t lbas = summary_lbas(0, nullptr);
  FURROW_CHECK(zone_->next_lba + lbas <= end);
  Batch& batch = new_batch();
  batch.summary = true;
  for (std::uint64_t pad = (end - lbas - zone_->next_lba) * lba_bytes; pad != 0;) {
    const std::uint64_t piece = std::min<std::uint64_t>(pad, kZeroBytes);
    batch.iov.push_back({zeroes_.data(), piece});
    pad -= piece;
  }
  grow(batch.header, lbas * lba_bytes);
  const Summary summary{pool_.stamp(zone_->id),
                        volume_,
                        static_cast<std::uint32_t>(zone_->segment),
                        static_cast<std::uint32_t>(end - lbas),
                        static_cast<std::uint32_t>(zone_->next_lba),
                        static_cast<std::uint32_t>(lbas),
                        static_cast<std::uint32_t>(zone_->records.size())};
  encode(summary, zone_->records, zone_->batches, {batch.header.data(), lbas * lba_bytes});
  batch.iov.push_back({batch.header.data(), lbas * lba_bytes});
  submit_batch(batch, end - zone_->next_lba);
  zone_->records.clear();
  zone_->batches.clear();
  zone_->groups = zone_->expiries = false;
  ++zone_->segment;
  if (zone_->next_lba == pool_.geometry.zone_capacity_lbas) seal_zone();
}

// Nothing more goes to this zone. Its last batches may still be in flight.
void Stream::seal_zone() {
  previous_flushed_ = canary(Canary::zone_before_unflushed);
  ZoneDirectory& table = pool_.tables[zone_->id.value];
  table.batch_lbas.shrink_to_fit();
  table.groups.shrink_to_fit();
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
  if (!batch.io.status.ok() && failure_.ok()) failure_ = batch.io.status;
  pool_.device_full = failure_.code() == Code::no_space;
  if (!failure_.ok()) {  // this batch failed, or one before it: its place in the log is not safe
    while (Append* append = batch.appends.pop()) to_retry_.push(*append);
    return;
  }
  failed_zones_ = 0;
  zone_->written_lba = batch.end_lba;
  const bool sealed = batch.end_lba == pool_.geometry.zone_capacity_lbas;
  if (batch.summary && !sealed) request_flush_point();
  if (sealed) {
    pool_.allocator.set_use(zone_->id, ZoneUse::sealed);
    spare_records_ = std::move(zone_->records);
    spare_batches_ = std::move(zone_->batches);
    zone_.reset();
  }
  while (Append* append = batch.appends.pop()) append->on_done(*append);
}

void Stream::note_flush() {
  if (zone_) request_flush_point();
}

bool Stream::close() {
  if (!idle()) return false;
  if (!previous_flushed_ && !seal_asked_) {  // the zone that was filled last
    seal_asked_ = seal_flush_.busy = true;
    pool_.flusher.request(seal_flush_);
    return false;
  }
  if (!zone_ || noted_ || zone_->next_lba == pool_.geometry.zone_capacity_lbas) return true;
  if (zone_->flushed_lba != zone_->next_lba) {
    if (flush_asked_) return true;  // it failed: the next recovery verifies instead
    flush_asked_ = note_wanted_ = true;
    request_flush_point();
    return false;
  }
  noted_ = true;
  if (!note_wanted_ || !fits(0, 0, PageRecord())) return true;  // nothing new, or no room
  write_flush_note();
  return false;
}

// A batch without records: its header says up to where the zone is durable.
void Stream::write_flush_note() {
  Batch& batch = new_batch();
  batch.iov.push_back({});
  const std::uint64_t header_lbas = pool_.geometry.lbas(batch_header_bytes(0));
  place(batch, header_lbas);
  submit_batch(batch, header_lbas);
}

void Stream::request_flush_point() {
  if (flush_point_.busy || zone_->written_lba == zone_->flushed_lba) return;
  flush_point_.busy = true;
  flush_point_.lba = zone_->written_lba;
  flush_point_.generation = pool_.allocator.zone(zone_->id).generation;
  pool_.flusher.request(flush_point_);
}

// All that was in flight to a zone that failed a write has come back: the zone is finished (which
// gives its open slot back) and what it did not take goes to another zone, or fails when the cause
// is one that another zone will not mend.
void Stream::zone_failed(Status status) {
  constexpr unsigned kFailedZonesMax = 3;
  const bool hopeless = status.code() == Code::no_space || ++failed_zones_ >= kFailedZonesMax;
  AppendQueue again = to_retry_;
  to_retry_ = AppendQueue();
  // A full zone does not say where its data ends, so that is noted first. One without a durable
  // header holds nothing, and nobody could tell.
  const bool begun = zone_->header == OpenZone::Header::durable;
  if (begun && pool_.on_zone_cut) {
    pool_.on_zone_cut(zone_->id, static_cast<std::uint32_t>(zone_->written_lba));
  }
  finish_io_.op = begun ? Io::Op::finish : Io::Op::reset;
  finish_io_.zone = zone_->id;
  finish_io_.lba = pool_.geometry.zone_start(zone_->id);
  pool_.queue.submit(finish_io_);
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

// The finish (or reset) of a failed zone is answered. Whether it worked or not, the zone takes no
// more writes; it is drained like any sealed one, and its reset tells whether it can be used again.
void Stream::abandon_zone() {
  pool_.allocator.set_use(zone_->id, ZoneUse::sealed);
  pool_.tables[zone_->id.value].truncate(static_cast<std::uint32_t>(zone_->written_lba));
  zone_.reset();
  previous_flushed_ = false;
  failure_ = Status();
  schedule();
}

}  // namespace furrow
