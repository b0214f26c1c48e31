// furrowctl zone report

#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/make_pool.h"

namespace furrow::tools {

namespace {

int zone_report(const Arguments& arguments) {
  const auto device = open_device(arguments[0], Access::inspect);
  if (!device) return report_device("cannot inspect", arguments[0], device.status());
  const auto zones = (*device)->report();
  if (!zones) return report("cannot report zones of " + arguments[0], zones.status());
  const Geometry& geometry = (*device)->geometry();
  auto rows = nlohmann::ordered_json::array();
  for (const ZoneInfo& zone : *zones) {
    rows.push_back({{"zone", zone.zone.value},
                    {"state", to_string(zone.state)},
                    {"start_lba", geometry.zone_start(zone.zone).value},
                    {"written_lbas", zone.written_lbas},
                    {"capacity_lbas", geometry.zone_capacity_lbas}});
  }
  return print(rows);
}

}  // namespace

std::span<const Command> zone_commands() {
  static constexpr Command kCommands[] = {
      {"zone report",
       "DEVICE-URI",
       1,
       "print states and write pointers (in use or not)",
       {},
       zone_report},
  };
  return kCommands;
}

}  // namespace furrow::tools
