// furrowctl zone report

#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/ctl_server.h"
#include "tools/make_pool.h"
#include "tools/pool_json.h"

namespace furrow::tools {

namespace {

int print_zones(const std::string& uri, ZonedDevice& device, const Pool* pool) {
  auto zones = zones_json(device);
  if (!zones) return report("cannot report zones of " + uri, zones.status());
  if (pool != nullptr) add_uses(zone_uses(*pool), *zones);
  return print(*zones);
}

// Of any zoned device, with a pool or without.
int zone_report(const Arguments& arguments) {
  if (server_asked()) return zones_of_server();
  EventLoop home;
  const auto pool = open_pool(arguments[0], home, Opening::inspect);
  if (pool) return print_zones(arguments[0], pool->device(), &**pool);
  const auto device = open_device(arguments[0], Access::inspect);
  if (!device) return report_device("cannot inspect", arguments[0], device.status());
  if (pool.status().code() != Code::foreign) {
    (void)report_device("cannot tell what its zones are used for:", arguments[0], pool.status());
  }
  return print_zones(arguments[0], **device, nullptr);
}

constexpr const char* kReportFlags[] = {"server"};

}  // namespace

std::span<const Command> zone_commands() {
  static constexpr Command kCommands[] = {
      {"zone report", "(DEVICE-URI | --server=HOST:PORT)", 1,
       "print states, write pointers and uses (in use or not)", kReportFlags, zone_report},
  };
  return kCommands;
}

}  // namespace furrow::tools
