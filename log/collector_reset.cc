// The end of a zone that was emptied: what must be noted and flushed before its reset, the reset,
// and the flush behind it.
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "log/collector.h"
#include "log/page_log.h"
#include "zone/canary.h"

namespace furrow {

namespace {
constexpr std::uint64_t kGracePollNs = 20'000;
constexpr unsigned kResetsFailedMax = 8;
}  // namespace

// After the reset nothing would say that there was a zone behind the one before it, which recovery
// would then take for one that a power cut may have torn.
void Collector::flush_when_noted() {
  const std::optional<ZoneId> zone = to_be_noted();
  if (!zone || !pool_.note_durable || canary(Canary::not_noted_durable)) return flush();
  step_ = Step::note;
  note_.zone = *zone;
  note_.aside = false;
  pool_.note_durable(note_);
}

// A zone that recovery might take for the newest of the victim's stream when the victim is gone.
// It was flushed before anything but a header went to the victim: of a victim that has not so much
// as that, recovery takes no notice. One that has gone bad may be there then, or not.
std::optional<ZoneId> Collector::to_be_noted() const {
  if (pool_.tables[victim_.value].end_lba == 0) return std::nullopt;
  const ZoneAllocator::Zone& victim = pool_.allocator.zone(victim_);
  std::vector<ZoneId> older;
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = pool_.allocator.zones()[i];
    const std::uint64_t end_lba = pool_.tables[i].end_lba;
    if (ZoneId{i} == victim_ || zone.owner != victim.owner || zone.stream != victim.stream)
      continue;
    const bool sealed = zone.use == ZoneUse::sealed;
    if (zone.opened_sequence > victim.opened_sequence) {
      // With more than a header it is the newest, as soon as the flush has covered that.
      const bool open = zone.use == ZoneUse::open;
      if ((sealed && end_lba > 1) || (open && log_.written_lba(ZoneId{i}) > 1)) return std::nullopt;
    } else if ((sealed || zone.use == ZoneUse::bad) && end_lba != 0) {
      older.push_back(ZoneId{i});
    }
  }
  const auto opened = [this](ZoneId id) { return pool_.allocator.zone(id).opened_sequence; };
  std::ranges::sort(older, std::greater(), opened);
  for (const ZoneId zone : older) {
    const ZoneDirectory& table = pool_.tables[zone.value];
    if (!table.durable && !table.unverified) return zone;
    if (pool_.allocator.zone(zone).use == ZoneUse::sealed) break;
  }
  return std::nullopt;
}

void Collector::noted() {
  if (!note_.status.ok()) {
    note_failed_ = pool_.allocator.zone(victim_).generation;
    return failed(note_.status);
  }
  if (!note_.aside) return flush_when_noted();
  pool_.allocator.set_use(victim_, ZoneUse::bad);
  step_ = Step::idle;
  log_.kick();
  kick();
}

void Collector::flush() {
  step_ = Step::flush;
  if (canary(Canary::copies_not_durable)) return flushed();
  pool_.flusher.request(flush_);
  // The originals go: damage to a copy must not look as if it had never been written whole.
  if (!log_.options_.cache) log_.relocation_stream().note_flush();
}

void Collector::flushed() {
  if (!flush_.status.ok()) {  // without it the reset could lose what is not durable elsewhere
    return failed(flush_.status);
  }
  if (!empty_) failures_ = zones_failed_ = 0;
  verify_copies();
}

void Collector::wait_for_grace() {
  if (!own_grace_ && !pool_.epoch.in_grace()) {
    pool_.epoch.begin_grace();
    own_grace_ = true;
  }
  if (!canary(Canary::reset_under_read) && (!own_grace_ || !pool_.epoch.grace_over())) {
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
  if (io_.status.ok()) {
    resets_failed_ = 0;
    pool_.forget(victim_);
    pool_.tables[victim_.value].end_lba = 0;  // also should it be sealed again
    ++log_.stats_.zones_reset;
    if (log_.options_.cache) ++log_.stats_.evicted_zones;
    step_ = Step::settle;
    if (canary(Canary::reset_not_durable)) return settled();
    return pool_.flusher.request(flush_);
  }
  pool_.forget(victim_);
  pool_.tables[victim_.value].end_lba = 0;  // what it held is elsewhere, and it may be empty by now
  // A zone that went read-only or offline stays so; anything else may pass.
  const bool gone = io_.status.code() == Code::zone_state;
  if (!gone && ++resets_failed_ < kResetsFailedMax) return failed(io_.status);
  resets_failed_ = 0;
  pool_.allocator.retire(victim_);
  if (pool_.on_zone_cut) pool_.on_zone_cut(victim_, 0);
  step_ = Step::idle;
  log_.kick();
  kick();
}

// Until its reset is durable a zone is not written again: a power cut could leave the zone with its
// old write pointer, and records that are whole, over pages that are not.
void Collector::settled() {
  if (!flush_.status.ok()) return failed(flush_.status);  // and is reset once more
  pool_.allocator.release(victim_);
  note_freed();
  note_failed_ = 0;
  if (victim_ != undo_copies_.zone) undone_ = 0;
  undo_copies_ = undo_originals_ = ZoneLife();
  step_ = Step::idle;
  log_.kick();
  kick();
}

}  // namespace furrow
