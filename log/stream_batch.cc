// A stream's batches: what goes into one, where it lands, and the summary that closes a segment.
#include <algorithm>
#include <cstring>

#include "log/stream.h"
#include "zone/canary.h"
#include "zone/check.h"

namespace furrow {

namespace {
// Grows only: in steady state nothing is allocated.
void grow(AlignedBuffer& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) buffer = AlignedBuffer(bytes);
}
}  // namespace

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

// Segment by segment: all that is left fits, or as much as a page of the largest size lets go to
// waste at the end.
bool Stream::surely_takes(const Copies& copies) const {
  if (room_lbas() == 0) return false;
  std::uint64_t pages = copies.page_lbas;
  std::uint64_t next = zone_->next_lba;
  std::uint64_t records = zone_->records.size(), batches = zone_->batches.size();
  std::uint64_t added = copies.batches;  // a segment's end divides one more
  for (std::uint64_t end = segment_end();; ++added) {
    const std::uint64_t headers =
        pool_.geometry.lbas(added * kBatchHeaderBytes + copies.records * kBatchRecordBytes) +
        std::max<std::uint64_t>(added, 1) - 1;
    const std::uint64_t summary = pool_.geometry.lbas(
        summary_bytes(records + copies.records, batches + added, true, true, true));
    const std::uint64_t taken = next + headers + summary;
    if (taken + pages <= end) return true;
    if (end == pool_.geometry.zone_capacity_lbas) return false;
    const std::uint64_t lost =
        copies.largest_lbas - std::min<std::uint64_t>(copies.largest_lbas, 1);
    pages -= std::min(pages, end - std::min(end, taken + lost));
    next = end;
    records = batches = 0;
    end = std::min(end + pool_.segment_lbas, pool_.geometry.zone_capacity_lbas);
  }
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
  const std::uint64_t pinned = zone_->pinned_lbas;
  const bool pins = next.pinned && pinned != 0;
  if (pins && pinned + pool_.page_lbas(next.length) > owner_.segment_pins_max()) return false;
  const std::uint64_t header = pool_.geometry.lbas(batch_header_bytes(records + 1));
  return zone_->next_lba + header + page_lbas + pool_.page_lbas(next.length) +
             summary_lbas(records + 1, &next) <=
         segment_end();
}

// A batch that may be in flight together with others need not wait for them. (One of copies is as
// large as collection counts on; nor is one so small that its header counts.)
std::uint64_t Stream::user_batch_bytes(const Geometry& geometry, std::size_t header_bytes) {
  const std::uint64_t together = std::uint64_t{geometry.together_lbas_max} * geometry.lba_bytes;
  const bool several = geometry.zone_writes_max > 1 && together >= kEagerBytes;
  return several ? std::min(kBatchBytes, together - header_bytes) : kBatchBytes;
}

Stream::Batch& Stream::new_batch() {
  Batch& batch = batches_[(first_ + in_flight_) % kBatchesMax];
  batch.records.clear();
  batch.iov.clear();
  batch.appends = AppendQueue();
  batch.outgrown.clear();
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
      const bool user = append.priority == Append::Priority::user;
      const std::uint64_t most = user ? user_batch_bytes_ : kBatchBytes;
      if (records != 0 && (page_lbas + lbas) * pool_.geometry.lba_bytes > most) break;
      if (!fits(records, page_lbas, append.record)) break;
      // Groups and expiries must be counted before the next one asks whether it fits.
      zone_->groups |= append.record.group != 0;
      zone_->expiries |= append.record.expires_s != 0;
      if (append.record.pinned) zone_->pinned_lbas += lbas;
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
      // A few times, until it has room for the largest batch; small ones need not wait for that.
      const std::size_t bytes = std::max({rounded, 2 * batch.bounce.size(), kBounceBytesMin});
      if (bounce_used != 0) batch.outgrown.push_back(std::move(batch.bounce));
      batch.bounce = AlignedBuffer(bytes);
      bounce_used = 0;
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
void Stream::place(Batch& batch, std::uint64_t header_lbas, std::uint64_t note_lbas) {
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
    pool_.note_record(zone_->id, record);
    pool_.allocator.note_sequence(zone_->id, record.sequence);
    zone_->records.push_back(record);
  }
  end += note_lbas;
  zone_->batches.push_back(static_cast<std::uint32_t>(header_lba));
  table.batches.push_back(static_cast<std::uint32_t>(header_lba));
  const BatchHeader fixed{stamp,
                          static_cast<std::uint32_t>(header_lba),
                          static_cast<std::uint32_t>(header_lbas),
                          static_cast<std::uint32_t>(end - header_lba),
                          static_cast<std::uint32_t>(zone_->flushed_lba),
                          static_cast<std::uint32_t>(batch.records.size()),
                          pool_.allocator.zone(zone_->id).stream};
  zone_->noted_lba = zone_->flushed_lba;
  if (!batch.records.empty()) zone_->records_end = end;
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
  owner_.on_write(*this, lbas * pool_.geometry.lba_bytes);
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
  const Summary summary = summary_at(end - lbas, lbas, zone_->records.size());
  encode(summary, zone_->records, zone_->batches, {batch.header.data(), lbas * lba_bytes});
  batch.iov.push_back({batch.header.data(), lbas * lba_bytes});
  submit_batch(batch, end - zone_->next_lba);
  zone_->records.clear();
  zone_->batches.clear();
  zone_->told_records = zone_->told_batches = 0;
  zone_->groups = zone_->expiries = false;
  zone_->pinned_lbas = 0;
  ++zone_->segment;
}

Summary Stream::summary_at(std::uint64_t first_lba, std::uint64_t lbas, std::size_t records) const {
  return {pool_.stamp(zone_->id),
          volume_,
          static_cast<std::uint32_t>(zone_->segment),
          static_cast<std::uint32_t>(first_lba),
          static_cast<std::uint32_t>(zone_->next_lba),
          static_cast<std::uint32_t>(lbas),
          static_cast<std::uint32_t>(records)};
}

// What a note's summary takes; 0: it does not fit any more, the segment's is near.
std::uint64_t Stream::note_lbas() const {
  const std::uint64_t lbas = pool_.geometry.lbas(summary_bytes(
      zone_->records.size() - zone_->told_records, zone_->batches.size() - zone_->told_batches,
      zone_->groups, zone_->expiries, true));
  return fits(0, lbas, PageRecord()) ? lbas : 0;
}

// A batch without records: its header says up to where the zone is durable. Behind it stands what
// the headers say that no note has told yet: until the segment is closed there would be only one
// copy of that, and a key whose newest record is lost would have its older page back.
void Stream::write_flush_note() {
  const std::uint32_t lba_bytes = pool_.geometry.lba_bytes;
  const std::uint64_t header_lbas = pool_.geometry.lbas(batch_header_bytes(0));
  const std::uint64_t lbas = note_lbas();
  Batch& batch = new_batch();
  batch.iov.push_back({});
  if (lbas != 0) {
    const auto records = std::span(zone_->records).subspan(zone_->told_records);
    const auto batches = std::span(zone_->batches).subspan(zone_->told_batches);
    zone_->told_records = zone_->records.size();
    zone_->told_batches = zone_->batches.size();
    grow(note_, lbas * lba_bytes);
    encode(summary_at(zone_->next_lba + header_lbas, lbas, records.size()), records, batches,
           {note_.data(), lbas * lba_bytes});
    batch.iov.push_back({note_.data(), lbas * lba_bytes});
  }
  place(batch, header_lbas, lbas);
  submit_batch(batch, header_lbas + lbas);
}

}  // namespace furrow
