// A pool and its device's zones as JSON: what furrowctl prints, of a device or from furrowd's admin
// listener.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/pool.h"
#include "zone/device.h"

namespace furrow::tools {

nlohmann::ordered_json pool_json(const Pool& pool);
// Blocks, as the device's report() does; any thread.
Result<nlohmann::ordered_json> zones_json(ZonedDevice& device);
// What a pool uses each of them for, and the names of its volumes by id.
struct ZoneUses {
  std::vector<PoolZone> zones;
  std::map<std::uint64_t, std::string> volumes;
};
ZoneUses zone_uses(const Pool& pool);  // on its home executor's thread
void add_uses(const ZoneUses& uses, nlohmann::ordered_json& zones);

}  // namespace furrow::tools
