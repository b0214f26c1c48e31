// What others have left on a device, by libblkid.
#include <blkid/blkid.h>

#include <memory>

#include "zone/device.h"
#include "zone/device_uri.h"
#include "zone/nvme_drive.h"

namespace furrow {

namespace {

std::string value_of(blkid_probe probe, const char* name) {
  const char* value = nullptr;
  if (blkid_probe_lookup_value(probe, name, &value, nullptr) != 0 || value == nullptr) return {};
  return value;
}

}  // namespace

std::string device_content(std::string_view uri) {
  const Result<DeviceUri> parsed = parse_device_uri(uri);
  if (!parsed || parsed->scheme == "mem") return {};
  const std::string path =
      parsed->scheme == "nvme" ? nvme::block_device(parsed->place) : parsed->place;
  const std::unique_ptr<blkid_struct_probe, decltype(&blkid_free_probe)> probe(
      blkid_new_probe_from_filename(path.c_str()), &blkid_free_probe);
  if (!probe) return {};
  blkid_probe_enable_superblocks(probe.get(), 1);
  blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE);
  blkid_probe_enable_partitions(probe.get(), 1);
  if (blkid_do_safeprobe(probe.get()) != 0) return {};
  const std::string type = value_of(probe.get(), "TYPE");
  if (type.empty()) {
    const std::string table = value_of(probe.get(), "PTTYPE");
    return table.empty() ? table : table + " partition table";
  }
  return value_of(probe.get(), "USAGE") == "filesystem" ? type + " file system" : type;
}

}  // namespace furrow
