#include "log/collector.h"

#include <algorithm>

#include "log/page_log.h"
#include "zone/check.h"

namespace furrow {

namespace {
constexpr std::uint64_t kGracePollNs = 20'000;
constexpr std::uint64_t kReadmittedShare = 2;  // at most 1/this of a zone is written again on hits
}  // namespace

Collector::Collector(PageLog& log) : log_(log), pool_(log.pool_) {
  for (Lane& lane : lanes_) {
    lane.collector = this;
    lane.lock.lane = lane.write.lane = &lane;
    lane.io.op = Io::Op::read;
    lane.io.context = &lane;
    lane.io.on_complete = [](Io& io) {
      auto& its_lane = *static_cast<Lane*>(io.context);
      its_lane.collector->page_read(its_lane);
    };
    lane.lock.on_locked = [](KeyLockHolder& holder) {
      Lane& its_lane = *static_cast<Lane::Lock&>(holder).lane;
      its_lane.collector->locked(its_lane);
    };
    lane.write.priority = Append::Priority::relocation;
    lane.write.on_done = [](Append& append) {
      Lane& its_lane = *static_cast<Lane::Write&>(append).lane;
      its_lane.collector->moved(its_lane);
    };
  }
  turn_.collector = grace_timer_.collector = flush_.collector = this;
  turn_.run = [](Task& task) {
    auto& its_turn = static_cast<Turn&>(task);
    its_turn.posted = false;
    its_turn.collector->turn();
  };
  grace_timer_.fire = [](Timer& timer) {
    static_cast<GraceTimer&>(timer).collector->wait_for_grace();
  };
  flush_.on_flushed = [](FlushWaiter& waiter) {
    Collector& collector = *static_cast<Flush&>(waiter).collector;
    collector.step_ == Step::settle ? collector.settled() : collector.flushed();
  };
  io_.context = this;
}

Collector::~Collector() { FURROW_CHECK(idle()); }

// One zone ahead of the writer, the one that is kept for relocation not counted.
bool Collector::wanted() const {
  const std::uint64_t held = pool_.allocator.held(log_.options_.volume);
  return held + 1 >= pool_.allocator.quota(log_.options_.volume);
}

void Collector::kick() {
  if (step_ == Step::idle ? !stopping_ && wanted() : held_up()) post_turn();
}

bool Collector::held_up() const {
  return log_.relocations_stranded() || std::ranges::any_of(lanes_, &Lane::waiting);
}

void Collector::post_turn() {
  if (turn_.posted) return;
  turn_.posted = true;
  pool_.home.post(turn_);
}

void Collector::turn() {
  log_.reroute_relocations();
  overtake_waiting();
  switch (step_) {
    case Step::idle:
      return start();
    case Step::move:
      return look_at_records();
    case Step::drain:
      return drained();
    case Step::purge:
      return purge();
    default:
      return;
  }
}

std::optional<ZoneId> Collector::choose() const {
  const std::uint64_t volume = log_.options_.volume;
  // What needs no copies comes first: there may be no room for any.
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = pool_.allocator.zones()[i];
    if (zone.owner == volume && zone.use == ZoneUse::sealed && holds_nothing(ZoneId{i})) {
      return ZoneId{i};
    }
  }
  const bool in_turn = log_.options_.cache || log_.many_tombstones();
  const auto policy = in_turn ? VictimPolicy::fifo : VictimPolicy::greedy;
  const auto victim = pool_.allocator.victim(volume, policy, pool_.next_sequence);
  if (!victim) return victim;
  const std::uint64_t live = pool_.allocator.zone(*victim).live_lbas;
  if (!in_turn && live * 100 > pool_.geometry.zone_capacity_lbas * 99) return std::nullopt;
  // Batch headers: at worst one an LBA of pages; tombstones: some twenty to an LBA.
  // What is left of a zone may be too little for the next page.
  const std::uint64_t needed = live * 2 + pool_.tables[victim->value].tombstones / 16 + 4 +
                               2 * pool_.page_lbas(log_.options_.value_bytes_max);
  if (!log_.options_.cache && needed > log_.relocation_room()) return std::nullopt;
  return victim;
}

