// Establishes that the initiator and the target work together: bring-up and discovery, every
// operation and its errors, batches over several queues at full depth, large values by R2T,
// digests, an orderly stop, a restart of the server and its death in the middle of load.
// How: a real Target on a thread of its own, over a pool of plain maps; the initiator's executor is
// turned by the test. Every value is compared.
#include "transport/initiator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/log/test_seed.h"
#include "tests/transport/cut_proxy.h"
#include "tests/transport/fake_engine.h"
#include "tests/transport/fake_target.h"
#include "transport/target.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

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

// The server is cut under load and started again: what is idempotent comes through, the rest fails
// with `aborted`, nothing hangs and nothing is answered wrongly.
TEST_F(InitiatorTest, ReconnectsAndSendsAgain) {
  Client client(server_);
  client.options.io_queues = 2;
  client.options.reconnect_delay_ms = 20;
  client.connect();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client.put("k" + std::to_string(i), patterned(i, 20000)).ok());
  }
  for (int round = 1; round <= 5; ++round) {
    server_.on_home([&] { server_.pool.store(1).hold = true; });
    struct Slot {
      PageOp op;
      std::vector<std::byte> memory;
    };
    std::vector<Slot> slots(60);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      PageOp& op = slots[i].op;
      const auto number = static_cast<std::uint32_t>(i % 20);
      op.key = Key::from("k" + std::to_string(number));
      slots[i].memory = patterned(number, 20000);
      op.kind = i < 20 ? PageOp::Kind::get : PageOp::Kind::put;
      if (i >= 40) op.condition = PageOp::Condition::if_exists;
      op.data = slots[i].memory.data();
      op.length = op.capacity = 20000;
      if (op.kind == PageOp::Kind::get) slots[i].memory.assign(20000, std::byte{0});
      client.submit(op);
    }
    for (int turn = 0; turn < round * 50; ++turn) client.loop.run_once();
    // The store answers again, or the operations in it would keep the server from stopping.
    std::thread restart([&] {
      server_.on_home([&] { server_.pool.store(1).hold = false; });
      server_.stop(round % 2 == 0 ? 0 : 50);
      server_.start();
    });
    client.wait();
    restart.join();
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const Status& status = slots[i].op.status;
      if (i < 40) {
        EXPECT_TRUE(status.ok()) << i << " " << status.describe();
        EXPECT_EQ(slots[i].memory, patterned(static_cast<std::uint32_t>(i % 20), 20000));
      } else {
        EXPECT_TRUE(status.ok() || status.code() == Code::aborted) << status.describe();
      }
    }
    client.run_until([&] { return client.initiator->reconnects() >= unsigned(round); });
  }
}

// A change is held for two seconds.
void connect_through(const CutProxy& proxy, Client& client) {
  client.options.port = proxy.port();
  client.options.reconnect_delay_ms = 20;
  client.options.keep_alive_ms = 1000;
  client.connect();
}

// The network takes the connection from the host alone: the server may still get what is on its
// way. What changes nothing is sent again as soon as the host is back, a put and a remove when the
// server has given the old association up; until then nothing that others are told is stored can
// be followed by them.
TEST_F(InitiatorTest, AChangeIsSentAgainWhenTheOldConnectionCannotCarryItAnyMore) {
  CutProxy proxy(server_.target->port());
  Client client(server_);
  connect_through(proxy, client);
  ASSERT_TRUE(client.put("gone", patterned(1, 100)).ok());
  server_.on_home([&] { server_.pool.store(1).hold = true; });
  std::vector<std::byte> value = patterned(1, 100), memory(100);
  PageOp put, remove, get;
  put.kind = PageOp::Kind::put;
  put.key = Key::from("k");
  put.data = value.data();
  put.length = put.capacity = 100;
  remove.kind = PageOp::Kind::remove;
  remove.key = Key::from("gone");
  get.key = Key::from("k");
  get.data = memory.data();
  get.capacity = 100;
  const std::uint64_t commands = server_.target->stats().commands;
  for (PageOp* op : {&put, &remove, &get}) client.submit(*op);
  client.run_until([&] { return server_.target->stats().commands >= commands + 3; });
  proxy.cut();
  const auto cut = std::chrono::steady_clock::now();
  // The old connection's operations are carried out only now.
  client.run_until([&] { return client.initiator->reconnects() == 1; });
  std::uint64_t before = 0;
  server_.on_home([&] {
    server_.pool.store(1).hold = false;
    before = server_.pool.store(1).operations;
  });
  client.run_until([&] { return client.pending == 2; });
  EXPECT_TRUE(get.status.ok()) << get.status.describe();
  EXPECT_LT(std::chrono::steady_clock::now() - cut, std::chrono::milliseconds(1900))
      << "a get need not wait";
  // Somebody else stores another page there, and is told so: it stays until the put's time comes.
  Client other(server_);
  other.connect();
  ASSERT_TRUE(other.put("k", patterned(2, 100)).ok());
  client.wait();
  EXPECT_GE(std::chrono::steady_clock::now() - cut, std::chrono::milliseconds(2000));
  EXPECT_TRUE(put.status.ok()) << put.status.describe();
  EXPECT_TRUE(remove.status.ok()) << remove.status.describe();
  std::uint64_t after = 0;
  server_.on_home([&] { after = server_.pool.store(1).operations; });
  EXPECT_GE(after, before + 6) << "three by the old connection, or held there; three again";
}

