// ZbdDevice: a zoned drive behind the kernel's block device (zbd:/dev/nvme0n1): zone management by
// libzbd on a thread of the device's own, data by io_uring with O_DIRECT.
//
// The drive's report is believed over anything remembered. From there on this process is the only
// one that changes the drive, and a ZoneTable follows what it does: operations that the drive would
// refuse are refused here, with the same status. A drive that answers otherwise is asked again for
// that zone (examine()).
//
// What survives. Killed process: everything that was acknowledged. Power loss: what was
// acknowledged before an acknowledged flush, and of the rest a prefix of each zone.
//
// Threads as ZonedDevice says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "zone/device.h"
#include "zone/zbd_drive.h"
#include "zone/zone_table.h"

namespace furrow::zbd {

class ZbdQueue;

class ZbdDevice final : public ZonedDevice {
 public:
  // Errors as open_device(). Zones that an earlier process left open are closed.
  static Result<std::unique_ptr<ZonedDevice>> open(const std::string& path, Access access,
                                                   std::string uri);
  ~ZbdDevice() override;

  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;
  Result<std::vector<ZoneInfo>> report() override;

 private:
  friend class ZbdQueue;
  // What the device's thread is given: zone management, and transfers that failed. The Io is linked
  // through Io::next and answered, with its status, to its queue.
  struct Job {
    Io* io;
    ZbdQueue* queue;
  };

  ZbdDevice(std::unique_ptr<Drive> drive, Access access, std::string uri);
  Status load_zones();
  void load_zone(const ZoneInfo& info);
  void start(Io& io, ZbdQueue& queue);
  void run();
  Status manage(Io::Op op, ZoneId zone);
  Status examine(const Io& io);

  const std::unique_ptr<Drive> drive_;
  const Access access_;
  ZoneTable table_;
  std::atomic<bool> flush_failed_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;  // under mutex_; in order of submission
  bool stop_ = false;      // under mutex_
  std::thread thread_;     // last: uses all of the above
};

// create_device() for a zbd: URI: the drive is there and keeps its shape; what is on it is refused
// (foreign), or with `force` reset. Errors as open_device(), invalid_argument.
Status create(const std::string& path, const DeviceShape& shape);

}  // namespace furrow::zbd
