// furrowctl zone report

#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/ctl_server.h"
#include "tools/make_pool.h"
#include "tools/pool_json.h"

namespace furrow::tools {

namespace {

int zone_report(const Arguments& arguments) {
  if (server_asked()) return zones_of_server();
  const auto device = open_device(arguments[0], Access::inspect);
  if (!device) return report_device("cannot inspect", arguments[0], device.status());
  const auto zones = zones_json(**device);
  if (!zones) return report("cannot report zones of " + arguments[0], zones.status());
  return print(*zones);
}

constexpr const char* kReportFlags[] = {"server"};

}  // namespace

std::span<const Command> zone_commands() {
  static constexpr Command kCommands[] = {
      {"zone report", "(DEVICE-URI | --server=HOST:PORT)", 1,
       "print states and write pointers (in use or not)", kReportFlags, zone_report},
  };
  return kCommands;
}

}  // namespace furrow::tools
