// What the kernel tells of a drive, whichever way the drive is reached. All calls block; any
// thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "zone/status.h"
#include "zone/types.h"

namespace furrow::drive {

inline Status fail(Code code, const char* hint, int error = 0) {
  return Status(code, Origin::zone, hint, error);
}
inline Status unsupported(const char* hint) { return fail(Code::unsupported, hint); }
Status gone();  // io_error, ENODEV

// The first line of a file of sysfs, and the number at its beginning.
std::string read_line(const std::string& path);
std::uint64_t read_number(const std::string& path, std::uint64_t otherwise);

bool kernel_at_least(unsigned major, unsigned minor);

// Of a device's path. Errors: not_found (with `hint`), permission.
Result<struct stat> stat_device(const std::string& path, const char* hint);
// "major:minor", as folders of sysfs are named.
std::string device_number(const struct stat& info);

// Of a block device: its world-wide identifier, or else its number; empty: there is none.
std::string identity(const std::string& path);

// The folders of sysfs, with a slash, of the disks that requests to a block device go to: its own,
// or with NVMe's native multipath those of its paths (nvme0c0n1 of nvme0n1). It has no scheduler
// then, and in older kernels (6.1) none of the drive's limits.
std::vector<std::string> request_disks(const std::string& name,
                                       const std::string& blocks = "/sys/block/");
// The least number above 0 in that file of theirs; 0: there is none.
std::uint64_t least_number(const std::vector<std::string>& disks, const std::string& file);

// What the kernel takes as one request. `bytes` is a multiple of lba_bytes, one at least.
struct RequestLimits {
  std::uint64_t bytes = 0;
  std::uint32_t pieces = 0;
};
// `kilobytes`: the file with the limit of a request's bytes, of those of the request queue.
RequestLimits request_limits(const std::vector<std::string>& disks, const std::string& kilobytes,
                             std::uint64_t lba_bytes);

// Have the disks' LBAs metadata that the kernel knows of?
bool have_metadata(const std::vector<std::string>& disks);
// Of an LBA format: 2^exponent bytes of data and so many of metadata, which are none here. Errors:
// unsupported.
Result<std::uint32_t> lba_bytes(unsigned exponent, unsigned metadata_bytes);
// Of a zoned namespace's Zone Operation Characteristics. Errors: unsupported (a reset may change a
// zone's capacity: Linux has no block device for such a drive, and Furrow wants zones alike).
Status check_zone_operation(std::uint16_t characteristics);

struct ZoneRun {
  std::uint32_t first = 0, count = 0;
};
// Those of a drive's zones that must be written sequentially (`true`), which are to lie side by
// side: what lies before and behind them, conventional zones, is left out. Errors: unsupported.
Result<ZoneRun> sequential_zones(const std::vector<bool>& zones);

// An open zone is active as well: no more can be open than active. 0: no limit.
void bound_open_zones(Geometry& geometry);

}  // namespace furrow::drive