// No page that is live, and no record that says that an older one is not. In a cache any record may
// do so; a zone that a power cut left without any is common.
bool Collector::holds_nothing(ZoneId id) const {
  const ZoneAllocator::Zone& zone = pool_.allocator.zone(id);
  if (log_.options_.cache) return zone.min_sequence == ~std::uint64_t{0};
  const ZoneDirectory& table = pool_.tables[id.value];
  return zone.live_lbas == 0 && table.tombstones + table.group_tombstones == 0;
}

void Collector::start() {
  if (stopping_ || !wanted()) return;
  const std::optional<ZoneId> victim = choose();
  if (!victim) {  // open zones are all there is (the next one sealed kicks), or zones have gone bad
    log_.fail_waiting({Code::no_space, Origin::log,
                       "no zone of the volume can be freed; zones may have gone bad: see "
                       "`furrowctl zone report`"});
    found_nothing_ = true;
    return;
  }
  found_nothing_ = false;
  victim_ = *victim;
  pool_.allocator.set_use(victim_, ZoneUse::draining);
  written_lba_ = pool_.geometry.zone_capacity_lbas;
  segment_ = 0;
  readmitted_lbas_ = 0;
  next_segment();
}

void Collector::next_segment() {
  const std::uint64_t begin = segment_ * pool_.segment_lbas;
  if (begin >= written_lba_) {
    step_ = Step::drain;
    return drained();
  }
  step_ = Step::scan;
  const std::uint64_t end = std::min(begin + pool_.segment_lbas, pool_.geometry.zone_capacity_lbas);
  scan_.emplace(SegmentScan::Bounds{pool_.stamp(victim_), begin, end, written_lba_,
                                    pool_.geometry.lba_bytes});
  read_on();
}

void Collector::read_on() {
  const std::optional<SegmentScan::Read> read = scan_->next();
  if (!read) {
    step_ = Step::move;
    next_record_ = 0;
    return post_turn();
  }
  const std::size_t bytes = std::size_t{read->lbas} * pool_.geometry.lba_bytes;
  if (scan_buffer_.size() < bytes) scan_buffer_ = AlignedBuffer(bytes);
  io_.op = Io::Op::read;
  io_.lba = Lba{pool_.device_lba(victim_, read->lba)};
  io_.set_data(scan_buffer_.data(), read->lbas, pool_.geometry.lba_bytes);
  io_.on_complete = [](Io& io) { static_cast<Collector*>(io.context)->scan_fed(); };
  pool_.queue.submit(io_);
}

void Collector::scan_fed() {
  const std::span<const std::byte> bytes(scan_buffer_.data(), io_.one.iov_len);
  scan_->feed(io_.status.ok() ? Result<std::span<const std::byte>>(bytes)
                              : Result<std::span<const std::byte>>(io_.status));
  read_on();
}

// A bounded number of records a turn. Goes on when a lane comes free, or on the next turn.
void Collector::look_at_records() {
  groups_deleted_ = any_group_deleted();
  for (unsigned looked = 0; looked < kRecordsPerTurn; ++looked) {
    if (next_record_ == scan_->records().size()) {
      if (busy_lanes_ != 0) return;  // the scan's records are done with when the last lane is
      ++segment_;
      return next_segment();
    }
    if (!look_at(scan_->records()[next_record_])) return;  // no lane: its release posts a turn
    ++next_record_;
  }
  post_turn();
}

Collector::Lane* Collector::free_lane() {
  for (Lane& lane : lanes_) {
    if (!lane.busy) return &lane;
  }
  return nullptr;
}

