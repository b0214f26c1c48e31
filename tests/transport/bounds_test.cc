// Establishes what hosts may have of a target before and after Connect: connections in all and of
// one address, places in set-up, and memory; that each refusal is counted by its reason and told
// once in a while; and that a host with nothing is served when others hold all that they may.
// How: the budget and the sharing rule alone, and a Target with raw hosts on loopback addresses.
// (Time limits and stuck transfers: tcp_connection_test, slow_host_test; controllers and queue
// entries: bringup_test; buffers: kv_commands_test; admin memory: admin_commands_test; idle
// controllers: keep_alive_test.)
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/count_allocations.h"
#include "tests/transport/fake_engine.h"
#include "tests/transport/raw_host.h"
#include "transport/connection_budget.h"
#include "transport/fair_share.h"
#include "transport/target.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

using Verdict = ConnectionBudget::Verdict;

TEST(FairShare, OneAloneGetsHalfAndManyLeaveSomething) {
  constexpr Shared kShared{1024, 1};
  std::uint64_t free = kShared.total, alone = 0;
  while (within_share(kShared, alone, 1, free)) ++alone, --free;
  EXPECT_EQ(alone, kShared.total / 2);
  for (int greedy = 0; greedy < 200; ++greedy) {
    std::uint64_t held = 0;
    while (within_share(kShared, held, 1, free)) ++held, --free;
    EXPECT_GE(held, 1u) << greedy;
  }
  EXPECT_GT(free, 0u);
}

TEST(FairShare, WhatIsNotThereIsNotGiven) {
  EXPECT_FALSE(within_share({16, 4}, 0, 3, 2));
  EXPECT_TRUE(within_share({16, 4}, 0, 2, 2));
  EXPECT_TRUE(within_share({16, 4}, 2, 2, 2)) << "the least that everybody may have";
  EXPECT_FALSE(within_share({16, 4}, 3, 2, 5)) << "of the last quarter";
  EXPECT_TRUE(within_share({16, 4}, 3, 2, 6));
}

TEST(ConnectionBudget, InAllAndOfAnAddress) {
  ConnectionBudget budget;
  budget.set_limits({5, 3, 100});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(budget.take(1), Verdict::taken);
  EXPECT_EQ(budget.take(1), Verdict::address_full);
  EXPECT_EQ(budget.take(2), Verdict::taken);
  EXPECT_EQ(budget.take(3), Verdict::taken);
  EXPECT_EQ(budget.take(4), Verdict::target_full);
  budget.live(1);
  budget.give(1, true);
  EXPECT_EQ(budget.take(1), Verdict::taken);
  EXPECT_EQ(budget.count(Verdict::address_full), 1u);
  EXPECT_EQ(budget.count(Verdict::target_full), 1u);
  EXPECT_EQ(budget.connections(), 5u);
}

TEST(ConnectionBudget, AnAddressInSetUpLeavesPlacesToOthers) {
  ConnectionBudget budget;
  budget.set_limits({1000, 1000, 16});
  int taken = 0;
  while (budget.take(1) == Verdict::taken) ++taken;
  EXPECT_EQ(taken, 8);
  EXPECT_EQ(budget.count(Verdict::setting_up_full), 1u);
  EXPECT_EQ(budget.take(2), Verdict::taken);
  budget.live(1);  // through Connect: it no longer counts
  EXPECT_EQ(budget.take(1), Verdict::taken);
  EXPECT_EQ(budget.setting_up(), 9u);
  for (int i = 0; i < 8; ++i) budget.give(1, false);
  budget.give(1, true);
  budget.give(2, false);
  EXPECT_EQ(budget.connections(), 0u);
  EXPECT_EQ(budget.setting_up(), 0u);
}

