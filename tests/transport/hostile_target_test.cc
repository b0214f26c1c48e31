// Establishes that a target which is slow, silent or lies costs a host's operations a clear status
// and nothing else: no operation hangs or comes back twice, no memory but its own is written, and
// the host serves the next one as soon as the target behaves. One test for each way to misbehave
// that needs an association (host_queue_test has those of a single queue, initiator_fuzz looks for
// more). How: an Initiator against a FuzzPeer on a thread of its own, which is honest but for the
// commands that the test takes over. Time-outs are short, what is waited for is not.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/transport/fuzz_peer.h"
#include "tests/transport/loopback_listener.h"
#include "transport/initiator.h"
#include "zone/event_loop.h"

namespace furrow::transport {
namespace {

using fuzz::Bytes;
using fuzz::FuzzPeer;
using fuzz::patterned;

class HostileTarget {
 public:
  using TakeOver = std::function<bool(FuzzPeer&, const nvme::Sqe&)>;

  using EachTurn = std::function<void(FuzzPeer&)>;  // of I/O queues

  explicit HostileTarget(TakeOver take_over, EachTurn each_turn = {})
      : take_over_(std::move(take_over)), each_turn_(std::move(each_turn)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~HostileTarget() {
    stop_ = true;
    thread_.join();
  }
  std::uint16_t port() const { return listener_.port(); }
  int connections() const { return connections_; }

 private:
  void serve() {
    fuzz::ScriptReader honest(nullptr, 0);
    std::vector<std::unique_ptr<FuzzPeer>> peers;
    while (!stop_) {
      for (int fd; (fd = accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
        peers.push_back(std::make_unique<FuzzPeer>(fd, honest));
        peers.back()->take_over = take_over_;
        ++connections_;
      }
      bool any = false;
      for (auto& peer : peers) {
        if (each_turn_ && peer->io()) each_turn_(*peer);
        any |= peer->turn();
      }
      if (!any) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  const TakeOver take_over_;
  const EachTurn each_turn_;
  const LoopbackListener listener_{SOCK_NONBLOCK};
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

// A host with one operation at a time, its page between guards.
class Host {
 public:
  static constexpr std::size_t kGuardBytes = 4096;

  explicit Host(const HostileTarget& target) {
    options.port = target.port();
    options.subsystem_nqn = "nqn.2026-11.io.furrow:unit";
    options.reconnect_delay_ms = 5;
    options.command_timeout_ms = 400;
  }
  ~Host() {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool guard = i < kGuardBytes || i >= memory_.size() - kGuardBytes;
      EXPECT_TRUE(!guard || memory_[i] == std::byte{0xAB}) << "written outside of the buffer";
    }
  }
  Status connect() {
    auto connected = Initiator::connect(loop_, options);
    if (!connected.ok()) return connected.status();
    initiator_ = std::move(*connected);
    return Status();
  }
  Status run(PageOp::Kind kind, std::uint32_t bytes = 1000) {
    memory_.assign(kGuardBytes + bytes + kGuardBytes, std::byte{0xAB});
    const Bytes page = patterned(fuzz::kPageSeed, bytes);
    std::copy(page.begin(), page.end(), memory_.begin() + kGuardBytes);
    PageOp op;
    op.kind = kind;
    op.key = Key::from("key");
    op.data = memory_.data() + kGuardBytes;
    op.length = op.capacity = bytes;
    op.keys = keys_;
    op.keys_max = 8;
    int done = 0;
    op.context = &done;
    op.on_result = [](PageOp& result) { ++*static_cast<int*>(result.context); };
    initiator_->submit(op);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (done == 0 && std::chrono::steady_clock::now() < until) {
      if (loop_.run_once() == 0) std::this_thread::yield();
    }
    EXPECT_EQ(done, 1);
    return op.status;
  }
  std::uint64_t reconnects() const { return initiator_->reconnects(); }

  InitiatorOptions options;

 private:
  EventLoop loop_;
  Bytes memory_;
  Key keys_[8];
  std::unique_ptr<Initiator> initiator_;
};

TEST(HostileTarget, AnHonestOneServes) {
  HostileTarget target([](FuzzPeer&, const nvme::Sqe&) { return false; });
  Host host(target);
  ASSERT_TRUE(host.connect().ok());
  EXPECT_TRUE(host.run(PageOp::Kind::get).ok());
  EXPECT_TRUE(host.run(PageOp::Kind::put, 50000).ok());
  EXPECT_TRUE(host.run(PageOp::Kind::list).ok());
}

TEST(HostileTarget, NeverAnswersOneCommand) {
  std::atomic<int> ignored{0};
  HostileTarget target([&](FuzzPeer& peer, const nvme::Sqe& sqe) {
    return peer.io() && sqe.opc == nvme::kv::kRetrieve && ignored++ == 0;
  });
  Host host(target);
  ASSERT_TRUE(host.connect().ok());
  const auto began = std::chrono::steady_clock::now();
  const Status late = host.run(PageOp::Kind::get);
  EXPECT_EQ(late.code(), Code::late) << late.describe();
  EXPECT_EQ(late.sys_errno(), ETIMEDOUT);
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(300));
  EXPECT_TRUE(host.run(PageOp::Kind::get).ok()) << "over a new connection";
  EXPECT_EQ(host.reconnects(), 1u);
}

// It takes the keep-alive and the R2T's data, and never completes the Store.
TEST(HostileTarget, AsksForDataAndNeverAnswers) {
  HostileTarget target([](FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (!peer.io() || sqe.opc != nvme::kv::kStore) return false;
    std::byte out[kFrontBytesMax];
    const auto bytes = peer.encoder().r2t(out, sqe.cid, 1, 0, 1000);
    peer.say(Bytes(out, out + bytes));
    peer.mute = true;
    return true;
  });
  Host host(target);
  ASSERT_TRUE(host.connect().ok());
  EXPECT_EQ(host.run(PageOp::Kind::put, 50000).code(), Code::late);
}

TEST(HostileTarget, SendsDataByteByByte) {
  std::atomic<std::uint32_t> sent{0}, cid{0};
  const HostileTarget::TakeOver take_over = [&](FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (!peer.io() || sqe.opc != nvme::kv::kRetrieve) return false;
    sent = 0;
    cid = sqe.cid;
    return true;
  };
  HostileTarget target(take_over, [&](FuzzPeer& peer) {
    if (cid == 0 || sent >= 60000) return;
    const std::byte byte{7};
    peer.send_data(static_cast<std::uint16_t>(cid.load()), sent++, {&byte, 1}, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  Host host(target);
  ASSERT_TRUE(host.connect().ok());
  EXPECT_EQ(host.run(PageOp::Kind::get, 60000).code(), Code::late);
  EXPECT_GT(sent, 1u);
  EXPECT_LT(sent, 60000u);
}

TEST(HostileTarget, EndsEveryConnectionThatCarriesACommand) {
  HostileTarget target([](FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (!peer.io() || sqe.opc != nvme::kv::kExist) return false;
    peer.hang_up();
    return true;
  });
  Host host(target);
  ASSERT_TRUE(host.connect().ok());
  const Status lost = host.run(PageOp::Kind::exist);
  EXPECT_EQ(lost.code(), Code::aborted);
  EXPECT_EQ(lost.sys_errno(), ECONNRESET);
  EXPECT_LE(target.connections(), 2 * 9);
}

// That a command was aborted because its queue is deleted, and deletes nothing.
TEST(HostileTarget, SaysDeletedAndStays) {
  std::atomic<int> told{0};
  HostileTarget target([&](FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (!peer.io() || sqe.opc != nvme::kv::kExist || told++ != 0) return false;
    peer.complete(sqe.cid, 0, 0, nvme::sc::kAbortedSqDeletion);
    return true;
  });
  Host host(target);
  host.options.keep_alive_ms = 600'000;  // it is not by the keep-alive that it is left
  ASSERT_TRUE(host.connect().ok());
  const Status status = host.run(PageOp::Kind::exist);
  EXPECT_TRUE(status.ok()) << status.describe();
  EXPECT_EQ(host.reconnects(), 1u);
}

TEST(HostileTarget, AnnouncesMoreThanItSends) {
  HostileTarget target([](FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (!peer.io() || sqe.opc != nvme::kv::kRetrieve) return false;
    peer.send_data(sqe.cid, 0, patterned(1, 10), kFlagLast);
    peer.complete(sqe.cid, 900, 0);
    return true;
  });
  Host host(target);
  ASSERT_TRUE(host.connect().ok());
  EXPECT_EQ(host.run(PageOp::Kind::get).code(), Code::protocol);
}

TEST(HostileTarget, SendsAListThatPointsBeyondItself) {
  for (const std::uint8_t length : {0, 17, 255}) {
    HostileTarget target([length](FuzzPeer& peer, const nvme::Sqe& sqe) {
      if (!peer.io() || sqe.opc != nvme::kv::kList) return false;
      Bytes payload(8, std::byte{0});
      payload[0] = payload[1] = payload[2] = std::byte{0xFF};  // so many keys
      payload[4] = static_cast<std::byte>(length);
      peer.send_data(sqe.cid, 0, payload, kFlagLast);
      peer.complete(sqe.cid, 0, 0);
      return true;
    });
    Host host(target);
    ASSERT_TRUE(host.connect().ok());
    EXPECT_EQ(host.run(PageOp::Kind::list).code(), Code::protocol) << int{length};
  }
}

// The bring-up believes nothing that did not come.
TEST(HostileTarget, AnswersIdentifyWithoutData) {
  for (const std::uint8_t cns : {0x01, 0x05}) {
    HostileTarget target([cns](FuzzPeer& peer, const nvme::Sqe& sqe) {
      if (peer.io() || sqe.opc != nvme::admin::kIdentify || sqe.cdw10 != cns) return false;
      peer.complete(sqe.cid, 0, 0);
      return true;
    });
    Host host(target);
    EXPECT_EQ(host.connect().code(), Code::protocol) << int{cns};
  }
}

TEST(HostileTarget, NeverBecomesReady) {
  HostileTarget target([](FuzzPeer& peer, const nvme::Sqe& sqe) {
    if (sqe.opc != nvme::opcode::kFabrics || sqe.cdw11 != nvme::property::kCsts) return false;
    peer.complete(sqe.cid, 0, 0);
    return true;
  });
  Host host(target);
  host.options.connect_timeout_ms = 300;
  const Status given_up = host.connect();
  EXPECT_EQ(given_up.sys_errno(), ETIMEDOUT) << given_up.describe();
}

}  // namespace
}  // namespace furrow::transport