// False: the record must move and every lane is taken.
bool Collector::look_at(const PageRecord& record) {
  if (record.lba >= pool_.tables[victim_.value].end_lba) return true;
  const KeyHash hash = log_.hash(record.key);
  IndexEntry entry;
  PageRecord moving = record;
  if (record.kind != RecordKind::page) {
    if (!tombstone_needed(record)) return true;
  } else {
    std::array<IndexEntry, KeyOp::kCandidatesMax> found;
    const unsigned count = std::min(log_.index_.find(hash.order, 0, found), KeyOp::kCandidatesMax);
    const std::uint64_t lba = pool_.device_lba(victim_, record.lba);
    const auto live =
        std::ranges::find(found.begin(), found.begin() + count, lba, &IndexEntry::lba);
    const bool present = live != found.begin() + count;
    if (present) entry = *live;
    if (!present || !must_move(record, entry)) {
      if (present) drop(record, hash, entry);
      // Or it was overwritten, deleted, expired and swept, or never published.
      moving = tombstone_of(record);
      const bool expired = record.expires_s != 0 && record.expires_s <= pool_.home.wall_s();
      // A live copy has its sequence: an earlier attempt to empty the zone made it.
      const bool copied = std::any_of(found.begin(), found.begin() + count, [&](const auto& each) {
        return each.checksum == record.checksum && each.length == record.length;
      });
      const bool group_may_be_gone = !present && !copied && record.group != 0 && groups_deleted_;
      if (!expired && !group_may_be_gone) return true;
      if (!tombstone_needed(moving)) return true;
    }
  }
  Lane* lane = free_lane();
  if (lane == nullptr) return false;
  if (log_.options_.cache && !has_room(moving)) {  // it is pinned
    copy_error_ = {Code::no_space, Origin::log,
                   "pinned pages leave no room to free a zone; unpin or delete some"};
    pool_.allocator.set_use(victim_, ZoneUse::sealed);
    return true;
  }
  if (log_.options_.cache && !entry.pinned) readmitted_lbas_ += pool_.page_lbas(moving.length);
  lane->record = moving;
  lane->hash = hash;
  lane->entry = entry;
  lane->burying = false;
  move(*lane);
  return true;
}

bool Collector::any_group_deleted() const {
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    if (pool_.allocator.zones()[i].owner != log_.options_.volume) continue;
    if (pool_.tables[i].group_tombstones != 0) return true;
  }
  return false;
}

// What is left of a page that has expired, or was deleted with its group, while an older version of
// its key may be on the medium: that one would be the newest otherwise.
PageRecord Collector::tombstone_of(const PageRecord& page) {
  PageRecord tombstone;
  tombstone.kind = RecordKind::tombstone;
  tombstone.key = page.key;
  tombstone.sequence = page.sequence;
  return tombstone;
}

bool Collector::must_move(const PageRecord& record, const IndexEntry& entry) const {
  if (log_.expired(entry, pool_.home.wall_s())) return false;
  if (!log_.options_.cache || entry.pinned) return true;
  const std::uint64_t lbas = pool_.page_lbas(record.length);
  if (!pool_.hits.test(entry.lba) || !has_room(record)) return false;
  return (readmitted_lbas_ + lbas) * kReadmittedShare <= pool_.geometry.zone_capacity_lbas;
}

// In cache mode zones go in the order in which they were written, so nothing older is left. In
// store mode a record of a lower sequence in another zone may be an older version.
bool Collector::tombstone_needed(const PageRecord& record) const {
  if (log_.options_.cache) return false;
  const std::uint64_t volume = log_.options_.volume;
  // A key's older versions were all placed, under its lock, before the tombstone's sequence was
  // drawn: only zones that were opened before it can have them.
  if (record.kind == RecordKind::tombstone) {
    return pool_.allocator.min_opened(volume, victim_) < record.sequence;
  }
  return pool_.allocator.min_sequence(volume, victim_) < record.sequence;
}

// A cache's zones go in their order, whether or not there is room for copies: power cuts may have
// sealed all that it has. (Which zone a store collects is chosen with an eye on that.)
bool Collector::has_room(const PageRecord& record) const {
  constexpr std::uint64_t kHeadersLbas = 2;  // at worst a batch header and some of the summary
  const std::uint64_t volume = log_.options_.volume;
  if (pool_.allocator.held(volume) < pool_.allocator.quota(volume)) return true;
  std::uint64_t needed = pool_.page_lbas(record.length) + kHeadersLbas;
  for (const Lane& lane : lanes_) {
    if (lane.busy) needed += pool_.page_lbas(lane.record.length) + kHeadersLbas;
  }
  return needed <= log_.relocation_stream().room_for_pages_lbas();
}

