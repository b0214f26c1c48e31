#include "log/collector.h"

#include <algorithm>
#include <utility>

#include "log/page_log.h"
#include "zone/check.h"

namespace furrow {

namespace {
constexpr std::uint64_t kRetryNsMin = 10'000'000, kRetryNsMax = 1'000'000'000;
constexpr unsigned kFailuresMax = 10;  // that are counted
constexpr unsigned kZonesAtOnce = 3, kZonesFailedMax = kZonesAtOnce + kFailuresMax;
constexpr Status kNothingToFree{Code::no_space, Origin::log,
                                "no zone of the volume can be freed; zones may have gone bad: see "
                                "`furrowctl zone report`"};
constexpr Status kUnreadableNow{Code::no_space, Origin::log,
                                "the zones that could be freed cannot be read now; try again"};
}  // namespace

Collector::Collector(PageLog& log) : log_(log), pool_(log.pool_) {
  for (Group& group : groups_) {
    for (Lane& lane : group.lanes) {
      lane.collector = this;
      lane.group = &group;
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
  }
  turn_.collector = grace_timer_.collector = pace_timer_.collector = this;
  flush_.collector = note_.collector = this;
  turn_.run = [](Task& task) {
    auto& its_turn = static_cast<Turn&>(task);
    its_turn.posted = false;
    its_turn.collector->turn();
  };
  grace_timer_.fire = [](Timer& timer) {
    static_cast<OwnTimer&>(timer).collector->wait_for_grace();
  };
  pace_timer_.fire = [](Timer& timer) { static_cast<OwnTimer&>(timer).collector->post_turn(); };
  flush_.on_flushed = [](FlushWaiter& waiter) {
    Collector& collector = *static_cast<Flush&>(waiter).collector;
    const bool covering = collector.step_ == Step::cover || collector.step_ == Step::cover_all;
    if (covering) return collector.covered();
    collector.step_ == Step::settle ? collector.settled() : collector.flushed();
  };
  note_.on_noted = [](DurableNote& note) { static_cast<Note&>(note).collector->noted(); };
  io_.context = this;
}

Collector::~Collector() { FURROW_CHECK(idle()); }

// One zone ahead of the writer, the one that is kept for relocation not counted.
bool Collector::wanted() const {
  return pool_.allocator.held(log_.options_.volume) + 1 >= log_.zones_max();
}

// And not only as the volume is to hold less from now on.
bool Collector::wanted_for_quota() const {
  const std::uint64_t held = pool_.allocator.held(log_.options_.volume);
  return held + 1 >= pool_.allocator.quota(log_.options_.volume);
}

void Collector::kick() {
  const bool work = wanted() || clears_tombstones_ || !requested_.empty();
  if (step_ == Step::idle ? !stopping_ && work : held_up()) post_turn();
}

bool Collector::held_up() const {
  return paused_ || log_.relocations_stranded() || any_lane(&Lane::waiting);
}

void Collector::post_turn() {
  if (turn_.posted) return;
  turn_.posted = true;
  pool_.home.post(turn_);
}

void Collector::turn() {
  if (std::exchange(paused_, false)) pool_.home.stop(pace_timer_);
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

void Collector::start() {
  const bool clears = std::exchange(clears_tombstones_, false) && log_.many_tombstones();
  const bool needed = wanted() || clears;
  if (stopping_ || (!needed && requested_.empty())) return;
  // Nobody waits for that: who needs a zone before then is told what went wrong.
  if (pool_.home.now_ns() < retry_ns_) {
    log_.end_shrinking(failure_);
    return needed ? log_.fail_waiting(failure_, found_nothing_) : void();
  }
  if (probe()) return;
  if (needed && !log_.options_.cache) {
    log_.zones_changed();
    if (Stream* const stream = stream_to_end()) {
      clears_tombstones_ = clears;
      return stream->end_zone();  // which kicks
    }
  }
  std::optional<ZoneId> victim = choose_requested();
  if (!victim && !needed) return;
  const bool circles = !victim && goes_in_circles();
  if (!victim && !circles) victim = zones_fail() ? zone_with_nothing() : choose();
  if (!victim && !circles && log_.sweep_->begin()) {
    clears_tombstones_ = clears;
    return;
  }
  if (!victim && zones_fail()) {
    found_nothing_ |= failure_.code() == Code::no_space;  // deletions may use what is left
    log_.end_shrinking(failure_);
    return needed ? log_.fail_waiting(failure_, found_nothing_) : void();
  }
  if (!victim && !wanted_for_quota()) return log_.end_shrinking(kNothingToFree);
  // Deletions may be handed over, to a zone that is durable before what they come after.
  if (!victim && log_.filled_unflushed()) return cover(Step::cover_all);
  if (circles) return nothing_to_free(log_.hand_deletions_to_collection());
  const bool handed = !victim && log_.hand_deletions_to_collection();
  if (!victim && !handed) victim = choose_for_waiting();
  if (!victim && !handed && begin_undo()) return;
  if (!victim && note_failed_ != 0) {  // there is that one, as soon as the device takes its note
    note_failed_ = 0;
    return log_.fail_waiting(copy_error_, found_nothing_);
  }
  if (!victim) return nothing_to_free(handed);
  // The first batch of the one that is open kicks, which a smaller quota keeps from being written.
  if (leaves_no_trace(*victim)) return log_.end_shrinking(kNothingToFree);
  found_nothing_ = exhausted_ = false;
  victim_ = *victim;
  pool_.allocator.set_use(victim_, ZoneUse::draining);
  written_lba_ = pool_.geometry.zone_capacity_lbas;
  segment_ = 0;
  readmitted_lbas_ = unsure_deletions_ = 0;
  unreadable_.clear();
  records_unread_ = missed_ = copies_gone_ = copied_late_ = deletion_stays_ = false;
  covered_ = !log_.filled_unflushed();
  empty_ = pool_.tables[victim_.value].end_lba <= 1;
  copies_in_.clear();
  copied_ = Deletions();
  copied_from_ = {victim_, pool_.allocator.zone(victim_).generation};
  hurried_ = false;
  forget_outlived();
  const std::uint64_t capacity = pool_.geometry.zone_capacity_lbas;
  const std::uint64_t copies = std::min(log_.copied_lbas(victim_), capacity);
  pace_.begin(pool_.home.now_ns(), log_.users_bytes_written_, copies * pool_.geometry.lba_bytes,
              (capacity - copies) * pool_.geometry.lba_bytes);
  next_segment();
}

// Of a cache a zone that cannot be read now counts again one day, unless what was opened behind it
// says that something between them is gone: the next one does, once it holds a batch, which is
// durable before the victim goes. (At the quota users wait for the victim, and would not write it:
// then there are others without a batch, of which one goes, or hardly any zones that are not bad.)
bool Collector::leaves_no_trace(ZoneId victim) const {
  if (!log_.options_.cache || !log_.hidden_ || log_.at_quota()) return false;
  bool begins = false;
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = pool_.allocator.zones()[i];
    const bool later = zone.opened_sequence > pool_.allocator.zone(victim).opened_sequence;
    if (zone.owner != log_.options_.volume || !later) continue;
    const bool holds = !pool_.tables[i].batches.empty() && log_.written_lba(ZoneId{i}) > 1;
    if (holds) return false;
    begins |= zone.use == ZoneUse::open;
  }
  return begins;
}

// Open zones are all there is (the next one sealed kicks), or zones have gone bad.
void Collector::nothing_to_free(bool handed) {
  exhausted_ = leaves_some_alone();
  if (exhausted_ && !handed) log_.hand_deletions_to_collection();
  log_.end_shrinking(kNothingToFree);
  log_.fail_waiting(exhausted_ && !unreadable_for_long() ? kUnreadableNow : kNothingToFree);
  found_nothing_ = true;
  if (exhausted_) log_.kick();  // what was kept from them, users may have now
}

// Each zone gains its share of one, or goes in its turn: unless zones hold less than they say. That
// is tried again after a while, with a few of them, for what may have changed that nobody told.
bool Collector::goes_in_circles() {
  constexpr std::uint64_t kVictimsMax = 2 * PageLog::kGainShare;
  constexpr std::uint64_t kAgainNsMin = 1'000'000'000, kAgainNsMax = 60'000'000'000;
  constexpr unsigned kCirclesMax = 6;  // that are counted
  if (freed_in_vain_ <= kVictimsMax + 2 * pool_.allocator.held(log_.options_.volume)) return false;
  const std::uint64_t now_ns = pool_.home.now_ns();
  if (circles_ns_ == 0) {
    circles_ns_ = now_ns + std::min(kAgainNsMin << circles_, kAgainNsMax);
    circles_ = std::min(circles_ + 1, kCirclesMax);
  }
  if (now_ns < circles_ns_) return true;
  circles_ns_ = 0;
  freed_in_vain_ = kVictimsMax;
  return false;
}

// One that failed before it held anything is what a failing device leaves, and no circle.
void Collector::note_freed() {
  if (empty_) return;
  device_fails_ = false;
  const std::uint64_t held = pool_.allocator.held(log_.options_.volume);
  ++freed_in_vain_;
  if (held >= least_held_) return;
  least_held_ = held;
  freed_in_vain_ = 0;
}

void Collector::next_segment() {
  const std::uint64_t begin = segment_ * pool_.segment_lbas;
  if (begin >= written_lba_) {
    step_ = Step::drain;
    return drained();
  }
  step_ = Step::scan;
  scanned_again_ = false;
  begin_scan();
}

void Collector::begin_scan() {
  const std::uint64_t begin = segment_ * pool_.segment_lbas;
  const std::uint64_t end = std::min(begin + pool_.segment_lbas, pool_.geometry.zone_capacity_lbas);
  scan_.emplace(SegmentScan::Bounds{pool_.stamp(victim_), begin, end, written_lba_,
                                    pool_.geometry.lba_bytes});
  read_on();
}

void Collector::read_on() {
  const std::optional<SegmentScan::Read> read = scan_->next();
  if (!read) {
    const std::optional<std::uint32_t> missed = missed_batch();
    if (missed && !std::exchange(scanned_again_, true)) return begin_scan();
    if (missed && undoing_ != Undo::none) undo_failed_ = true;
    if (missed && !is_damaged()) {
      records_unread_ = true;
      unreadable_.push_back({pool_.device_lba(victim_, *missed), 1});
    }
    const bool unread = scan_->unreadable_before(pool_.tables[victim_.value].end_lba);
    missed_ |= missed && !unread;
    records_unread_ |= unread;
    step_ = Step::move;
    next_record_ = 0;
    looking_again_ = false;
    replaced_.clear();
    find_newest_tombstones();
    return post_turn();
  }
  const std::size_t bytes = std::size_t{read->lbas} * pool_.geometry.lba_bytes;
  if (scan_buffer_.size() < bytes) scan_buffer_ = AlignedBuffer(bytes);
  scan_again_ = false;
  io_.op = Io::Op::read;
  io_.lba = Lba{pool_.device_lba(victim_, read->lba)};
  io_.set_data(scan_buffer_.data(), read->lbas, pool_.geometry.lba_bytes);
  io_.on_complete = [](Io& io) { static_cast<Collector*>(io.context)->scan_fed(); };
  pool_.queue.submit(io_);
}

// A batch of the segment that was there when it was written, or when the pool was opened. Where it
// is not, a read may have brought something else, and hidden tombstones that count.
std::optional<std::uint32_t> Collector::missed_batch() const {
  const ZoneDirectory& table = pool_.tables[victim_.value];
  const std::uint64_t begin = segment_ * pool_.segment_lbas;
  const std::uint64_t end = std::min<std::uint64_t>(begin + pool_.segment_lbas, table.end_lba);
  const std::vector<std::uint32_t>& found = scan_->batch_lbas();
  std::optional<std::uint32_t> missed;
  table.batches.for_each(begin, end, [&](std::uint32_t lba) {
    if (!missed && !std::ranges::binary_search(found, lba)) missed = lba;
  });
  return missed;
}

// A sector that cannot be read, twice, costs what it tells. That the device answers nothing is no
// reason to look at what follows.
void Collector::scan_fed() {
  if (io_.status.code() == Code::zone_state) {  // offline: nothing of it will ever be read again
    undo_failed_ = true;
    step_ = Step::drain;
    return drained();
  }
  if (io_.status.code() == Code::io_error && !std::exchange(scan_again_, true)) {
    return pool_.queue.submit(io_);
  }
  if (!io_.status.ok() && io_.status.code() != Code::io_error) return failed(io_.status);
  if (!io_.status.ok()) unreadable_.push_back({io_.lba.value, io_.lba_count});
  const std::span<const std::byte> bytes(scan_buffer_.data(), io_.one.iov_len);
  scan_->feed(io_.status.ok() ? Result<std::span<const std::byte>>(bytes)
                              : Result<std::span<const std::byte>>(io_.status));
  read_on();
}

void Collector::drained() {
  if (busy_lanes_ != 0) return;
  if (undoing_ != Undo::none) return undo_drained();
  if (pool_.allocator.zone(victim_).use != ZoneUse::draining) return copies_failed();
  if (std::exchange(copied_late_, false) && log_.options_.cache) {
    segment_ = 0;
    return next_segment();
  }
  // A tombstone may stand there.
  const bool unread =
      records_unread_ && !log_.options_.cache && !pool_.tables[victim_.value].given_up;
  if (pool_.allocator.zone(victim_).live_lbas != 0 || unread) {
    // Pages that the zone's own records do not name, because those are damaged (or all of it is
    // offline). A cache lets go of them: should the records be readable again one day, they would
    // be older than what was written since.
    if (log_.options_.cache) {
      step_ = Step::purge;
      purge_from_ = 0;
      return post_turn();
    }
    leave_alone();
    pool_.allocator.set_use(victim_, ZoneUse::sealed);
    step_ = Step::idle;
    return kick();
  }
  emptied();
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
  emptied();
}

void Collector::emptied() {
  if (!must_stay()) return flush_when_noted();
  step_ = Step::note;
  note_.zone = victim_;
  note_.aside = true;
  pool_.note_durable(note_);
}

// Of a cache, what the pool's opening could not read and nobody can now may be deletions of pinned
// pages, whose copies would outlive them. They count when they can be read: the zone stays as it is
// until the next opening, while the cache has enough others.
bool Collector::must_stay() const {
  if (!records_unread_ || !log_.older_may_be_hidden(victim_) || !pool_.note_durable) return false;
  if (pool_.tables[victim_.value].given_up) return false;
  const std::uint64_t stay = pool_.allocator.bad(log_.options_.volume) + 1;
  return log_.zones_max() >= PageLog::kZonesMin + stay;
}

// Where the zone of the copies failed before it had any, that one makes room; or once what it has
// counts no more.
void Collector::copies_failed() {
  const bool no_room = copy_error_.code() == Code::no_space;
  const bool deletes = deletion_stays_ || copied_late_;
  const bool counts = pool_.allocator.zone(victim_).live_lbas != 0 || deletes;
  if (no_room && log_.options_.cache && !counts) {
    pool_.allocator.set_use(victim_, ZoneUse::draining);
    return flush_when_noted();
  }
  const bool undo = note_undo();
  if (pool_.allocator.zone(victim_).generation == note_failed_) {  // others can be emptied
    ++attempts_failed_;
    step_ = Step::idle;
    return kick();
  }
  if (!no_room || !(zone_with_nothing() || undo)) return failed(copy_error_);
  pool_.allocator.set_use(victim_, ZoneUse::sealed);
  step_ = Step::idle;
  kick();
}

// Such a zone is reset at once, to be opened again, for as long as few have failed one after
// another.
void Collector::note_failed_zone(const Status& why) {
  failure_ = why;
  device_fails_ = true;
  zones_failed_ = std::min(zones_failed_ + 1, kZonesFailedMax);
  if (zones_failed_ <= kZonesAtOnce) return;
  zones_ns_ =
      pool_.home.now_ns() + std::min(kRetryNsMin << (zones_failed_ - kZonesAtOnce), kRetryNsMax);
}

bool Collector::zones_fail() const { return pool_.home.now_ns() < zones_ns_; }

// The victim stays as it is, and another attempt is made when a zone is next wanted: at once where
// room was lacking, which a delete may have made; else the device is left alone for a while.
void Collector::failed(const Status& status) {
  if (undoing_ != Undo::none) end_undo();
  pool_.allocator.set_use(victim_, ZoneUse::sealed);
  attempt_failed(status);
}

void Collector::attempt_failed(const Status& status) {
  step_ = Step::idle;
  log_.end_shrinking(status);
  copy_error_ = status;
  if (status.code() != Code::no_space) {
    failure_ = status;
    retry_ns_ = pool_.home.now_ns() + std::min(kRetryNsMin << failures_, kRetryNsMax);
    failures_ = std::min(failures_ + 1, kFailuresMax);
  }
  device_fails_ |= status.origin() != Origin::log;
  ++attempts_failed_;
  // What a device in trouble has not reset may still come back, and what the last zone of the quota
  // has must be there too then: users do not get it. One that is full has room kept for deletions,
  // and is what they help.
  const bool nothing = status.origin() == Origin::log || status.code() == Code::no_space;
  log_.fail_waiting(status, nothing);
  found_nothing_ = nothing;
  // Room that was kept for copies may not be any more, as the victim counts again.
  log_.kick();
}

}  // namespace furrow
