#include "transport/namespaces.h"

#include <algorithm>

#include "engine/zoned/zoned_session.h"

namespace furrow::transport {

std::uint64_t Namespace::size_bytes() const {
  const std::uint64_t quota = store->usage().quota_zones * zone_bytes;
  return quota != 0 ? quota : pool_bytes;
}

namespace {

std::shared_ptr<SharedReservations> restored(const Pool& pool, std::uint64_t volume) {
  auto shared = std::make_shared<SharedReservations>();
  shared->state = Reservations(pool.reservations(volume));
  if (shared->state.held()) shared->view = std::make_shared<const Reservations>(shared->state);
  return shared;
}

}  // namespace

NamespaceTable::NamespaceTable(const Pool& pool, const NamespaceTable& before,
                               const NamespaceChange& change, std::uint32_t transfer_bytes_max) {
  const Geometry geometry = pool.info().geometry;
  for (PageStore* store : pool.stores()) {
    const VolumeInfo& info = store->info();
    const std::uint32_t nsid = info.options.nsid;
    if (nsid == 0 || nsid > kNamespacesMax) continue;
    const auto was_active = find_volume(before.all_, info.id);
    const auto known = was_active ? was_active : find_volume(before.withdrawn_, info.id);
    const bool stays_withdrawn = known && !was_active && nsid != change.given_back;
    const bool active = nsid != change.withdrawn && !stays_withdrawn;
    Namespaces& its = active ? all_ : withdrawn_;
    // One that comes back is another one: commands may still use the one that went.
    const bool comes_back = active && !was_active;
    if (known && !comes_back && known->quota_bytes == info.options.quota_bytes &&
        known->block_bytes == info.options.block_bytes) {
      its.push_back(known);
      continue;
    }
    auto made = std::make_shared<Namespace>();
    made->delete_missing_is_error =
        known ? known->delete_missing_is_error : std::make_shared<std::atomic<bool>>(false);
    made->reservations = known ? known->reservations : restored(pool, info.id);
    made->nsid = nsid;
    made->volume_id = info.id;
    made->store = store;
    made->uuid = info.uuid;
    made->value_bytes_max = std::clamp(info.options.value_bytes_max, 1u, transfer_bytes_max);
    made->kind = info.options.kind;
    made->quota_bytes = info.options.quota_bytes;
    made->block_bytes = info.options.block_bytes;
    made->block_lba_bytes = info.options.block_lba_bytes;
    if (made->kind == VolumeKind::zoned) made->zones = zoned_geometry(*store);
    made->lba_bytes = geometry.lba_bytes;
    made->zone_bytes = geometry.zone_capacity_bytes();
    made->pool_bytes = geometry.zone_capacity_bytes() * geometry.zone_count;
    its.push_back(std::move(made));
  }
  std::sort(all_.begin(), all_.end(),
            [](const auto& a, const auto& b) { return a->nsid < b->nsid; });
}

std::shared_ptr<const Namespace> NamespaceTable::find(std::uint32_t nsid) const {
  for (const auto& ns : all_) {
    if (ns->nsid == nsid) return ns;
  }
  return nullptr;
}

std::shared_ptr<const Namespace> NamespaceTable::find_volume(const Namespaces& among,
                                                             std::uint64_t id) {
  const auto found = std::ranges::find(among, id, &Namespace::volume_id);
  return found == among.end() ? nullptr : *found;
}

}  // namespace furrow::transport
