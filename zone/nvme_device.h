// NvmeDevice: a zoned namespace by NVMe passthrough (nvme:/dev/ng0n1): zone management by libnvme,
// data by io_uring's passthrough commands, with Zone Append. See DriveDevice.
#pragma once

#include <memory>
#include <string>

#include "zone/device_uri.h"
#include "zone/drive_device.h"
#include "zone/nvme_drive.h"
#include "zone/placement.h"

namespace furrow::nvme {

class NvmeDevice final : public DriveDevice {
 public:
  // Errors as open_device().
  static Result<std::unique_ptr<ZonedDevice>> open(const DriveOptions& options, Access access,
                                                   std::string uri);
  ~NvmeDevice() override { stop(); }
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;
  std::uint64_t misplaced_writes() const override { return placement_.misplaced(); }

 private:
  void was_reset(ZoneId zone) override { placement_.forget(zone); }
  NvmeDevice(std::unique_ptr<NvmeDrive> drive, IoMode io_mode, Access access, std::string uri)
      : DriveDevice(*drive, access, std::move(uri)), drive_(std::move(drive)), io_mode_(io_mode) {}
  const std::unique_ptr<NvmeDrive> drive_;
  const IoMode io_mode_;
  Placement placement_;
};

}  // namespace furrow::nvme
