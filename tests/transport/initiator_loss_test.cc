// Establishes what becomes of operations when the connection is lost, or the initiator is: what may
// be sent again is, over the next connection; the rest fails and says what may have been done; the
// initiator gives up in time, and comes back; and nothing hangs or is answered twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "tests/transport/cut_proxy.h"
#include "tests/transport/fake_target.h"
#include "tests/transport/initiator_rig.h"

namespace furrow::transport {
namespace {

class InitiatorLossTest : public InitiatorTest {
 protected:
  // The server is away when it returns.
  void lose_server(Client& client, std::uint32_t reconnect_delay_ms,
                   std::uint32_t reconnect_for_ms) {
    client.options.reconnect_delay_ms = reconnect_delay_ms;
    client.options.reconnect_for_ms = reconnect_for_ms;
    client.connect();
    server_.stop(1000);
  }
};

// The server is cut under load and started again: what is idempotent comes through, the rest fails
// with `aborted`, nothing hangs and nothing is answered wrongly.
TEST_F(InitiatorLossTest, ReconnectsAndSendsAgain) {
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
  client.options.keep_alive_ms = 900;  // a target takes it for a second
  client.connect();
}

// The network takes the connection from the host alone: the server may still get what is on its
// way. What changes nothing is sent again as soon as the host is back, a put and a remove when the
// server has given the old association up; until then nothing that others are told is stored can
// be followed by them.
TEST_F(InitiatorLossTest, AChangeIsSentAgainWhenTheOldConnectionCannotCarryItAnyMore) {
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
TEST_F(InitiatorLossTest, AChangeIsNotHeldForWhatOthersLose) {
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

TEST_F(InitiatorLossTest, GivesUpInTimeAndComesBack) {
  Client client(server_);
  lose_server(client, 20, 300);
  EXPECT_EQ(client.put("k", patterned(1, 10)).code(), Code::aborted);
  const Status refused = client.put("k", patterned(1, 10));
  EXPECT_EQ(refused.code(), Code::aborted);
  EXPECT_EQ(refused.sys_errno(), ENOTCONN) << "nothing was done";
  server_.start();
  client.run_until([&] { return client.initiator->reconnects() == 1; });
  EXPECT_TRUE(client.put("k", patterned(1, 10)).ok());
}

// What was meant for the volume that it knew does not go to one that has its namespace since.
TEST_F(InitiatorLossTest, AnotherVolumeIsNotTheOneThatItKnew) {
  Client client(server_);
  lose_server(client, 20, 500);
  ASSERT_TRUE(server_.pool.delete_volume("pages").ok());
  VolumeOptions another;
  another.name = "another";
  another.nsid = 1;
  another.quota_bytes = 5 * FakePool::kZoneBytes;
  ASSERT_TRUE(server_.pool.create_volume(another).ok());
  server_.start();
  EXPECT_EQ(client.put("k", patterned(1, 10)).code(), Code::aborted);
  const Status refused = client.put("k", patterned(1, 10));
  EXPECT_EQ(refused.code(), Code::aborted);
  EXPECT_EQ(refused.sys_errno(), ENOTCONN) << "nothing was done";
  EXPECT_THAT(refused.describe(), testing::HasSubstr("another volume under this NSID"));
  EXPECT_EQ(client.initiator->reconnects(), 0u);
  std::vector<std::byte> value;
  Client new_one(server_);
  new_one.connect();
  EXPECT_EQ(new_one.get("k", value, 4096).code(), Code::not_found);
}

// ... counted from the loss, not from the last of the attempts.
TEST_F(InitiatorLossTest, AttemptsThatFailDoNotPutOffTheEnd) {
  Client client(server_);
  lose_server(client, 20, 1000);
  const auto since = std::chrono::steady_clock::now();
  EXPECT_EQ(client.put("k", patterned(1, 10)).code(), Code::aborted);
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::milliseconds(2000));
}

// A connection that is lost now and then is back at once each time.
TEST_F(InitiatorLossTest, OnceItIsBackTheWaitBeginsAnew) {
  CutProxy proxy(server_.target->port());
  Client client(server_);
  connect_through(proxy, client);
  const auto since = std::chrono::steady_clock::now();
  for (unsigned cuts = 1; cuts <= 8; ++cuts) {  // 5 s, were each wait twice the one before
    proxy.cut();
    client.run_until([&] { return client.initiator->reconnects() == cuts; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::milliseconds(2500));
}

// A server that takes connections and says nothing, as one that was stopped, makes each attempt to
// reconnect as long as that may take.
TEST_F(InitiatorLossTest, GivesUpInTheMiddleOfAnAttempt) {
  Client client(server_);
  lose_server(client, 1, 200);
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
TEST_F(InitiatorLossTest, AskingAgainFromTheCallbackKeepsNobodyFromReconnecting) {
  Client client(server_);
  lose_server(client, 20, 100);
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
TEST_F(InitiatorLossTest, LossSaysWhatMayHaveHappened) {
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

// Also a host that is to come back at once does not spin while nothing is there.
TEST_F(InitiatorLossTest, WaitsLongerAndLongerForAServerThatIsAway) {
  CutProxy proxy(server_.target->port());
  Client client(server_);
  client.options.port = proxy.port();
  client.options.reconnect_delay_ms = 0;
  client.connect();
  server_.stop(1000);
  const std::size_t before = proxy.connections();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  client.run_until([&] { return std::chrono::steady_clock::now() >= until; });
  EXPECT_GT(proxy.connections(), before);
  EXPECT_LT(proxy.connections(), before + 20);
}

TEST_F(InitiatorLossTest, WithoutReconnectLossIsFinal) {
  Client client(server_);
  lose_server(client, 20, 0);
  EXPECT_EQ(client.put("k", patterned(1, 10)).code(), Code::aborted);
}

TEST_F(InitiatorLossTest, DestructionFailsWhatIsInFlight) {
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
TEST_F(InitiatorLossTest, DestructionFailsWhatIsSubmittedMeanwhile) {
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
      EXPECT_EQ(done.status.sys_errno(), ESHUTDOWN) << done.status.describe();
      if (++its.ended < std::size(its.ops)) its.initiator.submit(its.ops[its.ended]);
    };
  }
  client.initiator->submit(chain.ops[0]);
  client.initiator.reset();
  EXPECT_EQ(chain.ended, std::size(chain.ops));
}

// Who tries again for as long as the server cannot be reached does not do so for ever.
TEST_F(InitiatorLossTest, DestructionIsNoLossAfterWhichToTryAgain) {
  Client client(server_);
  client.connect();
  server_.stop(0);
  struct Trial {
    Initiator& initiator;
    PageOp op;
    unsigned tries = 1;
  } trial{*client.initiator, {}};
  trial.op.kind = PageOp::Kind::exist;
  trial.op.key = Key::from("k");
  trial.op.context = &trial;
  trial.op.on_result = [](PageOp&) {};
  trial.op.on_released = [](PageOp& op) {
    auto& its = *static_cast<Trial*>(op.context);
    const int error = op.status.sys_errno();
    if (error != ENOTCONN && error != ECONNRESET) return;
    ASSERT_LT(its.tries++, 100u);
    its.initiator.submit(op);
  };
  client.initiator->submit(trial.op);
  client.initiator.reset();
  EXPECT_EQ(trial.op.status.sys_errno(), ESHUTDOWN) << trial.op.status.describe();
}

// Nor does who tries again whatever he is told.
TEST_F(InitiatorLossTest, DestructionEndsWhoeverGoesOnSubmitting) {
  Client client(server_);
  client.connect();
  server_.stop(0);
  struct Trial {
    Initiator& initiator;
    PageOp op;
    unsigned tries = 0;
  } trial{*client.initiator, {}};
  trial.op.kind = PageOp::Kind::exist;
  trial.op.key = Key::from("k");
  trial.op.context = &trial;
  trial.op.on_result = [](PageOp&) {};
  trial.op.on_released = [](PageOp& op) {
    auto& its = *static_cast<Trial*>(op.context);
    ASSERT_LT(its.tries++, 1'000'000u);
    its.initiator.submit(op);
  };
  client.initiator->submit(trial.op);
  client.initiator.reset();
  EXPECT_GT(trial.tries, 1000u) << "who only has so many operations is told of each";
  EXPECT_EQ(trial.op.status.sys_errno(), ESHUTDOWN) << trial.op.status.describe();
}

}  // namespace
}  // namespace furrow::transport
