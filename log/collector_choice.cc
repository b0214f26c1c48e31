// Which zone is collected next, and which are let alone for a while.
#include <algorithm>

#include "log/collector.h"
#include "log/page_log.h"

namespace furrow {

namespace {
constexpr std::uint64_t kProbeNsMin = 100'000'000, kProbeNsMax = 60'000'000'000;
constexpr unsigned kProbesMax = 10;  // that are counted
constexpr unsigned kMissesForDamage = 3;
constexpr std::uint64_t kLongNs = 15'000'000'000;
constexpr std::uint64_t kAgainNs = 1'000'000'000;  // what fails later than that is a new trouble
}  // namespace

std::optional<ZoneId> Collector::choose() const {
  // What needs no copies comes first: there may be no room for any.
  if (const std::optional<ZoneId> zone = zone_with_nothing()) return zone;
  if (!log_.options_.cache) return choose_from_store();
  return pool_.allocator.victim(log_.options_.volume, VictimPolicy::fifo);
}

std::optional<ZoneId> Collector::zone_with_nothing() const {
  const bool groups_deleted = any_group_deleted();  // asked once: it looks at all zones, too
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    const bool ours = pool_.allocator.zones()[i].owner == log_.options_.volume;
    const bool failed = pool_.tables[i].end_lba <= 1;
    if (!ours || !choosable(ZoneId{i}) || (failed && zones_fail())) continue;
    if (holds_nothing(ZoneId{i}, groups_deleted)) return ZoneId{i};
  }
  return std::nullopt;
}

// A zone whose copies take less room than it gives: else collection would go in circles. One that
// goes in its turn need not gain anything itself, only be sure of room.
std::optional<ZoneId> Collector::choose_from_store() const {
  const std::uint64_t volume = log_.options_.volume;
  const std::uint64_t gaining = log_.copied_lbas_max(log_.largest_bytes_);
  if (log_.many_tombstones()) {
    const auto first = pool_.allocator.victim(volume, VictimPolicy::fifo);
    const std::uint64_t room = gaining + log_.relocation_stream().room_for_pages_lbas();
    const bool fits = first && (log_.at_quota() || log_.copied_lbas(*first) <= room);
    if (fits && choosable(*first) && has_room_for(*first, false)) return first;
  }
  return choose_with_room(log_.options_.victim_policy, gaining);
}

// The oldest zone may be one that is seldom written to: tombstones would stay for as long as that
// has room. It is ended, so that it can be collected, where that will find room. (Later, what is
// left of the quota may be no more than room for the copies of one that is full.)
Stream* Collector::stream_to_end() const {
  if (log_.options_.cache || !log_.many_tombstones() || log_.at_quota()) return nullptr;
  const ZoneId oldest = log_.oldest_.zone;
  const ZoneAllocator::Zone& zone = pool_.allocator.zone(oldest);
  if (zone.use != ZoneUse::open || zone.owner != log_.options_.volume) return nullptr;
  Stream& stream = *log_.streams_[zone.stream];
  const bool room = log_.copied_lbas(oldest) <= log_.copied_lbas_max(log_.largest_bytes_);
  return room && stream.can_end_zone() ? &stream : nullptr;
}

// None gains room for certain, and a deletion waits, which does when it is written: any zone whose
// copies leave room for it in the zone that they go to. Likewise where all that the store has fits
// one zone: when it is in one, the others are free.
std::optional<ZoneId> Collector::choose_for_waiting() const {
  if (log_.options_.cache) return std::nullopt;
  const bool waits = log_.any_stream([](const Stream& stream) { return stream.waits_for_zone(); });
  const bool page = waits && log_.all_fits_a_zone();
  if (log_.waiting_deletion() == nullptr && !page) return std::nullopt;
  return choose_with_room(VictimPolicy::greedy, log_.copied_lbas_whole());
}

// One that cannot be emptied after all, as some of it cannot be read, takes more room when it is
// tried again: where some could not, there must be so much.
std::optional<ZoneId> Collector::choose_with_room(VictimPolicy policy, std::uint64_t most) const {
  const std::optional<ZoneId> zone = choose_within(policy, most, true);
  return zone || leaves_some_alone() ? zone : choose_within(policy, most, false);
}

bool Collector::has_room_for(ZoneId zone, bool twice) const {
  const auto tried = std::ranges::find(stuck_, zone, &Stuck::zone);
  const bool again =
      tried != stuck_.end() && tried->generation == pool_.allocator.zone(zone).generation;
  return log_.has_room_for(zone, twice && !again);
}

