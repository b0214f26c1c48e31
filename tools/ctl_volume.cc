// furrowctl volume create|list|resize|delete; copy is in ctl_volume_copy.cc

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <nlohmann/json.hpp>

#include "tools/command_line.h"
#include "tools/ctl_command.h"
#include "tools/ctl_server.h"
#include "tools/device_flags.h"
#include "tools/progress.h"
#include "tools/tell.h"
#include "tools/volume_json.h"

DEFINE_string(kind, "kv",
              "kv: keys and pages; fs: files, for RocksDB; block: a disk of --size with LBAs of "
              "--lba bytes; zoned: --zones of the device (the mode of all but kv is store)");

namespace furrow::tools {

namespace {

int create_volume(const Arguments& arguments) {
  const bool block = FLAGS_kind == "block", zoned = FLAGS_kind == "zoned";
  if (FLAGS_kind != "kv" && FLAGS_kind != "fs" && !block && !zoned) {
    return report_usage("--kind: kv, fs, block or zoned");
  }
  VolumeFlags volume = volume_options_from_flags(arguments.back());
  if (block && volume.status.ok()) take_block_flags(volume);
  if (zoned && volume.status.ok()) take_zoned_flags(volume);
  for (const char* flag : {"zones", "max_open", "max_active"}) {
    if (!zoned && flag_given(flag)) return report_usage(fmt::format("--{}: of kind zoned", flag));
  }
  for (const char* flag : {"size", "lba"}) {
    if (!block && flag_given(flag)) return report_usage(fmt::format("--{}: of kind block", flag));
  }
  if (!volume.status.ok()) {
    return report_usage(fmt::format("--{}: {}", volume.wrong_flag, volume.status.describe()));
  }
  if (FLAGS_kind == "fs") {
    volume.options.kind = VolumeKind::fs;
    if (!flag_given("mode")) volume.options.mode = VolumeMode::store;
    if (!flag_given("value_bytes_max")) volume.options.value_bytes_max = 0;
  }
  if (const Status named = check_new_name(volume.options.name); !named.ok()) {
    return report("cannot create volume " + volume.options.name, named);
  }
  if (server_asked()) return create_on_server(volume.options);
  EventLoop home;
  const auto opened = open_pool(arguments[0], home, Opening::use);
  if (!opened) return report_device("cannot open", arguments[0], opened.status());
  const auto made = [&] {
    const Progress progress("creating " + volume.options.name);  // zones may be on their way back
    return opened->create_volume(volume.options);
  }();
  if (!made) return report("cannot create volume " + arguments[1], made.status());
  return print(volume_json(**made));
}

int list_volumes(const Arguments& arguments) {
  if (server_asked()) return list_on_server();
  EventLoop home;
  const auto opened = open_pool(arguments[0], home, Opening::inspect);
  if (!opened) return report_device("cannot inspect", arguments[0], opened.status());
  auto volumes = nlohmann::ordered_json::array();
  for (const PageStore* store : (*opened)->stores()) volumes.push_back(volume_json(*store));
  return print(volumes);
}

// Where zones are to be freed first, this is what frees them.
int resize(const Arguments& arguments) {
  const std::string& name = arguments.back();
  const ResizeFlags flags = resize_options_from_flags();
  if (!flags.status.ok()) {
    return report_usage(fmt::format("--{}: {}", flags.wrong_flag, flags.status.describe()));
  }
  if (const Status named = check_new_name(name); !named.ok()) {
    return report("cannot resize volume " + name, named);
  }
  if (server_asked()) return resize_on_server(name, flags.options);
  EventLoop home;
  const auto opened = open_pool(arguments[0], home, Opening::use);
  if (!opened) return report_device("cannot open", arguments[0], opened.status());
  const ResizeAnswer answer = [&] {
    const Progress progress("resizing " + name);
    for (;;) {
      ResizeAnswer now = (*opened)->resize_volume(name, flags.options);
      if (now.status.code() != Code::busy) return now;
      home.run_once();
    }
  }();
  if (answer.status.ok()) return print(volume_json(*(*opened)->find(name)));
  tell("{}: cannot resize volume {}: {}\n", program_name(), name,
       error_json(answer)["error"].get<std::string>());
  return answer.status.code() == Code::invalid_argument ? kExitUsage : kExitFailed;
}

int remove_volume(const Arguments& arguments) {
  if (server_asked()) {
    const Status named = check_new_name(arguments[0]);
    if (!named.ok()) return report("cannot delete volume " + arguments[0], named);
    return delete_on_server(arguments[0]);
  }
  EventLoop home;
  const auto opened = open_pool(arguments[0], home, Opening::use);
  if (!opened) return report_device("cannot open", arguments[0], opened.status());
  const Status deleted = [&] {
    const Progress progress("deleting " + arguments[1]);
    return opened->delete_volume(arguments[1]);
  }();
  if (!deleted.ok()) return report("cannot delete volume " + arguments[1], deleted);
  return print({{"deleted", arguments[1]}});
}

constexpr const char* kVolumeCreateFlags[] = {
    "kind",
    "mode",
    "quota",
    "nsid",
    "value_bytes_max",
    "durability",
    "size: of kind block: the size of the disk, as in 1TiB",
    "lba",
    "zones",
    "max_open",
    "max_active",
    "server",
    "token_file"};
constexpr const char* kListFlags[] = {"server"};
constexpr const char* kResizeFlags[] = {
    "quota: what the volume may hold of the device from now on, as in 8GiB",
    "size: of kind block: the size of the disk from now on, as in 2TiB", "server", "token_file"};
constexpr const char* kCopyFlags[] = {
    "as",
    "mode: cache or store; by default as the volume",
    "quota: what the copy may hold of its device, as in 8GiB; by default as the volume",
    "nsid: its NVMe namespace; by default as the volume, where that is free",
    "value_bytes_max: its largest value; by default as the volume",
    "durability: none or flushed; by default as the volume",
    "rescue: go around pages that cannot be read, and name each"};
constexpr const char* kDeleteFlags[] = {"server", "token_file"};

}  // namespace

std::span<const Command> volume_commands() {
  static constexpr Command kCommands[] = {
      {"volume create", "(DEVICE-URI | --server=HOST:PORT) NAME", 2, "make a volume",
       kVolumeCreateFlags, create_volume},
      {"volume list", "(DEVICE-URI | --server=HOST:PORT)", 1,
       "print a pool's volumes (in use or not)", kListFlags, list_volumes},
      {"volume resize", "(DEVICE-URI | --server=HOST:PORT) NAME", 2,
       "give a volume another quota, or a disk more", kResizeFlags, resize},
      {"volume copy", "DEVICE-URI NAME TO-DEVICE-URI", 3,
       "copy a volume into another pool, both closed", kCopyFlags, copy_volume},
      {"volume delete", "(DEVICE-URI | --server=HOST:PORT) NAME", 2,
       "delete a volume and all that it holds", kDeleteFlags, remove_volume},
  };
  return kCommands;
}

}  // namespace furrow::tools
