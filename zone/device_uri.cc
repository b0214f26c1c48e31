#include "zone/device_uri.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>
#include <limits>

namespace furrow {

namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kZoneSizeMinBytes = 4 * kMiB;     // of default zone sizes
constexpr std::uint64_t kZoneSizeMaxBytes = 1024 * kMiB;  // of default zone sizes
constexpr std::uint64_t kZonesWanted = 256;               // a default makes 256 to 511 zones
constexpr std::uint64_t kZoneCapacityMaxLbas = 1u << 24;  // what a slot of the zone table holds
constexpr std::uint64_t kZoneSizeMaxLbas = std::uint64_t{1} << 32;
constexpr std::uint64_t kZoneCountMax = 1u << 24;
constexpr std::uint64_t kAppendMaxBytes = kMiB;
constexpr std::uint32_t kZoneWritesMax = 16;
constexpr const char* kIoModes[] = {"regular", "sqpoll", "iopoll", "sqpoll_iopoll"};  // as IoMode

constexpr Status bad_uri(const char* hint) {
  return Status(Code::invalid_argument, Origin::zone, hint);
}

Result<std::uint64_t> parse_number(std::string_view text, const char* hint) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return bad_uri(hint);
  return value;
}

Result<std::uint32_t> parse_limit(std::string_view text) {
  constexpr const char* kHint = "mor and mar are zone counts, 0 for no limit";
  const Result<std::uint64_t> value = parse_number(text, kHint);
  if (!value) return value.status();
  if (*value > std::numeric_limits<std::uint32_t>::max()) return bad_uri(kHint);
  return static_cast<std::uint32_t>(*value);
}

Result<Reclaim> parse_reclaim(std::string_view text) {
  if (text == "lazy") return Reclaim::lazy;
  if (text == "never") return Reclaim::never;
  if (text == "now") return Reclaim::now;
  return bad_uri("reclaim is lazy, never or now");
}

template <class T>
Status assign(auto& to, const Result<T>& from) {
  if (from) to = *from;
  return from.status();
}

Status set_mem_parameter(MemOptions& options, std::string_view name, std::string_view value) {
  DeviceShape& shape = options.shape;
  if (name == "zone_size") return assign(shape.zone_size_bytes, parse_size(value));
  if (name == "zone_capacity") return assign(shape.zone_capacity_bytes, parse_size(value));
  if (name == "mor") return assign(shape.open_zones_max, parse_limit(value));
  if (name == "mar") return assign(shape.active_zones_max, parse_limit(value));
  if (name == "reclaim") return assign(options.reclaim, parse_reclaim(value));
  if (name == "lba") {
    if (value != "512" && value != "4096") return bad_uri("lba is 512 or 4096");
    shape.lba_bytes = value == "512" ? 512 : 4096;
    return {};
  }
  return bad_uri("unknown parameter; mem: knows zone_size, zone_capacity, lba, mor, mar, reclaim");
}

struct Limits {
  std::uint32_t open, active;
};
Limits limits_of(const DeviceShape& shape) {
  constexpr std::uint32_t kDefault = 14;
  const std::uint32_t open = shape.open_zones_max.value_or(
      shape.active_zones_max.value_or(0) == 0 ? kDefault
                                              : std::min(kDefault, *shape.active_zones_max));
  return {open, shape.active_zones_max.value_or(open == 0 ? 0 : std::max(kDefault, open))};
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  constexpr const char* kHint =
      "a size is an integer with optional KiB, MiB, GiB or TiB (or K, M, G, T), such as 512MiB";
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const Result<std::uint64_t> number = parse_number(text.substr(0, digits), kHint);
  if (!number) return number.status();
  const std::string_view unit = text.substr(digits);
  unsigned shift = 0;
  if (unit == "KiB" || unit == "K") {
    shift = 10;
  } else if (unit == "MiB" || unit == "M") {
    shift = 20;
  } else if (unit == "GiB" || unit == "G") {
    shift = 30;
  } else if (unit == "TiB" || unit == "T") {
    shift = 40;
  } else if (!unit.empty()) {
    return bad_uri(kHint);
  }
  if (*number > (std::uint64_t{std::numeric_limits<std::int64_t>::max()} >> shift)) {
    return bad_uri("the size is too large");
  }
  return *number << shift;
}

Result<DeviceUri> parse_device_uri(std::string_view uri) {
  const std::size_t colon = uri.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    return bad_uri("a device URI is SCHEME:PLACE, such as emu:/var/lib/pool.img or mem:1GiB");
  }
  DeviceUri parsed;
  parsed.scheme = uri.substr(0, colon);
  std::string_view rest = uri.substr(colon + 1);
  const std::size_t question = std::min(rest.find('?'), rest.size());
  parsed.place = rest.substr(0, question);
  if (parsed.place.empty()) return bad_uri("the device URI names no file, device or size");
  rest.remove_prefix(std::min(question + 1, rest.size()));
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view parameter = rest.substr(0, end);
    const std::size_t equals = parameter.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == parameter.size()) {
      return bad_uri("a device URI's parameters are NAME=VALUE, with & between them");
    }
    std::string name(parameter.substr(0, equals));
    for (const auto& [known, value] : parsed.parameters) {
      if (known == name) return bad_uri("a parameter of the device URI is given twice");
    }
    parsed.parameters.emplace_back(std::move(name), parameter.substr(equals + 1));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return parsed;
}

