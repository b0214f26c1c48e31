// The page log's index, and what is counted with it: pages, tombstones, zones.
#include <algorithm>
#include <utility>

#include "log/page_log.h"

namespace furrow {

namespace {

constexpr unsigned kBucketsPerTurn = 1024;

}  // namespace

std::uint64_t PageLog::used_bytes() const {
  return cost_bytes_ + pending_cost_bytes_ +
         (tombstones_ + group_tombstones_) * record_cost_bytes(pool_);
}

// When a put that is on its way is published, the version that it replaces makes room.
void PageLog::count_pending(const KeyOp& op, bool begins) {
  const PageRecord& record = op.write.record;
  if (record.kind != RecordKind::page) return;
  const std::uint64_t cost = cost_bytes(pool_, record.length);
  const std::uint64_t added =
      cost - std::min(cost, op.found ? cost_bytes(pool_, op.old.length) : 0);
  const std::uint64_t pinned =
      record.pinned ? pins_added(record.length, op.found ? &op.old : nullptr) : 0;
  largest_bytes_ = std::max(largest_bytes_, record.length);
  if (record.pinned) largest_pinned_bytes_ = std::max(largest_pinned_bytes_, record.length);
  pending_cost_bytes_ = begins ? pending_cost_bytes_ + added : pending_cost_bytes_ - added;
  pending_pinned_lbas_ = begins ? pending_pinned_lbas_ + pinned : pending_pinned_lbas_ - pinned;
  note_used();
}

void PageLog::note_used() { stats_.cost_bytes.store(used_bytes(), std::memory_order_relaxed); }

void PageLog::publish(const KeyHash& hash, const IndexEntry* old, const IndexEntry& entry,
                      std::uint32_t expires_s, std::uint64_t sequence) {
  if (entry.expires) sweep_->note(expires_s);
  if (old != nullptr && index_.replace(hash.order, old->lba, entry)) {
    forget(*old);
  } else {
    index_.insert(hash.order, entry);
  }
  if (options_.cache) pool_.hits.clear(entry.lba);
  pool_.allocator.add_live(pool_.geometry.zone_of(Lba{entry.lba}), pool_.page_lbas(entry.length),
                           sequence);
  cost_bytes_ += cost_bytes(pool_, entry.length);
  note_used();
  if (entry.pinned) pinned_lbas_ += pool_.page_lbas(entry.length);
  ++stats_.pages;
  stats_.live_bytes += entry.length;
}

void PageLog::let_go(const KeyHash& hash, const IndexEntry& entry) {
  if (unpublish(hash, entry)) left_out_ = true;
}

void PageLog::collect(ZoneId zone) {
  if (!options_.cache) collector_->request(zone);
}

// What the zones have in which nothing lives may be all that the medium can be given back.
void PageLog::collect_dead() {
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) collect_if_dead(ZoneId{i});
}

// For as long as such a zone is there each opening finds anew what is torn in it, and would take a
// page that has rotted since for torn as well: what lives there goes elsewhere.
void PageLog::collect_torn() {
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    const bool ours = pool_.allocator.zones()[i].owner == options_.volume;
    if (ours && pool_.tables[i].to_empty) collect(ZoneId{i});
  }
}

void PageLog::collect_if_dead(ZoneId id) {
  const ZoneAllocator::Zone& zone = pool_.allocator.zone(id);
  const bool ours = zone.owner == options_.volume && zone.use == ZoneUse::sealed;
  if (ours && zone.live_lbas == 0) collect(id);
}

bool PageLog::unpublish(const KeyHash& hash, const IndexEntry& entry) {
  if (!index_.erase(hash.order, entry.lba)) return false;
  forget(entry);
  KeyLockHolder* const holder = locks_.holder(hash);
  if (holder != nullptr) replaces_no_more(*holder);
  return true;
}

// What takes a page away may pass by its key's lock, as a group's deletion does: what is on its way
// to take the page's place makes no room any more when it is published.
void PageLog::replaces_no_more(KeyLockHolder& holder) {
  if (!holder.writing) return;
  KeyOp& op = *static_cast<KeyOp::Lock&>(holder).op;
  const bool page = op.write.record.kind == RecordKind::page;
  if (!page || !op.found || in_index(op.lock.hash, op.old.lba)) return;
  count_pending(op, false);
  op.found = false;
  count_pending(op, true);
}

// Takes back what publish() counted, for an entry that has just left the index.
void PageLog::forget(const IndexEntry& entry) {
  const ZoneId zone = pool_.geometry.zone_of(Lba{entry.lba});
  pool_.allocator.remove_live(zone, pool_.page_lbas(entry.length));
  cost_bytes_ -= cost_bytes(pool_, entry.length);
  note_used();
  if (entry.pinned) pinned_lbas_ -= pool_.page_lbas(entry.length);
  --stats_.pages;
  stats_.live_bytes -= entry.length;
  if (pool_.allocator.zone(zone).live_lbas == 0) zone_died(zone);
}

