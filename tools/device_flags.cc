#include "tools/device_flags.h"

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <limits>

#include "log/format.h"
#include "log/metadata_format.h"
#include "tools/command_line.h"
#include "zone/device_uri.h"

DEFINE_string(size, "", "size of the device to make, as in 10GiB");
DEFINE_string(zone_size, "", "distance between zone starts, as in 64MiB; empty: suits the size");
DEFINE_string(zone_capacity, "", "writable part of a zone; empty: all of it");
DEFINE_string(lba, "4096", "bytes of a logical block: 512 or 4096");
DEFINE_uint32(mor, 14, "open zones at most (MOR); not above --mar");
DEFINE_uint32(mar, 14, "active zones at most (MAR); not below --mor");
DEFINE_bool(preallocate, false,
            "write all of a new device's file once; it keeps its blocks from then on");
DEFINE_bool(force, false, "overwrite data that is not Furrow's");

DEFINE_string(mode, "cache", "cache: evicts whole zones; store: drops nothing");
DEFINE_string(quota, "", "what the volume may hold of the device, as in 8GiB; empty: all");
DEFINE_uint32(nsid, 0, "NVMe namespace of the volume, up to 1024; 0: the lowest free one");
DEFINE_string(value_bytes_max, "1MiB", "largest value, up to 4MiB");
DEFINE_string(durability, "none", "none: a store survives a kill; flushed: a power cut");

DEFINE_uint32(zones, 0, "zones of the volume, which are the pool's no more");
DEFINE_uint32(
    max_open, 0,
    "how many of the device's open zones (MOR) the volume may use; 0: half of those left");
DEFINE_uint32(
    max_active, 0,
    "how many of the device's active zones (MAR) the volume may use; 0: half of those left");

DEFINE_string(victim_policy, "greedy",
              "which zone a store collects: greedy, the one with the least to copy; cost_benefit, "
              "weighed by age");

DEFINE_string(io_mode, "regular",
              "io_uring of emu:, zbd: and nvme:; sqpoll: the kernel's thread submits; iopoll: "
              "completions are polled for; sqpoll_iopoll: both");

