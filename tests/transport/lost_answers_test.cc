// Establishes what becomes of an operation that the target's answer leaves open: the connection
// went away between a Store and its Flush, or the target asks for the same command later. How: an
// initiator and its FuzzPeers on one thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/transport/peers_fixture.h"
#include "transport/initiator_impl.h"

namespace furrow::transport {
namespace {

using fuzz::Bytes;
using fuzz::FuzzPeer;
using Kind = PageOp::Kind;
using Condition = PageOp::Condition;

struct Op {
  PageOp page;
  Bytes memory;
  bool done = false;
};

class LostAnswers : public PeersTest {
 protected:
  LostAnswers() {
    options.subsystem_nqn = "nqn.2026-11.io.furrow:unit";
    options.reconnect_delay_ms = 5;
  }
  ~LostAnswers() override { initiator_.reset(); }

  void connect() {
    initiator_ = std::make_unique<InitiatorImpl>(executor_, options, *ring_);
    initiator_->begin(listener_.address(), listener_.bytes());
    run_until([this] { return initiator_->reconnects() == 1; });
  }
  Op& submit(Kind kind, std::string_view key, std::uint32_t bytes,
             Durability durability = Durability::none, Condition condition = Condition::always) {
    ops_.push_back(std::make_unique<Op>());
    Op& op = *ops_.back();
    op.memory = fuzz::patterned(fuzz::kPageSeed, bytes);
    op.page.kind = kind;
    op.page.key = Key::from(key);
    op.page.durability = durability;
    op.page.condition = condition;
    op.page.data = op.memory.data();
    op.page.length = op.page.capacity = bytes;
    op.page.context = &op;
    op.page.on_result = [](PageOp& page) { static_cast<Op*>(page.context)->done = true; };
    initiator_->submit(op.page);
    return op;
  }

  InitiatorOptions options;
  std::function<bool(FuzzPeer&, const nvme::Sqe&)> take_over;  // of I/O queues
  std::unique_ptr<InitiatorImpl> initiator_;
  std::string seen_;  // by all targets: the opcodes, (S)tore, (F)lush and others

 private:
  bool answers(FuzzPeer& peer, const nvme::Sqe& sqe) override {
    return peer.io() ? io(peer, sqe) : identify(peer, sqe);
  }
  bool io(FuzzPeer& peer, const nvme::Sqe& sqe) {
    seen_ += sqe.opc == nvme::kv::kStore ? 'S' : sqe.opc == nvme::kv::kFlush ? 'F' : '?';
    return take_over && take_over(peer, sqe);
  }
  // Takes 8 KiB in a capsule, and was started anew for each association: what is sent again need
  // not wait until the old connection is dead.
  bool identify(FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (sqe.opc != nvme::admin::kIdentify || sqe.nsid != 0) return false;
    nvme::IdentifyController data;
    data.ioccsz = 4 + kAdminInCapsuleBytes / 16;
    data.iorcsz = 1;
    data.mdts = 4;
    data.instance_magic = nvme::kInstanceMagic;
    data.instance = ++instance_;
    peer.send_data(sqe.cid, 0, std::as_bytes(std::span(&data, 1)), kFlagLast);
    peer.complete(sqe.cid, 0, 0);
    return true;
  }

