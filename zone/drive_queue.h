// DriveQueue: the IoQueue of a zoned drive. Reads go to the kernel in parallel; of the writes to a
// zone one at a time does, in order, at the write pointer, and so do appends where the drive has
// none of its own. Where it has, any number of them is in flight in a zone, and of writes that a
// Zone Append can carry as well (Io::may_fail_over), in the trust that the drive places them in the
// order in which they were given; a write that is larger waits for those before it and holds those
// behind it (appends and writes to one zone go through one queue). A drive that places a write
// elsewhere has failed it, so its zone is sealed; unless that follows from another append's
// failure, it is given one write at a time from then on (Placement). Zone management goes to the
// device's thread, and no read waits for it.
#pragma once

#include <atomic>
#include <memory>

#include "zone/drive_device.h"
#include "zone/ring_queue.h"

namespace furrow {

class DriveQueue : public RingQueue {
 public:
  // Any thread: `io` is done with, its status set. The queue may be gone when this returns.
  void answer(Io& io);

 protected:
  using TableQueue::first_lba;
  const Drive& drive() const { return device_.drive_; }
  DriveQueue(DriveDevice& device, const Medium& medium, unsigned depth);
  unsigned do_poll() override;
  unsigned do_wait(std::uint64_t timeout_us) override;

 private:
  void start_transfer(Io& io) override;
  void manage(Io& io) override;
  void zone_was_reset(ZoneId) override {}
  void transferred(Io& io, int error) override;
  bool must_look_again() const override;
  // Is this write or append to be a Zone Append to the drive (Io::as_append)? Else it goes to the
  // write pointer.
  virtual bool may_append(const Io&) const { return false; }

  unsigned take_answers();
  unsigned start_next_writes();
  bool may_start(const Io& io, const List& before) const;

  DriveDevice& device_;
  std::atomic<Io*> answered_{nullptr};  // a stack
  unsigned away_ = 0;                   // Ios that the device's thread has
  std::vector<ZoneId> writing_;         // zones with a write at the kernel
  List behind_;                         // admitted writes, behind another one in their zone
};

}  // namespace furrow
