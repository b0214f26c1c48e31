// The flags that say how to make a device and a pool on it, shared by furrowd and furrowctl.
#pragma once

#include <string>

#include "engine/pool.h"
#include "tools/asked.h"
#include "zone/device.h"
#include "zone/status.h"

namespace furrow::tools {

// From --size --zone_size --zone_capacity --lba --mor --mar --preallocate --force. An error names
// no flag in its text, so `wrong_flag` says which one it is about.
struct ShapeFlags {
  Status status;
  const char* wrong_flag = "";
  DeviceShape shape;
  ShapeAsked asked;
};
ShapeFlags device_shape_from_flags();

// From --mode --quota --nsid --value_bytes_max --durability; `name` is the caller's, and so is
// asked.name.
struct VolumeFlags {
  Status status;
  const char* wrong_flag = "";
  VolumeOptions options;
  VolumeAsked asked;
};
VolumeFlags volume_options_from_flags(std::string_view name);

// From --size and --lba: what makes `flags` those of a volume of kind block.
void take_block_flags(VolumeFlags& flags);

// From --zones, --max_open and --max_active: what makes `flags` those of a volume of kind zoned.
void take_zoned_flags(VolumeFlags& flags);

// From --quota and --size: what is to change of a volume. At least one of them is there.
struct ResizeFlags {
  Status status;
  const char* wrong_flag = "";
  ResizeOptions options;
};
ResizeFlags resize_options_from_flags();

// Can a pool or a volume have this name? invalid_argument: no.
Status check_new_name(std::string_view name);

// --victim_policy of what opens a pool to write to it. invalid_argument: no such policy.
Result<VictimPolicy> victim_policy_from_flags();

// `uri`, with --io_mode as its parameter where that was given. invalid_argument: no such mode.
Result<std::string> with_io_mode_from_flags(const std::string& uri);

// --nsid of a command that uses a namespace over the network: 1 unless given. invalid_argument: 0,
// which names no namespace, or over 1024.
Result<std::uint32_t> client_nsid_from_flags();
constexpr const char* kClientNsid = "nsid: the server's namespace to use, 1 to 1024 (default 1)";

const char* to_string(VolumeKind kind);
const char* to_string(VolumeMode mode);
const char* to_string(Durability durability);
std::string format_uuid(const Uuid& uuid);  // 8-4-4-4-12

}  // namespace furrow::tools
