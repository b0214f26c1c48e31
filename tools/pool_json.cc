#include "tools/pool_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/device_flags.h"

namespace furrow::tools {

nlohmann::ordered_json pool_json(const Pool& pool) {
  const PoolInfo info = pool.info();
  const Geometry& geometry = info.geometry;
  return {{"name", info.name},
          {"uuid", format_uuid(info.uuid)},
          {"format_version", info.format_version},
          {"lba_bytes", geometry.lba_bytes},
          {"zone_size_bytes", geometry.zone_size_lbas * geometry.lba_bytes},
          {"zone_capacity_bytes", geometry.zone_capacity_bytes()},
          {"zones", geometry.zone_count},
          {"open_zones_max", geometry.open_zones_max},
          {"active_zones_max", geometry.active_zones_max},
          {"preallocated", info.preallocated},
          {"zones_unpromised", info.zones_unpromised},
          {"zones_returning", info.zones_returning},
          {"zones_free", info.zones_free},
          {"zones_metadata", info.zones_metadata},
          {"zones_data", info.zones_data},
          {"zones_bad", info.zones_bad},
          {"volumes", pool.stores().size()},
          {"recovered_pages", info.recovered_pages},
          {"recovery_us", info.recovery_us},
          {"opening_damage", pool.opening_damage()}};
}

Result<nlohmann::ordered_json> zones_json(ZonedDevice& device) {
  const auto zones = device.report();
  if (!zones) return zones.status();
  const Geometry& geometry = device.geometry();
  auto rows = nlohmann::ordered_json::array();
  for (const ZoneInfo& zone : *zones) {
    rows.push_back({{"zone", zone.zone.value},
                    {"state", to_string(zone.state)},
                    {"start_lba", geometry.zone_start(zone.zone).value},
                    {"written_lbas", zone.written_lbas},
                    {"capacity_lbas", geometry.zone_capacity_lbas}});
  }
  return rows;
}

namespace {

// Which of its zones a pool writes to, empties or resets is of the moment.
bool has_pages(ZoneUse use) {
  return use == ZoneUse::open || use == ZoneUse::sealed || use == ZoneUse::draining ||
         use == ZoneUse::resetting;
}

}  // namespace

ZoneUses zone_uses(const Pool& pool) {
  ZoneUses uses{pool.zones(), {}};
  for (const PageStore* store : pool.stores()) {
    uses.volumes[store->info().id] = store->info().options.name;
  }
  return uses;
}

void add_uses(const ZoneUses& uses, nlohmann::ordered_json& zones) {
  for (std::size_t i = 0; i < std::min(uses.zones.size(), zones.size()); ++i) {
    const PoolZone& zone = uses.zones[i];
    nlohmann::ordered_json& row = zones[i];
    row["use"] = has_pages(zone.use) ? "pages" : to_string(zone.use);
    const auto name = uses.volumes.find(zone.volume);
    if (name != uses.volumes.end()) row["volume"] = name->second;
    if (has_pages(zone.use)) row["live_bytes"] = zone.live_bytes;
  }
}

}  // namespace furrow::tools
