#include "zone/zbd_drive.h"

#include <fcntl.h>
#include <libzbd/zbd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <span>

#include "zone/drive_facts.h"
#include "zone/zone_state_machine.h"

namespace furrow::zbd {

using drive::bound_open_zones;
using drive::device_number;
using drive::fail;
using drive::gone;
using drive::kernel_at_least;
using drive::least_number;
using drive::read_line;
using drive::read_number;
using drive::request_disks;
using drive::request_limits;
using drive::stat_device;
using drive::unsupported;

namespace {

constexpr const char* kUnaligned =
    "the zone's write pointer is inside an LBA: another program wrote";
constexpr std::uint64_t kAppendMaxBytes = 1u << 20;

// libzbd's functions return -1, with the cause in errno, or the cause itself.
int error_of(int rc) { return rc < -1 ? -rc : errno; }

// The device's name in sysfs, if it may be used. Errors: not_found, permission, unsupported.
Result<std::string> find_name(const std::string& path) {
  const Result<struct stat> info =
      stat_device(path, "no such device; `lsblk -z` shows the zoned block devices");
  if (!info) return info.status();
  if (!S_ISBLK(info->st_mode)) {
    return unsupported(S_ISCHR(info->st_mode)
                           ? "this is a character device; zbd: takes a block device, such as "
                             "/dev/nvme0n1"
                           : "this is no block device; emu: emulates a zoned device on a file");
  }
  const std::string folder = "/sys/dev/block/" + device_number(*info);
  if (std::filesystem::exists(folder + "/partition")) {
    return unsupported("this is a partition; zbd: takes a whole drive");
  }
  const std::string model = read_line(folder + "/queue/zoned");
  if (model != "host-managed" && model != "host-aware") {
    return unsupported("the block device is not zoned; emu: emulates a zoned device on it");
  }
  std::error_code error;
  const std::string name = std::filesystem::canonical(folder, error).filename();
  if (error) return gone();
  if (drive::have_metadata(request_disks(name))) {
    return unsupported("the drive's LBAs have metadata; format it without");
  }
  return name;
}

Status check_scheduler(const std::vector<std::string>& disks) {
  if (kernel_at_least(6, 10)) return {};  // it keeps the writes to a zone in order itself
  for (const std::string& disk : disks) {
    if (read_line(disk + "queue/scheduler").find("[mq-deadline]") != std::string::npos) continue;
    return unsupported(
        "before Linux 6.10 a zoned drive needs the scheduler mq-deadline: echo mq-deadline > "
        "/sys/block/NAME/queue/scheduler, or with NVMe multipath (NAME: nvme0n1) that of each of "
        "its paths (nvme0c0n1)");
  }
  return {};
}

Status open_status(const Status& status) {
  switch (status.code()) {
    case Code::permission:
      return fail(Code::permission, "opening a drive takes root, or write permission on its device",
                  status.sys_errno());
    case Code::in_use:
      if (status.sys_errno() != EBUSY) return status;
      return fail(Code::in_use, "the drive is mounted or in use; unmount or stop that first",
                  EBUSY);
    default:
      return status;
  }
}

ZoneState state_of(const zbd_zone& zone) {
  switch (zbd_zone_cond(&zone)) {
    case ZBD_ZONE_COND_EMPTY:
      return ZoneState::empty;
    case ZBD_ZONE_COND_IMP_OPEN:
      return ZoneState::implicitly_open;
    case ZBD_ZONE_COND_EXP_OPEN:
      return ZoneState::explicitly_open;
    case ZBD_ZONE_COND_CLOSED:
      return ZoneState::closed;
    case ZBD_ZONE_COND_FULL:
      return ZoneState::full;
    case ZBD_ZONE_COND_READONLY:
      return ZoneState::read_only;
    default:
      return ZoneState::offline;
  }
}

ZoneInfo info_of(const zbd_zone& zone, const Geometry& geometry, ZoneId id) {
  ZoneInfo info;
  info.zone = id;
  info.state = state_of(zone);
  if (info.state == ZoneState::full) {  // its write pointer says nothing
    info.written_lbas = geometry.zone_capacity_lbas;
  } else if (info.state == ZoneState::offline) {
    info.reason = "the drive reports the zone offline";
  } else {
    const std::uint64_t bytes =
        std::max(zbd_zone_wp(&zone), zbd_zone_start(&zone)) - zbd_zone_start(&zone);
    info.written_lbas = std::min(bytes / geometry.lba_bytes, geometry.zone_capacity_lbas);
    if (info.state == ZoneState::read_only) {
      info.reason = "the drive reports the zone read-only";
    } else if (bytes % geometry.lba_bytes != 0) {
      info.reason = kUnaligned;
    }
  }
  return info;
}

}  // namespace

Status drive_error(int error, const char* hint) {
  switch (error) {
    case ENODEV:
    case ENXIO:
      return gone();
    case EOVERFLOW:
      return Status(Code::too_many_zones, Origin::zone,
                    "the drive has more active zones than Furrow knows of; reset what is not its",
                    error, nvme_status::kTooManyActive);
    case ETOOMANYREFS:
      return Status(Code::too_many_zones, Origin::zone,
                    "the drive has more open zones than Furrow knows of; close what is not its",
                    error, nvme_status::kTooManyOpen);
    case EACCES:
    case EPERM:
      return fail(Code::permission, "zone management takes write permission on the drive", error);
    default:
      return fail(Code::io_error, hint, error);
  }
}

Result<std::unique_ptr<ZbdDrive>> ZbdDrive::open(const std::string& path, Access access) {
  const Result<std::string> name = find_name(path);
  if (!name) return name.status();
  emu::OpenMode mode;
  mode.access = access;
  const bool writes = access == Access::exclusive;
  Result<emu::EmuFile> file = emu::open_file(path, mode);
  if (!file) return open_status(file.status());
  std::unique_ptr<ZbdDrive> drive(new ZbdDrive());
  drive->file_ = std::move(*file);
  drive->folder_ = "/sys/block/" + *name;
  Status status = writes ? check_scheduler(request_disks(*name)) : Status();
  if (status.ok()) {
    const int rc = zbd_open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC, nullptr);
    if (rc < 0) return drive_error(-rc, "cannot open the drive for zone management");
    drive->zbd_ = rc;
    status = drive->find_geometry(*name);
  }
  if (!status.ok()) return status;
  return drive;
}

