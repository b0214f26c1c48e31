// Pool state: what checkpoints hold and the journal changes.
#include <algorithm>
#include <utility>

#include "log/metadata_format.h"
#include "log/reservation_state.h"

namespace furrow {

namespace {

bool valid_share(const VolumeRecord& volume) {
  if (volume.kind != kKindZoned) return volume.open_zones_max == 0 && volume.active_zones_max == 0;
  return volume.quota_zones != 0 && volume.value_bytes_max == 0;
}

bool valid_size(const VolumeRecord& volume) {
  if (volume.kind != kKindBlock) return volume.lba_shift == 0 && volume.size_mib == 0;
  return (volume.lba_shift == 9 || volume.lba_shift == 12) && volume.size_mib != 0 &&
         volume.size_mib <= kSizeMibMax && volume.value_bytes_max == kBlockPageBytes;
}

bool valid_trim(const ZoneTrimRecord& trim) {
  return trim.end_lba <= ZoneTrimRecord::kEndLbaMax ||
         (trim.end_lba == ZoneTrimRecord::kNothing && !trim.durable);
}

std::uint64_t end_of(const LentZones& run) { return std::uint64_t{run.first} + run.count; }

bool valid_lent(const std::vector<LentZones>& lent) {
  std::uint64_t end = 0;
  for (const LentZones& run : lent) {
    if (run.volume == 0 || run.volume == UINT64_MAX || run.count == 0) return false;
    if (run.first < end || end_of(run) > UINT32_MAX) return false;
    end = end_of(run);
  }
  return true;
}

// Of a valid list.
bool is_lent(const PoolState& state, std::uint32_t zone) {
  const auto after = std::ranges::upper_bound(state.lent, zone, {}, &LentZones::first);
  return after != state.lent.begin() && zone < end_of(*(after - 1));
}

std::uint64_t zones_lent_to(const PoolState& state, std::uint64_t volume) {
  std::uint64_t zones = 0;
  for (const LentZones& run : state.lent) zones += run.volume == volume ? run.count : 0;
  return zones;
}

bool clashes(const VolumeRecord& a, const VolumeRecord& b) {
  return a.id == b.id || a.name == b.name || (a.nsid != 0 && a.nsid == b.nsid);
}

template <class T>
bool all_differ(std::vector<T>& values) {
  std::ranges::sort(values);
  return std::ranges::adjacent_find(values) == values.end();
}

VolumeRecord id_alone(const VolumeRecord& volume) {
  VolumeRecord alone;
  alone.id = volume.id;
  return alone;
}

bool is_listed(const PoolState& state, std::uint64_t volume) {
  return std::ranges::find(state.volumes, volume, &VolumeRecord::id) != state.volumes.end();
}

bool valid_reservations(const PoolState& state) {
  std::uint64_t last = 0;
  for (const ReservationRecord& record : state.reservations) {
    if (record.volume <= last || !is_listed(state, record.volume)) return false;
    if (!valid_reservation(record)) return false;
    last = record.volume;
  }
  return true;
}

Status misfit(const char* hint) { return Status(Code::corrupt, Origin::log, hint); }

Status resize(PoolState& state, const VolumeRecord& sizes) {
  const auto volume = std::ranges::find(state.volumes, sizes.id, &VolumeRecord::id);
  if (volume == state.volumes.end()) return misfit("an unknown volume is resized");
  if (volume->kind == kKindZoned)
    return misfit("a zoned volume has the zones that were lent to it");
  if ((volume->kind == kKindBlock) != (sizes.size_mib != 0)) {
    return misfit("a size is of volumes of kind block");
  }
  if (sizes.size_mib < volume->size_mib) return misfit("a block volume gets smaller");
  volume->quota_zones = sizes.quota_zones;
  volume->size_mib = sizes.size_mib;
  return {};
}

Status lend(PoolState& state, const JournalRecord& record) {
  const std::uint64_t volume = record.volume.id;
  if (is_listed(state, volume)) return misfit("zones are lent to a volume that has its own");
  std::vector<LentZones> lent = state.lent;
  if (record.anew) std::erase_if(lent, [&](const LentZones& run) { return run.volume == volume; });
  lent.insert(lent.end(), record.lent.begin(), record.lent.end());
  std::ranges::sort(lent, {}, &LentZones::first);
  if (!valid_lent(lent)) return misfit("a zone is lent twice");
  state.lent = std::move(lent);
  // Their lives before are over.
  std::erase_if(state.trims, [&](const ZoneTrimRecord& trim) { return is_lent(state, trim.zone); });
  return {};
}

}  // namespace

bool valid_journal(const JournalRecord& record) {
  if (record.kind == JournalRecord::Kind::reservations_changed) {
    return !record.anew && record.lent.empty() && record.open_count == 0 &&
           record.trim == ZoneTrimRecord{} && record.volume == id_alone(record.volume) &&
           record.volume.id != 0 && valid_reservation_change(record.reservation);
  }
  if (record.reservation != ReservationChange{}) return false;
  if (record.kind == JournalRecord::Kind::zone_trimmed) {
    return !record.anew && record.lent.empty() && record.open_count == 0 &&
           record.volume == VolumeRecord{} && valid_trim(record.trim);
  }
  if (record.trim != ZoneTrimRecord{}) return false;
  if (record.kind == JournalRecord::Kind::zones_lent) {
    const auto others = [&](const LentZones& run) { return run.volume != record.volume.id; };
    return record.open_count == 0 && record.volume == id_alone(record.volume) &&
           record.volume.id != 0 && record.lent.size() <= JournalRecord::kRunsMax &&
           valid_lent(record.lent) && std::ranges::none_of(record.lent, others);
  }
  if (record.anew || !record.lent.empty()) return false;
  if (record.kind == JournalRecord::Kind::volume_resized) {
    VolumeRecord sizes_alone = id_alone(record.volume);
    sizes_alone.quota_zones = record.volume.quota_zones;
    sizes_alone.size_mib = record.volume.size_mib;
    return record.open_count == 0 && record.volume == sizes_alone && sizes_alone.id != 0 &&
           sizes_alone.quota_zones != 0 && sizes_alone.size_mib <= kSizeMibMax;
  }
  switch (record.kind) {
    case JournalRecord::Kind::opened:
      return record.open_count <= kOpenCountMax && record.volume == VolumeRecord{};
    case JournalRecord::Kind::volume_created:
      return record.open_count == 0 && valid_volume(record.volume);
    case JournalRecord::Kind::formatted:
      return record.open_count == 0 && record.volume == VolumeRecord{};
    case JournalRecord::Kind::volume_deleted:
      return record.open_count == 0 && record.volume.id != 0 &&
             (record.volume.name.empty() || valid_name(record.volume.name));
    case JournalRecord::Kind::zone_trimmed:
    case JournalRecord::Kind::zones_lent:
    case JournalRecord::Kind::volume_resized:
    case JournalRecord::Kind::reservations_changed:
      break;
  }
  return false;
}

bool valid_volume(const VolumeRecord& volume) {
  return volume.id != 0 && volume.id != UINT64_MAX && valid_name(volume.name) &&
         volume.value_bytes_max <= kValueBytesMax && valid_size(volume) && valid_share(volume);
}

std::uint64_t features_needed(const PoolState& state) {
  std::uint64_t features = state.lent.empty() ? 0 : kFeatureZonedVolumes;
  if (!state.reservations.empty()) features |= kFeatureReservations;
  for (const VolumeRecord& volume : state.volumes) {
    if (volume.kind == kKindBlock) features |= kFeatureBlockVolumes;
    if (volume.kind == kKindZoned) features |= kFeatureZonedVolumes;
  }
  return features;
}

std::uint64_t features_needed(const JournalRecord& record) {
  switch (record.kind) {
    case JournalRecord::Kind::volume_resized:
      return kFeatureResizedVolumes;
    case JournalRecord::Kind::reservations_changed:
      return kFeatureReservations;
    default:
      return 0;
  }
}

bool valid_state(const PoolState& state) {
  if (state.open_count > kOpenCountMax) return false;
  std::vector<std::string_view> names;
  std::vector<std::uint32_t> nsids;
  std::uint64_t last_id = 0;
  if (!valid_lent(state.lent)) return false;
  for (const ZoneTrimRecord& trim : state.trims) {
    if (is_lent(state, trim.zone)) return false;
  }
  for (const VolumeRecord& volume : state.volumes) {
    if (!valid_volume(volume) || volume.id <= last_id) return false;
    const bool zoned = volume.kind == kKindZoned;
    if (zones_lent_to(state, volume.id) != (zoned ? volume.quota_zones : 0)) return false;
    last_id = volume.id;
    names.push_back(volume.name);
    if (volume.nsid != 0) nsids.push_back(volume.nsid);
  }
  const auto same_or_later = [](const ZoneTrimRecord& a, const ZoneTrimRecord& b) {
    return a.zone >= b.zone;
  };
  if (std::ranges::adjacent_find(state.trims, same_or_later) != state.trims.end()) return false;
  if (!std::ranges::all_of(state.trims, valid_trim) || !valid_reservations(state)) return false;
  return state.next_volume_id > last_id && all_differ(names) && all_differ(nsids);
}

Status apply(PoolState& state, const JournalRecord& record) {
  if (!valid_journal(record)) return misfit("a journal record's fields are out of range");
  switch (record.kind) {
    case JournalRecord::Kind::formatted:
      return {};
    case JournalRecord::Kind::opened:
      if (record.open_count <= state.open_count) return misfit("an opening is counted twice");
      state.open_count = record.open_count;
      return {};
    case JournalRecord::Kind::volume_created:
      if (record.volume.id < state.next_volume_id) return misfit("a volume's id was used before");
      for (const VolumeRecord& volume : state.volumes) {
        if (clashes(volume, record.volume)) return misfit("a volume's name or NSID is taken");
      }
      if (record.volume.kind != kKindZoned) {  // zones may be lent to one that was not made then
        std::erase_if(state.lent,
                      [&](const LentZones& run) { return run.volume == record.volume.id; });
      } else if (zones_lent_to(state, record.volume.id) != record.volume.quota_zones) {
        return misfit("a zoned volume has other zones than were lent to it");
      }
      state.volumes.push_back(record.volume);
      state.next_volume_id = record.volume.id + 1;
      return {};
    case JournalRecord::Kind::volume_deleted:
      if (std::erase_if(state.volumes, [&](const VolumeRecord& volume) {
            return volume.id == record.volume.id;
          }) == 0) {
        return misfit("an unknown volume is deleted");
      }
      std::erase_if(state.reservations, [&](const ReservationRecord& reservation) {
        return reservation.volume == record.volume.id;
      });
      return {};
    case JournalRecord::Kind::zones_lent:
      return lend(state, record);
    case JournalRecord::Kind::volume_resized:
      return resize(state, record.volume);
    case JournalRecord::Kind::reservations_changed:
      if (!is_listed(state, record.volume.id)) {
        return misfit("an unknown volume's reservations change");
      }
      return apply_reservation_change(state.reservations, record.volume.id, record.reservation);
    case JournalRecord::Kind::zone_trimmed: {
      if (is_lent(state, record.trim.zone)) return {};  // that life of the zone is over
      auto at = std::ranges::lower_bound(state.trims, record.trim.zone, {}, &ZoneTrimRecord::zone);
      const bool there = at != state.trims.end() && at->zone == record.trim.zone;
      if (record.trim.end_lba == ZoneTrimRecord::kNothing) {
        if (there) state.trims.erase(at);
      } else if (there) {
        const bool durable = at->durable && at->generation == record.trim.generation;
        *at = record.trim;
        at->durable |= durable;
      } else {
        state.trims.insert(at, record.trim);
      }
      return {};
    }
  }
  return misfit("a journal record's kind is unknown");
}

}  // namespace furrow
