// furrowctl pool create|info, and the table of pool commands

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/ctl_server.h"
#include "tools/device_flags.h"
#include "tools/pool_json.h"
#include "tools/tell.h"

DEFINE_string(name, "furrow", "the pool's name, 1 to 63 bytes");

namespace furrow::tools {

namespace {

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
  if (made.ok()) return print(pool_json(**made));
  const int status = report_device("cannot create a pool on", arguments[0], made.status());
  if (shape.shape.force && made.status().code() == Code::exists) {
    tell("{}: with --size and --force an emulated device is made anew\n", program_name());
  }
  return status;
}

int info(const Arguments& arguments) {
  if (server_asked()) return pool_info_of_server();
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
    "preallocate",
    "force: overwrite what is there, be it a pool of Furrow's or anything else; all of it is lost"};
constexpr const char* kInfoFlags[] = {"server"};
constexpr const char* kCheckFlags[] = {"pages",
                                       "rate",
                                       "repair",
                                       "give_up",
                                       "yes",
                                       "dry_run",
                                       "server: refused, as only a closed pool can be checked"};

}  // namespace

std::span<const Command> pool_commands() {
  static constexpr Command kCommands[] = {
      {"pool create", "DEVICE-URI", 1, "make an empty pool, and an emulated device for it",
       kCreateFlags, create},
      {"pool info", "(DEVICE-URI | --server=HOST:PORT)", 1,
       "print a pool's geometry and zones (in use or not)", kInfoFlags, info},
      {"pool check", "DEVICE-URI", 1, "verify a closed pool; --repair mends it", kCheckFlags,
       check},
  };
  return kCommands;
}

}  // namespace furrow::tools