void Collector::drop(const PageRecord& record, const KeyHash& hash, const IndexEntry& entry) {
  if (!log_.unpublish(hash, entry)) return;
  evicted_ = true;
  if (record.expires_s == 0 || !log_.expired(entry, pool_.home.wall_s())) {
    ++log_.stats_.evicted_pages;
  }
}

void Collector::move(Lane& lane) {
  lane.busy = true;
  ++busy_lanes_;
  lane.waiting = true;
  lane.lock.hash = lane.hash;
  log_.locks_.lock(lane.lock);
  overtake_waiting();
}

// A put that waits for a zone must not keep the zone that is to be freed from being emptied.
void Collector::overtake_waiting() {
  for (Lane& lane : lanes_) {
    if (lane.waiting) log_.overtake(lane.lock);
  }
}

void Collector::locked(Lane& lane) {
  lane.waiting = false;
  if (lane.record.kind != RecordKind::page) {
    lane.write.record = lane.record;
    lane.write.data = nullptr;
    lane.write.capacity = 0;
    return log_.relocation_stream().append(lane.write);
  }
  // While this waited for the lock the key may have been overwritten or deleted. A copy of the old
  // version now would lie behind the new one, and outlive it in a cache.
  if (!log_.in_index(lane.hash, lane.entry.lba)) return release(lane, true);
  const std::size_t bytes = pool_.page_lbas(lane.record.length) * pool_.geometry.lba_bytes;
  if (lane.page.size() < bytes) lane.page = AlignedBuffer(bytes);
  lane.io.lba = Lba{lane.entry.lba};
  lane.io.set_data(lane.page.data(),
                   static_cast<std::uint32_t>(pool_.page_lbas(lane.record.length)),
                   pool_.geometry.lba_bytes);
  pool_.queue.submit(lane.io);
}

// A copy is made only of what is whole: a damaged page is dropped and counted, so that it is never
// served and does not wedge its zone. One that cannot be read may be readable again: a store keeps
// its zone as it is.
void Collector::page_read(Lane& lane) {
  const PageRecord& record = lane.record;
  const Status& read = lane.io.status;
  if (!read.ok() && !log_.options_.cache) {
    if (read.code() != Code::io_error) give_up(read);  // nor is anything else
    return release(lane, true);
  }
  const bool whole = read.ok() && page_checksum({lane.page.data(), record.length}, lane.hash) ==
                                      lane.entry.checksum;
  if (!whole) {
    log_.count_corrupt();
    log_.unpublish(lane.hash, lane.entry);
    return release(lane, true);
  }
  lane.write.record = record;  // with its sequence: relocation does not make it newer
  lane.write.data = lane.page.data();
  lane.write.capacity = static_cast<std::uint32_t>(lane.page.size());
  log_.relocation_stream().append(lane.write);
}

// The page's group was deleted while its copy was on its way, and the copy may lie behind the
// group's tombstone: it gets one of its own.
void Collector::bury(Lane& lane) {
  PageRecord tombstone;
  tombstone.kind = RecordKind::tombstone;
  tombstone.key = lane.record.key;
  lane.burying = true;
  lane.write.record = tombstone;
  lane.write.data = nullptr;
  lane.write.capacity = 0;
  log_.relocation_stream().append(lane.write);
}

void Collector::moved(Lane& lane) {
  if (!lane.write.status.ok()) {
    give_up(lane.write.status);
    return release(lane, true);
  }
  const PageRecord& record = lane.write.record;
  if (lane.burying || record.kind != RecordKind::page) return release(lane, true);
  log_.stats_.relocated_bytes += record.length;
  // Nothing else changed the key: it was locked. Only its group's deletion passes by the lock.
  if (!log_.in_index(lane.hash, lane.entry.lba)) return bury(lane);
  if (log_.removing(record)) {  // which has looked for the page where it was before
    log_.unpublish(lane.hash, lane.entry);
    return bury(lane);
  }
  IndexEntry entry = lane.entry;
  entry.lba = lane.write.lba;
  log_.publish(lane.hash, &lane.entry, entry, record.expires_s, record.sequence);
  release(lane, true);
}

