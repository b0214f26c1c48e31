// The page log's room: what pages cost, what of a store they may take, and whether the copies of a
// zone fit into what is left for them.
#include <algorithm>

#include "log/page_log.h"

namespace furrow {

namespace {

constexpr std::uint64_t kBatchesAgain = 2;  // of a zone whose pages could not be read at first

std::uint64_t segments(const PoolContext& pool) {  // of a zone
  return (pool.geometry.zone_capacity_lbas - 1) / pool.segment_lbas + 1;
}

}  // namespace

std::uint64_t PageLog::cost_bytes(const PoolContext& pool, std::uint32_t length) {
  return pool.page_lbas(length) * pool.geometry.lba_bytes + record_cost_bytes(pool);
}

// With its share of what a batch has beside its records: collection makes batches of so many.
std::uint64_t PageLog::record_cost_bytes(const PoolContext& pool) {
  return kRecordBytes + (kBatchHeaderBytes + pool.geometry.lba_bytes) / Collector::kGroupRecords;
}

std::uint64_t PageLog::copied_lbas(ZoneId id) const {
  const std::uint64_t records = copied_records(id);
  const std::uint64_t batches = std::min(copied_batches(id) + segments(pool_), records);
  return copied_page_lbas(id) + batches +
         pool_.geometry.lbas(records * kRecordBytes + batches * kBatchHeaderBytes);
}

// Pages that have expired stay in the index until somebody comes by.
std::uint64_t PageLog::copied_page_lbas(ZoneId id) const {
  const ZoneDirectory& table = pool_.tables[id.value];
  const bool expired = table.last_expiry_s != 0 && table.last_expiry_s <= pool_.home.wall_s();
  return expired ? 0 : pool_.allocator.zone(id).live_lbas;
}

// Two groups, one behind the other, have more than the bytes of one, or are full of records.
std::uint64_t PageLog::copied_batches(ZoneId id) const {
  const std::uint64_t records = copied_records(id);
  const std::uint64_t bytes = copied_page_lbas(id) * pool_.geometry.lba_bytes;
  const std::uint64_t groups =
      records / Collector::kGroupRecords + 2 * bytes / Collector::kGroupBytes + 1;
  return std::min(groups, records);
}

// A live page takes an LBA at least; the others that may have to stay are counted. Which pages of
// groups leave a tombstone is not.
std::uint64_t PageLog::copied_records(ZoneId id) const {
  const ZoneDirectory& table = pool_.tables[id.value];
  if (!table.groups.empty()) return table.records;
  const std::uint64_t live = pool_.allocator.zone(id).live_lbas;
  const std::uint64_t tombstones = tombstones_needed(id) ? table.tombstones : 0;
  return std::min(table.records, live + tombstones + table.group_tombstones + table.expiring);
}

std::uint64_t PageLog::copied_lbas_max(std::uint32_t largest_bytes) const {
  // Of a segment: a batch header, and what the summary is beside its records.
  constexpr std::uint64_t kRestLbas = 3;
  const std::uint64_t capacity = pool_.geometry.zone_capacity_lbas;
  const std::uint64_t room = capacity - std::min(capacity, 1 + segments(pool_) * kRestLbas);
  // Whatever the sizes, any two segments take more than one holds.
  const std::uint64_t lost = std::min(segments(pool_) * pool_.page_lbas(largest_bytes), room / 2);
  return (room - lost) * (kGainShare - 1) / kGainShare;
}

// What is pinned in a segment of a cache must always find room in one of a fresh zone, with what
// collection reckons is around it (Collector::has_room()): pages of one LBA, of which each has the
// largest share of batch headers and summary, as many as certainly fit.
std::uint64_t PageLog::pins_of_a_segment(const PoolContext& pool) {
  constexpr std::uint64_t kOtherLbas = 12;  // zone header; summary; what is rounded up
  constexpr std::uint64_t kCopied = Collector::kGroups * Collector::kGroupRecords;  // at a time
  const Geometry& geometry = pool.geometry;
  const std::uint64_t last = geometry.zone_capacity_lbas - (segments(pool) - 1) * pool.segment_lbas;
  const std::uint64_t batches = 2 + 2 * last * geometry.lba_bytes / Collector::kGroupBytes;
  const std::uint64_t copied = std::min(kCopied, last) + 1;
  const std::uint64_t other =
      kOtherLbas + batches + geometry.lbas(batches * kBatchHeaderBytes + copied * kRecordBytes);
  const std::uint64_t room = last - std::min(last, other);
  // (In segments of a few dozen LBAs half of them is certain, if anything is.)
  return std::max(room * geometry.lba_bytes / cost_bytes(pool, 1), last / 2);
}

// Pinned pages are never evicted: half of the quota stays for the rest. Of a zone counts what it
// takes for certain; pages that fit badly would fill all of them otherwise.
std::uint64_t PageLog::pinned_lbas_max(std::uint32_t largest_bytes, std::uint64_t quota) const {
  return quota * pins_of_a_zone(largest_bytes) / 2;
}

// What is overwritten stands where it certainly has room elsewhere, which older zones may have more
// of: all that is pinned must find that much room in what there is beside the zone for copies.
std::uint64_t PageLog::overwritten_pins_max(std::uint32_t largest_bytes) const {
  const ZoneAllocator& zones = pool_.allocator;
  const std::uint64_t lost = zones.bad(options_.volume) + 1;
  const std::uint64_t most = zones.held_max(options_.volume);
  return (most - std::min(most, lost)) * pins_of_a_zone(largest_bytes);
}

std::uint64_t PageLog::pins_of_a_zone(std::uint32_t largest_bytes) const {
  const std::uint64_t lost = std::min(pool_.page_lbas(largest_bytes) - 1, segment_pins_max_ / 2);
  return segments(pool_) * (segment_pins_max_ - lost);
}

// Nothing is lost at the last segment's end, where all of it fits.
std::uint64_t PageLog::copied_lbas_whole() const {
  constexpr std::uint64_t kRestLbas = 3;      // as above
  constexpr std::uint64_t kDeletionLbas = 4;  // its batch, and what it adds to the summary
  const std::uint64_t lost = (segments(pool_) - 1) * pool_.page_lbas(largest_bytes_);
  const std::uint64_t other = 1 + segments(pool_) * kRestLbas + lost + kDeletionLbas;
  return pool_.geometry.zone_capacity_lbas - std::min(pool_.geometry.zone_capacity_lbas, other);
}

// So many LBAs of pages, beside all tombstones that there are: any zone of a store that has no more
// can be emptied into one.
bool PageLog::fits_a_zone(std::uint64_t page_lbas) const {
  const std::uint64_t records = 1 + tombstones_ + group_tombstones_;
  const std::uint64_t batches = 2 + records / Collector::kGroupRecords + segments(pool_);
  const std::uint64_t lbas =
      page_lbas + batches +
      pool_.geometry.lbas(records * kRecordBytes + batches * kBatchHeaderBytes);
  return lbas <= copied_lbas_whole();
}

bool PageLog::all_fits_a_zone() const { return fits_a_zone(pool_.geometry.lbas(cost_bytes_)); }

// One zone is the collection's, and one of each of the users' streams may be partly written. Were
// the pages of the others copied, each zone's copies would begin and end batches.
std::uint64_t PageLog::usable_bytes(std::uint32_t largest_bytes) const {
  return usable_bytes(largest_bytes, pool_.allocator.quota(options_.volume));
}

std::uint64_t PageLog::usable_bytes(std::uint32_t largest_bytes, std::uint64_t quota) const {
  return usable_in_zones(largest_bytes, quota - std::min(quota, 1 + users_streams()));
}

std::uint64_t PageLog::usable_apart_bytes() const {
  const std::uint64_t quota = pool_.allocator.quota(options_.volume);
  const std::uint64_t other = 1 + users_streams_made();
  return usable_in_zones(options_.value_bytes_max, quota - std::min(quota, other));
}

// So that a zone that is as full as the others on average gains something: its batches count as far
// as the records' cost does not say it (copied_batches(): groups that end by their bytes). The rest
// is for records that are dead and still copied.
std::uint64_t PageLog::usable_in_zones(std::uint32_t largest_bytes, std::uint64_t zones) const {
  const std::uint64_t lba_bytes = pool_.geometry.lba_bytes;
  const std::uint64_t most = copied_lbas_max(largest_bytes);
  const std::uint64_t batches = segments(pool_) + 2 + 2 * most * lba_bytes / Collector::kGroupBytes;
  const std::uint64_t other = batches + pool_.geometry.lbas(batches * kBatchHeaderBytes);
  const std::uint64_t bytes = zones * (most - std::min(most, other)) * lba_bytes / 512 * 511;
  return std::max(bytes, cost_bytes(pool_, largest_bytes));  // of any size, one
}

std::uint64_t PageLog::relocation_room() const {
  constexpr std::uint64_t kAZone = ~std::uint64_t{0};
  if (!at_quota()) return kAZone;
  std::uint64_t lbas = 0;
  for (const auto& stream : streams_) lbas += stream ? stream->room_for_pages_lbas() : 0;
  return lbas;
}

bool PageLog::has_room_for(ZoneId id, bool twice) const {
  if (!at_quota()) return true;
  const auto any = [](const Stream&) { return true; };
  if (!without_reserve() && collector_->leaves_some_alone()) {  // users fill the others
    return fits(id, twice, [this](const Stream& stream) { return &stream == collection_stream(); });
  }
  return fits(id, twice, any);
}

// The sum is what is there for sure with pages of any size; a zone with a few pages left, or little
// room, is looked at closely.
bool PageLog::fits(ZoneId id, bool twice, const std::function<bool(const Stream&)>& counts) const {
  const ZoneDirectory& table = pool_.tables[id.value];
  const std::uint64_t records = copied_records(id);
  const std::uint64_t others = table.tombstones + table.group_tombstones + table.expiring;
  const std::uint64_t again = twice ? std::min(records, others) : 0;
  const std::uint64_t batches = twice ? kBatchesAgain : 0;
  const std::uint64_t more =
      batches + pool_.geometry.lbas(again * kRecordBytes + batches * kBatchHeaderBytes);
  const Stream::Copies copies{records + again, copied_batches(id) + batches, copied_page_lbas(id),
                              pool_.page_lbas(largest_bytes_)};
  std::uint64_t room = 0;
  for (const auto& stream : streams_) {
    if (!stream || !counts(*stream)) continue;
    if (stream->surely_takes(copies)) return true;
    room += stream->room_for_pages_lbas();
  }
  return copied_lbas(id) + more <= room;
}

bool PageLog::leaves_zones_alone() const { return collector_->leaves_some_alone(); }

bool PageLog::unreadable_for_long() const { return collector_->unreadable_for_long(); }

// Nothing can be copied to collection's zone: it has none, or no room for any zone's copies while
// some zones cannot be emptied for now.
bool PageLog::without_reserve() const {
  if (!at_quota()) return false;
  const Stream* const reserve = collection_stream();
  if (reserve == nullptr || reserve->room_lbas() == 0) return true;
  if (!collector_->leaves_some_alone()) return false;
  const auto is_reserve = [reserve](const Stream& stream) { return &stream == reserve; };
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = pool_.allocator.zones()[i];
    const bool ours = zone.owner == options_.volume && zone.use == ZoneUse::sealed;
    if (ours && fits(ZoneId{i}, false, is_reserve)) return false;
  }
  return true;
}

}  // namespace furrow