  std::vector<std::unique_ptr<Op>> ops_;
  std::uint64_t instance_ = 0;
};

// A target that answers a Store while what the host sends with it is still on its way, then ends
// the connection and has forgotten the page when it comes back: its machine lost its power.
class ForgottenStore : public LostAnswers {
 protected:
  Op& store(Condition condition) {
    take_over = [](FuzzPeer& peer, const nvme::Sqe& sqe) {
      peer.complete(sqe.cid, 0, 0);
      peer.deaf = true;
      return true;
    };
    connect();
    Op& op = submit(Kind::put, "key", 1000, Durability::flushed, condition);
    // More than a socket takes at once, in the same sendmsg.
    while (rest_.size() < 60) rest_.push_back(&submit(Kind::put, "other", kAdminInCapsuleBytes));
    run_until([this] { return !seen_.empty(); });
    for (int i = 0; i < 100; ++i) turn();  // the host has the answer by then
    EXPECT_EQ(seen_, "S");
    EXPECT_FALSE(op.done) << "its Flush is still to come";
    seen_.clear();
    return op;
  }
  // Behind the answer.
  void end_connection() {
    take_over = nullptr;
    peers_.back()->end_output();  // the I/O queue's
  }
  void come_back() {
    run_until([this] { return std::ranges::all_of(rest_, [](const Op* op) { return op->done; }); });
    for (const Op* op : rest_) EXPECT_TRUE(op->page.status.ok()) << op->page.status.describe();
  }
  std::vector<Op*> rest_;
};

TEST_F(ForgottenStore, IsDoneAgainBeforeItsFlush) {
  Op& op = store(Condition::always);
  end_connection();
  run_until([&] { return op.done; });
  come_back();
  EXPECT_TRUE(op.page.status.ok()) << op.page.status.describe();
  EXPECT_EQ(seen_, std::string(rest_.size() + 1, 'S') + "F");
}

TEST_F(ForgottenStore, MayHaveBeenDoneWhereItIsConditional) {
  Op& op = store(Condition::if_absent);
  end_connection();
  run_until([&] { return op.done; });
  EXPECT_EQ(op.page.status.code(), Code::aborted) << op.page.status.describe();
  EXPECT_EQ(op.page.status.sys_errno(), ECONNRESET);
  come_back();
  EXPECT_EQ(seen_, std::string(rest_.size(), 'S'));
}

TEST_F(ForgottenStore, MayHaveBeenDoneWhereTheInitiatorEnds) {
  Op& op = store(Condition::always);
  initiator_.reset();
  ASSERT_TRUE(op.done);
  EXPECT_EQ(op.page.status.code(), Code::aborted) << op.page.status.describe();
  EXPECT_EQ(op.page.status.sys_errno(), ECONNRESET);
}

// A target that says so many times of commands with an opcode that it cannot do them now.
class AskedForLater : public LostAnswers {
 protected:
  void ask(std::uint8_t opcode, int times, std::uint16_t status) {
    take_over = [=, this](FuzzPeer& peer, const nvme::Sqe& sqe) {
      if (sqe.opc != opcode || told_ == times) return false;
      ++told_;
      peer.complete(sqe.cid, 0, 0, status);
      return true;
    };
    connect();
  }
  Status put(Durability durability = Durability::none, Condition condition = Condition::always) {
    const Op& op = submit(Kind::put, "key", 1000, durability, condition);
    run_until([&] { return op.done; });
    return op.page.status;
  }
  static constexpr int kAlways = -1;
  int told_ = 0;
};

TEST_F(AskedForLater, ItIsSentAgain) {
  for (const std::uint16_t status :
       {nvme::sc::kCommandInterrupted, nvme::sc::kTransientTransportError,
        nvme::sc::kNamespaceNotReady}) {
    told_ = 0;
    seen_.clear();
    ask(nvme::kv::kStore, 3, status);
    const std::uint64_t began_ns = clock_ns_;
    const Status stored = put(Durability::none, Condition::if_absent);
    EXPECT_TRUE(stored.ok()) << stored.describe();
    EXPECT_EQ(seen_, "SSSS");
    EXPECT_GE(clock_ns_ - began_ns, 15'000'000u) << "not at once";
    initiator_.reset();
  }
}

TEST_F(AskedForLater, SeveralAreSentAgain) {
  ask(nvme::kv::kStore, 100, nvme::sc::kTransientTransportError);
  std::vector<Op*> ops;
  while (ops.size() < 50) ops.push_back(&submit(Kind::put, "key", 1000));
  run_until([&] { return std::ranges::all_of(ops, [](const Op* op) { return op->done; }); });
  for (const Op* op : ops) EXPECT_TRUE(op->page.status.ok()) << op->page.status.describe();
  EXPECT_EQ(seen_, std::string(150, 'S'));
}

// However many others are told the same meanwhile.
TEST_F(AskedForLater, OthersDoNotPutOffTheTime) {
  int asked = 0;
  take_over = [&](FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (sqe.cdw2 == 'f') ++asked;
    peer.complete(sqe.cid, 0, 0, nvme::sc::kTransientTransportError);
    return true;
  };
  connect();
  submit(Kind::put, "f", 1000);
  for (int i = 0; i < 30; ++i) {
    submit(Kind::put, "other", 1000);
    const std::uint64_t next_ns = clock_ns_ + 1'000'000;
    run_until([&] { return clock_ns_ >= next_ns; });
  }
  EXPECT_GE(asked, 3);
}

// What was not asked for yet comes after it.
TEST_F(AskedForLater, ItKeepsItsPlace) {
  std::string keys;
  FuzzPeer* held_by = nullptr;
  std::uint16_t held = 0;
  take_over = [&](FuzzPeer& peer, const nvme::Sqe& sqe) {
    keys += static_cast<char>(sqe.cdw2);
    if (keys == "f") peer.complete(sqe.cid, 0, 0, nvme::sc::kTransientTransportError);
    if (keys == "f1") held_by = &peer, held = sqe.cid;
    return keys.size() <= 3;
  };
  options.queue_entries = 2;
  connect();
  submit(Kind::put, "f", 1000);
  run_until([&] { return keys == "f"; });
  for (const char* key : {"1", "2", "3"}) submit(Kind::put, key, 1000);
  const std::uint64_t then_ns = clock_ns_ + 20'000'000;
  run_until([&] { return clock_ns_ >= then_ns; });
  ASSERT_EQ(keys, "f12") << "the queue is full";
  held_by->complete(held, 0, 0);
  run_until([&] { return keys.size() == 5; });
  EXPECT_EQ(keys, "f12f3");
}

TEST_F(AskedForLater, NotForEver) {
  options.command_timeout_ms = 300;
  ask(nvme::kv::kStore, kAlways, nvme::sc::kTransientTransportError);
  const std::uint64_t began_ns = clock_ns_;
  const Status status = put();
  EXPECT_EQ(status.code(), Code::busy) << status.describe();
  EXPECT_GE(clock_ns_ - began_ns, 300'000'000u);
  EXPECT_LT(seen_.size(), 30u) << "ever less often";
}

// The time is each command's own: a Flush that is refused once has not been refused since its Store
// was, nor a Store over one connection since it was over another.
TEST_F(AskedForLater, NoLongerThanItIsSaidWithoutAPause) {
  options.command_timeout_ms = 300;
  for (const bool loses : {false, true}) {
    seen_.clear();
    std::uint64_t until_ns = 0;
    const std::uint8_t second = loses ? nvme::kv::kStore : nvme::kv::kFlush;
    take_over = [&](FuzzPeer& peer, const nvme::Sqe& sqe) {
      if (until_ns == 0) until_ns = clock_ns_ + 250'000'000;
      if (clock_ns_ >= until_ns && (seen_.find('!') != std::string::npos || sqe.opc != second)) {
        return false;
      }
      if (clock_ns_ >= until_ns) {
        until_ns = clock_ns_ + 250'000'000;
        seen_ += '!';
        if (loses) {
          peer.end_output();
          return true;
        }
      }
      peer.complete(sqe.cid, 0, 0, nvme::sc::kCommandInterrupted);
      return true;
    };
    connect();
    const Status stored = put(Durability::flushed);
    EXPECT_TRUE(stored.ok()) << stored.describe();
    EXPECT_NE(seen_.find('!'), std::string::npos) << seen_;
    initiator_.reset();
  }
}

TEST_F(AskedForLater, NeverWhereItSaysThatItWouldFailAgain) {
  take_over = [](FuzzPeer& peer, const nvme::Sqe& sqe) {
    peer.complete(sqe.cid, 0, 0, nvme::sc::kTransientTransportError, true);
    return true;
  };
  connect();
  const Status status = put();
  EXPECT_EQ(status.code(), Code::io_error) << status.describe();
  EXPECT_EQ(seen_, "S");
}

TEST_F(AskedForLater, AFlushIsSentAgainAlone) {
  ask(nvme::kv::kFlush, 2, nvme::sc::kCommandInterrupted);
  const Status status = put(Durability::flushed);
  EXPECT_TRUE(status.ok()) << status.describe();
  EXPECT_EQ(seen_, "SFFF");
}

// Nor does a Flush that waits for its time vouch for what another connection stored.
TEST_F(AskedForLater, AFlushIsLostWithItsConnection) {
  ask(nvme::kv::kFlush, 1, nvme::sc::kCommandInterrupted);
  const Op& op = submit(Kind::put, "key", 1000, Durability::flushed);
  run_until([&] { return told_ == 1; });
  peers_.back()->end_output();
  run_until([&] { return op.done; });
  EXPECT_TRUE(op.page.status.ok()) << op.page.status.describe();
  EXPECT_EQ(seen_, "SFSF");
}

// Of data that was damaged on its way to the host nobody says so: the host sees it.
TEST_F(AskedForLater, DamagedDataIsFetchedAgain) {
  options.data_digest = true;
  take_over = [this](FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (sqe.opc != nvme::kv::kRetrieve || told_++ != 0) return false;
    Bytes pdu(kFrontBytesMax);
    pdu.resize(peer.encoder().data(pdu.data(), PduType::c2h_data, sqe.cid, 0, 0, 100, kFlagLast));
    pdu.resize(pdu.size() + 100 + kDigestBytes, std::byte{1});
    peer.say(pdu);
    peer.complete(sqe.cid, 100, 0);
    return true;
  };
  connect();
  const Op& op = submit(Kind::get, "key", 1000);
  run_until([&] { return op.done; });
  EXPECT_TRUE(op.page.status.ok()) << op.page.status.describe();
  EXPECT_EQ(told_, 2);
}

TEST_F(AskedForLater, WhatWaitsIsNotDoneWhenTheInitiatorEnds) {
  ask(nvme::kv::kStore, kAlways, nvme::sc::kTransientTransportError);
  const Op& op = submit(Kind::put, "key", 1000);
  run_until([&] { return told_ == 2; });
  for (int i = 0; i < 100; ++i) turn();
  initiator_.reset();
  EXPECT_EQ(op.page.status.code(), Code::aborted) << op.page.status.describe();
}

}  // namespace
}  // namespace furrow::transport