// The originals stay; the zone is looked at again when collection is next wanted.
void Collector::give_up(const Status& status) {
  copy_error_ = status;
  pool_.allocator.set_use(victim_, ZoneUse::sealed);
}

void Collector::release(Lane& lane, bool locked) {
  if (locked) log_.locks_.unlock(lane.lock);
  lane.busy = false;
  --busy_lanes_;
  post_turn();
}

void Collector::drained() {
  if (busy_lanes_ != 0) return;
  if (pool_.allocator.zone(victim_).use != ZoneUse::draining) {  // a copy failed
    step_ = Step::idle;
    return log_.fail_waiting(copy_error_);
  }
  if (pool_.allocator.zone(victim_).live_lbas != 0) {
    // Pages that the zone's own records do not name, because those are damaged. A cache lets go of
    // them: should the records be readable again one day, they would be older than what was
    // written since.
    if (log_.options_.cache) {
      step_ = Step::purge;
      purge_from_ = 0;
      return post_turn();
    }
    // A store still serves them from here: the zone is kept as it is and never written again.
    pool_.allocator.set_use(victim_, ZoneUse::bad);
    step_ = Step::idle;
    return kick();
  }
  flush();
}

// Takes the victim's pages out of the index, wherever their keys are in it.
void Collector::purge() {
  purge_from_ = log_.unpublish_some(purge_from_, [this](const IndexEntry& entry) {
    if (pool_.geometry.zone_of(Lba{entry.lba}) != victim_) return false;
    ++log_.stats_.evicted_pages;
    evicted_ = true;
    return true;
  });
  if (purge_from_ != 0) return post_turn();
  FURROW_CHECK(pool_.allocator.zone(victim_).live_lbas == 0);
  flush();
}

void Collector::flush() {
  step_ = Step::flush;
  pool_.flusher.request(flush_);
}

void Collector::flushed() {
  if (!flush_.status.ok()) {  // without it the reset could lose what is not durable elsewhere
    pool_.allocator.set_use(victim_, ZoneUse::sealed);
    step_ = Step::idle;
    return log_.fail_waiting(flush_.status);
  }
  pool_.allocator.set_use(victim_, ZoneUse::resetting);
  step_ = Step::grace;
  wait_for_grace();
}

void Collector::wait_for_grace() {
  if (!own_grace_ && !pool_.epoch.in_grace()) {
    pool_.epoch.begin_grace();
    own_grace_ = true;
  }
  if (!own_grace_ || !pool_.epoch.grace_over()) {
    return pool_.home.start(grace_timer_, kGracePollNs);
  }
  own_grace_ = false;
  step_ = Step::reset;
  io_.op = Io::Op::reset;
  io_.zone = victim_;
  io_.lba = pool_.geometry.zone_start(victim_);
  io_.lba_count = 0;
  io_.iov_count = 0;
  io_.on_complete = [](Io& io) { static_cast<Collector*>(io.context)->reset_done(); };
  pool_.queue.submit(io_);
}

void Collector::reset_done() {
  pool_.tables[victim_.value] = ZoneDirectory();
  if (io_.status.ok()) {
    ++log_.stats_.zones_reset;
    if (log_.options_.cache) ++log_.stats_.evicted_zones;
    step_ = Step::settle;
    return pool_.flusher.request(flush_);
  }
  pool_.allocator.retire(victim_);
  if (pool_.on_zone_retired) pool_.on_zone_retired(victim_);
  step_ = Step::idle;
  log_.kick();
  kick();
}

// Until its reset is durable a zone is not written again: a power cut could leave the zone with its
// old write pointer, and records that are whole, over pages that are not.
void Collector::settled() {
  if (flush_.status.ok()) {
    pool_.allocator.release(victim_);
  } else {
    pool_.allocator.retire(victim_);  // until the pool is opened again
  }
  step_ = Step::idle;
  log_.kick();
  kick();
}

}  // namespace furrow
