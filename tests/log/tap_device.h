// TapDevice: a ZonedDevice decorator for tests that look at what a class asks of the device, and
// when: it keeps a list of operations, holds answers back until the test lets them go, in any
// order, and fails operations by their kind. (FaultDevice is for what a medium does; this is for
// what its user does.) Any thread may use it; the test's own calls come from one.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "zone/device.h"

namespace furrow {

class TapDevice final : public ZonedDevice {
 public:
  struct Event {
    Io::Op op = Io::Op::read;
    ZoneId zone;
    std::uint64_t lba = 0;  // zone-relative
    std::uint32_t lbas = 0;
    bool answered = false;  // else it was submitted
    Status status;
  };

  explicit TapDevice(std::unique_ptr<ZonedDevice> inner);

  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;
  Result<std::vector<ZoneInfo>> report() override {
    ++reports_;
    return inner_->report();
  }
  ZoneInfo zone(ZoneId zone) const override { return inner_->zone(zone); }

  bool short_of_room() override { return short_of_room_ || inner_->short_of_room(); }
  void set_short_of_room(bool is) { short_of_room_ = is; }
  std::uint64_t misplaced_writes() const override { return misplaced_; }
  void set_misplaced_writes(std::uint64_t count) { misplaced_ = count; }

  // All submissions and answers so far, in their order; without reads unless they are asked for.
  std::vector<Event> events(bool reads = false) const;
  std::size_t count(Io::Op op) const;  // submitted
  std::size_t reports() const { return reports_; }
  void forget_events();

  // Answers of this kind wait from now on. What was asked for is done all the same.
  void hold(Io::Op op);
  std::size_t held(Io::Op op) const;
  void let_go(Io::Op op);                                      // all of them, and no more wait
  void let_one_go(Io::Op op, std::size_t index);               // of those that wait, the index-th
  void fail_one(Io::Op op, std::size_t index, Status status);  // which was done all the same
  // The next `times` operations of this kind fail with `status` and are not done.
  void fail(Io::Op op, Status status, unsigned times = 1);

 private:
  class Queue;
  struct Held {
    Queue* queue;
    Io* io;
    Status status;
  };
  static constexpr std::size_t kOps = 8;

  void note(const Io& io, bool answered, Status status);
  static std::size_t at(Io::Op op) { return static_cast<std::size_t>(op); }

  std::unique_ptr<ZonedDevice> inner_;
  std::atomic<std::uint64_t> misplaced_{0}, reports_{0};
  std::atomic<bool> short_of_room_{false};
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  bool holding_[kOps] = {};
  std::vector<Held> held_[kOps];
  struct Failure {
    unsigned times = 0;
    Status status;
  } failures_[kOps];
};

}  // namespace furrow
