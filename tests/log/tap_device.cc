#include "tests/log/tap_device.h"

#include <algorithm>

#include "tests/zone/forwarded_io.h"

namespace furrow {

class TapDevice::Queue final : public IoQueue {
 public:
  Queue(TapDevice& device, std::unique_ptr<IoQueue> inner)
      : IoQueue(device.geometry()), device_(device), inner_(std::move(inner)) {}

  Status register_buffers(std::span<const iovec> buffers) override {
    return inner_->register_buffers(buffers);
  }
  std::uint64_t system_calls() const override { return inner_->system_calls(); }
  int wake_fd() const override { return -1; }
  void answer(Io& io, Status status) { ready_.push_back({this, &io, status}); }

 private:
  struct Inner {
    Io io;
    Queue* queue = nullptr;
    Io* outer = nullptr;
  };

  void do_submit(Io& io) override {
    device_.note(io, false, Status());
    Failure& failure = device_.failures_[at(io.op)];
    if (failure.times != 0) {
      --failure.times;
      return done(io, failure.status);
    }
    if (spare_.empty()) {
      inners_.emplace_back();
      spare_.push_back(&inners_.back());
    }
    Inner& inner = *spare_.back();
    spare_.pop_back();
    inner.io = forwarded(io, &inner, [](Io& done) {
      auto& its_inner = *static_cast<Inner*>(done.context);
      its_inner.queue->spare_.push_back(&its_inner);
      its_inner.queue->done(*its_inner.outer, done.status);
    });
    inner.queue = this;
    inner.outer = &io;
    inner_->submit(inner.io);
  }

  void done(Io& io, Status status) {
    const std::lock_guard lock(device_.mutex_);
    if (device_.holding_[at(io.op)]) {
      device_.held_[at(io.op)].push_back({this, &io, status});
    } else {
      answer(io, status);
    }
  }

  unsigned do_poll() override {
    inner_->poll();
    std::vector<Held> ready;
    ready.swap(ready_);
    for (const Held& each : ready) {
      device_.note(*each.io, true, each.status);
      complete(*each.io, each.status);
    }
    return static_cast<unsigned>(ready.size());
  }
  unsigned do_wait(std::uint64_t timeout_us) override {
    if (ready_.empty()) inner_->wait(timeout_us);
    return do_poll();
  }

  TapDevice& device_;
  std::unique_ptr<IoQueue> inner_;
  std::deque<Inner> inners_;
  std::vector<Inner*> spare_;
  std::vector<Held> ready_;
};

TapDevice::TapDevice(std::unique_ptr<ZonedDevice> inner)
    : ZonedDevice(inner->geometry(), inner->uri()), inner_(std::move(inner)) {}

Result<std::unique_ptr<IoQueue>> TapDevice::create_queue(unsigned depth) {
  Result<std::unique_ptr<IoQueue>> inner = inner_->create_queue(depth);
  if (!inner.ok()) return inner.status();
  return std::unique_ptr<IoQueue>(std::make_unique<Queue>(*this, std::move(*inner)));
}

void TapDevice::note(const Io& io, bool answered, Status status) {
  const std::lock_guard lock(mutex_);
  const bool transfer = io.op == Io::Op::read || io.op == Io::Op::write;
  const ZoneId zone = io.op == Io::Op::read ? geometry_.zone_of(io.lba) : io.zone;
  events_.push_back({io.op, zone, transfer ? io.lba.value % geometry_.zone_size_lbas : 0,
                     transfer ? io.lba_count : 0, answered, status});
}

std::vector<TapDevice::Event> TapDevice::events(bool reads) const {
  const std::lock_guard lock(mutex_);
  std::vector<Event> wanted = events_;
  if (!reads) std::erase_if(wanted, [](const Event& e) { return e.op == Io::Op::read; });
  return wanted;
}

std::size_t TapDevice::count(Io::Op op) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(
      events_, [op](const Event& event) { return event.op == op && !event.answered; }));
}

void TapDevice::forget_events() {
  const std::lock_guard lock(mutex_);
  events_.clear();
}

void TapDevice::hold(Io::Op op) { holding_[at(op)] = true; }
std::size_t TapDevice::held(Io::Op op) const { return held_[at(op)].size(); }

void TapDevice::let_go(Io::Op op) {
  holding_[at(op)] = false;
  while (!held_[at(op)].empty()) let_one_go(op, 0);
}

void TapDevice::let_one_go(Io::Op op, std::size_t index) {
  std::vector<Held>& held = held_[at(op)];
  FURROW_CHECK(index < held.size());
  const Held one = held[index];
  held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
  one.queue->answer(*one.io, one.status);
}

void TapDevice::fail_one(Io::Op op, std::size_t index, Status status) {
  FURROW_CHECK(index < held(op));
  held_[at(op)][index].status = status;
  let_one_go(op, index);
}

void TapDevice::fail(Io::Op op, Status status, unsigned times) {
  failures_[at(op)] = {times, status};
}

}  // namespace furrow
