// A real Target on a thread of its own, over a pool of plain maps, and an initiator whose executor
// the test turns.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/transport/fake_engine.h"
#include "transport/initiator.h"
#include "transport/target.h"
#include "zone/event_loop.h"

namespace furrow::transport {

using test::FakePool;

// A pool with one volume, and a target that serves it; may be stopped and started again.
class Server {
 public:
  explicit Server(unsigned cores = 1) {
    options.listen_port = 0;
    options.cores = cores;
    VolumeOptions volume;
    volume.name = "pages";
    volume.nsid = 1;
    volume.quota_bytes = 5 * FakePool::kZoneBytes;
    EXPECT_TRUE(pool.create_volume(volume).ok());
  }
  ~Server() {
    if (target != nullptr) stop(1000);
  }

  void start() {
    loop = std::make_unique<EventLoop>();
    auto started = Target::start(pool, *loop, options);
    ASSERT_TRUE(started.ok()) << started.status().describe();
    target = std::move(*started);
    options.listen_port = target->port();  // the same one after a restart
    thread_ = std::thread([this] { loop->run(); });
  }

  // Runs `function` on the home thread and waits for it. What the test looks at or changes in the
  // pool belongs to that thread.
  void on_home(const std::function<void()>& function) {
    struct Call : Task {
      const std::function<void()>* function;
      std::promise<void> done;
    } call;
    call.function = &function;
    call.run = [](Task& task) {
      auto& self = static_cast<Call&>(task);
      (*self.function)();
      self.done.set_value();
    };
    std::future<void> done = call.done.get_future();
    loop->post(call);
    done.get();
  }
  std::uint64_t flushes() {
    std::uint64_t count = 0;
    on_home([&] { count = pool.store(1).flushes; });
    return count;
  }

  // drain_ms 0: connections are cut, as a dying server would.
  void stop(std::uint32_t drain_ms) {
    begin_stop(drain_ms);
    finish_stop();
  }
  void begin_stop(std::uint32_t drain_ms) {
    stopped_ = {};
    on_home([&] { target->stop(drain_ms, [&] { stopped_.set_value(); }); });
  }
  void finish_stop() {
    stopped_.get_future().get();
    loop->stop_running();
    thread_.join();
    target.reset();
    loop.reset();
  }

  TargetOptions options;
  FakePool pool;
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<Target> target;

 private:
  std::thread thread_;
  std::promise<void> stopped_;
};

// An initiator whose executor the test turns.
class Client {
 public:
  explicit Client(const Server& server, InitiatorOptions initiator_options = {})
      : options(std::move(initiator_options)) {
    options.port = server.target->port();
  }
  void connect() {
    auto connected = Initiator::connect(loop, options);
    ASSERT_TRUE(connected.ok()) << connected.status().describe();
    initiator = std::move(*connected);
  }
  Status connect_status() { return Initiator::connect(loop, options).status(); }

  void submit(PageOp& op) {
    ++pending;
    op.context = this;
    op.on_result = [](PageOp&) {};
    op.on_released = [](PageOp& done) { --static_cast<Client*>(done.context)->pending; };
    initiator->submit(op);
  }
  // Turns the executor until `done` holds.
  void run_until(const std::function<bool()>& done, int seconds = 60) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!done()) {
      if (loop.run_once() != 0) continue;
      std::this_thread::yield();
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "nothing happens any more";
    }
  }
  void wait() {
    run_until([this] { return pending == 0; });
  }
  Status run(PageOp& op) {
    submit(op);
    wait();
    return op.status;
  }

  Status put(std::string_view key, std::vector<std::byte> value,
             PageOp::Condition condition = PageOp::Condition::always,
             Durability durability = Durability::none) {
    PageOp op;
    op.kind = PageOp::Kind::put;
    op.key = Key::from(key);
    op.condition = condition;
    op.durability = durability;
    op.data = value.data();
    op.length = op.capacity = static_cast<std::uint32_t>(value.size());
    return run(op);
  }
  Status get(std::string_view key, std::vector<std::byte>& value, std::uint32_t capacity) {
    value.assign(capacity, std::byte{0xEE});
    PageOp op;
    op.key = Key::from(key);
    op.data = value.data();
    op.capacity = capacity;
    const Status status = run(op);
    length = op.length;
    return status;
  }
  Status simple(PageOp::Kind kind, std::string_view key = {}) {
    PageOp op;
    op.kind = kind;
    if (!key.empty()) op.key = Key::from(key);
    return run(op);
  }

  InitiatorOptions options;
  EventLoop loop;
  std::unique_ptr<Initiator> initiator;
  int pending = 0;
  std::uint32_t length = 0;
};

class InitiatorTest : public testing::Test {
 protected:
  void SetUp() override { server_.start(); }
  Server server_;
};

}  // namespace furrow::transport