ZbdDrive::~ZbdDrive() {
  if (zbd_ >= 0) zbd_close(zbd_);
  // Closing is not enough: a ring that is being taken apart may still hold the file.
  if (file_.fd.get() >= 0) emu::unlock(file_.fd.get());
}

bool ZbdDrive::present() const {
  std::error_code error;
  return std::filesystem::exists(folder_, error);
}

Status ZbdDrive::find_geometry(const std::string& name) {
  const std::vector<std::string> disks = request_disks(name);
  zbd_info info{};
  if (const int rc = zbd_get_info(zbd_, &info); rc != 0) {
    return drive_error(error_of(rc), "the drive tells no geometry");
  }
  // Where these differ (512-byte LBAs on 4 KiB blocks), writes are in the larger one.
  const std::uint64_t lba = std::max<std::uint64_t>(
      info.lblock_size,
      read_number("/sys/block/" + name + "/queue/zone_write_granularity", info.pblock_size));
  if (lba != 512 && lba != 4096)
    return unsupported("the drive's LBAs are not of 512 or 4096 bytes");
  geometry_.lba_bytes = static_cast<std::uint32_t>(lba);
  if (info.zone_size == 0 || info.zone_size % lba != 0) {
    return unsupported("the drive's zone size is no multiple of its LBA size");
  }
  geometry_.open_zones_max =
      static_cast<std::uint32_t>(least_number(disks, "queue/max_open_zones"));
  geometry_.active_zones_max =
      static_cast<std::uint32_t>(least_number(disks, "queue/max_active_zones"));
  bound_open_zones(geometry_);
  write_max_ = request_limits(disks, "max_sectors_kb", lba);
  // A smaller last zone is left out.
  return find_zones(info.zone_size, (info.nr_sectors << 9) / info.zone_size);
}

