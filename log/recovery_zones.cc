// Recovery's first step: whose zones there are.
#include <algorithm>

#include "log/recovery_steps.h"
#include "zone/blocking.h"
#include "zone/zone_state_machine.h"

namespace furrow {

namespace {

constexpr std::uint64_t kUnknown = ~std::uint64_t{0};  // of volumes_since()

bool is_any_life(const ZoneTrim& trim) {
  return trim.generation == ZoneTrimRecord::kAnyLife && trim.end_lba == 0;
}

}  // namespace

// Reads every written zone's header, and adopts those that are the pool's.
Status Recovery::find_zones() {
  Result<std::vector<ZoneInfo>> report = device_.report();
  if (!report.ok()) return report.status();
  AlignedBuffer lba(pool_.geometry.lba_bytes);
  std::vector<ReadZone> zones;
  for (const ZoneInfo& info : *report) {
    const ZoneUse use = pool_.allocator.zone(info.zone).use;
    const bool lent = use == ZoneUse::lent || use == ZoneUse::resetting;
    if (use == ZoneUse::metadata || lent) continue;
    if (info.state == ZoneState::offline) {
      take_offline(info.zone);
    } else if (info.written_lbas != 0) {
      zones.push_back({info, read_header(info, lba)});
      const Status status = zones.back().header.status();
      if (status.code() == Code::unsupported) return status;
    }
  }
  const Status checked = check_known(zones);
  if (!checked.ok()) return checked;
  find_durable(zones);
  for (const ReadZone& zone : zones) {
    const bool mine = zone.header.ok() && known(zone.header->volume);
    const bool rebuilt = mine && is_rebuilt(*zone.header);
    if (rebuilt) rebuilt_.push_back(zone.header->stamp);
    if (rebuilt) {
      to_reset_.push_back(zone.info.zone);
    } else {
      take_zone(zone, mine && is_evicted(zone, zones));
    }
  }
  // With zones that the opening before went without, or one before that, it may be more than was
  // promised.
  for (const std::uint64_t volume : options_.volumes) pool_.allocator.take_back(volume);
  mark_newest();
  mark_spares();
  return {};
}

// Before anything is changed: a volume's creation is in the journal before any zone is its. Where
// the metadata has not heard of it, the journal has lost its end, and its data must not go as well.
Status Recovery::check_known(const std::vector<ReadZone>& zones) {
  for (const ReadZone& zone : zones) {
    if (!zone.header.ok()) continue;
    const ZoneHeader& header = *zone.header;
    for (const std::uint64_t drawn : {header.stamp.generation, header.opened_sequence}) {
      result_.highest_sequence = std::max(result_.highest_sequence, drawn);
    }
    if (known(header.volume) || header.volume < options_.next_volume_id) continue;
    result_.unknown[header.volume].push_back(zone.info.zone);
  }
  if (options_.read_only || result_.unknown.empty()) return {};
  return Status(Code::corrupt, Origin::log,
                "zones hold a volume that the metadata does not know: its journal has lost its "
                "end; `furrowctl pool check --repair` lists the volume again");
}

void Recovery::take_zone(const ReadZone& read, bool evicted) {
  const ZoneInfo& info = read.info;
  const Result<ZoneHeader>& header = read.header;
  const bool lost = !header.ok() && header.status().code() != Code::not_found;
  if (lost && (given_up_now(info.zone) || holds_nothing(info.zone))) {
    if (given_up_now(info.zone)) given_up_.push_back(info.zone);
    to_reset_.push_back(info.zone);
    return;
  }
  if (lost) {
    set_aside(info.zone,
              "has data, and nothing that tells whose; it is kept and not used, unless it is "
              "given up (`furrowctl pool check --repair --give_up`)",
              true);
    aside_.push_back(info);
    return;
  }
  if (header.ok() && result_.unknown.contains(header->volume)) return;
  if (header.ok() && !known(header->volume) && may_wait(info) && !is_void(header->stamp, 0)) {
    pool_.allocator.adopt(info.zone, {.use = ZoneUse::resetting});
    result_.vacated.push_back(info.zone);
    return;
  }
  if (!header.ok() || !known(header->volume) || is_void(header->stamp, 0)) {
    // Never begun (torn at its first write), of a deleted volume, or never completed by a repair.
    to_reset_.push_back(info.zone);
    return;
  }
  ZoneAllocator::Zone state;
  state.use = ZoneUse::sealed;
  state.stream = header->stream;
  state.owner = header->volume;
  state.generation = header->stamp.generation;
  state.opened_sequence = header->opened_sequence;
  pool_.allocator.adopt(info.zone, state);
  zones_.push_back({.info = info,
                    .header = *header,
                    .aside = was_aside(info.zone),
                    .counted = was_counted(header->stamp),
                    .evicted = evicted,
                    .stores = is_store(header->volume),
                    .guessed = std::ranges::find(guessed_, info.zone) != guessed_.end()});
  // Another opening may find otherwise, and what is deleted meanwhile must be so then.
  if (evicted) result_.volumes[header->volume].hidden = true;
  pool_.tables[info.zone.value].given_up = given_up_now(info.zone);
  for (const ZoneTrim& trim : trims_of(info.zone)) {
    if (trim.generation == state.generation) {
      pool_.tables[info.zone.value].end_lba = trim.end_lba;
      pool_.tables[info.zone.value].durable = trim.durable;
    }
  }
}

// A zone of a volume that was deleted, for its reset. Not one that cannot be reset, nor one that
// counts against the device's limits.
bool Recovery::may_wait(const ZoneInfo& info) const {
  if (options_.read_only || info.state == ZoneState::read_only) return false;
  return !pool_.geometry.limits_zones() || !is_active(info.state);
}

std::span<const ZoneTrim> Recovery::trims_of(ZoneId zone) const {
  const auto first = std::ranges::lower_bound(trims_, zone, {}, &ZoneTrim::zone);
  return {first, std::ranges::upper_bound(first, trims_.end(), zone, {}, &ZoneTrim::zone)};
}

bool Recovery::is_void(const ZoneStamp& stamp, std::uint64_t lba) const {
  return std::ranges::any_of(trims_of(stamp.zone), [&](const ZoneTrim& trim) {
    const bool its = trim.generation == stamp.generation || is_any_life(trim);
    return its && trim.end_lba <= lba;
  });
}

bool Recovery::given_up_now(ZoneId zone) const {
  return std::ranges::find(options_.give_up, zone) != options_.give_up.end();
}

// The journal says so, of the life that it had then; it has had no other one since, as such trims
// go before their zones are opened.
bool Recovery::holds_nothing(ZoneId zone) const {
  return std::ranges::any_of(trims_of(zone),
                             [](const ZoneTrim& trim) { return trim.end_lba == 0; });
}

// The first that is changed of the zones, after all that counts in them was found to be of a
// version that is known.
Status Recovery::let_go() {
  Status is_void = note_rebuilt();
  if (is_void.ok()) is_void = note_given_up();
  if (!is_void.ok()) return is_void;
  for (const ZoneId zone : to_reset_) {
    if (reset(zone).ok()) continue;
    const Status noted = note_void(zone);
    if (!noted.ok()) return noted;
    set_aside(zone, "cannot be reset");
  }
  for (const ZoneId zone : offline_) {
    const Status noted = note_offline(zone);
    if (!noted.ok()) return noted;
  }
  for (const ZoneInfo& info : aside_) {
    const Status noted = note_aside(info.zone);
    if (!noted.ok()) return noted;
    finish_aside(info);
    for (const std::uint64_t volume : options_.volumes) {
      if (volume < volumes_since(info.zone)) result_.volumes[volume].hidden = true;
    }
  }
  return {};
}

// Should it be readable at the next opening, that has to know that this one went on without it: of
// a cache newer pages may have been evicted since, and it was not verified as the newest zone of
// its stream. What the journal says of its end stays.
Status Recovery::note_aside(ZoneId zone) {
  if (options_.read_only || !options_.note_trim) return {};
  const auto capacity = static_cast<std::uint32_t>(pool_.geometry.zone_capacity_lbas);
  const bool counted = options_.next_volume_id < ZoneTrimRecord::kVolumesEnd;
  ZoneTrim trim{zone, counted ? options_.next_volume_id : 0, capacity};
  const std::span<const ZoneTrim> known = trims_of(zone);
  if (!known.empty() && known.front().generation != 0) trim = known.front();
  trim.aside = true;
  return options_.note_trim(trim);
}

// What the journal says of its end is of no use any more.
Status Recovery::note_offline(ZoneId zone) {
  const bool known = options_.next_volume_id < ZoneTrimRecord::kVolumesEnd;
  if (options_.read_only || !options_.note_trim || !known) return {};
  const auto capacity = static_cast<std::uint32_t>(pool_.geometry.zone_capacity_lbas);
  return options_.note_trim({zone, options_.next_volume_id, capacity, false, true});
}

// Void before it is reset: should that fail, the zone that has it all may be gone at the opening
// that reads this one again, and the deletions of what it holds.
Status Recovery::note_rebuilt() {
  if (options_.read_only || !options_.note_trim) return {};
  for (const ZoneStamp& stamp : rebuilt_) {
    const Status noted =
        options_.note_trim({.zone = stamp.zone, .generation = stamp.generation, .end_lba = 0});
    if (!noted.ok()) return noted;
  }
  return {};
}

// Void before it is reset, likewise: where that fails, and the zone can be read one day, deletions
// of what it holds may be gone.
Status Recovery::note_given_up() {
  for (const ZoneId zone : given_up_) {
    const Status noted = note_void(zone);
    if (!noted.ok()) return noted;
  }
  return {};
}

// Whatever life it is: it may be offline, or not readable, at the next opening.
Status Recovery::note_void(ZoneId zone) {
  if (options_.read_only || !options_.note_trim) return {};
  return options_.note_trim({.zone = zone, .generation = ZoneTrimRecord::kAnyLife, .end_lba = 0});
}

Recovery::Writing Recovery::writing_of(const ZoneHeader& header) {
  return {header.volume, header.opened_sequence, header.stream, header.stamp.generation};
}

void Recovery::find_durable(const std::vector<ReadZone>& zones) {
  for (const ReadZone& zone : zones) {
    if (!zone.header.ok()) continue;
    const bool durable = std::ranges::any_of(trims_of(zone.info.zone), [&](const ZoneTrim& trim) {
      return trim.generation == zone.header->stamp.generation && trim.durable;
    });
    if (durable) durable_.push_back(writing_of(*zone.header));
  }
  std::ranges::sort(durable_);
}

// A repair wrote all of it to another zone, which is durable, and was cut off before it could reset
// this one. Both say the same, but a store may have no room for both.
bool Recovery::is_rebuilt(const ZoneHeader& header) const {
  Writing its = writing_of(header);
  const auto later = std::ranges::upper_bound(durable_, its);
  if (later == durable_.end()) return false;
  its.generation = later->generation;
  return *later == its;
}

bool Recovery::was_aside(ZoneId zone) const {
  return std::ranges::any_of(trims_of(zone), &ZoneTrim::aside);
}

// What an opening has served, after it had verified it, and has let newer pages be written on top
// of, does not go again because of a page before it that this one could not read.
bool Recovery::was_counted(const ZoneStamp& stamp) const {
  return std::ranges::any_of(trims_of(stamp.zone), [&](const ZoneTrim& trim) {
    return trim.aside && trim.generation == stamp.generation;
  });
}

// Of a cache's zones the one opened first goes first. Where one that was set aside has none before
// it that was not, what was opened after it may have gone as well, and with it newer pages: unless
// those that are left of what was opened then name each the one before it. While it was not there
// pinned pages that are older may have been written again.
bool Recovery::is_evicted(const ReadZone& zone, const std::vector<ReadZone>& zones) const {
  const std::uint64_t volume = zone.header->volume;
  const bool cache = std::ranges::find(options_.caches, volume) != options_.caches.end();
  if (!cache || !was_aside(zone.info.zone)) return false;
  std::vector<const ZoneHeader*> later;
  bool gone = !result_.lost.empty();  // something that it may have had
  std::uint64_t aside = 0;
  for (const ReadZone& other : zones) {
    gone |= !other.header.ok() && other.header.status().code() != Code::not_found;
    aside += was_aside(other.info.zone) ? 1 : 0;
    if (!other.header.ok() || other.header->volume != volume) continue;
    gone |= is_void(other.header->stamp, 0);
    if (is_void(other.header->stamp, 0)) continue;
    if (other.header->opened_sequence > zone.header->opened_sequence) {
      later.push_back(&*other.header);
    } else if (!was_aside(other.info.zone)) {
      return false;
    }
  }
  std::ranges::sort(later, {}, &ZoneHeader::opened_sequence);
  std::uint64_t opened = zone.header->opened_sequence;
  bool missing = false;
  for (const ZoneHeader* next : later) {
    missing |= next->previous_opened != opened;
    if (!was_aside(next->stamp.zone)) return missing;
    opened = next->opened_sequence;
  }
  // It was the last one, or was before such, and nothing has been stored since: a cache evicts
  // while it holds all of its quota but one, so two are left, of which one may have been empty yet.
  // Zones of whichever volume that were aside left it less than its quota.
  const bool few = pool_.allocator.quota(volume) < aside + 4;
  return missing || gone || few;
}

// It never comes back, so nothing needs to be deleted for its sake; but what it held is missing,
// and whose that was nobody can tell, unless the journal says that there was nothing. It was
// nothing of volumes that were made when the zone was offline already: the journal says from which
// one on.
void Recovery::take_offline(ZoneId zone) {
  const std::uint64_t made_since = volumes_since(zone);
  const auto may_miss_it = [made_since](std::uint64_t volume) { return volume < made_since; };
  const bool empty = holds_nothing(zone) || std::ranges::none_of(options_.volumes, may_miss_it);
  if (empty || given_up_now(zone)) {
    if (!holds_nothing(zone)) given_up_.push_back(zone);
    return set_aside(zone, "is offline");
  }
  set_aside(zone,
            "is offline; what it may have held is lost, and until that is given up "
            "(`furrowctl pool check --repair --give_up`) no disk is served, and no volume of "
            "files mounted");
  result_.lost.back().missing = Missing::all;
  if (made_since == kUnknown) offline_.push_back(zone);
  for (const std::uint64_t volume : options_.volumes) {
    if (may_miss_it(volume)) result_.volumes[volume].lost = true;
  }
}

std::uint64_t Recovery::volumes_since(ZoneId zone) const {
  for (const ZoneTrim& trim : trims_of(zone)) {
    const bool is_volume = trim.generation != 0 && trim.generation < ZoneTrimRecord::kVolumesEnd;
    if (trim.aside && is_volume) return trim.generation;
  }
  return kUnknown;
}

void Recovery::set_aside(ZoneId zone, const char* why, bool anyones) {
  ZoneAllocator::Zone bad;
  bad.use = ZoneUse::bad;
  if (anyones) bad.anyones = std::min(volumes_since(zone), options_.next_volume_id);
  pool_.allocator.adopt(zone, bad);
  result_.lost.push_back({zone, why, anyones ? Missing::all : Missing::nothing});
}

// What it holds stays readable, and it must not hold one of the device's active zones.
void Recovery::finish_aside(const ZoneInfo& info) {
  if (options_.read_only || info.state == ZoneState::full || info.state == ZoneState::read_only) {
    return;
  }
  const Status status = manage_blocking(*queue_, Io::Op::finish, info.zone);
  if (status.ok()) return;
  result_.lost.push_back({info.zone, "cannot be finished: " + status.describe()});
}

// Of a stream only the zone opened last can hold what was not flushed, unless those opened after it
// were collected: then the journal says that it is durable. One that has become read-only, or that
// the device has finished when its first write failed, may have got no further than its header,
// which is written before the zone before it is flushed. A trim is of a zone that got further, or
// of a recovery that has looked at the zone before it.
void Recovery::mark_newest() {
  std::map<std::pair<std::uint64_t, unsigned>, std::vector<FoundZone*>> streams;
  for (FoundZone& zone : zones_) streams[{zone.header.volume, zone.header.stream}].push_back(&zone);
  const auto is_trimmed = [this](const FoundZone& zone) {
    const ZoneDirectory& table = pool_.tables[zone.info.zone.value];
    return table.durable || table.end_lba != ~std::uint32_t{0};
  };
  for (auto& [stream, zones] : streams) {
    const auto opened = [](const FoundZone* zone) { return zone->header.opened_sequence; };
    std::ranges::sort(zones, std::greater(), opened);
    for (FoundZone* zone : zones) {
      zone->newest = !pool_.tables[zone->info.zone.value].durable;
      zone->followed = zone != zones.front();
      const ZoneState state = zone->info.state;
      const bool has_length = state != ZoneState::read_only && state != ZoneState::full;
      if (has_length || is_trimmed(*zone) || has_batch(*zone)) break;
    }
  }
  for (FoundZone& zone : zones_) {
    const bool durable = pool_.tables[zone.info.zone.value].durable;
    const bool lost = options_.trims_lost && !is_trimmed(zone);
    zone.unsure = !zone.newest && (zone.guessed || (!durable && (lost || zone.aside)));
  }
}

}  // namespace furrow