// Those before it were asked for when the room became short, or when they died.
void PageLog::zone_died(ZoneId zone) {
  const bool was_short = std::exchange(short_of_room_, pool_.device.short_of_room());
  if (!short_of_room_) return;
  was_short ? collect_if_dead(zone) : collect_dead();
}

std::uint64_t PageLog::unpublish_some(std::uint64_t from,
                                      const std::function<bool(const IndexEntry&)>& goes) {
  std::vector<IndexEntry> erased;
  for (unsigned bucket = 0; bucket < kBucketsPerTurn; ++bucket) {
    from = index_.erase_in_bucket(from, goes, erased);
    if (from == 0) break;
  }
  for (const IndexEntry& entry : erased) forget(entry);
  if (!erased.empty()) {
    locks_.for_each([this](KeyLockHolder& holder) { replaces_no_more(holder); });
  }
  return from;
}

// Of all that is in the index.
void PageLog::find_largest_pinned() {
  largest_pinned_bytes_ = 0;
  const auto look = [this](const IndexEntry& entry) {
    if (entry.pinned) largest_pinned_bytes_ = std::max(largest_pinned_bytes_, entry.length);
    return false;
  };
  for (std::uint64_t from = unpublish_some(0, look); from != 0;) from = unpublish_some(from, look);
}

// Those of groups do not count: collecting zones in turn does not get rid of them. Nor of any,
// where the zone opened first cannot be collected.
bool PageLog::many_tombstones() const {
  if (pool_.allocator.zone(oldest_.zone).use == ZoneUse::bad) return false;
  const std::uint64_t zone_bytes = pool_.geometry.zone_capacity_bytes();
  const std::uint64_t many =
      std::max(zone_bytes / 2, pool_.allocator.quota(options_.volume) * zone_bytes / 16);
  return tombstones_ * record_cost_bytes(pool_) > many;
}

bool PageLog::tombstones_needed(ZoneId zone) const {
  const bool oldest = zone == oldest_.zone;
  return pool_.tables[zone.value].last_tombstone > (oldest ? oldest_.next_opened : oldest_.opened);
}

std::uint64_t PageLog::written_lba(ZoneId zone) const {
  std::uint64_t lba = ~std::uint64_t{0};
  for (const auto& stream : streams_) {
    if (stream) lba = std::min(lba, stream->written_lba(zone));
  }
  return lba;
}

bool PageLog::removing(const PageRecord& record, bool logged) const {
  return std::ranges::any_of(removing_, [&](const Removing& each) {
    const bool its = each.group == record.group && record.sequence < each.sequence;
    return its && (each.logged || !logged);
  });
}

bool PageLog::knows_group(std::uint64_t group) const {
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    if (pool_.allocator.zones()[i].owner != options_.volume) continue;
    if (pool_.tables[i].has_group(group)) return true;
  }
  return std::ranges::any_of(
      streams_, [group](const auto& stream) { return stream && stream->holds_group(group); });
}

// A zone that is kept for what cannot be read is there again when that has been given up.
Status PageLog::too_few_zones() const {
  const bool kept = std::ranges::any_of(pool_.allocator.zones(), [this](const auto& zone) {
    const bool ours = zone.owner == options_.volume || zone.may_be_of(options_.volume);
    return ours && zone.use == ZoneUse::bad && zone.oldest() == 0;
  });
  return {Code::no_space, Origin::log,
          kept ? "zones that cannot be read are kept for this volume, and leave it too few; make "
                 "its quota larger, or give up what cannot be read (`furrowctl pool check --repair "
                 "--give_up`)"
               : "too many zones have gone bad for this volume; make its quota larger, or move its "
                 "pages to a new one, and see `furrowctl zone report`"};
}

Status PageLog::admit(std::uint32_t length, const IndexEntry* replaced, bool pinned) {
  const std::uint64_t quota = pool_.allocator.quota(options_.volume);
  if (quota < kZonesMin) return too_few_zones();
  if (without_reserve() && collector_->found_nothing() && !options_.cache) {
    return {Code::no_space, Origin::log,
            "no zone of the volume can be freed; delete pages, or give it a larger quota"};
  }
  if (options_.cache) return pinned ? admit_pinned(length, replaced) : Status();
  const std::uint64_t usable = usable_bytes(std::max(largest_bytes_, length));
  const std::uint64_t freed = replaced != nullptr ? cost_bytes(pool_, replaced->length) : 0;
  const std::uint64_t used = used_bytes();
  const std::uint64_t cost = cost_bytes(pool_, length);
  const bool alone =
      cost_bytes_ + pending_cost_bytes_ <= freed && fits_a_zone(pool_.page_lbas(length));
  if (cost > freed && used + cost > usable + freed && !alone) {  // an overwrite adds nothing
    const bool pages_fit = cost_bytes_ + pending_cost_bytes_ + cost <= usable + freed;
    const bool clears = pages_fit && many_tombstones();
    if (clears) collector_->clear_tombstones();
    return {Code::no_space, Origin::log,
            clears ? "what deletes leave takes the volume's room until its zones are collected; "
                     "try again, or give it a larger quota"
                   : "the volume is full; delete pages, or give it a larger quota"};
  }
  return {};
}

