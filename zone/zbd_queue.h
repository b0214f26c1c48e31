// ZbdQueue: the IoQueue of a zoned block device. Reads go to the kernel in parallel; of the writes
// and appends to a zone one at a time does, in order, at the write pointer; zone management goes to
// the device's thread, and no read waits for it.
#pragma once

#include <atomic>
#include <memory>

#include "zone/ring_queue.h"
#include "zone/zbd_device.h"

namespace furrow::zbd {

class ZbdQueue final : public RingQueue {
 public:
  static Result<std::unique_ptr<IoQueue>> create(ZbdDevice& device, unsigned depth);

  // Any thread: `io` is done with, its status set. The queue may be gone when this returns.
  void answer(Io& io);

 private:
  ZbdQueue(ZbdDevice& device, unsigned depth);
  void start_transfer(Io& io) override;
  void manage(Io& io) override;
  void zone_was_reset(ZoneId) override {}
  void transferred(Io& io, int error) override;
  bool must_look_again() const override;
  unsigned do_poll() override;
  unsigned do_wait(std::uint64_t timeout_us) override;

  unsigned take_answers();
  unsigned start_next_writes();

  ZbdDevice& device_;
  std::atomic<Io*> answered_{nullptr};  // a stack
  unsigned away_ = 0;                   // Ios that the device's thread has
  List behind_;                         // admitted writes, behind another one in their zone
};

}  // namespace furrow::zbd
