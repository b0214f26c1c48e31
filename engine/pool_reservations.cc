// Reservations of volumes' namespaces that outlive the process, in the pool's metadata.
#include <algorithm>

#include "engine/pool_impl.h"
#include "log/reservation_state.h"

namespace furrow {

namespace {

const ReservationRecord* reservation_of(const PoolState& state, std::uint64_t volume) {
  const auto found = std::ranges::find(state.reservations, volume, &ReservationRecord::volume);
  return found == state.reservations.end() ? nullptr : &*found;
}

}  // namespace

std::size_t volumes_max(const Geometry& geometry) {
  const std::uint64_t volumes = (geometry.zone_count - kMetadataZones) / kVolumeZonesMin;
  return std::min<std::uint64_t>(volumes, PoolImpl::kVolumesMax);
}

ReservationRecord PoolImpl::reservations(std::uint64_t volume) const {
  const ReservationRecord* kept = reservation_of(ring_.state(), volume);
  if (kept != nullptr && kept->persists) return *kept;
  ReservationRecord none;
  none.volume = volume;
  return none;
}

// What volumes and zones may need in the metadata is never taken for it.
Status PoolImpl::keep_reservations(const ReservationRecord& wanted) {
  const PoolState& state = ring_.state();
  if (wanted.persists && !valid_reservation(wanted)) {
    return {Code::invalid_argument, Origin::engine, "a reservation is held by nobody"};
  }
  if (std::ranges::find(state.volumes, wanted.volume, &VolumeRecord::id) == state.volumes.end()) {
    return {Code::not_found, Origin::engine, "the volume was deleted"};
  }
  std::vector<ReservationRecord> all = state.reservations;
  std::erase_if(all, [&](const auto& other) { return other.volume == wanted.volume; });
  if (wanted.persists) all.push_back(wanted);
  const std::size_t volumes = volumes_max(context_.geometry);
  if (wanted.persists && !MetadataRing::has_room_for(context_.geometry, volumes, all)) {
    return {Code::no_space, Origin::engine,
            "the pool's metadata zones are too small to keep so many hosts' registrations"};
  }
  const auto records = reservation_changes(reservation_of(state, wanted.volume), wanted);
  for (const JournalRecord& record : records) {
    const Status status = journal(record);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace furrow
