// What collection does with each record of its victim: the copies that are made, together.
#include <algorithm>
#include <cstring>
#include <utility>

#include "log/collector.h"
#include "log/page_log.h"
#include "zone/check.h"

namespace furrow {

namespace {
constexpr std::uint64_t kReadmittedShare = 2;  // at most 1/this of a zone is written again on hits
constexpr Status kNoRoom{Code::no_space, Origin::log,
                         "what must stay leaves no room to free a zone; unpin or delete pages, or "
                         "make the quota larger"};
}  // namespace

// A bounded number of records a turn. Goes on when a lane comes free, or on the next turn.
void Collector::look_at_records() {
  others_.reset();
  for (unsigned looked = 0; looked < kRecordsPerTurn; ++looked) {
    if (next_record_ == (looking_again_ ? replaced_.size() : scan_->records().size())) {
      close(groups_[filling_]);
      if (busy_lanes_ != 0) return;  // the scan's records are done with when the last lane is
      if (!looking_again_ && !replaced_.empty()) {
        looking_again_ = true;
        next_record_ = 0;
        return cover(Step::cover);
      }
      ++segment_;
      return next_segment();
    }
    const PageRecord& record =
        looking_again_ ? *replaced_[next_record_] : scan_->records()[next_record_];
    if (!look_at(record)) return;  // no lane: its release posts a turn
    ++next_record_;
  }
  post_turn();
}

// Somebody waits for the zone, or soon will for it to be done.
bool Collector::urgent() const {
  if (stopping_ || hurried_ || undoing_ != Undo::none || log_.options_.cache) return true;
  if (log_.shrinking() || !requested_.empty() || pool_.device.short_of_room()) return true;
  // Whose stream copies share is not known to have written by itself.
  if (&log_.relocation_stream() != log_.collection_stream()) return true;
  return std::ranges::any_of(log_.streams_,
                             [&](const auto& stream) { return stream && log_.stuck(*stream); });
}

bool Collector::ahead_of_users() const {
  return !urgent() && pace_.wait_ns(pool_.home.now_ns(), log_.users_bytes_written_) != 0;
}

// Between two groups: what is locked is not kept waiting.
bool Collector::pause() {
  if (!ahead_of_users()) return false;
  paused_ = true;
  pool_.home.start(pace_timer_, pace_.wait_ns(pool_.home.now_ns(), log_.users_bytes_written_));
  return true;
}

// Null: none before a group has been written, or not yet. `bytes`: what its page takes.
Collector::Lane* Collector::free_lane(std::uint64_t bytes) {
  for (unsigned tried = 0; tried < kGroups; ++tried) {
    Group& group = groups_[filling_];
    const bool fits = group.taken == 0 || (group.taken != kGroupRecords &&
                                           group.used_bytes + bytes <= group.pages.size() &&
                                           group.used_bytes + bytes <= kGroupBytes);
    if (!group.closed && fits) {
      const std::uint64_t whole =
          std::max(bytes, std::min(kGroupBytes, pool_.geometry.zone_capacity_bytes()));
      if (group.taken == 0 && pause()) return nullptr;
      pace_.take(bytes);
      if (group.taken == 0 && group.pages.size() < whole) group.pages = AlignedBuffer(whole);
      Lane& lane = group.lanes[group.taken++];
      lane.page = group.pages.data() + group.used_bytes;
      group.used_bytes += bytes;
      return &lane;
    }
    close(group);
    filling_ = (filling_ + 1) % kGroups;
  }
  return nullptr;
}

void Collector::close(Group& group) {
  if (group.taken == 0) return;
  group.closed = true;
  write_if_complete(group);
}

void Collector::lane_read(Lane& lane) {
  lane.ready = true;
  if (std::exchange(lane.to_read, false)) --lane.group->to_read;
  write_if_complete(*lane.group);
}

// In one turn, so that the stream makes one batch of them, in the order of the victim. A lane that
// waits for its lock comes later: who holds it may be in this group.
void Collector::write_if_complete(Group& group) {
  if (!group.closed || group.to_read != 0) return;
  for (Lane& lane : group.lanes) {
    if (!lane.ready) continue;
    lane.ready = false;
    log_.relocation_stream().append(lane.write);
  }
}

// A zone that was filled a moment ago is not durable yet. Were a copy of what stands in it, or a
// deletion that comes after that, durable before it, a power cut could leave a group's deletion
// that takes an older page away, and not the page that had taken that one's place.
void Collector::cover(Step step) {
  step_ = step;
  log_.flush_filled();
  pool_.flusher.request(flush_);
}

void Collector::covered() {
  const bool chosen = step_ == Step::cover;
  if (!flush_.status.ok()) return chosen ? failed(flush_.status) : attempt_failed(flush_.status);
  covered_ = true;
  step_ = chosen ? Step::move : Step::idle;
  post_turn();
}

// False: the record must move, and every lane is taken or the victim is not durable yet.
bool Collector::look_at(const PageRecord& record) {
  if (!pool_.tables[victim_.value].counts(record)) return true;
  now_s_ = pool_.home.wall_s();  // once: it may be set meanwhile
  if (undoing_ != Undo::none) return undo_look_at(record);
  const KeyHash hash = log_.hash(record.key);
  IndexEntry entry;
  PageRecord moving = record;
  if (record.kind != RecordKind::page) {
    if (!tombstone_needed(record) || said_by_another(record)) return true;
  } else {
    std::array<IndexEntry, KeyOp::kCandidatesMax> found;
    const unsigned count = std::min(log_.index_.find(hash.order, 0, found), KeyOp::kCandidatesMax);
    const std::uint64_t lba = pool_.device_lba(victim_, record.lba);
    const auto live =
        std::ranges::find(found.begin(), found.begin() + count, lba, &IndexEntry::lba);
    bool present = live != found.begin() + count;
    if (present) entry = *live;
    // A live copy has its sequence: an earlier attempt to empty the zone made it.
    const auto copy = std::find_if(found.begin(), found.begin() + count, [&](const auto& each) {
      return each.checksum == record.checksum && each.length == record.length;
    });
    const bool copied = copy != found.begin() + count;
    if (!present && copied && copy_is_gone(record, *copy)) {
      entry = *copy;
      present = true;
    }
    if (!present || !must_move(record, entry)) {
      if (present) drop(record, hash, entry);
      // Or it was overwritten, deleted, expired and swept, or never published.
      moving = tombstone_of(record);
      // By a clock that was ahead, perhaps, and is not any more: it is not to be asked again.
      const bool expired =
          record.expires_s != 0 && (record.expires_s <= now_s_ || (!present && !copied));
      const bool group_may_be_gone =
          !present && !copied && record.group != 0 && others().groups_deleted;
      const bool outlived = (present || !copied) && (is_outlived(moving) || may_outlive(moving));
      if (!expired && !group_may_be_gone && !outlived) return true;
      if (!tombstone_needed(moving) || said_by_another(record)) return true;
      // A page that has taken its place must be durable before what says that it is gone: a power
      // cut could leave neither. (A cache may lose both.)
      const bool gone_by_clock = record.expires_s != 0 && record.expires_s <= now_s_;
      if (!gone_by_clock && !looking_again_ && !log_.options_.cache) {
        replaced_.push_back(&record);
        return true;
      }
    }
  }
  if (log_.options_.cache && !has_room(moving)) {  // it is pinned, or deletes a group
    give_up(moving, kNoRoom);
    return true;
  }
  if (!covered_) {
    cover(Step::cover);
    return false;
  }
  Lane* lane = free_lane(pool_.page_lbas(moving.length) * pool_.geometry.lba_bytes);
  if (lane == nullptr) return false;
  if (log_.options_.cache && !entry.pinned) readmitted_lbas_ += pool_.page_lbas(moving.length);
  if (moving.kind != RecordKind::page && may_outlive(moving)) ++unsure_deletions_;
  lane->record = moving;
  lane->hash = hash;
  lane->entry = entry;
  lane->damaged = false;
  lane->deletion = record.kind != RecordKind::page && undoing_ == Undo::none;
  move(*lane);
  return true;
}

// Went offline with its zone, so that the original counts again. Whichever it is, that zone has
// something that is to be there when the victim is reset.
bool Collector::copy_is_gone(const PageRecord& record, const IndexEntry& copy) {
  const ZoneId zone = pool_.geometry.zone_of(Lba{copy.lba});
  note_copies_in(zone);
  return gone(zone) && copy.pinned == record.pinned && copy.expires == (record.expires_s != 0);
}

bool Collector::must_move(const PageRecord& record, const IndexEntry& entry) const {
  if (log_.expired(entry, now_s_)) return false;
  if (!log_.options_.cache || entry.pinned) return true;
  const std::uint64_t lbas = pool_.page_lbas(record.length);
  // While a newer version may be hidden, its copy could outlive that.
  if (log_.hidden_ || !pool_.hits.test(entry.lba) || !has_room(record)) return false;
  return (readmitted_lbas_ + lbas) * kReadmittedShare <= pool_.geometry.zone_capacity_lbas;
}

// A cache's zones go in their order, whether or not there is room for copies: power cuts may have
// sealed all that it has. (Which zone a store collects is chosen with an eye on that.)
bool Collector::has_room(const PageRecord& record) const {
  if (!log_.at_quota()) return true;
  std::uint64_t lbas = pool_.page_lbas(record.length);
  for (const Group& group : groups_) {
    for (const Lane& lane : group.lanes) {
      if (lane.busy) lbas += pool_.page_lbas(lane.record.length);
    }
  }
  constexpr std::uint64_t kRoundedLbas = 2 * kGroups;  // of batch headers and the summary
  const std::uint64_t needed =
      lbas + pool_.geometry.lbas((busy_lanes_ + 1) * PageLog::kRecordBytes) + kRoundedLbas;
  return needed <= log_.relocation_stream().room_for_pages_lbas();
}

void Collector::drop(const PageRecord& record, const KeyHash& hash, const IndexEntry& entry) {
  if (!log_.unpublish(hash, entry)) return;
  evicted_ = true;
  if (record.expires_s == 0 || record.expires_s > now_s_) {
    ++log_.stats_.evicted_pages;
  }
}

// A group's tombstone is of no key. With that of none locked, all of them would be written one by
// one, in batches that take more room than there was.
bool Collector::locks(const PageRecord& record) {
  return record.kind != RecordKind::group_tombstone;
}

void Collector::move(Lane& lane) {
  lane.busy = true;
  ++lane.group->busy;
  ++busy_lanes_;
  if (!locks(lane.record)) return write_tombstone(lane);
  lane.waiting = true;
  lane.lock.hash = lane.hash;
  log_.locks_.lock(lane.lock);
  overtake_waiting();
}

// A put that waits for a zone must not keep the zone that is to be freed from being emptied.
void Collector::overtake_waiting() {
  for (Group& group : groups_) {
    for (Lane& lane : group.lanes) {
      if (lane.waiting) log_.overtake(lane.lock);
    }
  }
}

void Collector::locked(Lane& lane) {
  lane.waiting = false;
  if (lane.record.kind != RecordKind::page) return write_tombstone(lane);
  // While this waited for the lock the key may have been overwritten or deleted. A copy of the old
  // version now would lie behind the new one, and outlive it in a cache.
  if (!log_.in_index(lane.hash, lane.entry.lba)) return release(lane);
  lane.to_read = true;
  lane.again = lane.failed = false;
  ++lane.group->to_read;
  // The entry may be a lost copy's; or it is one that is undone, for the original.
  const ZoneId zone = undoing_ == Undo::none ? victim_ : undo_originals_.zone;
  lane.io.lba = Lba{pool_.device_lba(zone, lane.record.lba)};
  lane.io.set_data(lane.page, static_cast<std::uint32_t>(pool_.page_lbas(lane.record.length)),
                   pool_.geometry.lba_bytes);
  pool_.queue.submit(lane.io);
}

void Collector::write_tombstone(Lane& lane) {
  lane.write.record = lane.record;
  lane.write.data = nullptr;
  lane.write.capacity = 0;
  lane_read(lane);
}

// A damaged page must not wedge its zone, and is never served. A store has promised to keep it: it
// is copied as it is, and its record says so, so that reading it says `corrupt` until it is stored
// anew or deleted. That it was never there, which is zeroes to a disk and the end of a file, would
// be a lie. A cache drops it, and no older version takes its place; so does a store what was given
// up and cannot be read, but for a disk, whose host has not given it up. What cannot be read may be
// readable again: a store's zone is tried again then.
void Collector::page_read(Lane& lane) {
  const PageRecord& record = lane.record;
  const Status& read = lane.io.status;
  if (read.code() == Code::io_error && !std::exchange(lane.failed, true)) {
    return pool_.queue.submit(lane.io);
  }
  if (undoing_ != Undo::none) return restored(lane);
  const bool given_up = read.code() == Code::io_error && pool_.tables[victim_.value].given_up;
  if (!read.ok() && !log_.options_.cache && !given_up) {
    if (read.code() != Code::io_error) give_up(record, read);  // nor is anything else
    unreadable_.push_back({lane.io.lba.value, lane.io.lba_count});
    return release(lane);
  }
  const bool whole =
      read.ok() && page_checksum({lane.page, record.length}, lane.hash) == lane.entry.checksum;
  if (read.ok() && !whole && !lane.again) {  // what was read may not be what is there
    lane.again = true;
    return pool_.queue.submit(lane.io);
  }
  const bool kept =
      !log_.options_.cache && (read.ok() || pool_.blocks_of(log_.options_.volume) != nullptr);
  if (!whole && kept && !may_say_damaged(record)) return release(lane);
  if (!whole && !record.damaged) log_.count_corrupt();
  if (!whole && !kept) {
    lane.record = tombstone_of(record);
    lane.damaged = true;
    if (tombstone_needed(lane.record)) return write_tombstone(lane);
    log_.unpublish(lane.hash, lane.entry);
    return release(lane);
  }
  if (!whole) log_.note_damaged_copy();
  if (!read.ok()) std::memset(lane.page, 0, record.length);
  lane.write.record = record;  // with its sequence: relocation does not make it newer
  lane.write.record.damaged = !whole;
  lane.write.data = lane.page;
  lane.write.capacity =
      static_cast<std::uint32_t>(pool_.page_lbas(record.length) * pool_.geometry.lba_bytes);
  lane_read(lane);
}

// False: it stays, for as long as the superblock cannot say that there may be such. Asked once of a
// victim; others are collected meanwhile.
bool Collector::may_say_damaged(const PageRecord& record) {
  const std::uint64_t generation = pool_.allocator.zone(victim_).generation;
  if (note_failed_ == generation) return false;
  const Status said = pool_.may_say_damaged ? pool_.may_say_damaged() : Status();
  if (said.ok()) return true;
  note_failed_ = generation;
  give_up(record, said);
  return false;
}

void Collector::moved(Lane& lane) {
  if (!lane.write.status.ok()) {
    give_up(lane.write.record, lane.write.status);
    return release(lane);
  }
  note_copies_in(pool_.geometry.zone_of(Lba{lane.write.lba}));
  const PageRecord& record = lane.write.record;
  if (lane.deletion) ++(record.kind == RecordKind::tombstone ? copied_.keys : copied_.groups);
  if (lane.damaged) log_.unpublish(lane.hash, lane.entry);  // now that its tombstone is written
  if (record.kind != RecordKind::page) return release(lane);
  log_.stats_.relocated_bytes += record.length;
  // Nothing else changed the key: it was locked. Only its group's deletion passes by the lock; one
  // that is under way has looked for the page where it was before.
  if (!log_.in_index(lane.hash, lane.entry.lba) || log_.removing(record)) {
    const ZoneId zone = pool_.geometry.zone_of(Lba{lane.write.lba});
    copied_late_ = true;
    note_outlived({record.group, 0, pool_.allocator.zone(zone).opened_sequence});
    log_.unpublish(lane.hash, lane.entry);
    return release(lane);
  }
  IndexEntry entry = lane.entry;
  entry.lba = lane.write.lba;
  log_.publish(lane.hash, &lane.entry, entry, record.expires_s, record.sequence);
  release(lane);
}

Collector::Deletions Collector::copied_of(ZoneId zone) const {
  const ZoneLife life{zone, pool_.allocator.zone(zone).generation};
  if (step_ == Step::idle || zone != victim_ || life != copied_from_) return {};
  const ZoneDirectory& table = pool_.tables[zone.value];
  return {std::min<std::uint64_t>(copied_.keys, table.tombstones),
          std::min<std::uint64_t>(copied_.groups, table.group_tombstones)};
}

// The originals stay; the zone is looked at again when collection is next wanted.
void Collector::give_up(const PageRecord& record, const Status& status) {
  copy_error_ = status;
  deletion_stays_ |= record.kind != RecordKind::page;
  pool_.allocator.set_use(victim_, ZoneUse::sealed);
}

void Collector::release(Lane& lane) {
  if (locks(lane.record)) log_.locks_.unlock(lane.lock);
  Group& group = *lane.group;
  lane.busy = false;
  --busy_lanes_;
  if (std::exchange(lane.to_read, false)) --group.to_read;
  if (--group.busy == 0) {
    FURROW_CHECK(group.to_read == 0);
    group.taken = 0;
    group.used_bytes = 0;
    group.closed = false;
  } else {
    write_if_complete(group);
  }
  post_turn();
}

}  // namespace furrow
