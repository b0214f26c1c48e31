// KillDevice: a ZonedDevice decorator that ends what its user does to the device, as the user's
// death would: from a given operation on none reaches it, and those before are done, all in flight
// together as they were given. Or that one operation alone fails. One thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "zone/device.h"

namespace furrow::testing {

class KillDevice final : public ZonedDevice {
 public:
  explicit KillDevice(std::unique_ptr<ZonedDevice> inner)
      : ZonedDevice(inner->geometry(), inner->uri()), inner_(std::move(inner)) {}

  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override {
    auto inner = inner_->create_queue(depth);
    if (!inner.ok()) return inner.status();
    return std::unique_ptr<IoQueue>(std::make_unique<Queue>(*this, std::move(*inner)));
  }
  Result<std::vector<ZoneInfo>> report() override { return inner_->report(); }
  ZoneInfo zone(ZoneId zone) const override { return inner_->zone(zone); }
  std::uint64_t misplaced_writes() const override { return inner_->misplaced_writes(); }
  std::uint64_t interruptions() const override { return inner_->interruptions(); }

  // From that operation on, counted from now, none is done; 0: all are.
  void kill_after(std::uint64_t operations) { left_ = operations; }
  bool dead() const { return dead_; }
  // That operation, counted from now, is not done, and fails; 0: all are.
  void fail_one(std::uint64_t operation) { left_to_failure_ = operation; }
  bool failed() const { return failed_; }

 private:
  class Queue final : public IoQueue {
   public:
    Queue(KillDevice& device, std::unique_ptr<IoQueue> inner)
        : IoQueue(device.geometry()), device_(device), inner_(std::move(inner)) {}
    Status register_buffers(std::span<const iovec> buffers) override {
      return inner_->register_buffers(buffers);
    }
    std::uint64_t system_calls() const override { return inner_->system_calls(); }
    int wake_fd() const override { return -1; }

   private:
    struct Inner {
      Io io;
      Queue* queue = nullptr;
      Io* outer = nullptr;
    };

    void do_submit(Io& io) override {
      if (!device_.may_begin() || device_.fails_now()) return refused_.push_back(&io);
      if (spare_.empty()) spare_.push_back(&inners_.emplace_back());
      Inner& inner = *spare_.back();
      spare_.pop_back();
      inner.io = io;
      if (io.iov == &io.one) inner.io.iov = &inner.io.one;
      inner.io.context = &inner;
      inner.io.on_complete = [](Io& done) {
        auto& its = *static_cast<Inner*>(done.context);
        Queue& queue = *its.queue;
        Io& outer = *its.outer;
        outer.appended_at = done.appended_at;
        const Status status = done.status;
        queue.spare_.push_back(&its);
        ++queue.completed_;
        queue.complete(outer, status);
      };
      inner.queue = this;
      inner.outer = &io;
      inner_->submit(inner.io);
    }
    unsigned do_poll() override {
      completed_ = 0;
      std::vector<Io*> refused;
      refused.swap(refused_);
      const Code code = device_.dead_ ? Code::aborted : Code::io_error;
      for (Io* io : refused) complete(*io, Status(code, Origin::zone, "not done"));
      inner_->poll();
      return completed_ + static_cast<unsigned>(refused.size());
    }
    unsigned do_wait(std::uint64_t timeout_us) override {
      if (refused_.empty() && inner_->busy()) inner_->wait(timeout_us);
      return do_poll();
    }

    KillDevice& device_;
    std::unique_ptr<IoQueue> inner_;
    std::deque<Inner> inners_;
    std::vector<Inner*> spare_;
    std::vector<Io*> refused_;
    unsigned completed_ = 0;
  };

  bool may_begin() {
    if (left_ != 0 && --left_ == 0) dead_ = true;
    return !dead_;
  }

  bool fails_now() {
    if (left_to_failure_ == 0 || --left_to_failure_ != 0) return false;
    failed_ = true;
    return true;
  }

  std::unique_ptr<ZonedDevice> inner_;
  std::uint64_t left_ = 0;
  bool dead_ = false;
  std::uint64_t left_to_failure_ = 0;
  bool failed_ = false;
};

}  // namespace furrow::testing
