// Establishes that a host which is slow with a command's data, or does not read what it asked for,
// keeps nothing for long: its connection ends (with a C2HTermReq when it would read one) and every
// request comes back, also where it was to end in order, while hosts that are merely waiting, or
// busy reading, are left alone; and that in-capsule data which nobody has asked for yet is bounded.
// How: raw sockets against a reactor with a fake controller and short time-outs.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/transport/fake_target.h"
#include "tests/transport/raw_host.h"

namespace furrow::transport {
namespace {

nvme::Sqe sent_command(std::uint8_t opcode, std::uint16_t cid, std::uint32_t seed = 0) {
  nvme::Sqe sqe;
  sqe.opc = opcode;
  sqe.cid = cid;
  sqe.cdw12 = seed;
  return sqe;
}

TcpLimits short_limits() {
  TcpLimits limits;
  limits.data_ms = 400;
  limits.linger_ms = 100;
  return limits;
}

class SlowHostTest : public testing::Test {
 protected:
  SlowHostTest() : target_(short_limits()), patient_(target_.port()) {
    bring_up(patient_);
    patient_.send(patient_.capsule(sent_command(fake::kHold, 1)));
  }
  // The patient one only waited for its answer, and was never cut.
  void TearDown() override {
    target_.on_reactor([&] { target_.handler.go_on(); });
    EXPECT_EQ(patient_.expect_response(1).sct_sc(), 0);
    patient_.send(patient_.capsule(sent_command(fake::kWrite, 2, 1), patterned(1, 100)));
    EXPECT_EQ(patient_.expect_response(2).sct_sc(), 0);
  }
  void bring_up(RawHost& host) {
    host.init();
    host.connect_queue(1, 32);
  }
  std::uint16_t begin_write(RawHost& host, std::uint16_t cid, std::uint32_t bytes) {
    host.send(host.capsule(sent_command(fake::kWrite, cid, 1), {}, bytes));
    const auto r2t = host.receive();
    EXPECT_TRUE(r2t && r2t->type == PduType::r2t);
    return r2t ? r2t->as<R2t>().ttag : std::uint16_t{0xffff};
  }
  // Only the patient host's request is still with the controller.
  void expect_given_back() {
    target_.eventually([&] { return target_.handler.outstanding == 1; });
  }

