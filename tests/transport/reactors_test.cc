// Establishes that reactors on threads of their own and the real engine work together under the
// controller logic: hosts with queues on both reactors run Stores, Retrieves, Deletes and Lists
// while controllers are reset, cut and made anew and a namespace comes and goes; every value that
// comes back belongs to its key, and nothing is left at the end. Meant to run under TSan too.
// How: fake connections that each reactor polls; the test's thread is the pool's home.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "fake_host.h"
#include "zone/device.h"
#include "zone/event_loop.h"

namespace furrow::test {
namespace {

constexpr unsigned kDepth = 8;
constexpr unsigned kKeys = 40;

Bytes content(unsigned key, std::uint32_t bytes) {
  Bytes out(bytes);
  for (std::uint32_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(key * 31 + i * 7);
  return out;
}

// An I/O queue that keeps kDepth random commands in flight until its connection ends.
class Worker {
 public:
  Worker(FakeConnection& connection, unsigned seed) : connection_(connection), random_(seed) {}

  FakeConnection& connection() { return connection_; }
  std::uint64_t answered = 0;

  void step() {
    for (auto& command : in_flight_) {
      if (command == nullptr || command->done) {
        if (command != nullptr) check(*command);
        if (!connection_.close_asked) command = send();
      }
    }
  }

 private:
  CommandPtr send() {
    const unsigned key = random_() % kKeys;
    static constexpr std::uint8_t kOpcodes[] = {nv::kv::kStore, nv::kv::kRetrieve,
                                                nv::kv::kRetrieve, nv::kv::kDelete, nv::kv::kList};
    nv::Sqe command = sqe(kOpcodes[random_() % 5], 1);
    command.cdw2 = key;
    command.cdw11 = 4;
    command.cdw10 = 16384;
    if (command.opc == nv::kv::kDelete) return connection_.send(command, {}, 0, false);
    if (command.opc != nv::kv::kStore) return connection_.send(command, {}, 16384, false);
    command.cdw10 = 1 + random_() % 16000;
    return connection_.send(command, content(key, command.cdw10), command.cdw10, true);
  }
  void check(const Command& command) {
    ++answered;
    const std::uint16_t status = command.status();
    EXPECT_TRUE(status == sc::kSuccess || status == sc::kKeyNotFound ||
                status == sc::kAbortedSqDeletion)
        << std::hex << status;
    if (command.sqe.opc != nv::kv::kRetrieve || status != sc::kSuccess) return;
    EXPECT_EQ(command.in, content(command.sqe.cdw2, command.cqe.dw0));
  }

  FakeConnection& connection_;
  std::mt19937 random_;
  std::array<CommandPtr, kDepth> in_flight_;
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
  std::vector<std::unique_ptr<Worker>> workers;
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
CommandPtr call(Server& server, unsigned lane, FakeConnection& connection, const nv::Sqe& command,
                Bytes out = {}) {
  CommandPtr sent;
  const auto bytes = static_cast<std::uint32_t>(out.size());
  server.on(lane, [&](Lane&) { sent = connection.send(command, std::move(out), bytes, true); });
  for (bool done = false; !done;) {
    server.on(lane, [&](Lane&) { done = sent->done; });
  }
  return sent;
}

std::uint16_t connect(Server& server, unsigned lane, FakeConnection& connection,
                      std::uint16_t cntlid, std::uint16_t qid) {
  ConnectOptions options;
  options.cntlid = cntlid;
  options.qid = qid;
  const auto [command, data] = connect_command(options);
  const auto done = call(server, lane, connection, command, data);
  EXPECT_EQ(done->status(), sc::kSuccess);
  return static_cast<std::uint16_t>(done->cqe.dw0);
}

nv::Sqe set_cc(std::uint32_t cc) {
  nv::Sqe command = fabrics(nv::fabrics::kPropertySet);
  command.cdw11 = nv::property::kCc;
  command.cdw12 = cc;
  return command;
}

TEST(Reactors, HostsComeAndGoUnderLoad) {
  const unsigned seed = 20261121;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  std::uint64_t answered = 0;
  {
    Server server;
    for (unsigned round = 0; round < 12; ++round) {
      const unsigned lane = random() % 2;
      FakeConnection* admin = nullptr;
      server.on(lane, [&](Lane& its) { admin = &its.open(); });
      const std::uint16_t cntlid = connect(server, lane, *admin, nv::kCntlidDynamic, 0);
      call(server, lane, *admin, set_cc(World::kCcOn));
      for (std::uint16_t qid = 1; qid <= 4; ++qid) {
        const unsigned its_lane = qid % 2;
        FakeConnection* io = nullptr;
        server.on(its_lane, [&](Lane& its) { io = &its.open(); });
        connect(server, its_lane, *io, cntlid, qid);
        const unsigned worker_seed = random();
        server.on(its_lane, [&](Lane& its) {
          its.workers.push_back(std::make_unique<Worker>(*io, worker_seed));
        });
      }
      server.turn(300);
      if (round % 4 == 1) {
        VolumeOptions volume;
        volume.name = "guest";
        volume.nsid = 2;
        volume.quota_bytes = 8 << 20;
        ASSERT_TRUE(server.pool->create_volume(volume).ok());
        server.subsystem->namespaces_changed();
        server.turn(100);
        // Under the workers' commands, on both reactors.
        const std::uint64_t quota = server.pool->find("pages")->info().options.quota_bytes;
        for (const std::uint64_t bytes : {quota + (4 << 20), quota}) {
          while (server.pool->resize_volume("pages", {.quota_bytes = bytes}).status.code() ==
                 Code::busy) {
            server.turn(1);
          }
          ASSERT_EQ(server.pool->find("pages")->info().options.quota_bytes, bytes);
          server.subsystem->namespaces_changed();
          server.turn(20);
        }
        bool idle = false;
        server.subsystem->withdraw_namespace(2, [&] { idle = true; });
        while (!idle) server.turn(1);
        ASSERT_TRUE(server.pool->delete_volume("guest").ok());
      }
      if (round % 3 == 0) {  // a reset, and CSTS.RDY falls once the queues are gone
        call(server, lane, *admin, set_cc(0));
        nv::Sqe get = fabrics(nv::fabrics::kPropertyGet);
        get.cdw11 = nv::property::kCsts;
        while (call(server, lane, *admin, get)->cqe.dw0 != 0) {
        }
      }
      if (round % 3 != 2) server.on(lane, [&](Lane&) { admin->disconnect(); });
    }
    server.turn(100);
    EXPECT_GT(server.subsystem->stats().host_writes, 0u);
    EXPECT_GT(server.subsystem->stats().host_reads, 0u);
    for (unsigned i = 0; i < 2; ++i) {
      server.on(i, [&](Lane& its) {
        for (auto& worker : its.workers) answered += worker->answered;
        answered += its.answered;
      });
    }
  }
  std::printf("%llu commands answered\n", static_cast<unsigned long long>(answered));
  EXPECT_GT(answered, 1000u);
}

}  // namespace
}  // namespace furrow::test