// A target over a pool of plain maps, on a thread of its own.
class Served {
 public:
  explicit Served(TargetOptions options) {
    options.listen_port = 0;
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    VolumeOptions volume;
    volume.name = "pages";
    volume.nsid = 1;
    EXPECT_TRUE(pool_.create_volume(volume).ok());
    auto started = Target::start(pool_, loop_, options);
    EXPECT_TRUE(started.ok()) << started.status().describe();
    target = std::move(*started);
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Served() {
    struct Stop : Task {
      Served* self;
      std::promise<void> stopped;
    } stop;
    stop.self = this;
    stop.run = [](Task& task) {
      auto& now = static_cast<Stop&>(task);
      now.self->target->stop(0, [&now] { now.stopped.set_value(); });
    };
    loop_.post(stop);
    stop.stopped.get_future().get();
    loop_.stop_running();
    thread_.join();
    target.reset();
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void eventually(const std::function<bool(const TargetStats&)>& holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!holds(target->stats()) && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(holds(target->stats())) << "waited 30 s in vain";
  }

  std::unique_ptr<Target> target;

 private:
  test::FakePool pool_;
  EventLoop loop_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(TargetBounds, ConnectionsOfOneAddress) {
  TargetOptions options;
  options.buffer_bytes_max = 4 << 20;
  options.connections_per_address_max = 3;
  Served served(options);
  std::vector<std::unique_ptr<RawHost>> hosts;
  for (int i = 0; i < 3; ++i) {
    hosts.push_back(std::make_unique<RawHost>(served.target->port()));
    hosts.back()->init();
  }
  for (int i = 0; i < 5; ++i) RawHost(served.target->port()).expect_closed();
  served.eventually([](const TargetStats& stats) { return stats.refused_address == 5; });
  EXPECT_EQ(served.target->stats().connections_refused, 5u);
  const auto lines = served.lines();
  ASSERT_GE(lines.size(), 1u);
  EXPECT_LE(lines.size(), 3u) << "a flood does not flood the log";
  EXPECT_NE(lines[0].find("127.0.0.1"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("connections_per_address_max"), std::string::npos) << lines[0];
  hosts.pop_back();
  served.eventually([](const TargetStats& stats) { return stats.connections == 2; });
  RawHost again(served.target->port());
  again.init();
}

TEST(TargetBounds, ConnectionsInAll) {
  TargetOptions options;
  options.buffer_bytes_max = 4 << 20;
  options.connections_max = 2;
  Served served(options);
  RawHost first(served.target->port()), second(served.target->port());
  first.init();
  second.init();
  RawHost(served.target->port()).expect_closed();
  served.eventually([](const TargetStats& stats) { return stats.refused_full == 1; });
}

TEST(TargetBounds, TheTimeToConnect) {
  TargetOptions options;
  options.buffer_bytes_max = 4 << 20;
  options.setup_timeout_ms = 300;
  Served served(options);
  RawHost silent(served.target->port()), initialized(served.target->port());
  initialized.init();
  silent.expect_closed();
  initialized.expect_closed();
  served.eventually([](const TargetStats& stats) { return stats.timeouts == 2; });
}

std::vector<std::byte> connect_capsule(RawHost& host, const std::string& subnqn, std::uint16_t qid,
                                       std::uint16_t cntlid, std::uint32_t entries) {
  nvme::Sqe sqe;
  sqe.opc = nvme::opcode::kFabrics;
  sqe.nsid = nvme::fabrics::kConnect;
  sqe.cdw10 = std::uint32_t{qid} << 16;
  sqe.cdw11 = (entries - 1) | nvme::kCattrNoFlowControl << 16u;
  nvme::ConnectData data;
  data.cntlid = qid == 0 ? nvme::kCntlidDynamic : cntlid;
  std::memcpy(data.subnqn, subnqn.data(), subnqn.size());
  std::memcpy(data.hostnqn, "nqn.2026-11.test:host", 21);
  return host.capsule(sqe, std::as_bytes(std::span(&data, 1)));
}

// Many queues, as deep as they may be, every one of them full of Stores that nobody sends data for.
TEST(TargetBounds, TheMemoryOfConnectionsAndQueues) {
  constexpr std::uint32_t kQueues = 32, kEntries = 128;
  TargetOptions options;
  options.connections_max = kQueues + 1;
  options.io_queue_entries_max = kEntries;
  options.queue_entries_total_max = 8 * kEntries;
  options.buffer_bytes_max = 4 << 20;
  TargetOptions no_hosts = options;
  no_hosts.connections_max = no_hosts.queue_entries_total_max = 0;
  const std::uint64_t bound = memory_bytes_max(options) - memory_bytes_max(no_hosts);
  Served served(options);
  const std::string nqn = served.target->subsystem_nqn();
  std::vector<std::unique_ptr<RawHost>> hosts;
  const auto another_host = [&]() -> RawHost& {
    hosts.push_back(std::make_unique<RawHost>(served.target->port()));
    hosts.back()->init();
    return *hosts.back();
  };
  constexpr std::uint64_t kHostBytes = 80 << 10;  // of a RawHost, in the same process
  const std::uint64_t before = allocated_bytes;
  another_host();
  hosts[0]->send(connect_capsule(*hosts[0], nqn, 0, 0, 32));
  const auto cntlid = static_cast<std::uint16_t>(hosts[0]->expect_response(0).dw0);
  nvme::Sqe enable;
  enable.opc = nvme::opcode::kFabrics;
  enable.nsid = nvme::fabrics::kPropertySet;
  enable.cdw11 = nvme::property::kCc;
  enable.cdw12 = nvme::kCcEnable | nvme::kCssAll << nvme::kCcCssShift;
  hosts[0]->send(hosts[0]->capsule(enable));
  ASSERT_EQ(hosts[0]->expect_response(0).sct_sc(), 0);
  std::uint32_t connected = 0;
  for (std::uint16_t qid = 1; qid <= kQueues; ++qid) {
    RawHost& host = another_host();
    host.send(connect_capsule(host, nqn, qid, cntlid, kEntries));
    const std::uint16_t status = host.expect_response(0).sct_sc();
    if (status == nvme::sc::kControllerBusy) {
      hosts.pop_back();  // its place in set-up
      continue;
    }
    ASSERT_EQ(status, 0);
    ++connected;
    nvme::Sqe store;
    store.opc = nvme::kv::kStore;
    store.nsid = 1;
    store.cdw10 = 8192;
    store.cdw11 = 1;
    for (std::uint16_t cid = 0; cid < kEntries; ++cid) {
      store.cid = cid;
      host.send(host.capsule(store, {}, 8192));
    }
  }
  EXPECT_EQ(connected, 7u) << "the admin queue has entries too";
  served.eventually([](const TargetStats& stats) { return stats.commands >= 7 * (kEntries + 1); });
  EXPECT_EQ(served.target->stats().refused_controllers, kQueues - 7);
  EXPECT_LT(allocated_bytes - before, bound + hosts.size() * kHostBytes);
}

TEST(TargetBounds, ImpossibleOnesAreRefused) {
  const auto start = [](const std::function<void(TargetOptions&)>& change) {
    TargetOptions options;
    options.listen_port = 0;
    change(options);
    test::FakePool pool;
    EventLoop loop;
    return Target::start(pool, loop, options).status().code();
  };
  EXPECT_EQ(start([](auto& options) { options.setup_timeout_ms = 0; }), Code::invalid_argument);
  EXPECT_EQ(start([](auto& options) { options.connections_max = 0; }), Code::invalid_argument);
  EXPECT_EQ(start([](auto& options) { options.connections_per_address_max = 0; }),
            Code::invalid_argument);
}

}  // namespace
}  // namespace furrow::transport
