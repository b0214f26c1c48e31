#include "tools/asked.h"

namespace furrow::tools {

namespace {

constexpr Status other(const char* hint) { return {Code::exists, Origin::tool, hint}; }

}  // namespace

Status check_shape(const Geometry& geometry, bool preallocated, const DeviceShape& shape,
                   const ShapeAsked& asked) {
  const std::uint64_t lba = geometry.lba_bytes;
  const std::uint64_t zone_bytes = geometry.zone_size_lbas * lba;
  // A device has as many whole zones as go into its size.
  if (asked.size && shape.size_bytes / zone_bytes != geometry.zone_count) {
    return other("the device is there already, with another --size: leave it out");
  }
  if (asked.zone_size && shape.zone_size_bytes != zone_bytes) {
    return other("the device is there already, with another --zone_size: leave it out");
  }
  if (asked.zone_capacity && shape.zone_capacity_bytes != geometry.zone_capacity_bytes()) {
    return other("the device is there already, with another --zone_capacity: leave it out");
  }
  if (asked.lba && shape.lba_bytes != lba) {
    return other("the device is there already, with another --lba: leave it out");
  }
  if (asked.open_zones_max && shape.open_zones_max != geometry.open_zones_max) {
    return other("the device is there already, with another --mor: leave it out");
  }
  if (asked.active_zones_max && shape.active_zones_max != geometry.active_zones_max) {
    return other("the device is there already, with another --mar: leave it out");
  }
  if (asked.preallocate && shape.preallocate != preallocated) {
    return other("the device is there already, with another --preallocate: leave it out");
  }
  return {};
}

Status check_name(const PoolInfo& pool, std::string_view asked) {
  if (asked.empty() || asked == pool.name) return {};
  return other("the pool is there already, with another --name: leave it out");
}

Status check_volume(const VolumeInfo& volume, const Geometry& geometry,
                    const VolumeOptions& options, const VolumeAsked& asked) {
  const VolumeOptions& there = volume.options;
  const std::uint64_t zone_bytes = geometry.zone_capacity_bytes();
  if (asked.mode && options.mode != there.mode) {
    return other("the volume is there already, in the other --mode: leave it out");
  }
  if (asked.quota && options.quota_bytes != 0 &&
      options.quota_bytes / zone_bytes != there.quota_bytes / zone_bytes) {
    return other("the volume is there already, with another --quota: leave it out");
  }
  if (asked.nsid && options.nsid != 0 && options.nsid != there.nsid) {
    return other("the volume is there already, with another --nsid: leave it out");
  }
  if (asked.value_bytes_max && options.value_bytes_max != there.value_bytes_max) {
    return other("the volume is there already, with another --value_bytes_max: leave it out");
  }
  if (asked.durability && options.durability != there.durability) {
    return other("the volume is there already, with another --durability: leave it out");
  }
  return {};
}

}  // namespace furrow::tools
