// ZbdDrive: a zoned drive as the kernel's block device shows it (zbd:/dev/nvme0n1): what it is, its
// zones and their management, by libzbd. Threads as Drive says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zone/device.h"
#include "zone/drive.h"
#include "zone/drive_facts.h"
#include "zone/emu_file.h"

namespace furrow::zbd {

// The error of a transfer or of management that the kernel failed with `error`.
Status drive_error(int error, const char* hint);

class ZbdDrive final : public Drive {
 public:
  // Exclusive: nobody else has it open, mounted or locked, and writes to one zone keep their order
  // in this kernel. Errors: not_found, permission, in_use, unsupported (not a block device, not
  // zoned, zones that differ or do not lie side by side, scheduler), io_error.
  static Result<std::unique_ptr<ZbdDrive>> open(const std::string& path, Access access);
  ~ZbdDrive() override;

  int fd() const { return file_.fd.get(); }  // for data: O_DIRECT
  // Where zone 0 is on the drive: behind its conventional zones.
  std::uint64_t first_bytes() const { return first_bytes_; }
  // What the kernel takes as one request, so that it need not take a write apart.
  const drive::RequestLimits& write_max() const { return write_max_; }

  using Drive::report;
  Result<std::vector<ZoneInfo>> report(ZoneId first, std::uint32_t count) const override;
  Status manage(Io::Op op, ZoneId zone) const override;
  bool present() const override;
  Status transfer_error(int error, const char* hint) const override {
    return drive_error(error, hint);
  }

 private:
  ZbdDrive() = default;
  Status find_geometry(const std::string& name);
  Status find_zones(std::uint64_t zone_bytes, std::uint64_t zones);

  emu::EmuFile file_;
  int zbd_ = -1;  // libzbd's descriptor
  std::uint64_t first_bytes_ = 0;
  std::string folder_;  // of sysfs, as long as there is the device
  drive::RequestLimits write_max_;
};

}  // namespace furrow::zbd