// With copies of `most` LBAs, for which there is room.
std::optional<ZoneId> Collector::choose_within(VictimPolicy policy, std::uint64_t most,
                                               bool twice) const {
  const auto copied = [=, this](ZoneId id) -> std::optional<std::uint64_t> {
    if (!choosable(id)) return std::nullopt;
    const std::uint64_t lbas = log_.copied_lbas(id);
    return lbas <= most && has_room_for(id, twice) ? std::optional(lbas) : std::nullopt;
  };
  return pool_.allocator.victim(log_.options_.volume, policy, copied);
}

bool Collector::room_beside_copies() const {
  constexpr std::uint64_t kRecordsOfABatch = 256;
  const std::uint64_t batch = 4 + pool_.geometry.lbas(kRecordsOfABatch * PageLog::kRecordBytes);
  const std::uint64_t room = log_.relocation_room();
  const std::uint64_t most =
      std::min(log_.copied_lbas_max(log_.largest_bytes_), room - std::min(room, batch));
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = pool_.allocator.zones()[i];
    const bool ours = zone.owner == log_.options_.volume && zone.use == ZoneUse::sealed;
    if (ours && log_.copied_lbas(ZoneId{i}) <= most) return true;
  }
  return false;
}

// No page that is live, and no record that says that an older one is not, or leaves such a record
// behind: a page that expires, or was deleted with its group. In a cache any record may do so; a
// zone that a power cut left without any is common.
bool Collector::holds_nothing(ZoneId id, bool groups_deleted) const {
  const ZoneAllocator::Zone& zone = pool_.allocator.zone(id);
  const ZoneDirectory& table = pool_.tables[id.value];
  if (log_.options_.cache) return zone.min_sequence == ~std::uint64_t{0} || table.end_lba <= 1;
  const std::uint64_t tombstones = log_.tombstones_needed(id) ? table.tombstones : 0;
  if (zone.live_lbas + tombstones + table.group_tombstones + table.expiring != 0) return false;
  return table.groups.empty() || !groups_deleted;
}

void Collector::request(ZoneId zone) {
  const std::uint64_t generation = pool_.allocator.zone(zone).generation;
  requested_.insert({zone, generation});
  if (note_failed_ == generation) note_failed_ = 0;
  kick();
}

bool Collector::collects(ZoneId zone) const {
  if (step_ != Step::idle && victim_ == zone) return true;
  const ZoneLife life{zone, pool_.allocator.zone(zone).generation};
  return requested_.contains(life) && failures_ == 0 &&
         !stopping_;  // after a failure nobody waits for it
}

Status Collector::not_collected(ZoneId zone) const {
  const bool alone = std::ranges::any_of(
      stuck_, [&](const Stuck& stuck) { return stuck.zone == zone && left_alone(stuck); });
  if (alone) {
    return {Code::io_error, Origin::log,
            "some of it can be read now, and could not be a moment ago, or the other way round"};
  }
  return attempts_failed_ != 0 ? copy_error_ : Status();
}

// Each is asked for once: a zone that could not be emptied is not tried in circles.
std::optional<ZoneId> Collector::choose_requested() {
  const std::uint64_t volume = log_.options_.volume;
  while (!requested_.empty()) {
    const ZoneLife next = *requested_.rbegin();
    requested_.erase(next);
    const ZoneAllocator::Zone& zone = pool_.allocator.zone(next.zone);
    if (zone.owner != volume || zone.generation != next.generation || !choosable(next.zone)) {
      continue;
    }
    // What one zone holds takes two others at most, beside the one that is kept.
    const bool room = pool_.allocator.held(volume) + 3 <= pool_.allocator.quota(volume);
    const std::uint64_t gaining = log_.copied_lbas_max(log_.largest_bytes_);
    if (room || (log_.copied_lbas(next.zone) <= gaining && has_room_for(next.zone, true))) {
      return next.zone;
    }
  }
  return std::nullopt;
}

bool Collector::choosable(ZoneId id) const {
  const ZoneAllocator::Zone& zone = pool_.allocator.zone(id);
  if (zone.use != ZoneUse::sealed || zone.generation == note_failed_) return false;
  return std::ranges::none_of(
      stuck_, [&](const Stuck& stuck) { return stuck.zone == id && left_alone(stuck); });
}

