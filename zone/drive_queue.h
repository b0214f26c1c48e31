// DriveQueue: the IoQueue of a zoned drive. Reads go to the kernel in parallel; of the writes to a
// zone one at a time does, in order, at the write pointer, and so do appends where the drive has
// none of its own. Where it has, any number of them is in flight in a zone, and of writes that a
// Zone Append can carry as well (Io::may_fail_over), in the trust that the drive places them in the
// order in which they were given; a write that is larger waits for those before it and holds those
// behind it (appends and writes to one zone go through one queue). A drive that places a write
// elsewhere has failed it, so its zone is sealed; unless that follows from another append's
// failure, it is given one write at a time from then on (Placement). Zone management goes to the
// device's thread, and no read waits for it.
//
// What a reset of the drive's controller interrupts is done or not, as nobody was told, and is sent
// again: reads and flushes when the drive answers again; writes, in order, when none is at the
// kernel any more, to a zone that by the drive's word ends where it did before them. A zone with
// any of them in it is sealed. No write is sent meanwhile, as those that the kernel held back for
// the reset go in any order.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "zone/drive_device.h"
#include "zone/ring_queue.h"

namespace furrow {

class DriveQueue : public RingQueue {
 public:
  // Any thread: `io` is done with, its status set. The queue may be gone when this returns.
  void answer(Io& io);

 protected:
  // Among the errors of transferred(), beside RingQueue's: a reset of the drive's controller.
  static constexpr int kInterrupted = 1 << 21;
  using TableQueue::first_lba;
  const Drive& drive() const { return device_.drive_; }
  DriveQueue(DriveDevice& device, const Medium& medium, unsigned depth);
  // Are writes about that a reset may have put out of their order?
  bool disturbed() const { return disturbed_; }
  // An append went there, by the drive's word, as LBAs from the zone's start. False: where there is
  // acknowledged data, which the drive has lost then.
  bool is_free(ZoneId zone, std::uint64_t offset);
  unsigned do_poll() override;
  unsigned do_wait(std::uint64_t timeout_us) override;

 private:
  void start_transfer(Io& io) override;
  void start_flush(Io& io) override;
  void manage(Io& io) override;
  void zone_was_reset(ZoneId) override {}
  void transferred(Io& io, int error) override;
  bool is_of_data(int error) const override { return error != kInterrupted; }
  bool must_look_again() const override;
  // Is this write or append to be a Zone Append to the drive (Io::as_append)? Else it goes to the
  // write pointer.
  virtual bool may_append(const Io&) const { return false; }

  void ask(Io& io);
  unsigned go_on();
  unsigned take_answers();
  unsigned take_answer(Io& io);
  unsigned fail(Io& io);
  unsigned start_next_writes();
  bool may_start(const Io& io, const List& before) const;
  void send_write(Io& io);
  void ask_about_interrupted();
  unsigned go_on_after_interruption(const Io& first);

  DriveDevice& device_;
  std::atomic<Io*> answered_{nullptr};  // a stack
  unsigned away_ = 0;                   // Ios that the device's thread has
  std::vector<ZoneId> writing_;         // zones with a write at the kernel that is no append
  unsigned writes_sent_ = 0;            // appends or not, that the kernel has
  List behind_;                         // admitted writes, behind another one in their zone
  bool disturbed_ = false;              // from an interruption until all writes were seen to
  std::vector<Io*> interrupted_;        // writes
  unsigned zones_asked_about_ = 0;      // of these; the device's thread has the first of each
};

}  // namespace furrow
