// Establishes what hosts may have of a target before and after Connect: connections in all and of
// one address, places in set-up, and memory; that each refusal is counted by its reason and told
// once in a while; and that a host with nothing is served when others hold all that they may.
// How: the budget and the sharing rule alone, and a Target with raw hosts on loopback addresses.
// (Time limits and stuck transfers: tcp_connection_test, slow_host_test; controllers and queue
// entries: bringup_test; buffers of one connection: kv_list_test; admin memory:
// admin_commands_test; idle controllers: keep_alive_test.)
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/failing_allocations.h"
#include "tests/transport/fake_engine.h"
#include "tests/transport/raw_host.h"
#include "tests/transport/served.h"
#include "tests/zone/no_threads.h"
#include "transport/connection_budget.h"
#include "transport/fair_share.h"
#include "transport/initiator.h"
#include "transport/target.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

using Verdict = ConnectionBudget::Verdict;

// Of a peer at `from` that has connected to a listener which takes IPv4 by IPv6 sockets, or not.
AddressKey key_of_peer(const char* from, bool mapped) {
  const int family = mapped ? AF_INET6 : AF_INET;
  const int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int no = 0;
  sockaddr_storage at{};
  at.ss_family = static_cast<sa_family_t>(family);
  socklen_t bytes = mapped ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (mapped) setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), bytes), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &bytes), 0);
  sockaddr_in to{}, own{};
  to.sin_family = own.sin_family = AF_INET;
  to.sin_port = mapped ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                       : reinterpret_cast<sockaddr_in&>(at).sin_port;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  inet_pton(AF_INET, from, &own.sin_addr);
  const int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(peer, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  EXPECT_EQ(connect(peer, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  const int accepted = accept(listener, nullptr, nullptr);
  const AddressKey key = address_key(accepted);
  for (const int each : {accepted, peer, listener}) close(each);
  return key;
}

// An IPv4 host has no second share by the other kind of socket.
TEST(AddressKey, AnIpv4AddressIsOneByEitherKindOfSocket) {
  const AddressKey first = key_of_peer("127.0.0.1", false);
  const AddressKey second = key_of_peer("127.0.0.2", false);
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, second);
  EXPECT_EQ(key_of_peer("127.0.0.1", true), first);
  EXPECT_EQ(key_of_peer("127.0.0.2", true), second);
}

AddressKey key_of_ipv6(const char* address) {
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, address, &ipv6.sin6_addr), 1);
  sockaddr_storage peer{};
  std::memcpy(&peer, &ipv6, sizeof ipv6);
  return address_key(peer);
}

