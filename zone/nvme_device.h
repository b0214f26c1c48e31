// NvmeDevice: a zoned namespace by NVMe passthrough (nvme:/dev/ng0n1): zone management by libnvme,
// data by io_uring's passthrough commands, with Zone Append. See DriveDevice.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "zone/device_uri.h"
#include "zone/drive_device.h"
#include "zone/nvme_drive.h"

namespace furrow::nvme {

// Does the drive place Zone Appends in the order in which one queue gave them? It need not (Zoned
// Namespace Command Set, 3.4.1); once it did not, it is not asked to any more. Threads: any.
class Placement {
 public:
  bool in_order() const { return in_order_.load(std::memory_order_relaxed); }
  bool check(Lba expected, Lba placed) {
    if (placed != expected) in_order_.store(false, std::memory_order_relaxed);
    return placed == expected;
  }

 private:
  std::atomic<bool> in_order_{true};
};

class NvmeDevice final : public DriveDevice {
 public:
  // Errors as open_device().
  static Result<std::unique_ptr<ZonedDevice>> open(const DriveOptions& options, Access access,
                                                   std::string uri);
  ~NvmeDevice() override { stop(); }
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;

 private:
  NvmeDevice(std::unique_ptr<NvmeDrive> drive, IoMode io_mode, Access access, std::string uri)
      : DriveDevice(*drive, access, std::move(uri)), drive_(std::move(drive)), io_mode_(io_mode) {}
  const std::unique_ptr<NvmeDrive> drive_;
  const IoMode io_mode_;
  Placement placement_;
};

}  // namespace furrow::nvme
