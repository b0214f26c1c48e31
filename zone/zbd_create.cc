// "Making" a zoned drive: it has its shape already, so all that is made is room.
#include <blkid/blkid.h>

#include <string_view>

#include "zone/aligned_buffer.h"
#include "zone/zbd_device.h"

namespace furrow::zbd {

namespace {

// What libblkid recognises, or just that there is something.
Status name_data(const ZbdDrive& drive) {
  const blkid_probe probe = blkid_new_probe();
  const char* kind = nullptr;
  const char* table = nullptr;
  if (probe != nullptr && blkid_probe_set_device(probe, drive.fd(), 0, 0) == 0) {
    blkid_probe_enable_superblocks(probe, 1);
    blkid_probe_enable_partitions(probe, 1);
    if (blkid_do_safeprobe(probe) == 0) {
      (void)blkid_probe_lookup_value(probe, "TYPE", &kind, nullptr);
      (void)blkid_probe_lookup_value(probe, "PTTYPE", &table, nullptr);
    }
  }
  const std::string_view type = kind == nullptr ? "" : kind;
  Status status = zone_failure(Code::foreign, "zones of the drive have data; --force resets them");
  if (type == "btrfs")
    status = zone_failure(Code::foreign, "there is a btrfs file system; --force resets it");
  if (type == "zonefs")
    status = zone_failure(Code::foreign, "there is a zonefs file system; --force resets it");
  if (type == "f2fs")
    status = zone_failure(Code::foreign, "there is an F2FS file system; --force resets it");
  if (type == "xfs")
    status = zone_failure(Code::foreign, "there is an XFS file system; --force resets it");
  if (type.empty() && table != nullptr) {
    status = zone_failure(Code::foreign, "there is a partition table; --force resets it");
  }
  blkid_free_probe(probe);
  return status;
}

}  // namespace

Status create(const std::string& path, const DeviceShape& shape) {
  if (shape.size_bytes != 0 || shape.zone_size_bytes != 0 || shape.zone_capacity_bytes != 0) {
    return zone_failure(Code::invalid_argument,
                        "a drive has its size and zones already; leave out the flags for them");
  }
  const Result<std::unique_ptr<ZbdDrive>> drive = ZbdDrive::open(path, Access::exclusive);
  if (!drive) return drive.status();
  const Result<std::vector<ZoneInfo>> zones = (*drive)->report();
  if (!zones) return zones.status();
  for (const ZoneInfo& zone : *zones) {
    if (zone.state == ZoneState::empty || zone.state == ZoneState::offline ||
        zone.state == ZoneState::read_only) {
      continue;
    }
    if (!shape.force) return name_data(**drive);
    const Status status = (*drive)->manage(Io::Op::reset, zone.zone);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace furrow::zbd
