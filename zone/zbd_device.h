// ZbdDevice: a zoned drive behind the kernel's block device (zbd:/dev/nvme0n1): zone management by
// libzbd, data by io_uring with O_DIRECT. See DriveDevice.
#pragma once

#include <memory>
#include <string>

#include "zone/device_uri.h"
#include "zone/drive_device.h"
#include "zone/zbd_drive.h"

namespace furrow::zbd {

class ZbdDevice final : public DriveDevice {
 public:
  // Errors as open_device().
  static Result<std::unique_ptr<ZonedDevice>> open(const DriveOptions& options, Access access,
                                                   std::string uri);
  ~ZbdDevice() override { stop(); }
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;

 private:
  ZbdDevice(std::unique_ptr<ZbdDrive> drive, IoMode io_mode, Access access, std::string uri)
      : DriveDevice(*drive, access, std::move(uri)), drive_(std::move(drive)), io_mode_(io_mode) {}
  const std::unique_ptr<ZbdDrive> drive_;
  const IoMode io_mode_;
};

}  // namespace furrow::zbd
