// Device URIs ("emu:/var/lib/pool.img?direct=0") and sizes ("4GiB") as users write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zone/device.h"
#include "zone/status.h"

namespace furrow {

// An integer with optional KiB, MiB, GiB or TiB right behind it, in bytes. Errors:
// invalid_argument (no number, another unit, more than 2^63 - 1 bytes).
Result<std::uint64_t> parse_size(std::string_view text);

// SCHEME:PLACE[?NAME=VALUE[&NAME=VALUE]...]. The first '?' ends the place.
struct DeviceUri {
  std::string scheme;
  std::string place;
  std::vector<std::pair<std::string, std::string>> parameters;
};

// Errors: invalid_argument (no scheme, no place, a parameter without a value or given twice).
Result<DeviceUri> parse_device_uri(std::string_view uri);
// The URI with one more parameter.
std::string with_parameter(std::string_view uri, std::string_view name, std::string_view value);

enum class Reclaim : std::uint8_t {
  lazy,   // a reset zone's space is given back once the zone has stayed empty for a while
  never,  // kept: the zone's next writes find its space in place
  now,    // given back from the reset on
};

// How an io_uring submits and completes: see IoRing.
enum class IoMode : std::uint8_t { regular, sqpoll, iopoll, sqpoll_iopoll };
const char* to_string(IoMode mode);
// No completion comes unless somebody looks for it.
constexpr bool is_polled(IoMode mode) {
  return mode == IoMode::iopoll || mode == IoMode::sqpoll_iopoll;
}
// Errors: invalid_argument.
Result<IoMode> parse_io_mode(std::string_view text);

struct EmuOptions {
  std::string path;
  bool direct = true;
  std::optional<Reclaim> reclaim;  // nothing: lazy, or never where the device is preallocated
  IoMode io_mode = IoMode::regular;
};
Result<EmuOptions> emu_options(const DeviceUri& uri);

struct DriveOptions {  // of zbd: and nvme:
  std::string path;
  IoMode io_mode = IoMode::regular;
};
// Errors: invalid_argument, unsupported (a mode that polls for completions).
Result<DriveOptions> drive_options(const DeviceUri& uri);

struct MemOptions {
  DeviceShape shape;
  Reclaim reclaim = Reclaim::lazy;
};
Result<MemOptions> mem_options(const DeviceUri& uri);

// The geometry that a shape asks for, defaults filled in (see DeviceShape). Errors:
// invalid_argument, with a hint that names the size at fault.
Result<Geometry> geometry_of(const DeviceShape& shape);

}  // namespace furrow