std::string with_parameter(std::string_view uri, std::string_view name, std::string_view value) {
  const char join = uri.find('?') == std::string_view::npos ? '?' : '&';
  return std::string(uri) + join + std::string(name) + '=' + std::string(value);
}

const char* to_string(IoMode mode) { return kIoModes[static_cast<std::size_t>(mode)]; }

Result<IoMode> parse_io_mode(std::string_view text) {
  const auto* const found =
      std::ranges::find(kIoModes, text, [](const char* name) { return std::string_view(name); });
  if (found == std::end(kIoModes)) {
    return bad_uri("io_mode is regular, sqpoll, iopoll or sqpoll_iopoll");
  }
  return static_cast<IoMode>(found - std::begin(kIoModes));
}

Result<EmuOptions> emu_options(const DeviceUri& uri) {
  EmuOptions options;
  options.path = uri.place;
  for (const auto& [name, value] : uri.parameters) {
    if (name == "direct") {
      if (value != "0" && value != "1") return bad_uri("direct is 0 or 1");
      options.direct = value == "1";
    } else if (name == "reclaim") {
      const Status status = assign(options.reclaim, parse_reclaim(value));
      if (!status.ok()) return status;
    } else if (name == "io_mode") {
      const Status status = assign(options.io_mode, parse_io_mode(value));
      if (!status.ok()) return status;
    } else {
      return bad_uri(
          "unknown parameter; emu: knows direct, reclaim and io_mode (geometry is set at "
          "creation)");
    }
  }
  return options;
}

Result<DriveOptions> drive_options(const DeviceUri& uri) {
  DriveOptions options{.path = uri.place};
  for (const auto& [name, value] : uri.parameters) {
    if (name != "io_mode") return bad_uri("unknown parameter; zbd: and nvme: know io_mode");
    const Status status = assign(options.io_mode, parse_io_mode(value));
    if (!status.ok()) return status;
  }
  return options;
}

Result<MemOptions> mem_options(const DeviceUri& uri) {
  MemOptions options;
  Status status = assign(options.shape.size_bytes, parse_size(uri.place));
  if (!status.ok()) return status;
  for (const auto& [name, value] : uri.parameters) {
    status = set_mem_parameter(options, name, value);
    if (!status.ok()) return status;
  }
  return options;
}

Result<Geometry> geometry_of(const DeviceShape& shape) {
  if (shape.lba_bytes != 512 && shape.lba_bytes != 4096) return bad_uri("lba is 512 or 4096 bytes");
  const std::uint64_t lba = shape.lba_bytes;
  std::uint64_t zone = shape.zone_size_bytes;
  if (zone == 0) {
    zone = std::clamp(std::bit_floor(shape.size_bytes / kZonesWanted), kZoneSizeMinBytes,
                      kZoneSizeMaxBytes);
  }
  const std::uint64_t capacity = shape.zone_capacity_bytes == 0 ? zone : shape.zone_capacity_bytes;
  if (zone % lba != 0) return bad_uri("the zone size is no multiple of the LBA size");
  if (capacity % lba != 0) return bad_uri("the zone capacity is no multiple of the LBA size");
  if (capacity > zone) return bad_uri("the zone capacity is larger than the zone size");
  if (zone / lba > kZoneSizeMaxLbas) return bad_uri("the zone size is over 2^32 LBAs");
  if (capacity / lba > kZoneCapacityMaxLbas) return bad_uri("the zone capacity is over 2^24 LBAs");
  if (shape.size_bytes < zone)
    return bad_uri(
        "the device is smaller than one zone (4MiB unless a zone size is given); make it larger or "
        "its zones smaller");
  if (shape.size_bytes / zone > kZoneCountMax) return bad_uri("too many zones: make them larger");
  const Limits limits = limits_of(shape);
  if (limits.active != 0 && (limits.open == 0 || limits.open > limits.active)) {
    return bad_uri("mor (open zones) must not exceed mar (active zones)");
  }
  Geometry geometry;
  geometry.lba_bytes = shape.lba_bytes;
  geometry.zone_count = static_cast<std::uint32_t>(shape.size_bytes / zone);
  geometry.zone_size_lbas = zone / lba;
  geometry.zone_capacity_lbas = capacity / lba;
  geometry.open_zones_max = limits.open;
  geometry.active_zones_max = limits.active;
  geometry.append_lbas_max =
      static_cast<std::uint32_t>(std::min(kAppendMaxBytes / lba, geometry.zone_capacity_lbas));
  geometry.zone_writes_max = kZoneWritesMax;
  return geometry;
}

}  // namespace furrow
