#include "zone/nvme_drive.h"

#include <endian.h>
#include <fcntl.h>
#include <libnvme.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "zone/aligned_buffer.h"
#include "zone/drive_facts.h"
#include "zone/zone_state_machine.h"

namespace furrow::nvme {

using drive::bound_open_zones;
using drive::device_number;
using drive::fail;
using drive::gone;
using drive::kernel_at_least;
using drive::request_disks;
using drive::request_limits;
using drive::stat_device;
using drive::unsupported;

namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint32_t kAppendsMax = 16;  // in flight in a zone (a stream has 8)
constexpr std::uint64_t kReportBytes = 64 << 10;
constexpr std::uint8_t kZoneAppend = 0x7D;
constexpr std::uint64_t kAppendBytes = 1 << 20;  // at the write pointer, by a drive without appends
constexpr std::uint16_t kStatusMask = 0x7FF;     // status code and type
constexpr int kDoNotRetry = 0x4000;
constexpr int kPathRelated = 0x300;     // a status code type
constexpr int kAbortRequested = 0x007;  // status codes, of generic command status
constexpr int kSubmissionQueueGone = 0x008;
constexpr int kInvalidOpcode = 0x001;
constexpr int kInvalidLogPage = 0x109;  // a command specific one

// Of libnvme: 0, an NVMe status, or -1 and errno.
Status command_error(int rc, const char* hint) {
  if (rc > 0) {
    const auto status = static_cast<std::uint16_t>(rc & kStatusMask);
    const Status known = zone_status(status);
    if (known.code() != Code::io_error) return known;
    return Status(Code::io_error, Origin::zone, hint, 0, status);
  }
  switch (errno) {
    case ENODEV:
    case ENXIO:
    case ENOTTY:
      return gone();
    case EACCES:
    case EPERM:
      return fail(Code::permission, "NVMe passthrough takes root, or CAP_SYS_ADMIN", errno);
    default:
      return fail(Code::io_error, hint, errno);
  }
}

// "nvme0n1" of /dev/ng0n1: the block device of the same namespace.
Result<std::string> find_block_device(const std::string& path) {
  const Result<struct stat> info =
      stat_device(path, "no such device; `ls /dev/ng*` shows the generic ones");
  if (!info) return info.status();
  constexpr const char* kWanted =
      "nvme: takes a namespace's generic device, such as /dev/ng0n1 (a block device: zbd:)";
  if (!S_ISCHR(info->st_mode)) return unsupported(kWanted);
  std::error_code error;
  const std::filesystem::path device =
      std::filesystem::canonical("/sys/dev/char/" + device_number(*info), error);
  const std::string name = device.filename();
  if (error || !name.starts_with("ng")) return unsupported(kWanted);
  return "nvme" + name.substr(2);
}

// The kernel names a block device that it does not show where it cannot drive the namespace.
bool is_hidden(const std::string& block) {
  return drive::read_number("/sys/block/" + block + "/hidden", 0) != 0;
}

ZoneInfo info_of(const nvme_zns_desc& zone, const Geometry& geometry) {
  ZoneInfo info;
  const std::uint64_t start = le64toh(zone.zslba), pointer = le64toh(zone.wp);
  info.zone = geometry.zone_of(Lba{start});
  info.state = static_cast<ZoneState>(zone.zs >> 4);
  switch (info.state) {
    case ZoneState::full:  // its write pointer says nothing
      info.written_lbas = geometry.zone_capacity_lbas;
      break;
    case ZoneState::read_only:
      info.reason = "the drive reports the zone read-only";
      [[fallthrough]];
    case ZoneState::empty:
    case ZoneState::implicitly_open:
    case ZoneState::explicitly_open:
    case ZoneState::closed:
      info.written_lbas = std::min(std::max(pointer, start) - start, geometry.zone_capacity_lbas);
      break;
    default:
      info.state = ZoneState::offline;
      info.reason = "the drive reports the zone offline";
  }
  return info;
}

}  // namespace

