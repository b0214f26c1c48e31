// DriveDevice: a zoned drive behind ZonedDevice (zbd:, nvme:): its zone management on a thread of
// the device's own, its data through DriveQueues.
//
// The drive's report is believed over anything remembered. From there on this process is the only
// one that changes the drive, and a ZoneTable follows what it does: operations that the drive would
// refuse are refused here, with the same status. A drive that answers otherwise is asked again for
// that zone (examine()), and so is, each second, one that keeps a list of the zones that it changed
// by itself: one that went read-only or offline is sent nothing more. Each second the kernel is
// asked whether there still is the drive.
//
// What survives. Killed process: everything that was acknowledged. Power loss: what was
// acknowledged before an acknowledged flush, and of the rest a prefix of each zone. A reset of the
// drive's controller: everything, as long as the drive has its power; where it had not, its zones
// end before what was written, and no flush is acknowledged any more: before one is, the drive is
// asked for its zones if anything, of whichever kind, was seen to be interrupted since they were
// last looked at. A loss of power that interrupts nothing, or by zbd:, where the kernel sends again
// what was, is seen only when a write, or an append, finds its zone shorter than it was.
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
#include "zone/drive.h"
#include "zone/zone_table.h"

namespace furrow {

class DriveQueue;

class DriveDevice : public ZonedDevice {
 public:
  ~DriveDevice() override;
  Result<std::vector<ZoneInfo>> report() override;
  ZoneInfo zone(ZoneId zone) const override { return table_.info(zone); }
  std::uint64_t zones_taken() const override { return zones_taken_.load(); }
  std::uint64_t interruptions() const override { return drive_.interruptions(); }
  bool gone() const override { return gone_.load(std::memory_order_relaxed); }

 protected:
  // `drive` outlives the device: its owner is derived from this.
  DriveDevice(const Drive& drive, Access access, std::string uri);
  // Before any other use. Zones that an earlier process left open are closed. Errors: io_error.
  Status start();
  // By the derived destructor, before the drive goes.
  void stop();

 private:
  // On the device's thread; no write is in flight in the zone, nor admitted.
  virtual void was_reset(ZoneId) {}

  friend class DriveQueue;
  static constexpr const char* kFlushFailed = "a flush failed: unflushed data may be lost";
  // What the device's thread is given: zone management, and transfers that failed or (with a status
  // that is ok, and so again where they are to be sent again) were interrupted. The Io is linked
  // through Io::next and answered, with its status, to its queue.
  struct Job {
    Io* io;
    DriveQueue* queue;
  };

  Status load_zones();
  void load_zone(const ZoneInfo& info);
  void take(Io& io, DriveQueue& queue);
  void run();
  void answer(const Job& job);
  void take_changed();
  bool examine_changed();
  void degrade(const ZoneInfo& info);
  Status manage(Io::Op op, ZoneId zone);
  Status examine(Io& io);
  Status examine_flush(const Status& failure);
  Status examine_write(Io& io, const ZoneInfo& now);
  Status finish(ZoneId zone);
  Result<std::vector<ZoneInfo>> ask(ZoneId first, std::uint32_t count);
  Status does_not_answer(const Status& why);
  // --- any thread ---
  // Was anything interrupted since all zones were last looked at?
  bool in_doubt() const { return drive_.interruptions() != looked_at_.load(); }
  // Of a flush that the drive has done, in no doubt.
  Status flushed() const;

  const Drive& drive_;
  const Access access_;
  ZoneTable table_;
  std::atomic<bool> flush_failed_{false};
  std::atomic<bool> lost_{false};            // acknowledged data
  std::atomic<std::uint64_t> looked_at_{0};  // Drive::interruptions() then
  std::vector<bool> may_be_empty_;           // the device's thread's: zones whose reset failed
  std::atomic<bool> gone_{false};
  std::atomic<std::uint64_t> zones_taken_{0};
  // The device's thread's: does the drive list the zones that it changes? Those that it has listed
  // and that were not looked at.
  bool keeps_list_ = false;
  std::vector<ZoneId> changed_zones_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  std::vector<Job> jobs_;  // under mutex_; in order of submission
  bool stop_ = false;      // under mutex_
  std::thread thread_;     // last: uses all of the above
};

}  // namespace furrow
