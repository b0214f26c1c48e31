// What the user asked for in so many words, as against defaults, compared with what is there: so
// that no flag is passed over in silence when a device, a pool or a volume exists already. Pure;
// any thread.
#pragma once

#include <string_view>

#include "engine/pool.h"
#include "zone/device.h"
#include "zone/status.h"

namespace furrow::tools {

// Which parts of a DeviceShape were given.
struct ShapeAsked {
  bool size = false, zone_size = false, zone_capacity = false, lba = false;
  bool open_zones_max = false, active_zones_max = false, preallocate = false;
  bool any() const {
    return size || zone_size || zone_capacity || lba || open_zones_max || active_zones_max ||
           preallocate;
  }
};

// exists: a part that was given is not what the device has; the hint names its flag.
// `preallocated`: as the device says.
Status check_shape(const Geometry& geometry, bool preallocated, const DeviceShape& shape,
                   const ShapeAsked& asked);

// As check_shape(), for a pool that is there; an empty name was not asked for.
Status check_name(const PoolInfo& pool, std::string_view asked);

// Which parts of VolumeOptions were given.
struct VolumeAsked {
  bool name = false, mode = false, quota = false, nsid = false;
  bool value_bytes_max = false, durability = false;
  bool any() const { return name || mode || quota || nsid || value_bytes_max || durability; }
};

// As check_shape(), for a volume that is there. A quota is compared in whole zones, which is what a
// volume is given.
Status check_volume(const VolumeInfo& volume, const Geometry& geometry,
                    const VolumeOptions& options, const VolumeAsked& asked);

}  // namespace furrow::tools