Result<std::unique_ptr<NvmeDrive>> NvmeDrive::open(const std::string& path, Access access) {
  const Result<std::string> block = find_block_device(path);
  if (!block) return block.status();
  if (!kernel_at_least(6, 1)) {
    return unsupported("NVMe passthrough by io_uring is for Linux 6.1 and later; use zbd:");
  }
  std::unique_ptr<NvmeDrive> drive(new NvmeDrive());
  const bool writes = access == Access::exclusive;
  drive->fd_ = emu::Fd(::open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (drive->fd_.get() < 0) {
    return fail(errno == EACCES || errno == EPERM ? Code::permission : Code::io_error,
                "opening a drive takes root, or write permission on its device", errno);
  }
  struct stat info {};
  if (fstat(drive->fd_.get(), &info) != 0) return fail(Code::io_error, "no such device", errno);
  drive->folder_ = "/sys/dev/char/" + device_number(info);
  Status status = drive->hold(*block, access);
  if (status.ok()) status = drive->identify(*block);
  if (!status.ok()) return status;
  return drive;
}

// What a command of libnvme's is answered by the drive: nothing is while its controller is reset,
// and with EAGAIN multipath has no path to it just now. Each command here may be done twice, but
// for one that is to be sent `once`.
template <class Command>
int NvmeDrive::answered(Command command, bool once) const {
  int rc = 0;
  const auto answers = [&] {
    rc = command();
    const bool no_path = rc < 0 && errno == EAGAIN;
    const bool gone = no_path && !present();
    if (gone) errno = ENODEV;
    const bool again = !gone && (no_path || (rc < 0 && errno == EINTR) || is_interruption(rc));
    if (again) note_interruption();
    return !again;
  };
  once ? (void)answers() : outage_.wait_until(answers);
  return rc;
}

bool NvmeDrive::present() const {
  std::error_code error;
  return std::filesystem::exists(folder_, error);
}

NvmeDrive::~NvmeDrive() {
  // Closing is not enough: a ring that is being taken apart may still hold the file.
  if (locked_fd() >= 0) emu::unlock(locked_fd());
}

Status NvmeDrive::hold(const std::string& block, Access access) {
  Status status;
  if (is_hidden(block)) {
    if (access != Access::inspect) status = emu::lock(fd_.get());
  } else {
    emu::OpenMode mode;
    mode.access = access;
    Result<emu::EmuFile> held = emu::open_file("/dev/" + block, mode);
    status = held.status();
    if (held) block_ = std::move(*held);
  }
  if (status.code() != Code::in_use) return status;
  return fail(Code::in_use, "the namespace, or its block device, is mounted or in use",
              status.sys_errno());
}

Status NvmeDrive::identify(const std::string& block) {
  nvme_id_ns ns{};
  nvme_zns_id_ns zoned{};
  constexpr const char* kHint = "the drive does not identify itself";
  int rc = answered([&] { return nvme_get_nsid(fd_.get(), &nsid_); });
  if (rc == 0) rc = answered([&] { return nvme_identify_ns(fd_.get(), nsid_, &ns); });
  if (rc != 0) return command_error(rc, kHint);
  rc = answered([&] { return nvme_zns_identify_ns(fd_.get(), nsid_, &zoned); });
  if (rc > 0) return unsupported("the namespace is not zoned; emu: emulates a zoned device on it");
  if (rc != 0) return command_error(rc, kHint);
  if (Status status = drive::check_zone_operation(le16toh(zoned.zoc)); !status.ok()) return status;
  const unsigned format = (ns.flbas & 0xF) | (ns.flbas >> 5 & 3) << 4;
  const nvme_lbaf& lba = ns.lbaf[format];
  const Result<std::uint32_t> lba_bytes = drive::lba_bytes(lba.ds, le16toh(lba.ms));
  if (!lba_bytes) return lba_bytes.status();
  geometry_.lba_bytes = *lba_bytes;
  geometry_.zone_size_lbas = le64toh(zoned.lbafe[format].zsze);
  // One less than the number; all ones: no limit.
  geometry_.active_zones_max = le32toh(zoned.mar) + 1;
  geometry_.open_zones_max = le32toh(zoned.mor) + 1;
  bound_open_zones(geometry_);
  if (geometry_.zone_size_lbas == 0) return unsupported("the drive tells no zone size");
  geometry_.zone_count = static_cast<std::uint32_t>(le64toh(ns.nsze) / geometry_.zone_size_lbas);
  // The kernel takes no request apart here: its limits (of which MDTS is one) are ours.
  limits_ = request_limits(request_disks(block), "max_hw_sectors_kb", geometry_.lba_bytes);
  Status status = find_zones();
  if (status.ok()) status = find_appends();
  return status;
}

// Zone Append need not be there (ZNS 3): then appends go to the write pointer, one at a time.
Status NvmeDrive::find_appends() {
  nvme_zns_id_ctrl controller{};
  nvme_cmd_effects_log effects{};
  int rc = answered([&] { return nvme_zns_identify_ctrl(fd_.get(), &controller); });
  if (rc != 0) return command_error(rc, "the drive does not identify its controller");
  rc = answered([&] { return nvme_get_log_cmd_effects(fd_.get(), NVME_CSI_ZNS, &effects); });
  if (rc < 0) return command_error(rc, "the drive does not tell its commands");
  appends_ = rc == 0 && (le32toh(effects.iocs[kZoneAppend]) & NVME_CMD_EFFECTS_CSUPP) != 0;
  std::uint64_t bytes = appends_ ? limits_.bytes : kAppendBytes;
  if (appends_ && controller.zasl != 0) {
    bytes = std::min(bytes, kPageBytes << std::min<unsigned>(controller.zasl, 20));
  }
  geometry_.append_lbas_max = static_cast<std::uint32_t>(
      std::min(bytes / geometry_.lba_bytes, geometry_.zone_capacity_lbas));
  if (!appends_) return {};
  geometry_.zone_writes_max = kAppendsMax;
  geometry_.together_lbas_max = geometry_.append_lbas_max;
  return {};
}

// Zones are alike for all that is above: sequential, and of one capacity.
Status NvmeDrive::find_zones() {
  if (geometry_.zone_count == 0 ||
      geometry_.zone_size_lbas > std::numeric_limits<std::uint32_t>::max()) {
    return unsupported("the drive has no zones, or zones of over 2^32 LBAs");
  }
  std::vector<std::byte> bytes;
  const Status status = read_zones(ZoneId{0}, geometry_.zone_count, bytes);
  if (!status.ok()) return status;
  for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) {
    nvme_zns_desc zone;
    std::memcpy(&zone, bytes.data() + i * sizeof zone, sizeof zone);
    const std::uint64_t capacity = le64toh(zone.zcap);
    if (i == 0) geometry_.zone_capacity_lbas = capacity;
    if ((zone.zt & 0xF) != NVME_ZONE_TYPE_SEQWRITE_REQ ||
        capacity != geometry_.zone_capacity_lbas ||
        le64toh(zone.zslba) != i * geometry_.zone_size_lbas) {
      return unsupported("the drive's zones differ in kind or capacity");
    }
  }
  if (geometry_.zone_capacity_lbas == 0 ||
      geometry_.zone_capacity_lbas > geometry_.zone_size_lbas) {
    return unsupported("the drive's zone capacity is 0, or over the zone size");
  }
  return {};
}

