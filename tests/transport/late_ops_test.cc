// Establishes what becomes of an operation of an initiator whose time limit (PageOp::within_us)
// passes: its caller is told at that time, once; it is released when the target has no more to do
// with its memory; what was not sent by then is not sent, and nothing that was lost is sent again.
// How: an initiator and its FuzzPeers on one thread, and a clock that the test turns.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/peers_fixture.h"
#include "transport/initiator_impl.h"

namespace furrow::transport {
namespace {

using fuzz::FuzzPeer;
using Kind = PageOp::Kind;

constexpr std::uint32_t kPageBytes = 1000;
constexpr std::uint32_t kLimitUs = 20'000;

struct TimedOp : PageOp {
  std::vector<std::byte> memory = std::vector<std::byte>(kPageBytes);
  int results = 0, releases = 0;
  Code result = Code::ok;       // what its caller was told
  std::uint64_t result_ns = 0;  // and when
  std::uint64_t* clock_ns = nullptr;
};

class LateOps : public PeersTest {
 protected:
  LateOps() {
    options_.subsystem_nqn = "nqn.2026-11.io.furrow:unit";
    options_.reconnect_delay_ms = 5;
  }
  ~LateOps() override { initiator_.reset(); }

  void connect() {
    initiator_ = std::make_unique<InitiatorImpl>(executor_, options_, *ring_);
    initiator_->begin(listener_.address(), listener_.bytes());
    run_until([this] { return initiator_->reconnects() == 1; });
  }
  TimedOp& submit(Kind kind, std::uint32_t within_us = kLimitUs) {
    ops_.push_back(std::make_unique<TimedOp>());
    TimedOp& op = *ops_.back();
    op.kind = kind;
    op.key = Key::from("key");
    op.within_us = within_us;
    op.data = op.memory.data();
    op.length = op.capacity = kPageBytes;
    op.clock_ns = &clock_ns_;
    op.on_result = [](PageOp& told) {
      auto& self = static_cast<TimedOp&>(told);
      ++self.results;
      self.result = self.status.code();
      self.result_ns = *self.clock_ns;
    };
    op.on_released = [](PageOp& released) { ++static_cast<TimedOp&>(released).releases; };
    initiator_->submit(op);
    return op;
  }
  void run_until_released(const TimedOp& op) {
    run_until([&] { return op.releases == 1; });
  }
  void expect_late(const TimedOp& op, std::uint64_t began_ns) {
    EXPECT_EQ(op.results, 1);
    EXPECT_EQ(op.result, Code::late);
    EXPECT_GE(op.result_ns, began_ns + kLimitUs * 1000ull);
    EXPECT_LT(op.result_ns, began_ns + 2 * kLimitUs * 1000ull);
  }
  void answer_held() {
    const auto [peer, cid] = held_;
    const std::vector<std::byte> page(kPageBytes, std::byte{7});
    peer->send_data(cid, 0, page, kFlagLast);
    peer->complete(cid, kPageBytes, 0);
  }

  InitiatorOptions options_;
  std::unique_ptr<InitiatorImpl> initiator_;
  bool away_ = false;       // the target does not even let a host connect
  bool silent_ = false;     // the target answers no command
  std::uint16_t says_ = 0;  // not 0: what it says of each
  unsigned seen_ = 0;       // commands of pages
  struct Held {
    FuzzPeer* peer;
    std::uint16_t cid;
  } held_{};  // the last one that was not answered

 private:
  bool answers(FuzzPeer& peer, const nvme::Sqe& sqe) override {
    if (away_ || !peer.io()) return away_;
    ++seen_;
    if (silent_) held_ = {&peer, sqe.cid};
    if (!silent_ && says_ != 0) peer.complete(sqe.cid, 0, 0, says_);
    return silent_ || says_ != 0;
  }