// ... counted from when it was lost itself, however often the connection is lost afterwards.
TEST_F(InitiatorTest, AChangeIsNotHeldForWhatOthersLose) {
  CutProxy proxy(server_.target->port());
  Client client(server_);
  connect_through(proxy, client);
  server_.on_home([&] { server_.pool.store(1).hold = true; });
  std::vector<std::byte> value = patterned(1, 100);
  PageOp put;
  put.kind = PageOp::Kind::put;
  put.key = Key::from("k");
  put.data = value.data();
  put.length = put.capacity = 100;
  const std::uint64_t commands = server_.target->stats().commands;
  client.submit(put);
  client.run_until([&] { return server_.target->stats().commands > commands; });
  proxy.cut();
  server_.on_home([&] { server_.pool.store(1).hold = false; });
  unsigned cuts = 1;
  for (; client.pending != 0 && cuts < 30; ++cuts) {
    client.run_until([&] { return client.initiator->reconnects() == cuts; });
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
    client.run_until(
        [&] { return client.pending == 0 || std::chrono::steady_clock::now() >= until; });
    if (client.pending != 0) proxy.cut();
  }
  EXPECT_EQ(client.pending, 0u) << "lost " << cuts << " times";
  EXPECT_TRUE(put.status.ok()) << put.status.describe();
}

TEST_F(InitiatorTest, GivesUpInTimeAndComesBack) {
  Client client(server_);
  client.options.reconnect_delay_ms = 20;
  client.options.reconnect_for_ms = 300;
  client.connect();
  server_.stop(1000);
  EXPECT_EQ(client.put("k", patterned(1, 10)).code(), Code::aborted);
  const Status refused = client.put("k", patterned(1, 10));
  EXPECT_EQ(refused.code(), Code::aborted);
  EXPECT_EQ(refused.sys_errno(), ENOTCONN) << "nothing was done";
  server_.start();
  client.run_until([&] { return client.initiator->reconnects() == 1; });
  EXPECT_TRUE(client.put("k", patterned(1, 10)).ok());
}

// A server that takes connections and says nothing, as one that was stopped, makes each attempt to
// reconnect as long as that may take.
TEST_F(InitiatorTest, GivesUpInTheMiddleOfAnAttempt) {
  Client client(server_);
  client.options.reconnect_delay_ms = 1;
  client.options.reconnect_for_ms = 200;
  client.connect();
  server_.stop(1000);
  const auto silent = TcpListener::open("127.0.0.1", client.options.port);
  ASSERT_TRUE(silent.ok()) << silent.status().describe();
  const auto since = std::chrono::steady_clock::now();
  const Status refused = client.put("k", patterned(1, 10));
  EXPECT_EQ(refused.code(), Code::aborted) << refused.describe();
  const auto limit = std::chrono::milliseconds(client.options.connect_timeout_ms / 2);
  EXPECT_LT(std::chrono::steady_clock::now() - since, limit);
}

