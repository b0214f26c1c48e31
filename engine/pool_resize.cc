// Volumes get another quota, or a larger disk.
//
// The journal has a smaller quota only when the volume holds no more: until then nobody else is
// promised the zones, and whatever ends the process leaves the quota that it was.
#include <fmt/format.h>

#include <algorithm>

#include "engine/page_session.h"
#include "engine/pool_impl.h"

namespace furrow {

namespace {

// That a volume's user waits for at a time, while more are freed.
constexpr std::uint64_t kFreedAtOnce = 8;

Status refused(Code code, const char* hint) { return {code, Origin::engine, hint}; }

Status check_block_growth(const PageStoreImpl& store, std::uint64_t bytes) {
  const VolumeOptions& now = store.info().options;
  if (now.kind != VolumeKind::block) {
    return refused(Code::invalid_argument, "a size is of volumes of kind block");
  }
  if (bytes % kDiskUnitBytes != 0 || bytes / kDiskUnitBytes > kSizeMibMax) {
    return refused(Code::invalid_argument,
                   "a block volume's size is a multiple of 1 MiB, less than 16 TiB");
  }
  if (bytes < now.block_bytes) {
    return refused(Code::unsupported,
                   "a block volume does not get smaller, as its hosts would lose what lies behind: "
                   "make another one and copy");
  }
  if (bytes / kBlockPageBytes <= store.blocks()->order.blocks_max()) return {};
  return refused(
      Code::unsupported,
      "a disk grows to twice what it was when the pool was opened, or to 16 GiB where that "
      "is more: resize it in steps, and open the pool again in between");
}

}  // namespace

Status PoolImpl::check_resize(const PageStoreImpl* store, const ResizeOptions& options) const {
  if (store == nullptr) return refused(Code::not_found, "no volume of that name");
  if (options_.read_only) {
    return refused(Code::permission, "the pool was opened for inspection only");
  }
  if (store->zones() != nullptr) {
    return refused(Code::unsupported,
                   "a zoned volume's zones are zones of the device, one to one: make another one");
  }
  if (options.quota_bytes == 0 && options.block_bytes == 0) {
    return refused(Code::invalid_argument, "say what is to change: the quota, or a disk's size");
  }
  if (options.quota_bytes != 0 &&
      options.quota_bytes / context_.geometry.zone_capacity_bytes() < kVolumeZonesMin) {
    return refused(Code::invalid_argument,
                   "a volume needs a quota of at least three zones' capacity");
  }
  return options.block_bytes == 0 ? Status() : check_block_growth(*store, options.block_bytes);
}

ResizeAnswer PoolImpl::bounds_of(PageStoreImpl& store) const {
  const std::uint64_t zone_bytes = context_.geometry.zone_capacity_bytes();
  const ZoneAllocator& allocator = context_.allocator;
  ResizeAnswer answer;
  answer.quota_bytes_min = store.log().quota_min() * zone_bytes;
  answer.quota_bytes_max = (allocator.quota_max(store.info().id) + returns_.zones()) * zone_bytes;
  return answer;
}

ResizeAnswer PoolImpl::resize_volume(std::string_view name, const ResizeOptions& options) {
  auto* const store = static_cast<PageStoreImpl*>(find(name));
  ResizeAnswer answer;
  answer.status = check_resize(store, options);
  if (!answer.status.ok()) return answer;
  const VolumeOptions& now = store->info().options;
  const std::uint64_t zone_bytes = context_.geometry.zone_capacity_bytes();
  const std::uint64_t given = now.quota_bytes / zone_bytes;
  const std::uint64_t zones = options.quota_bytes != 0 ? options.quota_bytes / zone_bytes : given;
  const std::uint64_t block_bytes =
      options.block_bytes != 0 ? options.block_bytes : now.block_bytes;
  const std::uint64_t has = context_.allocator.quota(store->info().id);
  // A volume whose zones were lost has less than it was given, until they are back.
  const std::uint64_t quota = zones > given ? zones : std::min(zones, has);
  answer = bounds_of(*store);
  answer.status = check_quota(*store, quota, answer);
  if (answer.status.ok() && quota < has) answer.zones_to_free = free_zones(*store, quota, answer);
  if (answer.zones_to_free != 0) return answer;
  if (answer.status.ok() && (zones != given || block_bytes != now.block_bytes)) {
    answer.status = journal_sizes(*store, zones, block_bytes);
  }
  if (!answer.status.ok()) {
    store->log().end_shrinking();
    return answer;
  }
  context_.allocator.set_quota(store->info().id, quota);
  store->log().resized();
  return answer;
}

Status PoolImpl::check_quota(PageStoreImpl& store, std::uint64_t quota,
                             const ResizeAnswer& bounds) const {
  const std::uint64_t bytes = quota * context_.geometry.zone_capacity_bytes();
  const std::uint64_t has = context_.allocator.quota(store.info().id);
  if (quota > has && bytes > bounds.quota_bytes_max) {
    return sheds_zones()
               ? kShedding
               : refused(Code::no_space, "the other volumes' quotas leave not so many zones");
  }
  if (quota > has && quota > store.log().quota_max()) {
    return refused(Code::unsupported,
                   "that is more than 64 times the quota as of when the pool was opened: resize it "
                   "in steps, and open the pool again in between");
  }
  if (quota > has && quota > context_.allocator.quota_max(store.info().id)) {
    return refused(Code::busy, "zones of volumes that were deleted are being reset; try again");
  }
  if (quota < has && bytes < bounds.quota_bytes_min) {
    return refused(Code::no_space, "what the volume keeps needs more zones than that");
  }
  return {};
}

// How many are to be freed before the quota can be that: they are being, or it is told why not.
std::uint64_t PoolImpl::free_zones(PageStoreImpl& store, std::uint64_t quota,
                                   ResizeAnswer& answer) {
  PageLog& log = store.log();
  const std::uint64_t held = context_.allocator.held(store.info().id);
  if (held < quota) return 0;
  answer.status = log.take_shrinking_failure();
  if (!answer.status.ok()) return 0;
  answer.status = refused(Code::busy, "zones are being freed for it; try again");
  // Not all at once: the user has some in between.
  if (!log.freeing()) log.shrink(std::max(quota, held - std::min(held, kFreedAtOnce)));
  return held + 1 - quota;
}

// Zones are back in whose place a store took others, and none is promised to nobody: it has no zone
// to empty others into, and could not even take deletes. One comes off the quota that needs it
// least, until the next opening.
void PoolImpl::spare_for_copies() {
  const auto spare = [](const auto& store) {
    return store->zones() == nullptr ? store->log().zones_to_spare() : 0;
  };
  for (const auto& store : stores_) {
    if (store->zones() != nullptr || store->log().options().cache) continue;
    if (!store->log().at_quota()) continue;
    const auto& giver = *std::ranges::max_element(stores_, {}, spare);
    if (spare(giver) == 0) continue;
    context_.allocator.allow_from(giver->info().id, store->info().id);
    notes_.push_back(
        fmt::format("volume {} holds all of its quota and needs a zone more, since zones are back: "
                    "the quota of volume {} is smaller by it until the next opening",
                    store->info().options.name, giver->info().options.name));
  }
}

// What a volume holds beyond its quota is to be had soon.
bool PoolImpl::sheds_zones() const {
  bool any = false;
  for (const auto& store : stores_) {
    if (store->zones() == nullptr && store->log().sheds_zones()) any = true;
  }
  return any;
}

// And what everybody sees.
Status PoolImpl::journal_sizes(PageStoreImpl& store, std::uint64_t quota_zones,
                               std::uint64_t block_bytes) {
  JournalRecord resized;
  resized.kind = JournalRecord::Kind::volume_resized;
  resized.volume.id = store.info().id;
  resized.volume.quota_zones = quota_zones;
  resized.volume.size_mib = static_cast<std::uint32_t>(block_bytes / kDiskUnitBytes);
  const Status status = journal(resized);
  if (!status.ok()) return status;
  if (store.blocks() != nullptr) store.blocks()->grow(block_bytes / kBlockPageBytes);
  VolumeInfo info = store.info();
  info.options.quota_bytes = quota_zones * context_.geometry.zone_capacity_bytes();
  info.options.block_bytes = block_bytes;
  store.set_info(std::move(info));
  return {};
}

}  // namespace furrow
