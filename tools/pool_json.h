// A pool and its device's zones as JSON: what furrowctl prints, of a device or from furrowd's admin
// listener.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/pool.h"
#include "zone/device.h"

namespace furrow::tools {

nlohmann::ordered_json pool_json(const Pool& pool);
// Blocks, as the device's report() does; any thread.
Result<nlohmann::ordered_json> zones_json(ZonedDevice& device);
// What the pool uses each of them for. On its home executor's thread.
void add_uses(const Pool& pool, nlohmann::ordered_json& zones);

}  // namespace furrow::tools
