#include "zone/zbd_device.h"

#include "zone/drive_queue.h"

namespace furrow::zbd {

namespace {

class ZbdQueue final : public DriveQueue {
 public:
  ZbdQueue(DriveDevice& device, const ZbdDrive& drive, IoMode mode, unsigned depth)
      : DriveQueue(device,
                   {.fd = drive.fd(),
                    .first_bytes = drive.first_bytes(),
                    .stride_bytes = drive.geometry().zone_size_lbas * drive.geometry().lba_bytes,
                    .read = {},
                    .write = {drive.write_max().bytes, drive.write_max().pieces},
                    .mode = mode,
                    // From 6.10 on Linux plugs writes by zone, and panics when one is polled for.
                    .polls_writes = false},
                   depth) {}
  using DriveQueue::init_ring;
};

}  // namespace

Result<std::unique_ptr<ZonedDevice>> ZbdDevice::open(const DriveOptions& options, Access access,
                                                     std::string uri) {
  Result<std::unique_ptr<ZbdDrive>> drive = ZbdDrive::open(options.path, access);
  if (!drive) return drive.status();
  std::unique_ptr<ZbdDevice> device(
      new ZbdDevice(std::move(*drive), options.io_mode, access, std::move(uri)));
  const Status status = device->start();
  if (!status.ok()) return status;
  return std::unique_ptr<ZonedDevice>(std::move(device));
}

Result<std::unique_ptr<IoQueue>> ZbdDevice::create_queue(unsigned depth) {
  auto queue = std::make_unique<ZbdQueue>(*this, *drive_, io_mode_, depth);
  const Status status = queue->init_ring();
  if (!status.ok()) return status;
  return std::unique_ptr<IoQueue>(std::move(queue));
}

}  // namespace furrow::zbd
