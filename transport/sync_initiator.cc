#include "transport/sync_initiator.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "engine/run_ops.h"
#include "zone/event_loop.h"
#include "zone/threads.h"

namespace furrow::transport {

namespace {

constexpr std::uint32_t kUsualBytes = 64 << 10;

}  // namespace

// The initiator lives on this thread.
struct SyncInitiator::Thread {
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<Initiator> initiator;
  std::jthread thread;
};

Result<std::unique_ptr<SyncInitiator>> SyncInitiator::connect(const InitiatorOptions& options,
                                                              std::uint64_t spin_us) {
  auto loop = EventLoop::make({.spin_us = spin_us, .lends = EventLoop::Lends::never});
  if (!loop.ok()) return loop.status();
  std::unique_ptr<SyncInitiator> made(new SyncInitiator());
  made->thread_ = std::make_unique<Thread>();
  made->thread_->loop = std::move(*loop);
  std::promise<Status> connected;
  const auto body = [&thread = *made->thread_, &connected, options] {
    auto initiator = Initiator::connect(*thread.loop, options);
    if (!initiator.ok()) return connected.set_value(initiator.status());
    thread.initiator = std::move(*initiator);
    connected.set_value(Status());
    thread.loop->run();
    thread.initiator.reset();
  };
  Status status = start_thread(made->thread_->thread, body);
  if (!status.ok()) return status;
  status = connected.get_future().get();
  if (!status.ok()) {
    made->thread_->thread.join();
    return status;
  }
  return made;
}

SyncInitiator::~SyncInitiator() {
  if (!thread_->thread.joinable()) return;
  thread_->loop->stop_running();
  thread_->thread.join();
}

std::uint32_t SyncInitiator::value_bytes_max() const {
  return thread_->initiator->value_bytes_max();
}

void SyncInitiator::run(std::span<PageOp> ops) {
  run_ops(*thread_->loop, ops,
          [&initiator = *thread_->initiator](PageOp& op) { initiator.submit(op); });
}

Result<std::vector<std::byte>> SyncInitiator::get(const Key& key) {
  // Most values fit; a longer one says how long it is, and is fetched again.
  std::vector<std::byte> value(std::min(kUsualBytes, value_bytes_max()));
  for (;;) {
    PageOp op = keyed(PageOp::Kind::get, key);
    op.data = value.data();
    op.capacity = static_cast<std::uint32_t>(value.size());
    run(op);
    if (!op.status.ok()) return op.status;
    if (op.length > value_bytes_max()) {
      return Status(Code::protocol, Origin::transport,
                    "the value is longer than the target said that values can be");
    }
    value.resize(op.length);
    if (op.length <= op.capacity) return value;
  }
}

}  // namespace furrow::transport
