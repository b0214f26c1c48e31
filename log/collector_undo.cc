// The way back of copies: the zone that they were written to has failed, it was the last of a
// store's quota, and the zone that they were made from still has what they say. Nothing can be
// written anywhere; but with the index pointing to the originals again the failed zone holds
// nothing that does not stand there too, and its reset makes room. (Recovery does the same with a
// zone that a power cut has ended: see recovery_spares.cc.)
#include <algorithm>
#include <utility>

#include "log/collector.h"
#include "log/page_log.h"
#include "zone/check.h"

namespace furrow {

namespace {
constexpr std::uint64_t kUndoNsMin = 10'000'000, kUndoNsMax = 10'000'000'000;
constexpr unsigned kUndoneMax = 10;  // that are counted
}  // namespace

// Remembers which zone the victim's copies would be taken out of. False: there is none, or it was
// done a moment ago: a device that fails all the time is left alone meanwhile.
bool Collector::note_undo() {
  undo_copies_ = undo_originals_ = ZoneLife();
  if (log_.options_.cache || !log_.at_quota() || log_.relocation_room() != 0) return false;
  const auto newest = std::ranges::max_element(copies_in_, {}, &ZoneLife::generation);
  if (newest == copies_in_.end()) return false;
  undo_copies_ = *newest;
  undo_originals_ = {victim_, pool_.allocator.zone(victim_).generation};
  return pool_.home.now_ns() >= undo_ns_;
}

bool Collector::begin_undo() {
  const auto stands = [this](const ZoneLife& life) {
    const ZoneAllocator::Zone& zone = pool_.allocator.zone(life.zone);
    return zone.generation == life.generation && zone.use == ZoneUse::sealed;
  };
  if (undo_copies_.generation == 0 || pool_.home.now_ns() < undo_ns_) return false;
  if (!log_.at_quota() || !stands(undo_copies_) || !stands(undo_originals_)) return false;
  undo_ns_ = pool_.home.now_ns() + std::min(kUndoNsMin << undone_, kUndoNsMax);
  undone_ = std::min(undone_ + 1, kUndoneMax);
  pool_.allocator.set_use(undo_copies_.zone, ZoneUse::draining);
  undoing_ = Undo::gather;
  undo_failed_ = records_unread_ = copies_gone_ = empty_ = false;
  originals_.clear();
  copies_in_.clear();
  victim_ = undo_originals_.zone;
  written_lba_ = pool_.geometry.zone_capacity_lbas;
  segment_ = 0;
  next_segment();
  return true;
}

// False: every lane is taken.
bool Collector::undo_look_at(const PageRecord& record) {
  if (undoing_ == Undo::restore) return undo_failed_ || restore(record);
  originals_.push_back(record);
  return true;
}

// Of each record of the zone that failed the victim must have the original.
bool Collector::restore(const PageRecord& copy) {
  const auto original =
      std::ranges::lower_bound(originals_, copy.sequence, {}, &PageRecord::sequence);
  if (original == originals_.end() || original->sequence != copy.sequence ||
      original->key != copy.key) {
    undo_failed_ = true;
    return true;
  }
  if (copy.kind != RecordKind::page) {
    // What a page has left behind that expired, or whose group was deleted, it leaves again; not
    // what says that a page was damaged.
    const bool again = original->expires_s != 0 || original->group != 0;
    if (original->kind == RecordKind::page && !again) undo_failed_ = true;
    return true;
  }
  const KeyHash hash = log_.hash(copy.key);
  std::array<IndexEntry, KeyOp::kCandidatesMax> found;
  const unsigned count = std::min(log_.index_.find(hash.order, 0, found), KeyOp::kCandidatesMax);
  const auto live = std::ranges::find(found.begin(), found.begin() + count,
                                      pool_.device_lba(victim_, copy.lba), &IndexEntry::lba);
  if (live == found.begin() + count) return true;
  Lane* lane = free_lane(pool_.page_lbas(copy.length) * pool_.geometry.lba_bytes);
  if (lane == nullptr) return false;
  lane->record = *original;
  lane->hash = hash;
  lane->entry = *live;
  lane->damaged = copy.damaged;
  lane->deletion = false;
  move(*lane);
  return true;
}

// An original has been read, with its key locked. One that has rotted since leaves the copy; not
// one that had before, as its copy is no better.
void Collector::restored(Lane& lane) {
  const PageRecord& record = lane.record;
  // Nothing else changed the key: it was locked. Only its group's deletion passes by the lock, and
  // may have looked for the page at the original's place before. (One that is not on the medium yet
  // has not looked, and may be refused.)
  if (!log_.in_index(lane.hash, lane.entry.lba) || log_.removing(record, true)) {
    log_.unpublish(lane.hash, lane.entry);
    return release(lane);
  }
  const bool whole = lane.io.status.ok() &&
                     page_checksum({lane.page, record.length}, lane.hash) == lane.entry.checksum;
  if (lane.io.status.ok() && !whole && !std::exchange(lane.again, true)) {
    return pool_.queue.submit(lane.io);
  }
  if (!whole && !(lane.io.status.ok() && lane.damaged)) {
    undo_failed_ = true;
    return release(lane);
  }
  IndexEntry entry = lane.entry;
  entry.lba = lane.io.lba.value;
  log_.publish(lane.hash, &lane.entry, entry, record.expires_s, record.sequence);
  release(lane);
}

// One of the two zones has been looked through.
void Collector::undo_drained() {
  if (undoing_ == Undo::gather) {
    std::ranges::sort(originals_, {}, &PageRecord::sequence);
    if (undo_failed_) return undo_missed();
    undoing_ = Undo::restore;
    victim_ = undo_copies_.zone;
    segment_ = 0;
    return next_segment();
  }
  if (undo_failed_ || pool_.allocator.zone(victim_).live_lbas != 0) return undo_missed();
  undoing_ = Undo::none;
  originals_ = {};
  flush_when_noted();
}

// Who waits is told that there is nothing to free. What could not be read may be another time.
void Collector::undo_missed() {
  end_undo();
  step_ = Step::idle;
  kick();
}

void Collector::end_undo() {
  undoing_ = Undo::none;
  originals_ = {};
  pool_.allocator.set_use(undo_copies_.zone, ZoneUse::sealed);
}

}  // namespace furrow