Status NvmeDrive::read_zones(ZoneId first, std::uint32_t count,
                             std::vector<std::byte>& descriptors) const {
  AlignedBuffer page(std::min(kReportBytes, limits_.bytes));
  const auto most =
      static_cast<std::uint32_t>((page.size() - sizeof(nvme_zone_report)) / sizeof(nvme_zns_desc));
  descriptors.reserve(std::size_t{count} * sizeof(nvme_zns_desc));
  while (count != 0) {
    const std::uint32_t wanted = std::min(count, most);
    const auto bytes =
        static_cast<std::uint32_t>(sizeof(nvme_zone_report) + wanted * sizeof(nvme_zns_desc));
    const int rc = answered([&] {
      return nvme_zns_report_zones(fd_.get(), nsid_, first.value * geometry_.zone_size_lbas,
                                   NVME_ZNS_ZRAS_REPORT_ALL, false, true, bytes, page.data(),
                                   NVME_DEFAULT_IOCTL_TIMEOUT, nullptr);
    });
    if (rc != 0) return command_error(rc, "the drive does not report its zones");
    std::uint64_t got = 0;
    std::memcpy(&got, page.data(), sizeof got);
    if (le64toh(got) != wanted) {
      return fail(Code::io_error, "the drive reports fewer zones than it has");
    }
    const std::byte* from = page.data() + sizeof(nvme_zone_report);
    descriptors.insert(descriptors.end(), from, from + wanted * sizeof(nvme_zns_desc));
    first.value += wanted;
    count -= wanted;
  }
  return {};
}