std::uint64_t PageLog::pins_added(std::uint32_t length, const IndexEntry* replaced) const {
  const std::uint64_t lbas = pool_.page_lbas(length);
  const bool pinned = replaced != nullptr && replaced->pinned;
  return lbas - std::min(lbas, pinned ? pool_.page_lbas(replaced->length) : 0);
}

// There may be more than could be pinned now: pages have become larger, or the pool is older than
// the limit.
Status PageLog::admit_pinned(std::uint32_t length, const IndexEntry* replaced) const {
  const std::uint64_t quota = pool_.allocator.quota(options_.volume);
  const std::uint64_t added = pins_added(length, replaced);
  const std::uint64_t sum = pinned_lbas_ + pending_pinned_lbas_ + added;
  if (sum <= pinned_lbas_max(std::max(largest_bytes_, length), quota)) return {};
  if (added != 0) {
    return {Code::no_space, Origin::log,
            "pinned pages fill half of the volume's quota; unpin or delete some"};
  }
  if (sum <= overwritten_pins_max(std::max(largest_pinned_bytes_, length))) return {};
  return {
      Code::no_space, Origin::log,
      "so many pages are pinned that none can be overwritten; unpin or delete some, or make the "
      "quota larger"};
}

bool PageLog::expired(const IndexEntry& entry, std::uint64_t wall_s) const {
  return entry.expires && expiry(entry) <= wall_s;
}

// For pages as they are now, in the mean.
void PageLog::choose_granule(ZoneId zone) {
  if (!options_.cache) return;
  const std::uint64_t bytes = stats_.live_bytes / std::max<std::uint64_t>(stats_.pages, 1);
  pool_.hits.set_granule(zone, HitMap::granule_for(pool_.geometry.lbas(bytes)));
}

void PageLog::on_zone_opened(ZoneId zone) {
  choose_granule(zone);
  zones_changed();
  collector_->kick();
}

void PageLog::on_write(const Stream& stream, std::uint64_t bytes) {
  stats_.device_bytes_written += bytes;
  if (&stream == collection_stream()) return;
  users_bytes_written_ += bytes;
  collector_->users_wrote();
}

void PageLog::zones_changed() {
  stats_.zones = pool_.allocator.held(options_.volume);
  std::uint64_t bytes = 0;
  tombstones_ = group_tombstones_ = 0;
  oldest_ = Oldest();
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    if (pool_.allocator.zones()[i].may_be_of(options_.volume))
      oldest_ = {ZoneId{i}, 0, oldest_.opened};
    if (pool_.allocator.zones()[i].owner != options_.volume) continue;
    bytes += pool_.tables[i].bytes() + pool_.expiries.bytes(ZoneId{i});
    if (options_.cache) bytes += pool_.hits.bytes(ZoneId{i});
    const Collector::Deletions copied = collector_->copied_of(ZoneId{i});
    tombstones_ += pool_.tables[i].tombstones - copied.keys;
    group_tombstones_ += pool_.tables[i].group_tombstones - copied.groups;
    const std::uint64_t opened = pool_.allocator.zones()[i].oldest();
    if (opened < oldest_.opened) {
      oldest_ = {ZoneId{i}, opened, oldest_.opened};
    } else {
      oldest_.next_opened = std::min(oldest_.next_opened, opened);
    }
  }
  stats_.table_bytes = bytes;
  note_used();
  allow_fewer_zones();
  const bool usable = !options_.cache && pool_.allocator.quota(options_.volume) >= kZonesMin;
  if (usable) stats_.usable_bytes = usable_bytes(options_.value_bytes_max);
}

void PageLog::kick() {
  zones_changed();
  for (const auto& stream : streams_) {
    if (stream) stream->kick();
  }
}

void PageLog::fail_waiting(Status status, bool keep_deletions) {
  const ZoneAllocator& zones = pool_.allocator;
  const std::uint64_t good = zones.held_max(options_.volume) - zones.bad(options_.volume);
  if (status.code() == Code::no_space && good < kZonesMin) status = too_few_zones();
  const bool kept_out = collector_->exhausted() && !left_for_deletions();
  for (const auto& stream : streams_) {
    // Deletions must not wait in collection's zone for a collection that nobody may ask for.
    const bool keep = keep_deletions && stream.get() != collection_stream() && !kept_out;
    if (stream && stuck(*stream)) stream->fail_waiting(status, keep);
  }
}

}  // namespace furrow
