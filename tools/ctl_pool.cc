// furrowctl pool create|info, and the table of pool commands

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/device_flags.h"

DEFINE_string(name, "furrow", "the pool's name, 1 to 63 bytes");

namespace furrow::tools {

namespace {

using Json = nlohmann::ordered_json;

int create(const Arguments& arguments) {
  const ShapeFlags shape = device_shape_from_flags();
  if (!shape.status.ok()) {
    return report_usage(fmt::format("--{}: {}", shape.wrong_flag, shape.status.describe()));
  }
  if (const Status named = check_new_name(FLAGS_name); !named.ok()) {
    return report_usage("--name: " + named.describe());
  }
  EventLoop home;
  const auto made = create_pool({arguments[0], shape.shape, shape.asked, FLAGS_name}, home);
  if (!made) return report_device("cannot create a pool on", arguments[0], made.status());
  return print(pool_json(**made));
}

int info(const Arguments& arguments) {
  EventLoop home;
  const auto opened = open_pool(arguments[0], home, Opening::inspect);
  if (!opened) return report_device("cannot inspect", arguments[0], opened.status());
  return print(pool_json(**opened));
}

constexpr const char* kCreateFlags[] = {
    "name",
    "size",
    "zone_size",
    "zone_capacity",
    "lba",
    "mor",
    "mar",
    "force: overwrite what is there, be it a pool of Furrow's or anything else; all of it is lost"};
constexpr const char* kCheckFlags[] = {"pages", "rate", "repair", "yes", "dry_run"};

}  // namespace

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
          {"zones_unpromised", info.zones_unpromised},
          {"zones_free", info.zones_free},
          {"zones_metadata", info.zones_metadata},
          {"zones_data", info.zones_data},
          {"zones_bad", info.zones_bad},
          {"volumes", pool.stores().size()},
          {"recovered_pages", info.recovered_pages},
          {"recovery_us", info.recovery_us},
          {"opening_damage", pool.opening_damage()}};
}

std::span<const Command> pool_commands() {
  static constexpr Command kCommands[] = {
      {"pool create", "DEVICE-URI", 1, "make an empty pool, and an emulated device for it",
       kCreateFlags, create},
      {"pool info", "DEVICE-URI", 1, "print a pool's geometry and zones (in use or not)", {}, info},
      {"pool check", "DEVICE-URI", 1, "verify a closed pool; --repair mends it", kCheckFlags,
       check},
  };
  return kCommands;
}

}  // namespace furrow::tools