bool Collector::left_alone(const Stuck& stuck) const {
  const ZoneAllocator::Zone& zone = pool_.allocator.zone(stuck.zone);
  return stuck.generation == zone.generation && !stuck.readable &&
         (zone.live_lbas != 0 || stuck.records);
}

bool Collector::leaves_some_alone() const {
  return std::ranges::any_of(stuck_, [this](const Stuck& stuck) { return left_alone(stuck); });
}

bool Collector::unreadable_for_long() const {
  return std::ranges::any_of(stuck_, [this](const Stuck& stuck) {
    return left_alone(stuck) && stuck.failed_ns - stuck.since_ns >= kLongNs;
  });
}

// Pages of the store's victim could not be read, or not be named. They are still served from there
// where they can be; others are collected meanwhile.
void Collector::leave_alone() {
  const std::uint64_t generation = pool_.allocator.zone(victim_).generation;
  auto stuck = std::ranges::find(stuck_, victim_, &Stuck::zone);
  if (stuck == stuck_.end()) stuck = stuck_.insert(stuck, Stuck());
  if (stuck->generation != generation) {
    *stuck = Stuck();
    stuck->zone = victim_;
    stuck->generation = generation;
    stuck->since_ns = pool_.home.now_ns();
  }
  if (stuck->readable && pool_.home.now_ns() - stuck->readable_ns >= kAgainNs) {
    stuck->since_ns = pool_.home.now_ns();
    stuck->probes = 0;
  }
  // Damage may be what a read that went astray brought: that zone is asked for its header.
  if (unreadable_.empty()) unreadable_.push_back({pool_.device_lba(victim_, 0), 1});
  stuck->what = std::move(unreadable_);
  unreadable_.clear();
  stuck->failed_ns = pool_.home.now_ns();
  stuck->records = records_unread_;
  stuck->readable = false;
  if (missed_) {
    ++stuck->misses;
  } else if (!records_unread_) {
    stuck->misses = 0;
  }
  put_off(*stuck);
}

// What could be read and is not there, at that many attempts, this one too, is lost.
bool Collector::is_damaged() const {
  const auto stuck = std::ranges::find(stuck_, victim_, &Stuck::zone);
  return stuck != stuck_.end() && stuck->misses + 1 >= kMissesForDamage &&
         stuck->generation == pool_.allocator.zone(victim_).generation;
}

// When it may have been so for long, that is asked.
void Collector::put_off(Stuck& stuck) const {
  const std::uint64_t now_ns = pool_.home.now_ns(), long_ns = stuck.since_ns + kLongNs;
  stuck.probe_ns = now_ns + std::min(kProbeNsMin << stuck.probes, kProbeNsMax);
  if (now_ns < long_ns) stuck.probe_ns = std::min(stuck.probe_ns, long_ns);
  stuck.probes = std::min(stuck.probes + 1, kProbesMax);
}

// What could not be read may have been the device's trouble of a moment: where it can be read now,
// the zone is tried again: when all of it can, as what is copied at each attempt takes room. True:
// that is being asked.
bool Collector::probe() {
  const auto due = std::ranges::find_if(stuck_, [&](const Stuck& stuck) {
    return !stuck.readable && stuck.probe_ns <= pool_.home.now_ns() &&
           pool_.allocator.zone(stuck.zone).generation == stuck.generation;
  });
  if (due == stuck_.end()) return false;
  step_ = Step::probe;
  victim_ = due->zone;
  const Unreadable& what = due->what.back();
  const std::size_t bytes = std::size_t{what.lbas} * pool_.geometry.lba_bytes;
  if (scan_buffer_.size() < bytes) scan_buffer_ = AlignedBuffer(bytes);
  io_.op = Io::Op::read;
  io_.lba = Lba{what.lba};
  io_.set_data(scan_buffer_.data(), what.lbas, pool_.geometry.lba_bytes);
  io_.on_complete = [](Io& io) { static_cast<Collector*>(io.context)->probed(); };
  pool_.queue.submit(io_);
  return true;
}

void Collector::probed() {
  const auto stuck = std::ranges::find(stuck_, victim_, &Stuck::zone);
  if (io_.status.ok()) {
    stuck->what.pop_back();
    stuck->readable = stuck->what.empty();
    stuck->readable_ns = pool_.home.now_ns();
  } else {
    stuck->failed_ns = pool_.home.now_ns();
    put_off(*stuck);
  }
  step_ = Step::idle;
  kick();
}

}  // namespace furrow
