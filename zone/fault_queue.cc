#include <algorithm>
#include <chrono>
#include <thread>

#include "zone/fault_device.h"

namespace furrow {

namespace {
constexpr Status kPowerCut(Code::aborted, Origin::zone, "the power was cut");
}  // namespace

FaultQueue::FaultQueue(FaultDevice& device)
    : TableQueue(device.geometry(), device.table_, false), device_(device) {}

Status FaultQueue::register_buffers(std::span<const iovec> buffers) {
  set_registered(buffers.size());
  return {};
}

void FaultQueue::do_submit(Io& io) {
  if (device_.dead()) return decide(io, kPowerCut);
  TableQueue::do_submit(io);
}

// The drive has a write's data from here on; it may survive a power cut before its completion.
void FaultQueue::start_transfer(Io& io) {
  if (io.op != Io::Op::read) {
    const std::lock_guard lock(device_.mutex_);
    device_.take_write(io, first_lba(io));
  }
  enqueue(io);
}

void FaultQueue::start_flush(Io& io) {
  bytes_done(io) = transfer_bytes(io) = 0;
  enqueue(io);
}

void FaultQueue::enqueue(Io& io) {
  const FaultOptions& options = device_.options_;
  std::uint64_t delay_polls = 0;
  if (options.delay_polls_max != 0) {
    const std::lock_guard lock(device_.mutex_);
    delay_polls = device_.random_() % (options.delay_polls_max + 1);
  }
  const std::uint64_t due_ns =
      options.latency_us == 0 ? 0 : options.clock->now_ns() + options.latency_us * 1000;
  pending_.push_back({&io, polls_ + delay_polls, due_ns});
}

unsigned FaultQueue::abort_everything() {
  unsigned count = abort_lists(kPowerCut);
  std::vector<Pending> pending;
  pending.swap(pending_);
  for (const Pending& each : pending) {
    complete(*each.io, kPowerCut);
    ++count;
  }
  return count;
}

unsigned FaultQueue::do_poll() {
  if (device_.dead()) return abort_everything();
  unsigned count = settle();
  ++polls_;
  const std::uint64_t now_ns =
      device_.options_.latency_us == 0 ? 0 : device_.options_.clock->now_ns();
  due_.clear();
  std::erase_if(pending_, [&](const Pending& each) {
    const bool due = each.due_poll < polls_ && each.due_ns <= now_ns;
    if (due) due_.push_back(each);
    return due;
  });
  if (device_.options_.delay_polls_max != 0) {
    const std::lock_guard lock(device_.mutex_);
    std::ranges::shuffle(due_, device_.random_);
  }
  for (const Pending& each : due_) {
    Status status = kPowerCut;
    bool dead = false;
    {
      const std::lock_guard lock(device_.mutex_);
      dead = device_.dead_;
      if (!dead) status = device_.perform(*each.io, first_lba(*each.io), transfer_bytes(*each.io));
    }
    if (dead) {
      complete(*each.io, status);
      ++count;
    } else {
      count += end_transfer(*each.io, status);
    }
  }
  return count;
}

unsigned FaultQueue::do_wait(std::uint64_t timeout_us) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(timeout_us);
  for (;;) {
    const unsigned count = do_poll();
    if (count != 0 || in_flight() == 0 || std::chrono::steady_clock::now() >= end) return count;
    std::this_thread::yield();
  }
}

}  // namespace furrow