  std::vector<std::unique_ptr<TimedOp>> ops_;
};

TEST_F(LateOps, WhatIsAnsweredInTimeIsNotLate) {
  connect();
  const TimedOp& op = submit(Kind::exist);
  run_until_released(op);
  EXPECT_EQ(op.results, 1);
  EXPECT_NE(op.result, Code::late);
}

TEST_F(LateOps, ItsMemoryIsLentUntilTheTargetAnswers) {
  silent_ = true;
  connect();
  const std::uint64_t began_ns = clock_ns_;
  const TimedOp& op = submit(Kind::get);
  run_until([&] { return op.results == 1; });
  expect_late(op, began_ns);
  for (int i = 0; i < 100; ++i) turn();
  EXPECT_EQ(op.releases, 0);
  answer_held();
  run_until_released(op);
  expect_late(op, began_ns);
  EXPECT_TRUE(op.status.ok()) << op.status.describe();
  EXPECT_EQ(op.memory[kPageBytes - 1], std::byte{7});
}

TEST_F(LateOps, WhatWaitsForRoomIsNotSent) {
  silent_ = true;
  options_.queue_entries = 2;
  connect();
  const TimedOp& first = submit(Kind::get, 0);
  std::vector<TimedOp*> others;
  const std::uint64_t began_ns = clock_ns_;
  while (others.size() < 10) others.push_back(&submit(Kind::get));
  TimedOp& patient = submit(Kind::get, 0);
  run_until([&] { return seen_ != 0; });
  const unsigned sent = seen_;
  run_until([&] { return others.back()->releases == 1; });
  expect_late(*others.back(), began_ns);
  EXPECT_EQ(others.back()->status.code(), Code::late) << others.back()->status.describe();
  EXPECT_EQ(seen_, sent);
  EXPECT_EQ(patient.results, 0);
  silent_ = false;
  for (const auto& peer : peers_) {
    if (peer->io()) peer->end_output();
  }
  run_until_released(patient);
  run_until_released(first);
  for (const TimedOp* op : others) {
    run_until_released(*op);
    expect_late(*op, began_ns);
  }
  EXPECT_EQ(seen_, sent + 2) << "what nobody waits for any more is not sent again";
  EXPECT_EQ(patient.results, 1);
}

TEST_F(LateOps, WhatIsToBeSentAgainIsNot) {
  says_ = nvme::sc::kTransientTransportError;
  connect();
  const std::uint64_t began_ns = clock_ns_;
  const TimedOp& op = submit(Kind::put);
  run_until_released(op);
  expect_late(op, began_ns);
  EXPECT_GE(seen_, 2u);
  const unsigned sent = std::exchange(seen_, 0);
  for (int i = 0; i < 2000; ++i) turn(), clock_ns_ += 100'000;
  EXPECT_EQ(seen_, 0u) << "after " << sent;
}

TEST_F(LateOps, WithoutAConnectionItIsReleasedAtOnce) {
  connect();
  away_ = true;
  for (const auto& peer : peers_) peer->end_output();
  for (int i = 0; i < 1000; ++i) turn(), clock_ns_ += 100'000;
  const std::uint64_t began_ns = clock_ns_;
  const TimedOp& late = submit(Kind::get);
  const TimedOp& patient = submit(Kind::get, 0);
  run_until_released(late);
  expect_late(late, began_ns);
  EXPECT_EQ(late.status.code(), Code::late) << late.status.describe();
  EXPECT_EQ(patient.results, 0);
}

TEST_F(LateOps, WhatIsInFlightWhenTheInitiatorEndsIsTold) {
  silent_ = true;
  connect();
  const TimedOp& late = submit(Kind::get);
  const TimedOp& patient = submit(Kind::get, 0);
  run_until([&] { return late.results == 1; });
  initiator_.reset();
  EXPECT_EQ(late.results, 1);
  EXPECT_EQ(late.releases, 1);
  EXPECT_EQ(late.status.code(), Code::aborted) << late.status.describe();
  EXPECT_EQ(patient.results, 1);
  EXPECT_EQ(patient.result, Code::aborted);
}

TEST_F(LateOps, ATimeLimitNeedsARelease) {
  connect();
  PageOp op;
  op.key = Key::from("key");
  op.within_us = 1;
  bool told = false;
  op.context = &told;
  op.on_result = [](PageOp& done) { *static_cast<bool*>(done.context) = true; };
  initiator_->submit(op);
  run_until([&] { return told; });
  EXPECT_EQ(op.status.code(), Code::invalid_argument) << op.status.describe();
  EXPECT_EQ(seen_, 0u);
}

}  // namespace
}  // namespace furrow::transport
