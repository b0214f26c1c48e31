// GatedDevice: a ZonedDevice decorator for tests of what waits for what: while its gate is closed
// it keeps reads, and writes if that is asked for, from the device that it is on; the test lets
// single ones go, or opens it. Each read has a number, from when the gate was closed.
//
// Threads: any, the test's own calls included.
#pragma once

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/zone/forwarded_io.h"
#include "zone/device.h"

namespace furrow::testing {

class GatedDevice final : public ZonedDevice {
 public:
  explicit GatedDevice(std::unique_ptr<ZonedDevice> inner)
      : ZonedDevice(inner->geometry(), inner->uri()), inner_(std::move(inner)) {}
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override {
    Result<std::unique_ptr<IoQueue>> inner = inner_->create_queue(depth);
    if (!inner.ok()) return inner.status();
    return std::unique_ptr<IoQueue>(std::make_unique<Queue>(*this, std::move(*inner)));
  }
  Result<std::vector<ZoneInfo>> report() override { return inner_->report(); }
  ZoneInfo zone(ZoneId zone) const override { return inner_->zone(zone); }

  void close(bool writes) {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    writes_closed_ = writes;
    asked_ = 0;
  }
  void let_go(unsigned read) {
    const std::lock_guard lock(mutex_);
    let_go_.insert(read);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = writes_closed_ = false;
  }
  unsigned reads() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  // Whether there have been so many reads, half a minute from now at the latest.
  bool wait_until_asked(unsigned reads) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (this->reads() < reads && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return this->reads() >= reads;
  }

 private:
  class Queue final : public IoQueue {
   public:
    Queue(GatedDevice& device, std::unique_ptr<IoQueue> inner)
        : IoQueue(device.geometry()), device_(device), inner_(std::move(inner)) {}
    Status register_buffers(std::span<const iovec> buffers) override {
      return inner_->register_buffers(buffers);
    }
    std::uint64_t system_calls() const override { return inner_->system_calls(); }
    int wake_fd() const override { return -1; }

   private:
    struct Held {
      Queue* queue = nullptr;
      Io io;  // the inner queue's
      Io* outer = nullptr;
      unsigned number = 0;
      bool submitted = false;
    };
    void do_submit(Io& io) override {
      Held& held = all_.emplace_back();
      held.queue = this;
      held.outer = &io;
      if (io.op == Io::Op::read) held.number = device_.take_number();
      held.io = forwarded(io, &held, [](Io& done) {
        auto& its = *static_cast<Held*>(done.context);
        its.queue->done_.push_back(&its);
      });
      submit_open();
    }
    void submit_open() {
      for (Held& each : all_) {
        if (each.submitted || !device_.lets(each.io.op, each.number)) continue;
        each.submitted = true;
        inner_->submit(each.io);
      }
    }
    unsigned do_poll() override {
      submit_open();
      inner_->poll();
      std::vector<Held*> done;
      done.swap(done_);
      for (Held* const each : done) {
        Io& outer = *each->outer;
        const Status status = each->io.status;
        all_.remove_if([each](const Held& held) { return &held == each; });
        complete(outer, status);
      }
      return static_cast<unsigned>(done.size());
    }
    unsigned do_wait(std::uint64_t timeout_us) override {
      submit_open();
      if (done_.empty()) inner_->wait(std::min<std::uint64_t>(timeout_us, 1000));
      return do_poll();
    }

    GatedDevice& device_;
    std::unique_ptr<IoQueue> inner_;
    std::list<Held> all_;
    std::vector<Held*> done_;
  };

  unsigned take_number() {
    const std::lock_guard lock(mutex_);
    return asked_++;
  }
  bool lets(Io::Op op, unsigned number) const {
    const std::lock_guard lock(mutex_);
    if (op == Io::Op::read) return !closed_ || let_go_.contains(number);
    return op != Io::Op::write || !writes_closed_;
  }

  std::unique_ptr<ZonedDevice> inner_;
  mutable std::mutex mutex_;
  bool closed_ = false, writes_closed_ = false;
  unsigned asked_ = 0;
  std::set<unsigned> let_go_;
};

}  // namespace furrow::testing
