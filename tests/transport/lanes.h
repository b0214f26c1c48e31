// Server: a real pool in memory, served by reactors on two threads to fake connections that each
// reactor polls; the test's thread is the pool's home, and the first reactor's.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "fake_host.h"
#include "zone/device.h"
#include "zone/event_loop.h"

namespace furrow::test {

// Keeps a connection's queue busy, on its lane's thread.
class LaneWorker {
 public:
  explicit LaneWorker(FakeConnection& connection) : connection_(connection) {}
  virtual ~LaneWorker() = default;
  virtual void step() = 0;
  FakeConnection& connection() { return connection_; }
  std::uint64_t answered = 0;

 protected:
  FakeConnection& connection_;
};

// One reactor with its connections. Everything but run() belongs to its loop's thread.
class Lane final : public Poller {
 public:
  Lane(EventLoop& loop, std::unique_ptr<transport::SubsystemReactor> made)
      : loop_(loop), reactor(std::move(made)) {
    loop_.add(*this);
  }
  ~Lane() override { loop_.remove(*this); }

  unsigned poll() override {
    unsigned events = 0;
    for (auto& connection : connections) events += connection->run_once() ? 1 : 0;
    for (auto& worker : workers) worker->step();
    std::erase_if(workers, [&](auto& worker) {
      if (!worker->connection().finished()) return false;
      answered += worker->answered;
      return true;
    });
    std::erase_if(connections, [](auto& connection) { return connection->finished(); });
    return events;
  }
  int wake_fd() const override { return -1; }
  bool busy() const override { return true; }

  FakeConnection& open() {
    connections.push_back(std::make_unique<FakeConnection>(*reactor, loop_));
    return *connections.back();
  }

 private:
  EventLoop& loop_;

 public:
  std::unique_ptr<transport::SubsystemReactor> reactor;
  std::vector<std::unique_ptr<FakeConnection>> connections;
  std::vector<std::unique_ptr<LaneWorker>> workers;
  std::uint64_t answered = 0;
};

class Server {
 public:
  Server() {
    auto opened = open_device("mem:64MiB?zone_size=2MiB", Access::exclusive);
    EXPECT_TRUE(opened.ok()) << opened.status().describe();
    device = std::move(*opened);
    EXPECT_TRUE(Pool::format(*device, "unit", home).ok());
    auto pool_opened = Pool::open(*device, home, {});
    EXPECT_TRUE(pool_opened.ok());
    pool = std::move(*pool_opened);
    VolumeOptions volume;
    volume.name = "pages";
    volume.nsid = 1;
    volume.quota_bytes = 24 << 20;
    volume.value_bytes_max = 64 << 10;
    EXPECT_TRUE(pool->create_volume(volume).ok());
    subsystem = *transport::Subsystem::create(*pool, home, World::small_buffers());
    lanes[0] = std::make_unique<Lane>(home, *subsystem->create_reactor(home));
    lanes[1] = std::make_unique<Lane>(other, *subsystem->create_reactor(other));
    thread = std::thread([this] { other.run(); });
  }
  ~Server() {
    for (unsigned i = 0; i < 2; ++i) {
      on(i, [](Lane& lane) {
        for (auto& connection : lane.connections) connection->disconnect();
      });
    }
    bool idle = false;
    while (!idle) {
      idle = true;
      for (unsigned i = 0; i < 2; ++i) {
        on(i, [&](Lane& lane) { idle &= lane.connections.empty() && lane.reactor->idle(); });
      }
    }
    other.stop_running();
    thread.join();
    for (auto& lane : lanes) lane.reset();
    EXPECT_EQ(subsystem->stats().controllers, 0u);
    subsystem.reset();
    while (!pool->quiesce()) home.run_once();
    pool.reset();
  }

  // Runs `function` on a lane's thread; the home loop turns meanwhile.
  template <class F>
  void on(unsigned lane, F function) {
    struct Call : Task {
      std::function<void()> function;
      std::atomic<bool> done{false};
    } call;
    call.function = [&] { function(*lanes[lane]); };
    call.run = [](Task& task) {
      auto& self = static_cast<Call&>(task);
      self.function();
      self.done.store(true, std::memory_order_release);
    };
    (lane == 0 ? home : other).post(call);
    while (!call.done.load(std::memory_order_acquire)) home.run_once();
  }
  void turn(unsigned turns) {
    for (unsigned i = 0; i < turns; ++i) home.run_once();
  }

  EventLoop home, other;
  std::unique_ptr<ZonedDevice> device;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<transport::Subsystem> subsystem;
  std::array<std::unique_ptr<Lane>, 2> lanes;
  std::thread thread;
};

// Sends on a lane's thread and waits for the answer.
inline CommandPtr call(Server& server, unsigned lane, FakeConnection& connection,
                       const nv::Sqe& command, Bytes out = {}) {
  CommandPtr sent;
  const auto bytes = static_cast<std::uint32_t>(out.size());
  server.on(lane, [&](Lane&) { sent = connection.send(command, std::move(out), bytes, true); });
  for (bool done = false; !done;) {
    server.on(lane, [&](Lane&) { done = sent->done; });
  }
  return sent;
}

inline std::uint16_t connect(Server& server, unsigned lane, FakeConnection& connection,
                             std::uint16_t cntlid, std::uint16_t qid, ConnectOptions options = {}) {
  options.cntlid = cntlid;
  options.qid = qid;
  const auto [command, data] = connect_command(options);
  const auto done = call(server, lane, connection, command, data);
  EXPECT_EQ(done->status(), sc::kSuccess);
  return static_cast<std::uint16_t>(done->cqe.dw0);
}

inline nv::Sqe set_cc(std::uint32_t cc) {
  nv::Sqe command = fabrics(nv::fabrics::kPropertySet);
  command.cdw11 = nv::property::kCc;
  command.cdw12 = cc;
  return command;
}

}  // namespace furrow::test
