// Volumes of kind zoned: zones of the pool that are lent to them, and come back.
//
// Nothing in a lent zone says that it is: its user may have written anything, structures of this
// pool included. So the metadata alone tells, from before the volume is there until after all of
// its zones were reset; what was lent to a volume that is not there (an orphan) is reset when the
// pool is opened, before it is anybody's.
#include <algorithm>

#include "engine/page_session.h"
#include "engine/pool_impl.h"
#include "zone/blocking.h"
#include "zone/zone_state_machine.h"

namespace furrow {

namespace {

std::vector<LentZones> runs_of(std::uint64_t volume, const std::vector<ZoneId>& zones) {
  std::vector<LentZones> runs;
  for (const ZoneId zone : zones) {
    if (!runs.empty() && runs.back().first + runs.back().count == zone.value) {
      ++runs.back().count;
    } else {
      runs.push_back({volume, zone.value, 1});
    }
  }
  return runs;
}

ZoneShare share_of(const VolumeRecord& record) {
  return {record.open_zones_max, record.active_zones_max};
}

bool is_listed(const PoolState& state, std::uint64_t volume) {
  return std::ranges::find(state.volumes, volume, &VolumeRecord::id) != state.volumes.end();
}

}  // namespace

std::vector<ZoneId> PoolImpl::lent_to(std::uint64_t volume) const {
  std::vector<ZoneId> zones;
  for (const LentZones& run : ring_.state().lent) {
    if (run.volume != volume) continue;
    for (std::uint32_t i = 0; i < run.count; ++i) zones.push_back(ZoneId{run.first + i});
  }
  return zones;
}

// Before recovery, which goes around them.
Status PoolImpl::take_lent_zones() {
  const PoolState& state = ring_.state();
  const ZoneUse of_orphans = options_.read_only ? ZoneUse::lent : ZoneUse::resetting;
  for (const LentZones& run : state.lent) {
    const std::uint64_t end = std::uint64_t{run.first} + run.count;
    if (run.first < ring_.superblock().metadata_zones || end > context_.geometry.zone_count) {
      return {Code::corrupt, Origin::engine, "zones are lent to a volume that there are not"};
    }
    if (is_listed(state, run.volume)) continue;
    for (std::uint32_t i = 0; i < run.count; ++i) {
      context_.allocator.adopt(ZoneId{run.first + i}, {.use = of_orphans});
    }
  }
  for (const VolumeRecord& record : state.volumes) {
    if (record.kind != kKindZoned) continue;
    const Status status =
        context_.allocator.lend(record.id, lent_to(record.id), furrow::share_of(record));
    if (!status.ok()) return status;
  }
  return {};
}

void PoolImpl::add_zoned(const VolumeRecord& record, const std::vector<ZoneInfo>& report) {
  auto zones =
      std::make_unique<ZonedVolume>(context_, device_, lent_to(record.id), furrow::share_of(record),
                                    static_cast<Durability>(record.durability));
  zones->load(report);
  stores_.push_back(std::make_unique<PageStoreImpl>(*this, info_of(record, context_.geometry),
                                                    context_, std::move(zones), take_ordinal()));
}

// What a deletion, or a creation, that was cut off has left. What counts against the device's
// limits now must not do so when the first zone is opened.
void PoolImpl::return_orphans() {
  std::vector<std::uint64_t> gone;
  for (const LentZones& run : ring_.state().lent) {
    const bool known =
        is_listed(ring_.state(), run.volume) || std::ranges::find(gone, run.volume) != gone.end();
    if (!known) gone.push_back(run.volume);
  }
  for (const std::uint64_t volume : gone) {
    const std::vector<ZoneId> zones = lent_to(volume);
    for (const ZoneId zone : zones) {
      if (!context_.geometry.limits_zones() || !is_active(device_.zone(zone).state)) continue;
      (void)manage_blocking(*queue_, Io::Op::reset, zone).ok();  // it is reset once more
    }
    returns_.add({.id = volume, .zones = zones, .lent = true, .admitted = false});
  }
}

// One that could not be reset stays an orphan: whoever read it could take what is in it for the
// pool's.
Status PoolImpl::note_returned(std::uint64_t volume, const std::vector<ZoneId>& kept) {
  return journal_lent(volume, kept);
}

// Those that are lent to the volume from now on, and no others; durable when it returns.
Status PoolImpl::journal_lent(std::uint64_t volume, const std::vector<ZoneId>& zones) {
  const std::vector<LentZones> runs = runs_of(volume, zones);
  std::size_t done = 0;
  do {
    const std::size_t end = std::min(runs.size(), done + JournalRecord::kRunsMax);
    JournalRecord lent;
    lent.kind = JournalRecord::Kind::zones_lent;
    lent.volume.id = volume;
    lent.anew = done == 0;
    lent.lent.assign(runs.begin() + static_cast<std::ptrdiff_t>(done),
                     runs.begin() + static_cast<std::ptrdiff_t>(end));
    const Status status = journal(lent);
    if (!status.ok()) return status;
    done = end;
  } while (done != runs.size());
  return {};
}

// Empty ones, from the longest runs, so that few runs are to be remembered.
Result<std::vector<ZoneId>> PoolImpl::choose_zones(std::uint64_t count,
                                                   const std::vector<ZoneInfo>& report) const {
  std::vector<ZoneId> free;
  for (const ZoneInfo& info : report) {
    const bool is_free = context_.allocator.zone(info.zone).use == ZoneUse::free;
    if (is_free && info.state == ZoneState::empty) free.push_back(info.zone);
  }
  std::vector<LentZones> runs = runs_of(0, free);
  std::ranges::stable_sort(runs, std::greater(), &LentZones::count);
  std::vector<ZoneId> chosen;
  for (const LentZones& run : runs) {
    for (std::uint32_t i = 0; i < run.count && chosen.size() < count; ++i) {
      chosen.push_back(ZoneId{run.first + i});
    }
  }
  if (chosen.size() < count) {
    return Status(Code::no_space, Origin::engine,
                  "fewer zones than that are empty (some have gone bad); see `furrowctl zone "
                  "report`");
  }
  std::ranges::sort(chosen);
  return chosen;
}

Result<ZoneShare> PoolImpl::share_of(const VolumeOptions& options) const {
  constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};
  const ZoneShare left = context_.allocator.share_left();
  const auto of = [&](std::uint32_t asked, std::uint32_t its_left) {
    if (asked != 0 || its_left == kNoLimit) return asked;
    return std::min(options.zones, (its_left + 1) / 2);
  };
  ZoneShare share{of(options.open_zones_max, left.open), of(options.active_zones_max, left.active)};
  if (share.active != 0 && options.open_zones_max == 0) {
    share.open = std::min(share.open, share.active);
  }
  if (share.active != 0 && share.open > share.active) {
    return Status(Code::invalid_argument, Origin::engine,
                  "an open zone is an active one: max_open is at most max_active");
  }
  return share;
}

