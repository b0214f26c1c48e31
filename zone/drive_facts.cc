#include "zone/drive_facts.h"

#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace furrow::drive {

namespace {
constexpr std::uint64_t kPageBytes = 4096;  // a segment of a request may be as small as this
}

Status gone() {
  return fail(Code::io_error, "the drive is gone: it was removed, or has failed", ENODEV);
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t read_number(const std::string& path, std::uint64_t otherwise) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : otherwise;
}

bool kernel_at_least(unsigned major, unsigned minor) {
  utsname name{};
  unsigned first = 0, second = 0;
  if (uname(&name) != 0 || std::sscanf(name.release, "%u.%u", &first, &second) != 2) return false;
  return first > major || (first == major && second >= minor);
}

Result<struct stat> stat_device(const std::string& path, const char* hint) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) return info;
  if (errno == EACCES) return fail(Code::permission, "the path may not be searched", errno);
  return fail(Code::not_found, hint, errno);
}

std::string device_number(const struct stat& info) {
  return std::to_string(::major(info.st_rdev)) + ":" + std::to_string(::minor(info.st_rdev));
}

std::string identity(const std::string& path) {
  const Result<struct stat> info = stat_device(path, "");
  if (!info || !S_ISBLK(info->st_mode)) return {};
  const std::string number = device_number(*info);
  const std::string wwid = read_line("/sys/dev/block/" + number + "/wwid");
  return wwid.empty() ? number : wwid;
}

std::vector<std::string> request_disks(const std::string& name, const std::string& blocks) {
  std::vector<std::string> disks;
  const auto split = [](const std::string& whole) {
    const std::size_t at = whole.starts_with("nvme") ? whole.rfind('n') : 0;
    return std::pair(whole.substr(0, at), whole.substr(at));
  };
  const auto [subsystem, space] = split(name);
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(blocks, error)) {
    const std::string path = each.path().filename();
    const auto [controller, its_space] = split(path);
    if (controller.starts_with(subsystem + "c") && its_space == space) {
      disks.push_back(blocks + path + "/");
    }
  }
  if (disks.empty()) disks.push_back(blocks + name + "/");
  return disks;
}

std::uint64_t least_number(const std::vector<std::string>& disks, const std::string& file) {
  std::uint64_t least = 0;
  for (const std::string& disk : disks) {
    const std::uint64_t number = read_number(disk + file, 0);
    if (number != 0 && (least == 0 || number < least)) least = number;
  }
  return least;
}

RequestLimits request_limits(const std::vector<std::string>& disks, const std::string& kilobytes,
                             std::uint64_t lba_bytes) {
  constexpr std::uint64_t kUnknown = 128;
  const auto limit = [&](const std::string& file) {
    const std::uint64_t least = least_number(disks, "queue/" + file);
    return least == 0 ? kUnknown : least;
  };
  const std::uint64_t bytes = limit(kilobytes) << 10;
  const std::uint64_t segments = limit("max_segments");
  // Memory that begins inside a page of the kernel's has one segment more.
  const std::uint64_t one =
      std::min(bytes, (std::max<std::uint64_t>(segments, 2) - 1) * kPageBytes);
  return {std::max(one / lba_bytes * lba_bytes, lba_bytes),
          static_cast<std::uint32_t>(std::clamp<std::uint64_t>(segments, 1, 1024))};
}

bool have_metadata(const std::vector<std::string>& disks) {
  return std::ranges::any_of(disks, [](const std::string& disk) {
    const std::string format = read_line(disk + "integrity/format");
    return read_number(disk + "metadata_bytes", 0) != 0 || (!format.empty() && format != "none");
  });
}

Result<std::uint32_t> lba_bytes(unsigned exponent, unsigned metadata_bytes) {
  if (metadata_bytes != 0) {
    return unsupported("the drive's LBAs have metadata; format it without");
  }
  if (exponent != 9 && exponent != 12) {
    return unsupported("the drive's LBAs are not of 512 or 4096 bytes; format it with such");
  }
  return 1u << exponent;
}

Status check_zone_operation(std::uint16_t characteristics) {
  constexpr std::uint16_t kVariableCapacity = 1u << 0;
  if ((characteristics & kVariableCapacity) == 0) return {};
  return unsupported("the drive's zones change their capacity when they are reset");
}

Result<ZoneRun> sequential_zones(const std::vector<bool>& zones) {
  const auto first = std::ranges::find(zones, true);
  const auto end = std::find(first, zones.end(), false);
  if (first == end) return unsupported("none of the drive's zones must be written sequentially");
  if (std::find(end, zones.end(), true) != zones.end()) {
    return unsupported(
        "the drive has conventional zones between those that must be written sequentially");
  }
  return ZoneRun{static_cast<std::uint32_t>(first - zones.begin()),
                 static_cast<std::uint32_t>(end - first)};
}

void bound_open_zones(Geometry& geometry) {
  if (geometry.active_zones_max == 0) return;
  if (geometry.open_zones_max != 0 && geometry.open_zones_max <= geometry.active_zones_max) return;
  geometry.open_zones_max = geometry.active_zones_max;
}

}  // namespace furrow::drive
