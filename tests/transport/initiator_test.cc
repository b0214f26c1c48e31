// Establishes that the initiator and the target work together: bring-up and discovery, every
// operation and its errors, batches over several queues at full depth, large values by R2T, and
// digests. Every value is compared.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/log/test_seed.h"
#include "tests/transport/fake_target.h"
#include "tests/transport/initiator_rig.h"

namespace furrow::transport {
namespace {

TEST_F(InitiatorTest, OperationsAndTheirErrors) {
  Client client(server_);
  client.connect();
  EXPECT_EQ(client.initiator->value_bytes_max(), 1u << 20);
  std::vector<std::byte> value;
  EXPECT_EQ(client.get("k", value, 100).code(), Code::not_found);
  EXPECT_EQ(client.simple(PageOp::Kind::exist, "k").code(), Code::not_found);
  EXPECT_TRUE(client.simple(PageOp::Kind::remove, "k").ok()) << "as feature 20h says";
  EXPECT_EQ(client.put("k", patterned(1, 100), PageOp::Condition::if_exists).code(),
            Code::not_found);
  EXPECT_TRUE(client.put("k", patterned(1, 100)).ok());
  EXPECT_EQ(client.put("k", patterned(2, 100), PageOp::Condition::if_absent).code(), Code::exists);
  EXPECT_TRUE(client.simple(PageOp::Kind::exist, "k").ok());
  EXPECT_TRUE(client.get("k", value, 100).ok());
  EXPECT_EQ(value, patterned(1, 100));
  EXPECT_TRUE(client.put("k", patterned(2, 50), PageOp::Condition::if_exists).ok());
  EXPECT_TRUE(client.get("k", value, 100).ok());
  EXPECT_EQ(client.length, 50u);
  value.resize(50);
  EXPECT_EQ(value, patterned(2, 50));
  EXPECT_TRUE(client.simple(PageOp::Kind::remove, "k").ok());
  EXPECT_TRUE(client.simple(PageOp::Kind::flush).ok());
  EXPECT_EQ(server_.flushes(), 1u);
}

TEST_F(InitiatorTest, RefusesWhatCannotBeSent) {
  Client client(server_);
  client.connect();
  EXPECT_EQ(client.put("", patterned(1, 1)).code(), Code::invalid_argument);
  EXPECT_EQ(client.put("seventeen bytes!!", patterned(1, 1)).code(), Code::invalid_argument);
  EXPECT_EQ(client.put("k", {}).code(), Code::invalid_argument);
  EXPECT_EQ(client.put("k", patterned(1, (1 << 20) + 1)).code(), Code::too_large);
  EXPECT_EQ(client.simple(PageOp::Kind::pin, "k").code(), Code::unsupported);
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.key = Key::from("k");
  op.ttl_s = 1;
  EXPECT_EQ(client.run(op).code(), Code::unsupported);
  EXPECT_TRUE(client.put("sixteen bytes!!!", patterned(1, 1)).ok());
}

TEST_F(InitiatorTest, ErrorsOfTheStoreComeThrough) {
  Client client(server_);
  client.connect();
  std::vector<std::byte> value;
  EXPECT_TRUE(client.put("k", patterned(1, 10)).ok());
  for (const Code code : {Code::corrupt, Code::no_space}) {
    server_.on_home([&] { server_.pool.store(1).next_failure = Status(code, Origin::engine); });
    const Status got =
        code == Code::corrupt ? client.get("k", value, 10) : client.put("k", patterned(1, 10));
    EXPECT_EQ(got.code(), code) << got.describe();
  }
}

TEST_F(InitiatorTest, AShortBufferGetsTheTrueLength) {
  Client client(server_);
  client.connect();
  EXPECT_TRUE(client.put("big", patterned(7, 50000)).ok());
  std::vector<std::byte> value;
  EXPECT_TRUE(client.get("big", value, 1000).ok());
  EXPECT_EQ(client.length, 50000u);
  auto expected = patterned(7, 50000);
  expected.resize(1000);
  EXPECT_EQ(value, expected);
}

TEST_F(InitiatorTest, FlushedPutsAreFollowedByAFlush) {
  Client client(server_);
  client.connect();
  EXPECT_TRUE(
      client.put("k", patterned(1, 10), PageOp::Condition::always, Durability::flushed).ok());
  EXPECT_EQ(server_.flushes(), 1u);
  EXPECT_EQ(
      client.put("k", patterned(1, 10), PageOp::Condition::if_absent, Durability::flushed).code(),
      Code::exists);
  EXPECT_EQ(server_.flushes(), 1u);
}

TEST_F(InitiatorTest, ListsAllKeysInPieces) {
  Client client(server_);
  client.connect();
  std::map<std::string, int> keys;
  for (int i = 0; i < 100; ++i) {
    const std::string key =
        "key" + std::string(static_cast<std::size_t>(i % 12), 'x') + std::to_string(i);
    keys[key] = 1;
    EXPECT_TRUE(client.put(key, patterned(1, 10)).ok());
  }
  Key after;
  std::size_t found = 0;
  while (true) {
    Key page[7];
    PageOp op;
    op.kind = PageOp::Kind::list;
    op.key = after;
    op.keys = page;
    op.keys_max = 7;
    ASSERT_TRUE(client.run(op).ok()) << op.status.describe();
    if (op.keys_count == 0) break;
    for (std::uint32_t i = 0; i < op.keys_count; ++i) {
      const std::string key(reinterpret_cast<const char*>(page[i].bytes.data()), page[i].length);
      EXPECT_EQ(keys.count(key), 1u) << key;
    }
    found += op.keys_count;
    after = page[op.keys_count - 1];
  }
  EXPECT_EQ(found, keys.size());
}

TEST_F(InitiatorTest, DiscoveryFindsTheOnlySubsystem) {
  Client client(server_);
  client.options.subsystem_nqn.clear();
  client.connect();
  EXPECT_TRUE(client.put("k", patterned(1, 10)).ok());
  client.options.subsystem_nqn = server_.target->subsystem_nqn();
  client.initiator.reset();
  client.connect();
  EXPECT_TRUE(client.simple(PageOp::Kind::exist, "k").ok());
}

TEST_F(InitiatorTest, BringUpErrorsAreTold) {
  Client client(server_);
  client.options.subsystem_nqn = "nqn.2026-11.io.furrow:another";
  EXPECT_EQ(client.connect_status().code(), Code::not_found);
  client.options.subsystem_nqn = server_.target->subsystem_nqn();
  client.options.nsid = 9;
  EXPECT_EQ(client.connect_status().code(), Code::not_found);
  client.options.nsid = 1;
  client.options.io_queues = 0;
  EXPECT_EQ(client.connect_status().code(), Code::invalid_argument);
  client.options.io_queues = 1;
  const std::uint16_t port = client.options.port;
  server_.stop(1000);
  const Status refused = client.connect_status();
  EXPECT_EQ(refused.code(), Code::io_error);
  EXPECT_EQ(refused.sys_errno(), ECONNREFUSED);
  server_.options.allowed_hosts = {"nqn.2026-11.test:friend"};
  server_.start();
  ASSERT_EQ(server_.target->port(), port);
  EXPECT_EQ(client.connect_status().code(), Code::permission);
  client.options.host_nqn = "nqn.2026-11.test:friend";
  client.connect();
}

TEST_F(InitiatorTest, PortInUseIsTold) {
  TargetOptions options = server_.options;
  options.listen_port = server_.target->port();
  EventLoop loop;
  const auto second = Target::start(server_.pool, loop, options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::in_use);
  EXPECT_STRNE(second.status().hint(), "");
}

// A peer that accepts and says nothing.
TEST(InitiatorTimeout, ASilentServerIsGivenUp) {
  auto listener = TcpListener::open("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  InitiatorOptions options;
  options.port = (*listener)->port();
  options.connect_timeout_ms = 200;
  options.subsystem_nqn = "nqn.2026-11.io.furrow:x";
  EventLoop loop;
  EXPECT_EQ(Initiator::connect(loop, options).status().code(), Code::io_error);
}

struct Load {
  bool header_digest, data_digest;
  std::uint16_t io_queues, queue_entries;
  unsigned cores;
};

class InitiatorLoad : public testing::TestWithParam<Load> {};

// Random puts, gets and removes, as many in flight as the queues hold and more, against a map. One
// operation per key at a time, so that the map knows the answer.
TEST_P(InitiatorLoad, MatchesAMap) {
  const Load& load = GetParam();
  std::mt19937_64 random(test_seed());
  Server server(load.cores);
  server.start();
  Client client(server);
  client.options.header_digest = load.header_digest;
  client.options.data_digest = load.data_digest;
  client.options.io_queues = load.io_queues;
  client.options.queue_entries = load.queue_entries;
  client.connect();

  struct Slot {
    PageOp op;
    std::vector<std::byte> memory;
    std::uint32_t seed = 0, length = 0;  // length 0: absent
  };
  const std::size_t keys = load.io_queues * load.queue_entries + 40u;
  std::vector<Slot> slots(keys);
  const std::uint32_t size_max = keys > 500 ? 20000 : 300000;
  for (int round = 0; round < (keys > 500 ? 4 : 12); ++round) {
    for (std::size_t i = 0; i < keys; ++i) {
      Slot& slot = slots[i];
      slot.op = PageOp();
      slot.op.key = Key::from("key " + std::to_string(i));
      const unsigned dice = random() % 10;
      if (dice < 5) {
        slot.seed = random();
        slot.length = 1 + random() % (random() % 8 == 0 ? size_max : 9000);
        slot.memory = patterned(slot.seed, slot.length);
        slot.op.kind = PageOp::Kind::put;
        slot.op.length = slot.op.capacity = slot.length;
      } else {
        slot.op.kind = dice < 9 ? PageOp::Kind::get : PageOp::Kind::remove;
        slot.memory.assign(slot.length == 0 ? 64 : slot.length, std::byte{0xEE});
        slot.op.capacity = static_cast<std::uint32_t>(slot.memory.size());
      }
      slot.op.data = slot.memory.data();
      client.submit(slot.op);
    }
    client.wait();
    for (Slot& slot : slots) {
      if (slot.op.kind == PageOp::Kind::put) {
        ASSERT_TRUE(slot.op.status.ok()) << slot.op.status.describe();
        continue;
      }
      const bool missed = slot.length == 0 && slot.op.kind == PageOp::Kind::get;
      ASSERT_EQ(slot.op.status.code(), missed ? Code::not_found : Code::ok)
          << slot.op.status.describe();
      if (slot.length == 0) continue;
      if (slot.op.kind == PageOp::Kind::get) {
        ASSERT_EQ(slot.op.length, slot.length);
        ASSERT_EQ(slot.memory, patterned(slot.seed, slot.length));
      } else {
        slot.length = 0;
      }
    }
  }
  client.initiator.reset();
  EXPECT_EQ(server.target->stats().protocol_errors, 0u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, InitiatorLoad,
                         testing::Values(Load{false, false, 1, 32, 1}, Load{true, true, 1, 32, 1},
                                         Load{false, true, 3, 16, 2},
                                         Load{false, false, 1, 1024, 1},
                                         Load{true, false, 2, 128, 2},
                                         Load{false, false, 1, 2, 1}));

// What one queue has no room for goes by another one, and nothing waits here while one has.
TEST_F(InitiatorTest, AllQueuesAreUsed) {
  constexpr std::uint16_t queues = 3, entries = 2;
  Client client(server_);
  client.options.io_queues = queues;
  client.options.queue_entries = entries;
  client.options.keep_alive_ms = 600'000;  // which are commands as well
  client.connect();
  server_.on_home([&] { server_.pool.store(1).hold = true; });
  const std::uint64_t before = server_.target->stats().commands;
  std::vector<PageOp> ops(queues * entries);
  for (PageOp& op : ops) {
    op.kind = PageOp::Kind::exist;
    op.key = Key::from("k");
    client.submit(op);
  }
  client.run_until([&] { return server_.target->stats().commands >= before + ops.size(); });
  server_.on_home([&] { server_.pool.store(1).hold = false; });
  client.wait();
  for (const PageOp& op : ops) EXPECT_EQ(op.status.code(), Code::not_found);
}

TEST_F(InitiatorTest, KeepAliveKeepsAnIdleConnection) {
  Client client(server_);
  client.options.keep_alive_ms = 1000;
  client.connect();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < until) {
    client.loop.run_once();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(client.put("k", patterned(1, 10)).ok());
  EXPECT_EQ(client.initiator->reconnects(), 0u);
  EXPECT_EQ(server_.target->stats().keep_alive_expired, 0u);
}

}  // namespace
}  // namespace furrow::transport