// Zones are alike for all that is above: sequential, and of one capacity. A disk's conventional
// zones, which come before those or behind them, are not used.
Status ZbdDrive::find_zones(std::uint64_t zone_bytes, std::uint64_t zones) {
  if (zones == 0 || zones > std::numeric_limits<std::uint32_t>::max()) {
    return unsupported("the drive has no zones, or over 2^32");
  }
  std::vector<zbd_zone> all(zones);
  unsigned count = static_cast<unsigned>(zones);
  const int rc = zbd_report_zones(zbd_, 0, static_cast<off_t>(zones * zone_bytes), ZBD_RO_ALL,
                                  all.data(), &count);
  if (rc != 0) {
    return drive_error(error_of(rc), "the drive does not report its zones");
  }
  if (count != zones) return fail(Code::io_error, "the drive reports fewer zones than it has");
  std::vector<bool> sequential;
  for (const zbd_zone& zone : all) sequential.push_back(zbd_zone_swr(&zone) != 0);
  const Result<drive::ZoneRun> used = drive::sequential_zones(sequential);
  if (!used) return used.status();
  first_bytes_ = used->first * zone_bytes;
  const std::uint64_t capacity = zbd_zone_capacity(&all[used->first]);
  for (const zbd_zone& zone : std::span(all).subspan(used->first, used->count)) {
    if (zbd_zone_len(&zone) != zone_bytes || zbd_zone_capacity(&zone) != capacity) {
      return unsupported("the drive's zones differ in size or capacity");
    }
  }
  geometry_.zone_count = used->count;
  geometry_.zone_size_lbas = zone_bytes / geometry_.lba_bytes;
  geometry_.zone_capacity_lbas = capacity / geometry_.lba_bytes;
  if (geometry_.zone_capacity_lbas == 0 ||
      geometry_.zone_size_lbas > std::numeric_limits<std::uint32_t>::max()) {
    return unsupported("the drive's zones are over 2^32 LBAs, or under one");
  }
  geometry_.append_lbas_max = static_cast<std::uint32_t>(
      std::min(kAppendMaxBytes / geometry_.lba_bytes, geometry_.zone_capacity_lbas));
  geometry_.zone_writes_max = 1;
  return {};
}

Result<std::vector<ZoneInfo>> ZbdDrive::report(ZoneId first, std::uint32_t count) const {
  const std::uint64_t zone_bytes = geometry_.zone_size_lbas * geometry_.lba_bytes;
  std::vector<zbd_zone> zones(count);
  unsigned got = count;
  const int rc =
      zbd_report_zones(zbd_, static_cast<off_t>(first_bytes_ + first.value * zone_bytes),
                       static_cast<off_t>(count * zone_bytes), ZBD_RO_ALL, zones.data(), &got);
  if (rc != 0) {
    return drive_error(error_of(rc), "the drive does not report its zones");
  }
  if (got != count) return fail(Code::io_error, "the drive reports fewer zones than it has");
  std::vector<ZoneInfo> infos;
  infos.reserve(count);
  for (const zbd_zone& zone : zones) {
    const auto id = static_cast<std::uint32_t>(first.value + infos.size());
    infos.push_back(info_of(zone, geometry_, ZoneId{id}));
  }
  return infos;
}

Status ZbdDrive::manage(Io::Op op, ZoneId zone) const {
  const std::uint64_t bytes = geometry_.zone_size_lbas * geometry_.lba_bytes;
  zbd_zone_op what = ZBD_OP_OPEN;
  if (op == Io::Op::reset) what = ZBD_OP_RESET;
  if (op == Io::Op::finish) what = ZBD_OP_FINISH;
  if (op == Io::Op::close) what = ZBD_OP_CLOSE;
  const int rc = zbd_zones_operation(
      zbd_, what, static_cast<off_t>(first_bytes_ + zone.value * bytes), static_cast<off_t>(bytes));
  if (rc == 0) return {};
  return drive_error(error_of(rc), "the drive failed to change the zone's state");
}

}  // namespace furrow::zbd