namespace furrow::tools {

namespace {

constexpr std::uint32_t kNsidMax = 1024;

// Parses a size flag into `into`; empty leaves it. Sets the error in `flags` (the first stays).
template <class Flags, class Number>
void take_size(Flags& flags, const char* name, const std::string& text, Number& into) {
  if (!flags.status.ok() || text.empty()) return;
  const Result<std::uint64_t> size = parse_size(text);
  flags.wrong_flag = name;
  if (!size) {
    flags.status = size.status();
  } else if (*size > std::numeric_limits<Number>::max()) {
    flags.status = Status(Code::invalid_argument, Origin::tool, "too large");
  } else {
    into = static_cast<Number>(*size);
  }
}

}  // namespace

ShapeFlags device_shape_from_flags() {
  ShapeFlags flags;
  take_size(flags, "size", FLAGS_size, flags.shape.size_bytes);
  take_size(flags, "zone_size", FLAGS_zone_size, flags.shape.zone_size_bytes);
  take_size(flags, "zone_capacity", FLAGS_zone_capacity, flags.shape.zone_capacity_bytes);
  take_size(flags, "lba", FLAGS_lba, flags.shape.lba_bytes);
  if (flag_given("mor")) flags.shape.open_zones_max = FLAGS_mor;
  if (flag_given("mar")) flags.shape.active_zones_max = FLAGS_mar;
  flags.shape.preallocate = FLAGS_preallocate;
  flags.shape.force = FLAGS_force;
  flags.asked = {.size = flags.shape.size_bytes != 0,
                 .zone_size = flags.shape.zone_size_bytes != 0,
                 .zone_capacity = flags.shape.zone_capacity_bytes != 0,
                 .lba = flag_given("lba"),
                 .open_zones_max = flag_given("mor"),
                 .active_zones_max = flag_given("mar"),
                 .preallocate = flag_given("preallocate")};
  return flags;
}

VolumeFlags volume_options_from_flags(std::string_view name) {
  VolumeFlags flags;
  flags.options.name = name;
  flags.options.nsid = FLAGS_nsid;
  flags.asked = {.mode = flag_given("mode"),
                 .quota = !FLAGS_quota.empty(),
                 .nsid = flag_given("nsid"),
                 .value_bytes_max = flag_given("value_bytes_max"),
                 .durability = flag_given("durability")};
  take_size(flags, "quota", FLAGS_quota, flags.options.quota_bytes);
  take_size(flags, "value_bytes_max", FLAGS_value_bytes_max, flags.options.value_bytes_max);
  if (!flags.status.ok()) return flags;
  const auto wrong = [&flags](const char* name_of_flag, const char* hint) {
    flags.wrong_flag = name_of_flag;
    flags.status = Status(Code::invalid_argument, Origin::tool, hint);
  };
  if (flags.asked.quota && flags.options.quota_bytes == 0) {
    wrong("quota", "a volume has at least three zones; without the flag it has all that is left");
  }
  if (FLAGS_nsid > kNsidMax) wrong("nsid", "a namespace is at most 1024");
  if (flags.options.value_bytes_max == 0 || flags.options.value_bytes_max > kValueBytesMax) {
    wrong("value_bytes_max", "1 byte to 4MiB");
  }
  if (FLAGS_mode == "cache") {
    flags.options.mode = VolumeMode::cache;
  } else if (FLAGS_mode == "store") {
    flags.options.mode = VolumeMode::store;
  } else {
    wrong("mode", "cache or store");
  }
  if (FLAGS_durability == "none") {
    flags.options.durability = Durability::none;
  } else if (FLAGS_durability == "flushed") {
    flags.options.durability = Durability::flushed;
  } else {
    wrong("durability", "none or flushed");
  }
  return flags;
}

void take_block_flags(VolumeFlags& flags) {
  take_size(flags, "size", FLAGS_size, flags.options.block_bytes);
  take_size(flags, "lba", FLAGS_lba, flags.options.block_lba_bytes);
  if (!flags.status.ok()) return;
  const auto wrong = [&flags](const char* name_of_flag, const char* hint) {
    flags.wrong_flag = name_of_flag;
    flags.status = Status(Code::invalid_argument, Origin::tool, hint);
  };
  constexpr std::uint64_t kMiB = 1 << 20;
  const std::uint64_t size = flags.options.block_bytes;
  const std::uint32_t lba = flags.options.block_lba_bytes;
  if (size == 0 || size % kMiB != 0 || size / kMiB > kSizeMibMax) {
    wrong("size", "a volume of kind block needs one: a multiple of 1MiB, less than 16TiB");
  } else if (lba != 512 && lba != 4096) {
    wrong("lba", "512 or 4096");
  } else if (flag_given("mode") && flags.options.mode != VolumeMode::store) {
    wrong("mode", "a volume of kind block drops nothing: store");
  } else if (flag_given("value_bytes_max")) {
    wrong("value_bytes_max", "of kind kv and fs");
  }
  flags.options.kind = VolumeKind::block;
  flags.options.mode = VolumeMode::store;
  flags.options.value_bytes_max = kBlockPageBytes;
}

ResizeFlags resize_options_from_flags() {
  ResizeFlags flags;
  take_size(flags, "quota", FLAGS_quota, flags.options.quota_bytes);
  take_size(flags, "size", FLAGS_size, flags.options.block_bytes);
  const auto wrong = [&flags](const char* name_of_flag, const char* hint) {
    if (!flags.status.ok()) return;
    flags.wrong_flag = name_of_flag;
    flags.status = Status(Code::invalid_argument, Origin::tool, hint);
  };
  if (flags.options.quota_bytes == 0) {
    if (flag_given("quota")) wrong("quota", "a volume has at least three zones");
    if (!flag_given("size")) wrong("quota", "say what is to change: this, or --size of a disk");
  }
  if (flag_given("size") && flags.options.block_bytes == 0) wrong("size", "a disk has some");
  return flags;
}

void take_zoned_flags(VolumeFlags& flags) {
  const auto wrong = [&flags](const char* name_of_flag, const char* hint) {
    flags.wrong_flag = name_of_flag;
    flags.status = Status(Code::invalid_argument, Origin::tool, hint);
  };
  if (FLAGS_zones == 0) {
    wrong("zones", "a volume of kind zoned has at least one");
  } else if (flag_given("mode") && flags.options.mode != VolumeMode::store) {
    wrong("mode", "a volume of kind zoned drops nothing: store");
  } else if (flag_given("quota")) {
    wrong("quota", "a volume of kind zoned has --zones");
  } else if (flag_given("value_bytes_max")) {
    wrong("value_bytes_max", "of kind kv and fs");
  } else if (FLAGS_max_active != 0 && FLAGS_max_open > FLAGS_max_active) {
    wrong("max_open", "an open zone is an active one: at most --max_active");
  }
  flags.options.kind = VolumeKind::zoned;
  flags.options.mode = VolumeMode::store;
  flags.options.quota_bytes = 0;
  flags.options.zones = FLAGS_zones;
  flags.options.open_zones_max = FLAGS_max_open;
  flags.options.active_zones_max = FLAGS_max_active;
}

Result<VictimPolicy> victim_policy_from_flags() {
  if (FLAGS_victim_policy == "greedy") return VictimPolicy::greedy;
  if (FLAGS_victim_policy == "cost_benefit") return VictimPolicy::cost_benefit;
  return Status(Code::invalid_argument, Origin::tool, "greedy or cost_benefit");
}

Result<std::string> with_io_mode_from_flags(const std::string& uri) {
  if (!flag_given("io_mode")) return uri;
  const Result<IoMode> mode = parse_io_mode(FLAGS_io_mode);
  if (!mode) return mode.status();
  return with_parameter(uri, "io_mode", to_string(*mode));
}

Status check_new_name(std::string_view name) {
  if (valid_name(name)) return {};
  return {Code::invalid_argument, Origin::tool,
          "a name has 1 to 63 of the characters A-Z a-z 0-9 . _ -"};
}

Result<std::uint32_t> client_nsid_from_flags() {
  if (!flag_given("nsid")) return 1u;
  if (FLAGS_nsid == 0 || FLAGS_nsid > kNsidMax) {
    return Status(Code::invalid_argument, Origin::tool, "a namespace is 1 to 1024");
  }
  return FLAGS_nsid;
}

const char* to_string(VolumeKind kind) {
  switch (kind) {
    case VolumeKind::kv:
      return "kv";
    case VolumeKind::fs:
      return "fs";
    case VolumeKind::block:
      return "block";
    case VolumeKind::zoned:
      return "zoned";
  }
  return "unknown";
}

const char* to_string(VolumeMode mode) {
  switch (mode) {
    case VolumeMode::cache:
      return "cache";
    case VolumeMode::store:
      return "store";
  }
  return "unknown";
}

const char* to_string(Durability durability) {
  switch (durability) {
    case Durability::none:
      return "none";
    case Durability::flushed:
      return "flushed";
  }
  return "unknown";
}

std::string format_uuid(const Uuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

}  // namespace furrow::tools
