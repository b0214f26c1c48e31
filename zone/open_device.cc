// The back ends by scheme.
#include "zone/device.h"
#include "zone/device_uri.h"
#include "zone/emu_device.h"
#include "zone/mem_device.h"
#include "zone/nvme_device.h"
#include "zone/zbd_device.h"

namespace furrow {

namespace {
constexpr Status bad(const char* hint) {
  return Status(Code::invalid_argument, Origin::zone, hint);
}
constexpr const char* kUnknownScheme =
    "unknown kind of device; this build knows emu:, mem:, nvme: and zbd:";
}  // namespace

Result<std::unique_ptr<ZonedDevice>> open_device(std::string_view uri, Access access) {
  const Result<DeviceUri> parsed = parse_device_uri(uri);
  if (!parsed) return parsed.status();
  if (parsed->scheme == "emu") {
    const Result<EmuOptions> options = emu_options(*parsed);
    if (!options) return options.status();
    return emu::EmuDevice::open(*options, access, std::string(uri));
  }
  if (parsed->scheme == "mem") {
    const Result<MemOptions> options = mem_options(*parsed);
    if (!options) return options.status();
    return MemDevice::open(*options, std::string(uri));
  }
  if (parsed->scheme == "zbd") {
    const Result<DriveOptions> options = drive_options(*parsed);
    if (!options) return options.status();
    return zbd::ZbdDevice::open(options->path, access, std::string(uri));
  }
  if (parsed->scheme == "nvme") {
    const Result<DriveOptions> options = drive_options(*parsed);
    if (!options) return options.status();
    return nvme::NvmeDevice::open(options->path, access, std::string(uri));
  }
  return bad(kUnknownScheme);
}

Status create_device(std::string_view uri, const DeviceShape& shape) {
  const Result<DeviceUri> parsed = parse_device_uri(uri);
  if (!parsed) return parsed.status();
  if (parsed->scheme == "mem") {
    return bad("a mem: device is made by opening it; its geometry is in its URI");
  }
  if (parsed->scheme == "zbd") {
    const Result<DriveOptions> options = drive_options(*parsed);
    return options ? zbd::create(options->path, shape) : options.status();
  }
  if (parsed->scheme == "nvme") {
    return bad("a drive is there already; `furrowctl pool create` makes a pool on it");
  }
  if (parsed->scheme != "emu") return bad(kUnknownScheme);
  const Result<EmuOptions> options = emu_options(*parsed);
  if (!options) return options.status();
  return emu::create(*options, shape);
}

std::string device_holder(std::string_view uri) {
  const Result<DeviceUri> parsed = parse_device_uri(uri);
  if (!parsed) return {};
  if (parsed->scheme == "nvme") return nvme::holder(parsed->place);
  const bool file = parsed->scheme == "emu" || parsed->scheme == "zbd";
  return file ? emu::lock_holder(parsed->place) : std::string();
}

}  // namespace furrow
