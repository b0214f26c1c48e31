// Reservations of volumes' namespaces that outlive the process, in the pool's metadata.
#include <algorithm>
#include <utility>

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
Status PoolImpl::check_reservations(const ReservationRecord& wanted) const {
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
  const std::size_t volumes = std::max(volumes_max(context_.geometry), stores_.size());
  if (wanted.persists && !MetadataRing::has_room_for(context_.geometry, volumes, all)) {
    return {Code::no_space, Origin::engine,
            "the pool's metadata zones are too small to keep so many hosts' registrations"};
  }
  return {};
}

void PoolImpl::keep_reservations(const ReservationRecord& wanted,
                                 std::function<void(const Status&)> kept) {
  keepings_.push_back({wanted, std::move(kept)});
  if (keepings_.size() == 1) begin_keeping();
}

void PoolImpl::begin_keeping() {
  Keeping& first = keepings_.front();
  const Status status = check_reservations(first.wanted);
  if (status.ok()) {
    const std::uint64_t volume = first.wanted.volume;
    const bool unsure = unsure_reservations_.contains(volume);
    const auto records =
        reservation_changes(reservation_of(ring_.state(), volume), first.wanted, unsure);
    first.records.assign(records.begin(), records.end());
  }
  go_on_keeping(status);
}

// With the first one's next record, or with the next one.
void PoolImpl::go_on_keeping(const Status& so_far) {
  Keeping& first = keepings_.front();
  if (so_far.ok() && !first.records.empty()) {
    keeping_.record = std::move(first.records.front());
    first.records.pop_front();
    unsure_reservations_.insert(first.wanted.volume);
    keeping_.context = this;
    keeping_.on_done = [](JournalQueue::Entry& entry) {
      auto& self = *static_cast<PoolImpl*>(entry.context);
      if (!entry.status.ok()) {
        entry.status = self.check_reservations(self.keepings_.front().wanted);
        if (entry.status.ok()) entry.status = self.journal(entry.record);  // the ring rolls
      }
      self.go_on_keeping(entry.status);
    };
    return journal_queue_.append(keeping_);
  }
  if (so_far.ok()) unsure_reservations_.erase(first.wanted.volume);
  const auto kept = std::move(first.kept);
  kept(so_far);  // what it asks for comes behind the others, which wait for it
  keepings_.pop_front();
  if (!keepings_.empty()) begin_keeping();
}

}  // namespace furrow