// As whoever has one address of such a network commonly has them all.
TEST(AddressKey, AnIpv6NetworkIsOne) {
  const AddressKey network = key_of_ipv6("2001:db8:1:2::1");
  EXPECT_EQ(network, 0x2001'0db8'0001'0002u);
  EXPECT_EQ(key_of_ipv6("2001:db8:1:2:ffff:ffff:ffff:ffff"), network);
  EXPECT_NE(key_of_ipv6("2001:db8:1:3::1"), network);
  EXPECT_NE(key_of_ipv6("2001:db8:2:2::1"), network);
  EXPECT_NE(key_of_ipv6("fe80::1"), key_of_ipv6("fe80:0:0:1::1"));
}

// The machine itself by ::1 is somebody, and nobody else.
TEST(AddressKey, TheLoopbackNetworkIsOneToo) {
  const AddressKey loopback = key_of_ipv6("::1");
  EXPECT_NE(loopback, 0u);
  EXPECT_NE(loopback, key_of_peer("127.0.0.1", false));
  EXPECT_NE(loopback, key_of_ipv6("0:0:0:1::1"));
}

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

TEST(FairShare, TheReserveIsForThoseWithNothing) {
  constexpr Shared kShared{32, 1};
  EXPECT_TRUE(leaves_reserve(kShared, 27, 1, 5, 8));
  EXPECT_FALSE(leaves_reserve(kShared, 28, 1, 4, 8));
  EXPECT_TRUE(leaves_reserve(kShared, 28, 1, 4, 16));
  EXPECT_FALSE(leaves_reserve(kShared, 30, 1, 2, 16));
  EXPECT_TRUE(leaves_reserve(kShared, 0, 1, 1, 8));
  EXPECT_FALSE(leaves_reserve(kShared, 0, 1, 0, 8));
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
  for (int i = 0; i < 7; ++i) EXPECT_EQ(budget.take(1), Verdict::taken) << "those that ended left";
  for (int i = 0; i < 7; ++i) budget.give(1, false);
  budget.give(1, true);
  budget.give(2, false);
  EXPECT_EQ(budget.connections(), 0u);
  EXPECT_EQ(budget.setting_up(), 0u);
}

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

// Data in capsules for which there is no memory is thrown away, and sent again by the hosts.
TEST(TargetBounds, EveryPutIsStoredWhereMemoryIsShort) {
  TargetOptions options;
  options.buffer_bytes_max = 1;  // the least: four buffers of each size, and 16 KiB of data
  Served served(options);
  EventLoop loop;
  InitiatorOptions host;
  host.port = served.target->port();
  host.subsystem_nqn = served.target->subsystem_nqn();
  std::vector<std::unique_ptr<Initiator>> hosts;
  for (int i = 0; i < 4; ++i) {
    auto connected = Initiator::connect(loop, host);
    ASSERT_TRUE(connected.ok()) << connected.status().describe();
    hosts.push_back(std::move(*connected));
  }
  std::vector<std::byte> page(8000, std::byte{7});
  std::vector<PageOp> ops(hosts.size() * 128);
  std::size_t pending = ops.size();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i].kind = PageOp::Kind::put;
    ops[i].condition = PageOp::Condition::if_absent;
    ops[i].key = Key::from(std::to_string(i));
    ops[i].data = page.data();
    ops[i].length = ops[i].capacity = static_cast<std::uint32_t>(page.size());
    ops[i].context = &pending;
    ops[i].on_result = [](PageOp& op) { --*static_cast<std::size_t*>(op.context); };
    hosts[i % hosts.size()]->submit(ops[i]);
  }
  while (pending != 0) loop.run_once();
  for (const PageOp& op : ops) ASSERT_TRUE(op.status.ok()) << op.status.describe();
  EXPECT_GT(served.target->stats().stashes_refused, 0u);
  for (const auto& initiator : hosts) EXPECT_EQ(initiator->reconnects(), 0u);
}

// One line at once, and one with the number of the rest, although nobody is refused any more.
TEST(TargetBounds, EveryRefusalIsTold) {
  TargetOptions options;
  options.buffer_bytes_max = 4 << 20;
  options.connections_max = 1;
  Served served(options);
  RawHost only(served.target->port());
  only.init();
  constexpr unsigned kRefused = 6;
  for (unsigned i = 0; i < kRefused; ++i) RawHost(served.target->port()).expect_closed();
  unsigned told = 0;
  served.eventually([&](const TargetStats&) {
    told = 0;
    for (const std::string& line : served.lines()) {
      EXPECT_NE(line.find("connections_max"), std::string::npos) << line;
      told += line.starts_with("refused") ? 1 : static_cast<unsigned>(std::stoul(line));
    }
    return told == kRefused;
  });
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
  hosts.push_back(std::make_unique<RawHost>(served.target->port()));
  const std::uint16_t cntlid = enable_controller(*hosts[0], nqn);
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

// Connections that ask for all the page buffers that they can get, for values of 1 MiB, and never
// send a byte of those.
class StuckConnections {
 public:
  StuckConnections(Target& target, const char* source) : target_(target), source_(source) {}

  void add_host(std::string_view hostnqn, std::uint16_t connections) {
    RawHost& admin = another();
    const std::uint16_t cntlid = enable_controller(admin, target_.subsystem_nqn(), hostnqn);
    for (std::uint16_t qid = 1; qid <= connections; ++qid) {
      RawHost& host = another();
      host.init();
      host.send(connect_capsule(host, target_.subsystem_nqn(), qid, cntlid, 64, hostnqn));
      ASSERT_EQ(host.expect_response(0).sct_sc(), 0);
      nvme::Sqe store;
      store.opc = nvme::kv::kStore;
      store.nsid = 1;
      store.cdw10 = 1 << 20;
      store.cdw11 = 1;
      for (store.cid = 1; store.cid <= 40; ++store.cid) {
        host.send(host.capsule(store, {}, 1 << 20));
      }
      stores += 40;
    }
  }
  std::uint64_t stores = 0;

 private:
  RawHost& another() {
    hosts_.push_back(std::make_unique<RawHost>(target_.port(), source_));
    return *hosts_.back();
  }
  Target& target_;
  const char* source_;
  std::vector<std::unique_ptr<RawHost>> hosts_;
};

// What another host stores meanwhile, eight at a time. None of the stuck connections may have been
// ended: else it had waited for their time to run out.
void expect_prompt_stores(Served& served, const StuckConnections& stuck) {
  served.eventually(
      [&](const TargetStats& stats) { return stats.buffer_waits >= stuck.stores / 2; });
  EventLoop loop;
  InitiatorOptions options;
  options.port = served.target->port();
  const auto initiator = Initiator::connect(loop, options);
  ASSERT_TRUE(initiator.ok()) << initiator.status().describe();
  std::vector<std::byte> value(1 << 20, std::byte{0x5A});
  for (unsigned round = 0; round < 10; ++round) {
    std::vector<PageOp> ops(8);
    unsigned released = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      ops[i].kind = PageOp::Kind::put;
      ops[i].key = Key::from(std::string(1 + i, 'k'));
      ops[i].data = value.data();
      ops[i].length = ops[i].capacity = 1 << 20;
      ops[i].context = &released;
      ops[i].on_result = [](PageOp&) {};
      ops[i].on_released = [](PageOp& op) { ++*static_cast<unsigned*>(op.context); };
      (*initiator)->submit(ops[i]);
    }
    while (released != ops.size()) loop.run_once();
    for (const PageOp& op : ops) ASSERT_TRUE(op.status.ok()) << op.status.describe();
  }
  EXPECT_EQ(served.target->stats().timeouts, 0u);
  EXPECT_EQ((*initiator)->reconnects(), 0u);
}