// A program may ask again from the callback, as often as it is refused: its loop goes on, and so
// does the reconnect.
TEST_F(InitiatorTest, AskingAgainFromTheCallbackKeepsNobodyFromReconnecting) {
  Client client(server_);
  client.options.reconnect_delay_ms = 20;
  client.options.reconnect_for_ms = 100;
  client.connect();
  server_.stop(1000);
  struct Asker {
    Client& client;
    int refused = 0, in_turn = 0;
    bool served = false;
  } asker{client};
  PageOp op;
  op.kind = PageOp::Kind::exist;
  op.key = Key::from("k");
  op.context = &asker;
  op.on_result = [](PageOp&) {};
  op.on_released = [](PageOp& done) {
    auto& its = *static_cast<Asker*>(done.context);
    if (done.status.code() != Code::aborted) {
      its.served = true;
      return;
    }
    ++its.refused;
    ASSERT_LT(++its.in_turn, 100) << "the loop does not get on";
    its.client.initiator->submit(done);
  };
  client.initiator->submit(op);
  client.run_until([&] {
    asker.in_turn = 0;
    return asker.refused > 10;
  });
  server_.start();
  client.run_until([&] {
    asker.in_turn = 0;
    return asker.served;
  });
  EXPECT_EQ(op.status.code(), Code::not_found);
}

// A command that no target can have seen is as good as new, whatever its kind; of the others the
// error says that they may have been done.
TEST_F(InitiatorTest, LossSaysWhatMayHaveHappened) {
  server_.stop(1000);
  server_.options.io_queue_entries_max = 32;
  server_.start();
  Client client(server_);
  client.options.queue_entries = 32;
  client.options.reconnect_delay_ms = 20;
  client.connect();
  server_.on_home([&] { server_.pool.store(1).hold = true; });
  auto value = patterned(1, 100);
  std::vector<PageOp> ops(40);  // more than the queue takes: the last eight stay here
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i].kind = PageOp::Kind::put;
    ops[i].condition = PageOp::Condition::if_absent;
    ops[i].key = Key::from("k" + std::to_string(i));
    ops[i].data = value.data();
    ops[i].length = ops[i].capacity = 100;
    client.submit(ops[i]);
  }
  client.run_until([&] { return server_.target->stats().commands >= 32; });
  server_.begin_stop(0);  // cuts before the store answers
  client.run_until([&] { return client.pending == 8; });
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(ops[i].status.code(), Code::aborted);
    EXPECT_EQ(ops[i].status.sys_errno(), ECONNRESET);
  }
  server_.on_home([&] { server_.pool.store(1).hold = false; });
  server_.finish_stop();
  server_.start();
  client.wait();
  for (std::size_t i = 32; i < 40; ++i) {
    EXPECT_TRUE(ops[i].status.ok()) << ops[i].status.describe();
  }
}

TEST_F(InitiatorTest, WithoutReconnectLossIsFinal) {
  Client client(server_);
  client.options.reconnect_for_ms = 0;
  client.connect();
  server_.stop(1000);
  EXPECT_EQ(client.put("k", patterned(1, 10)).code(), Code::aborted);
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

TEST_F(InitiatorTest, DestructionFailsWhatIsInFlight) {
  Client client(server_);
  client.connect();
  PageOp op;
  op.kind = PageOp::Kind::exist;
  op.key = Key::from("k");
  client.submit(op);
  client.initiator.reset();
  EXPECT_EQ(client.pending, 0);
  EXPECT_EQ(op.status.code(), Code::aborted);
}

// What its callback asks for comes back as well, or its memory would never be the caller's again.
TEST_F(InitiatorTest, DestructionFailsWhatIsSubmittedMeanwhile) {
  Client client(server_);
  client.connect();
  server_.stop(0);
  struct Chain {
    Initiator& initiator;
    PageOp ops[3];
    std::size_t ended = 0;
  } chain{*client.initiator, {}, 0};
  for (PageOp& op : chain.ops) {
    op.kind = PageOp::Kind::exist;
    op.key = Key::from("k");
    op.context = &chain;
    op.on_result = [](PageOp&) {};
    op.on_released = [](PageOp& done) {
      auto& its = *static_cast<Chain*>(done.context);
      EXPECT_EQ(done.status.sys_errno(), ENOTCONN) << done.status.describe();
      if (++its.ended < std::size(its.ops)) its.initiator.submit(its.ops[its.ended]);
    };
  }
  client.initiator->submit(chain.ops[0]);
  client.initiator.reset();
  EXPECT_EQ(chain.ended, std::size(chain.ops));
}

}  // namespace
}  // namespace furrow::transport
