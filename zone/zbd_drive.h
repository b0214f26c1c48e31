// ZbdDrive: a zoned drive as the kernel's block device shows it (zbd:/dev/nvme0n1): what it is, its
// zones and their management, by libzbd.
//
// All calls block; any thread, several at a time. Offsets and lengths are LBAs of geometry().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zone/device.h"
#include "zone/emu_file.h"

namespace furrow::zbd {

class Drive {
 public:
  // Exclusive: nobody else has it open, mounted or locked, and writes to one zone keep their order
  // in this kernel. Errors: not_found, permission, in_use, unsupported (not a block device, not
  // zoned, zones that differ, scheduler), io_error.
  static Result<std::unique_ptr<Drive>> open(const std::string& path, Access access);
  ~Drive();
  Drive(const Drive&) = delete;
  Drive& operator=(const Drive&) = delete;

  const Geometry& geometry() const { return geometry_; }
  int fd() const { return file_.fd.get(); }  // for data: O_DIRECT
  // What the kernel takes as one request, so that it need not take a write apart.
  std::uint64_t write_bytes_max() const { return write_bytes_max_; }
  std::uint32_t write_pieces_max() const { return write_pieces_max_; }

  // As the drive tells them now; written_lbas rounded down, `reason` set where the write pointer is
  // inside an LBA. Errors: io_error, with ENODEV when the drive is gone.
  Result<std::vector<ZoneInfo>> report(ZoneId first, std::uint32_t count) const;
  Result<std::vector<ZoneInfo>> report() const { return report(ZoneId{0}, geometry_.zone_count); }
  // Reset, finish, open or close of one zone. Errors: zone_state, too_many_zones, io_error.
  Status manage(Io::Op op, ZoneId zone) const;

 private:
  Drive() = default;
  Status find_geometry(const std::string& queue_folder);
  Status find_zones(std::uint64_t zone_bytes, std::uint64_t zones);

  emu::EmuFile file_;
  int zbd_ = -1;  // libzbd's descriptor
  Geometry geometry_;
  std::uint64_t write_bytes_max_ = 0;
  std::uint32_t write_pieces_max_ = 0;
};

// The `reason` of a zone whose write pointer is inside an LBA.
extern const char* const kUnaligned;

// The error of a transfer or of management that the kernel failed with `error`.
Status drive_error(int error, const char* hint);

}  // namespace furrow::zbd