  FakeTarget target_;
  RawHost patient_;
};

TEST_F(SlowHostTest, NeverSendsWhatTheR2tAskedFor) {
  RawHost host(target_.port());
  bring_up(host);
  begin_write(host, 7, 8192);
  host.expect_term(Fes::sequence);
  expect_given_back();
  EXPECT_EQ(target_.handler.aborted_pulls, 1);
  EXPECT_EQ(target_.reactor->stats().timeouts, 1u);
}

TEST_F(SlowHostTest, SendsItByteByByte) {
  RawHost host(target_.port());
  bring_up(host);
  const std::uint16_t tag = begin_write(host, 7, 8192);
  const auto data = patterned(1, 8192);
  std::thread trickle([&] {  // whole H2CData PDUs, one byte each, for longer than the time-out
    for (std::uint32_t i = 0; i < 8191; ++i) {
      if (!host.send(host.h2c_data(7, tag, i, std::span(data).subspan(i, 1), false))) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const auto pdu = host.receive();
  if (pdu) {
    EXPECT_EQ(static_cast<int>(pdu->type), static_cast<int>(PduType::c2h_term_req));
  }
  expect_given_back();
  trickle.join();  // the target's end made its send fail
  EXPECT_EQ(target_.reactor->stats().timeouts, 1u);
}

TEST_F(SlowHostTest, StopsInTheMiddleOfItsCapsule) {
  RawHost host(target_.port());
  bring_up(host);
  const auto capsule = host.capsule(sent_command(fake::kWrite, 7, 1), patterned(1, 9000));
  host.send(std::span(capsule).first(5000));
  host.expect_term(Fes::sequence);
  expect_given_back();
}

TEST_F(SlowHostTest, KeepsTheDataOfAnAbortedCommand) {
  RawHost host(target_.port());
  bring_up(host);
  host.send(host.capsule(sent_command(fake::kAbortedWrite, 7, 1), {}, 8192));
  const auto r2t = host.receive();
  ASSERT_TRUE(r2t && r2t->type == PduType::r2t);
  host.expect_term(Fes::sequence);
  expect_given_back();
}

TEST_F(SlowHostTest, DoesNotReadWhatItAskedFor) {
  RawHost host(target_.port());
  bring_up(host);
  for (std::uint16_t cid = 0; cid < 16; ++cid) {  // more than two sockets' buffers hold
    host.send(host.capsule(sent_command(fake::kRead, cid, 1), {}, 1 << 20));
  }
  target_.eventually([&] { return target_.handler.requests >= 18; });
  expect_given_back();
  EXPECT_EQ(target_.reactor->stats().timeouts, 1u);
}

// However long that takes: each send is read in time.
TEST(ReadingHost, IsNotCutWhereItIsAlwaysSentSomething) {
  TcpLimits limits;
  limits.data_ms = 1200;
  FakeTarget target(limits);
  RawHost host(target.port());
  host.init();
  host.connect_queue(1, 64);
  constexpr std::uint16_t kInFlight = 60;  // more than the sockets' buffers hold
  constexpr std::uint32_t kBytes = 1 << 20;
  const auto ask = [&](std::uint16_t cid) {
    host.send(host.capsule(sent_command(fake::kRead, cid, 1), {}, kBytes));
  };
  for (std::uint16_t cid = 0; cid < kInFlight; ++cid) ask(cid);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(3000);
  while (std::chrono::steady_clock::now() < until) {
    const auto data = host.receive();
    ASSERT_TRUE(data && data->type == PduType::c2h_data);
    ask(data->as<DataPdu>().cccid);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  EXPECT_EQ(target.reactor->stats().timeouts, 0u);
}

TEST(PartingHost, ThatDoesNotReadIsLeftInTime) {
  TcpLimits limits;
  limits.setup_ms = 60'000;  // of no concern here
  limits.finish_ms = 500;
  FakeTarget target(limits);
  RawHost host(target.port());
  host.init();
  host.connect_queue(1, 32);
  for (std::uint16_t cid = 0; cid < 16; ++cid) {
    host.send(host.capsule(sent_command(fake::kRead, cid, 1), {}, 1 << 20));
  }
  host.send(host.capsule(sent_command(fake::kClose, 100)));
  target.eventually([&] { return target.handler.closed == 1; });
  target.eventually([&] { return target.budget.connections() == 0; });
  EXPECT_EQ(target.reactor->stats().timeouts, 1u);
}

// The controller knows at once that no more comes of its queue, or a reset would wait for the host.
TEST(PartingHost, ThatDoesNotCloseIsForgottenAtOnceAndLeftInTime) {
  for (const bool linger_long : {true, false}) {
    TcpLimits limits;
    limits.linger_ms = linger_long ? 60'000 : 200;
    FakeTarget target(limits);
    RawHost host(target.port());
    host.init();
    host.connect_queue(1, 32);
    host.send(host.capsule(sent_command(fake::kClose, 100)));
    host.expect_response(100);
    host.expect_closed();
    target.eventually([&] { return target.handler.closed == 1; });
    if (linger_long) continue;
    target.eventually([&] { return target.budget.connections() == 0; });
    EXPECT_EQ(target.reactor->stats().timeouts, 0u) << "it has had all of it";
  }
}

TEST(Stash, BeyondTheLimitCommandsFailAloneAndMayBeTriedAgain) {
  TcpLimits limits;
  limits.stash_bytes_max = 5 * 8192;  // three of them are this connection's share
  FakeTarget target(limits);
  RawHost host(target.port());
  host.init();
  host.connect_queue(1, 32);
  for (std::uint16_t cid = 0; cid < 5; ++cid) {
    host.send(host.capsule(sent_command(fake::kLateWrite, cid, cid), patterned(cid, 8192)));
  }
  host.send(host.capsule(sent_command(fake::kWrite, 100, 9), patterned(9, 8192)));
  EXPECT_EQ(host.expect_response(100).sct_sc(), 0) << "what is asked for at once needs no stash";
  EXPECT_EQ(target.reactor->stats().stash_bytes, 3u * 8192);
  EXPECT_EQ(target.reactor->stats().stashes_refused, 2u);
  RawHost other(target.port());  // what the first may not have is left for it
  other.init();
  other.connect_queue(1, 32);
  other.send(other.capsule(sent_command(fake::kLateWrite, 1, 1), patterned(1, 8192)));
  target.eventually([&] { return target.reactor->stats().stash_bytes == 4u * 8192; });
  target.on_reactor([&] { target.handler.go_on(); });
  EXPECT_EQ(other.expect_response(1).sct_sc(), 0);
  for (std::uint16_t cid = 0; cid < 5; ++cid) {
    const nvme::Cqe cqe = host.expect_response(cid);
    EXPECT_EQ(cqe.sct_sc(), cid < 3 ? 0 : nvme::sc::kTransientTransportError) << cid;
  }
  EXPECT_EQ(target.reactor->stats().stash_bytes, 0u);
  for (std::uint16_t cid = 7; cid < 10; ++cid) {  // its share is as large as before
    host.send(host.capsule(sent_command(fake::kLateWrite, cid, 3), patterned(3, 8192)));
  }
  target.eventually([&] { return target.reactor->stats().stash_bytes == 3u * 8192; });
  host.reset();
  target.eventually([&] {
    target.handler.go_on();
    return target.handler.outstanding == 0;
  });
  EXPECT_EQ(target.reactor->stats().stash_bytes, 0u);
}

}  // namespace
}  // namespace furrow::transport