Result<std::vector<ZoneInfo>> NvmeDrive::report(ZoneId first, std::uint32_t count) const {
  std::vector<std::byte> bytes;
  const Status status = read_zones(first, count, bytes);
  if (!status.ok()) return status;
  std::vector<ZoneInfo> infos;
  infos.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    nvme_zns_desc zone;
    std::memcpy(&zone, bytes.data() + i * sizeof zone, sizeof zone);
    infos.push_back(info_of(zone, geometry_));
    infos.back().zone = ZoneId{first.value + i};
  }
  return infos;
}

Status NvmeDrive::manage(Io::Op op, ZoneId zone) const {
  nvme_zns_mgmt_send_args args{};
  args.args_size = sizeof args;
  args.fd = fd_.get();
  args.nsid = nsid_;
  args.timeout = NVME_DEFAULT_IOCTL_TIMEOUT;
  args.slba = geometry_.zone_start(zone).value;
  args.zsa = NVME_ZNS_ZSA_OPEN;
  if (op == Io::Op::reset) args.zsa = NVME_ZNS_ZSA_RESET;
  if (op == Io::Op::finish) args.zsa = NVME_ZNS_ZSA_FINISH;
  if (op == Io::Op::close) args.zsa = NVME_ZNS_ZSA_CLOSE;
  const int rc = answered([&] { return nvme_zns_mgmt_send(&args); }, op == Io::Op::finish);
  return rc == 0 ? Status() : command_error(rc, "the drive failed to change the zone's state");
}

Status NvmeDrive::take_changed(std::vector<ZoneId>& changed) const {
  nvme_zns_changed_zone_log log{};
  static_assert(sizeof log == kChangedZonesBytes);
  unsigned tries = 0;
  const int rc = answered([&] {
    ++tries;
    return nvme_get_log_zns_changed_zones(fd_.get(), nsid_, false, &log);
  });
  if (rc > 0 && is_refusal(rc)) return Drive::take_changed(changed);
  if (rc != 0) return command_error(rc, "the drive does not list the zones that it changed");
  if (tries > 1) log.nrzid = 0xFFFF;  // a reset may have emptied it, or lost what it was read into
  const std::vector<ZoneId> zones = changed_zones(
      std::as_bytes(std::span<const nvme_zns_changed_zone_log, 1>(&log, 1)), geometry_);
  changed.insert(changed.end(), zones.begin(), zones.end());
  return {};
}

Status NvmeDrive::transfer_error(int error, const char* hint) const {
  if ((error & kStatusFlag) != 0) return command_error(error & kStatusMask, hint);
  if (error == ENODEV || error == ENXIO) return gone();
  return fail(Code::io_error, hint, error);
}

bool is_refusal(int status) {
  const int code = status & kStatusMask;
  return code == kInvalidOpcode || code == nvme_status::kInvalidField || code == kInvalidLogPage;
}

bool is_interruption(int status) {
  if ((status & kDoNotRetry) != 0) return false;
  const int code = status & kStatusMask;
  return (code & 0x700) == kPathRelated || code == kAbortRequested || code == kSubmissionQueueGone;
}

std::vector<ZoneId> changed_zones(std::span<const std::byte, kChangedZonesBytes> log,
                                  const Geometry& geometry) {
  nvme_zns_changed_zone_log list;
  std::memcpy(&list, log.data(), sizeof list);
  const std::size_t count = le16toh(list.nrzid);
  std::vector<ZoneId> zones;
  if (count > std::size(list.zid)) {
    for (std::uint32_t i = 0; i < geometry.zone_count; ++i) zones.push_back(ZoneId{i});
    return zones;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const ZoneId zone = geometry.zone_of(Lba{le64toh(list.zid[i])});
    if (zone.value < geometry.zone_count) zones.push_back(zone);
  }
  std::ranges::sort(zones);
  zones.erase(std::unique(zones.begin(), zones.end()), zones.end());
  return zones;
}

std::string block_device(const std::string& path) {
  const Result<std::string> block = find_block_device(path);
  return block && !is_hidden(*block) ? "/dev/" + *block : std::string();
}

std::string holder(const std::string& path) {
  const std::string block = block_device(path);
  return emu::lock_holder(block.empty() ? path : block);
}

std::string identity(const std::string& path) {
  const Result<std::string> block = find_block_device(path);
  if (!block) return {};
  const std::string wwid = drive::read_line("/sys/block/" + *block + "/wwid");
  return wwid.empty() ? drive::read_line("/sys/block/" + *block + "/dev") : wwid;
}

}  // namespace furrow::nvme