Result<PageStore*> PoolImpl::create_zoned(VolumeRecord record, const VolumeOptions& options) {
  const Result<ZoneShare> share = share_of(options);
  if (!share.ok()) return share.status();
  record.open_zones_max = share->open;
  record.active_zones_max = share->active;
  record.quota_zones = options.zones;
  record.value_bytes_max = 0;
  // First, as the device takes its time to report, and whoever waits for room asks often.
  Status status = context_.allocator.may_lend(options.zones, *share);
  if (!status.ok()) return status;
  const Result<std::vector<ZoneInfo>> report = device_.report();
  if (!report.ok()) return report.status();
  const Result<std::vector<ZoneId>> zones = choose_zones(options.zones, *report);
  if (!zones.ok()) return zones.status();
  status = context_.allocator.lend(record.id, *zones, *share);
  if (!status.ok()) return status;
  // Their resets are durable, so a power cut brings nothing back that was in them.
  status = flush_blocking(*queue_);
  if (status.ok()) status = journal_lent(record.id, *zones);
  if (status.ok()) {
    JournalRecord created;
    created.kind = JournalRecord::Kind::volume_created;
    created.volume = record;
    status = journal(created);
  }
  if (status.ok()) {
    add_zoned(record, *report);
    return static_cast<PageStore*>(stores_.back().get());
  }
  // Lent to nobody then, and empty: they stay out of use until the pool is opened again.
  for (const ZoneId zone : *zones) context_.allocator.retire(zone);
  context_.allocator.dismiss(record.id);
  return status;
}

Status PoolImpl::delete_zoned(PageStoreImpl& store) {
  const std::uint64_t id = store.info().id;
  store.mark_deleted();  // from here on no read begins
  Status status;
  if (!store.zones()->idle() || gets_in_flight(store.ordinal())) {
    status = {Code::busy, Origin::engine, "the volume is in use; stop its clients and try again"};
  } else {
    JournalRecord deleted;
    deleted.kind = JournalRecord::Kind::volume_deleted;
    deleted.volume.id = id;
    status = journal(deleted);
  }
  if (!status.ok()) {
    store.mark_deleted(false);
    return status;
  }
  set_aside(store);
  returns_.add({.id = id, .zones = context_.allocator.vacate(id), .lent = true});
  return {};
}

}  // namespace furrow
