// The back ends by scheme.
#include <sys/stat.h>

#include <cctype>

#include "zone/descriptors.h"
#include "zone/device.h"
#include "zone/device_uri.h"
#include "zone/drive_facts.h"
#include "zone/emu_device.h"
#include "zone/mem_device.h"
#include "zone/nvme_device.h"
#include "zone/nvme_drive.h"
#include "zone/zbd_device.h"

namespace furrow {

namespace {
constexpr Status bad(const char* hint) {
  return Status(Code::invalid_argument, Origin::zone, hint);
}
constexpr const char* kUnknownScheme =
    "unknown kind of device; this build knows emu:, mem:, nvme: and zbd:";
}  // namespace

Result<std::unique_ptr<ZonedDevice>> open_device(std::string_view uri, Access asked) {
  const Result<DeviceUri> parsed = parse_device_uri(uri);
  if (!parsed) return parsed.status();
  fill_standard_files();
  const bool mends = asked == Access::mend;
  const Access access = mends ? Access::exclusive : asked;
  if (parsed->scheme == "emu") {
    const Result<EmuOptions> options = emu_options(*parsed);
    if (!options) return options.status();
    return emu::EmuDevice::open(*options, access, std::string(uri), mends);
  }
  if (parsed->scheme == "mem") {
    const Result<MemOptions> options = mem_options(*parsed);
    if (!options) return options.status();
    return MemDevice::open(*options, std::string(uri));
  }
  if (parsed->scheme == "zbd") {
    const Result<DriveOptions> options = drive_options(*parsed);
    if (!options) return options.status();
    return zbd::ZbdDevice::open(*options, access, std::string(uri));
  }
  if (parsed->scheme == "nvme") {
    const Result<DriveOptions> options = drive_options(*parsed);
    if (!options) return options.status();
    return nvme::NvmeDevice::open(*options, access, std::string(uri));
  }
  return bad(kUnknownScheme);
}

Status create_device(std::string_view uri, const DeviceShape& shape) {
  const Result<DeviceUri> parsed = parse_device_uri(uri);
  if (!parsed) return parsed.status();
  if (parsed->scheme == "mem") {
    return bad("a mem: device is made by opening it; its geometry is in its URI");
  }
  if (parsed->scheme == "nvme" || parsed->scheme == "zbd") {
    return bad("a drive is there already; `furrowctl pool create` makes a pool on it");
  }
  if (parsed->scheme != "emu") return bad(kUnknownScheme);
  const Result<EmuOptions> options = emu_options(*parsed);
  if (!options) return options.status();
  fill_standard_files();
  return emu::create(*options, shape);
}

std::string device_holder(std::string_view uri) {
  const Result<DeviceUri> parsed = parse_device_uri(uri);
  if (!parsed) return {};
  if (parsed->scheme == "nvme") return nvme::holder(parsed->place);
  const bool file = parsed->scheme == "emu" || parsed->scheme == "zbd";
  return file ? emu::lock_holder(parsed->place) : std::string();
}

std::string device_identity(std::string_view uri) {
  const Result<DeviceUri> parsed = parse_device_uri(uri);
  std::string identity;
  struct stat info {};
  if (!parsed) return {};
  if (parsed->scheme == "emu" && stat(parsed->place.c_str(), &info) == 0) {
    identity = std::to_string(info.st_dev) + "." + std::to_string(info.st_ino);
  }
  if (parsed->scheme == "zbd") identity = drive::identity(parsed->place);
  if (parsed->scheme == "nvme") identity = nvme::identity(parsed->place);
  for (char& c : identity) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!kept && std::string_view(".-:").find(c) == std::string_view::npos) c = '_';
  }
  return identity.substr(0, 200);
}

}  // namespace furrow