TEST(TargetBounds, AStuckHostDoesNotDelayAnotherOfItsAddress) {
  Served served(TargetOptions{});
  StuckConnections stuck(*served.target, "127.0.0.1");
  stuck.add_host("nqn.2026-11.test:stuck", 12);
  expect_prompt_stores(served, stuck);
}

TEST(TargetBounds, StuckHostsDoNotDelayAnotherAddress) {
  Served served(TargetOptions{});
  StuckConnections stuck(*served.target, "127.0.0.2");
  for (char name = 'a'; name < 'a' + 12; ++name) {
    stuck.add_host(std::string("nqn.2026-11.test:") + name, 1);
  }
  expect_prompt_stores(served, stuck);
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

TEST(TargetBounds, ReactorsWithoutThreadsAreRefused) {
  TargetOptions options;
  options.listen_port = 0;
  options.cores = 2;
  test::FakePool pool;
  EventLoop loop;
  const test::NoThreads none;
  EXPECT_EQ(Target::start(pool, loop, options).status().sys_errno(), EAGAIN);
}

// So that nothing is opened or made for options that will be refused.
TEST(TargetBounds, ImpossibleOnesAreNamedWithoutAPool) {
  const auto wrong = [](const std::function<void(TargetOptions&)>& change) {
    TargetOptions options;
    change(options);
    const OptionsCheck checked = check(options);
    EXPECT_EQ(checked.status.ok(), *checked.option == '\0');
    return std::string(checked.option);
  };
  EXPECT_EQ(wrong([](auto&) {}), "");
  EXPECT_EQ(wrong([](auto& options) { options.cores = 0; }), "cores");
  EXPECT_EQ(wrong([](auto& options) { options.cpus = {0, 0}; }), "cpus");  // for one reactor
  EXPECT_EQ(wrong([](auto& options) { options.cpus = {4095}; }), "cpus");
  EXPECT_EQ(wrong([](auto& options) { options.data_timeout_ms = 0; }), "data_timeout_ms");
  EXPECT_EQ(wrong([](auto& options) { options.setup_timeout_ms = 0; }), "setup_timeout_ms");
  EXPECT_EQ(wrong([](auto& options) { options.connections_max = 0; }), "connections_max");
  EXPECT_EQ(wrong([](auto& options) { options.connections_per_address_max = 0; }),
            "connections_per_address_max");
  EXPECT_EQ(wrong([](auto& options) { options.queue_entries_total_max = 1; }),
            "queue_entries_total_max");
  EXPECT_EQ(wrong([](auto& options) { options.subsystem_nqn = "foo"; }), "nqn");
  EXPECT_EQ(wrong([](auto& options) {
              options.allowed_hosts = {"nqn.a", "bad"};
            }),
            "allowed_hosts");
}

}  // namespace
}  // namespace furrow::transport
