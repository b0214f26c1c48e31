// Establishes how a target's connection carries commands: set-up, in-capsule data, R2T, C2HData,
// the SUCCESS flag, SQHD, digests, alignment, queue depth, late and aborted pulls, orderly and
// abrupt ends. How: a raw host on a socket against a reactor with a fake controller; every byte of
// data is compared, and at the end every request must have been given back.
#include "transport/tcp_connection.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/log/test_seed.h"
#include "tests/transport/fake_target.h"
#include "tests/transport/loopback_listener.h"
#include "tests/transport/raw_host.h"

namespace furrow::transport {
namespace {

nvme::Sqe command(std::uint8_t opcode, std::uint16_t cid, std::uint32_t seed = 0,
                  std::uint32_t dw0 = 0) {
  nvme::Sqe sqe;
  sqe.opc = opcode;
  sqe.cid = cid;
  sqe.cdw12 = seed;
  sqe.cdw13 = dw0;
  return sqe;
}

struct Format {
  bool header_digest, data_digest;
  std::uint8_t hpda;
};

class TcpConnectionFormat : public testing::TestWithParam<Format> {
 protected:
  void bring_up(RawHost& host) {
    host.init(GetParam().header_digest, GetParam().data_digest, GetParam().hpda);
    host.connect_queue(1, 32);
  }
  FakeTarget target_;
};

// Sizes around each of the paths that data can take: copied, in place, both.
constexpr std::uint32_t kSizes[] = {1, 4, 511, 4096, 4099, 12288, 16384};

TEST_P(TcpConnectionFormat, InCapsuleDataArrives) {
  RawHost host(target_.port());
  bring_up(host);
  std::uint16_t cid = 10;
  for (const std::uint32_t size : kSizes) {
    for (const std::uint8_t opcode : {fake::kWrite, fake::kWrite, fake::kRefuse}) {
      ++cid;
      host.send(host.capsule(command(opcode, cid, cid), patterned(cid, size)));
      EXPECT_EQ(host.expect_response(cid).sct_sc(), opcode == fake::kWrite ? 0 : 2) << size;
    }
  }
}

TEST_P(TcpConnectionFormat, ReadsPushDataThenCompletion) {
  RawHost host(target_.port());
  bring_up(host);
  for (const std::uint32_t size : {1u, 4096u, 16384u, 65536u, 1048576u}) {
    for (const std::uint32_t dw0 : {0u, size}) {
      host.send(host.capsule(command(fake::kRead, 5, size, dw0), {}, size));
      const auto data = host.receive();
      ASSERT_TRUE(data && data->type == PduType::c2h_data);
      EXPECT_EQ(data->data, patterned(size, size));
      EXPECT_TRUE(data->intact);
      EXPECT_EQ(data->as<DataPdu>().cccid, 5);
      EXPECT_EQ(data->as<DataPdu>().datao, 0u);
      EXPECT_EQ(data->as<PduCommon>().pdo % ((GetParam().hpda + 1u) * 4u), 0u);
      const std::uint8_t flags = data->as<PduCommon>().flags & (kFlagLast | kFlagSuccess);
      // A completion with DW0 set must not be folded into the flag.
      EXPECT_EQ(flags, dw0 == 0 ? kFlagLast | kFlagSuccess : kFlagLast);
      if (dw0 == 0) continue;
      EXPECT_EQ(host.expect_response(5).dw0, dw0);
    }
  }
}

TEST_P(TcpConnectionFormat, R2tBringsLargeData) {
  RawHost host(target_.port());
  bring_up(host);
  for (const std::uint32_t piece : {1000u, 8192u, 300000u}) {
    const auto page = patterned(piece, 300000);
    host.send(host.capsule(command(fake::kWrite, 77, piece), {}, 300000));
    const auto r2t = host.receive();
    ASSERT_TRUE(r2t && r2t->type == PduType::r2t);
    EXPECT_EQ(r2t->as<R2t>().cccid, 77);
    EXPECT_EQ(r2t->as<R2t>().r2to, 0u);
    EXPECT_EQ(r2t->as<R2t>().r2tl, 300000u);
    for (std::uint32_t offset = 0; offset < page.size(); offset += piece) {
      const auto part =
          std::span(page).subspan(offset).first(std::min<std::size_t>(piece, page.size() - offset));
      host.send(host.h2c_data(77, r2t->as<R2t>().ttag, offset, part,
                              offset + part.size() == page.size()));
    }
    EXPECT_EQ(host.expect_response(77).sct_sc(), 0);
  }
}

TEST_P(TcpConnectionFormat, ManyInFlightUnderRandomCuts) {
  std::mt19937_64 random(test_seed());
  RawHost host(target_.port());
  bring_up(host);
  std::map<std::uint16_t, std::uint32_t> reads;  // cid -> size
  std::size_t writes = 0;
  std::vector<std::byte> stream;
  for (std::uint16_t cid = 0; cid < 32; ++cid) {
    const std::uint32_t size = 1 + random() % 16384;
    std::vector<std::byte> pdu;
    if (random() % 2 == 0) {
      pdu = host.capsule(command(fake::kWrite, cid, cid), patterned(cid, size));
      ++writes;
    } else {
      pdu = host.capsule(command(fake::kRead, cid, cid, size), {}, size);
      reads[cid] = size;
    }
    stream.insert(stream.end(), pdu.begin(), pdu.end());
  }
  for (std::span<const std::byte> left(stream); !left.empty();) {
    const std::size_t count = std::min<std::size_t>(left.size(), 1 + random() % 20000);
    ASSERT_TRUE(host.send(left.first(count)));
    left = left.subspan(count);
  }
  for (std::size_t answers = 0; answers < 32;) {
    const auto pdu = host.receive();
    ASSERT_TRUE(pdu.has_value());
    if (pdu->type == PduType::c2h_data) {
      const std::uint16_t cid = pdu->as<DataPdu>().cccid;
      EXPECT_EQ(pdu->data, patterned(cid, reads.at(cid)));
    } else {
      ASSERT_EQ(static_cast<int>(pdu->type), static_cast<int>(PduType::capsule_resp));
      EXPECT_EQ(pdu->as<CapsuleResp>().cqe.sct_sc(), 0);
      ++answers;
    }
  }
  EXPECT_EQ(writes + reads.size(), 32u);
}

INSTANTIATE_TEST_SUITE_P(Formats, TcpConnectionFormat,
                         testing::Values(Format{false, false, 0}, Format{true, false, 0},
                                         Format{false, true, 0}, Format{true, true, 31},
                                         Format{false, false, 17}));

class TcpConnectionTest : public testing::Test {
 protected:
  void bring_up(RawHost& host, std::uint16_t entries = 32, bool flow_control = false) {
    host.init();
    host.connect_queue(1, entries, flow_control);
  }
  FakeTarget target_;
};

TEST_F(TcpConnectionTest, IcRespSaysWhatLinuxWants) {
  RawHost host(target_.port());
  host.init();
  EXPECT_GE(host.max_h2c_data(), 4096u);
  EXPECT_EQ(host.max_h2c_data() % 4, 0u);
}

TEST_F(TcpConnectionTest, FlowControlCountsSqhdAndForbidsSuccess) {
  RawHost host(target_.port());
  bring_up(host, 4, true);
  EXPECT_EQ(host.connect_cqe().sqhd, 1);
  for (std::uint16_t i = 2; i < 12; ++i) {
    host.send(host.capsule(command(fake::kRead, i, 3), {}, 512));
    const auto data = host.receive();
    ASSERT_TRUE(data && data->type == PduType::c2h_data);
    EXPECT_EQ(data->as<PduCommon>().flags & kFlagSuccess, 0);
    EXPECT_EQ(host.expect_response(i).sqhd, i % 4);
  }
}

TEST_F(TcpConnectionTest, NoFlowControlMeansSqhdFfff) {
  RawHost host(target_.port());
  bring_up(host);
  EXPECT_EQ(host.connect_cqe().sqhd, 0xFFFF);
  host.send(host.capsule(command(fake::kWrite, 1, 9), patterned(9, 64)));
  EXPECT_EQ(host.expect_response(1).sqhd, 0xFFFF);
}

TEST_F(TcpConnectionTest, LatePullsGetTheirBytesAndLaterCommandsDoNotWait) {
  RawHost host(target_.port());
  bring_up(host);
  for (std::uint16_t cid = 0; cid < 6; ++cid) {
    const std::uint8_t opcode = cid % 2 == 0 ? fake::kLateWrite : fake::kLateRefuse;
    host.send(host.capsule(command(opcode, cid, cid), patterned(cid, 9000)));
  }
  host.send(host.capsule(command(fake::kWrite, 100, 1), patterned(1, 16384)));
  EXPECT_EQ(host.expect_response(100).sct_sc(), 0);
  target_.on_reactor([&] { target_.handler.go_on(); });
  for (int i = 0; i < 6; ++i) {
    const auto pdu = host.receive();
    ASSERT_TRUE(pdu && pdu->type == PduType::capsule_resp);
    const nvme::Cqe& cqe = pdu->as<CapsuleResp>().cqe;
    EXPECT_EQ(cqe.sct_sc(), cqe.cid % 2 == 0 ? 0 : 2);
  }
}

// Its slot is another command's by then, perhaps: what comes goes nowhere. (ASan sees where else.)
TEST_F(TcpConnectionTest, DataBehindAnAnswerGoesNowhere) {
  RawHost host(target_.port());
  bring_up(host);
  const auto refused = host.capsule(command(fake::kRefuse, 1, 1), patterned(1, 4000));  // copied
  const std::span<const std::byte> all(refused);
  host.send(all.first(1000));
  EXPECT_EQ(host.expect_response(1).sct_sc(), 2);
  host.send(all.subspan(1000));
  host.send(host.capsule(command(fake::kWrite, 1, 2), patterned(2, 16384)));
  EXPECT_EQ(host.expect_response(1).sct_sc(), 0);
}

// CVE-2022-class race: the handler answers while an R2T is out; the H2CData still has a home.
TEST_F(TcpConnectionTest, AnAbortedWriteKeepsItsTagUntilTheDataCame) {
  RawHost host(target_.port());
  bring_up(host);
  host.send(host.capsule(command(fake::kAbortedWrite, 4, 4), {}, 20000));
  const auto r2t = host.receive();
  ASSERT_TRUE(r2t && r2t->type == PduType::r2t);
  host.send(host.capsule(command(fake::kWrite, 5, 5), patterned(5, 100)));
  EXPECT_EQ(host.expect_response(5).sct_sc(), 0);
  host.send(host.h2c_data(4, r2t->as<R2t>().ttag, 0, patterned(4, 20000), true));
  EXPECT_EQ(host.expect_response(4).sct_sc(), nvme::sc::kAbortRequested);
}

TEST_F(TcpConnectionTest, QueueDepthIsUsableInFullAndNotBeyond) {
  RawHost host(target_.port());
  bring_up(host, 8);
  for (std::uint16_t round = 0; round < 5; ++round) {
    for (std::uint16_t i = 0; i < 8; ++i) {
      host.send(host.capsule(command(fake::kHold, static_cast<std::uint16_t>(round * 8 + i))));
    }
    target_.eventually([&] { return target_.handler.outstanding == 8; });
    target_.on_reactor([&] { target_.handler.go_on(); });
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(host.receive().has_value());
  }
  for (std::uint16_t i = 0; i < 9; ++i) host.send(host.capsule(command(fake::kHold, i)));
  host.expect_term(Fes::sequence);
  target_.on_reactor([&] { target_.handler.go_on(); });
}

TEST_F(TcpConnectionTest, AnIdentifierInUseIsRefusedAlone) {
  RawHost host(target_.port());
  bring_up(host);
  host.send(host.capsule(command(fake::kHold, 3)));
  host.send(host.capsule(command(fake::kWrite, 3, 1), patterned(1, 600)));
  EXPECT_EQ(host.expect_response(3).sct_sc(), nvme::sc::kCidConflict);
  target_.on_reactor([&] { target_.handler.go_on(); });
  EXPECT_EQ(host.expect_response(3).sct_sc(), 0);
  host.send(host.capsule(command(fake::kWrite, 3, 1), patterned(1, 600)));
  EXPECT_EQ(host.expect_response(3).sct_sc(), 0) << "answered: free to use again";
}

TEST_F(TcpConnectionTest, CloseComesAfterTheResponses) {
  RawHost host(target_.port());
  bring_up(host);
  host.send(host.capsule(command(fake::kRead, 1, 1, 5), {}, 1 << 20));
  host.send(host.capsule(command(fake::kClose, 2)));
  ASSERT_TRUE(host.receive().has_value());
  host.expect_response(1);
  host.expect_response(2);
  host.expect_closed();
}

TEST_F(TcpConnectionTest, AbruptEndsGiveEverythingBack) {
  for (int round = 0; round < 20; ++round) {
    RawHost host(target_.port());
    bring_up(host);
    for (std::uint16_t cid = 0; cid < 24; cid += 6) {  // every stage that a command can be in
      host.send(host.capsule(command(fake::kHold, cid)));
      host.send(host.capsule(command(fake::kLateWrite, cid + 1, 1), patterned(1, 5000)));
      host.send(host.capsule(command(fake::kWrite, cid + 2, 1), {}, 100000));
      host.send(host.capsule(command(fake::kAbortedWrite, cid + 3, 1), {}, 100000));
      host.send(host.capsule(command(fake::kRead, cid + 4, 1, 7), {}, 400000));
      host.send(host.capsule(command(fake::kLateWrite, cid + 5, 1), {}, 5000));
    }
    const auto half = host.capsule(command(fake::kWrite, 99, 1), patterned(1, 16384));
    host.send(std::span(half).first(round % 2 == 0 ? 30 : 8000));
    if (round % 4 < 2) target_.eventually([&] { return target_.handler.outstanding >= 12; });
    if (round % 3 == 0) host.reset();
    host.disconnect();
    target_.eventually([&] { return target_.handler.closed == round + 1; });
    target_.on_reactor([&] { target_.handler.go_on(); });
    target_.eventually([&] {
      target_.handler.go_on();
      return target_.handler.outstanding == 0;
    });
  }
}

TEST_F(TcpConnectionTest, DrainAnswersWhatWasAccepted) {
  RawHost host(target_.port());
  bring_up(host);
  host.send(host.capsule(command(fake::kHold, 1)));
  host.send(host.capsule(command(fake::kWrite, 2, 2), {}, 20000));
  const auto r2t = host.receive();
  ASSERT_TRUE(r2t && r2t->type == PduType::r2t);
  RawHost idle(target_.port());
  bring_up(idle);
  std::thread stopping([&] { target_.stop(false); });  // answers the held one
  idle.expect_closed();
  idle.disconnect();
  host.expect_response(1);
  host.send(host.capsule(command(fake::kWrite, 3, 2), patterned(2, 100)));  // too late
  host.send(host.h2c_data(2, r2t->as<R2t>().ttag, 0, patterned(2, 20000), true));
  EXPECT_EQ(host.expect_response(2).sct_sc(), 0);
  host.expect_closed();
  host.disconnect();
  stopping.join();
}

// It was accepted before, and is dealt to a reactor that ends already.
TEST_F(TcpConnectionTest, AConnectionThatComesAfterTheEndHasBegunEndsAtOnce) {
  const LoopbackListener listener;
  const sockaddr_in& address = listener.address();
  const int host = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::connect(host, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const int accepted = accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  const timeval timeout{5, 0};  // less than it has for its ICReq
  setsockopt(host, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  target_.on_reactor([&] {
    target_.reactor->drain([] {});
    const AddressKey key = address_key(accepted);
    ASSERT_EQ(target_.budget.take(key), ConnectionBudget::Verdict::taken);
    target_.reactor->adopt(accepted, "test", key);
  });
  std::byte byte;
  EXPECT_EQ(recv(host, &byte, 1, 0), 0);
  close(host);
}

// Without probes a host whose machine vanished would stay for ever when it has no keep-alive time.
TEST_F(TcpConnectionTest, VanishedMachinesAreFound) {
  int ends[2] = {-1, -1};
  {
    const LoopbackListener listener;
    const sockaddr_in& address = listener.address();
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(ends[0], reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ends[1] = accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  }
  const int same = dup(ends[1]);
  target_.on_reactor([&] {
    const AddressKey address = address_key(ends[1]);
    ASSERT_EQ(target_.budget.take(address), ConnectionBudget::Verdict::taken);
    target_.reactor->adopt(ends[1], "test", address);
  });
  int on = 0, idle_s = 0;
  unsigned unacknowledged_ms = 0;  // the probes come to an end by this, too
  socklen_t bytes = sizeof on;
  EXPECT_EQ(getsockopt(same, SOL_SOCKET, SO_KEEPALIVE, &on, &bytes), 0);
  EXPECT_EQ(getsockopt(same, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, &bytes), 0);
  EXPECT_EQ(on, 1);
  EXPECT_LE(idle_s, 120);
  EXPECT_EQ(getsockopt(same, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, &bytes), 0);
  EXPECT_EQ(unacknowledged_ms, 120'000u);
  close(same);
  close(ends[0]);
}

TEST(TcpConnectionBudget, SilentHostsAreCutAndDoNotKeepOthersOut) {
  TcpLimits limits;
  limits.setup_ms = 1000;
  FakeTarget target(limits, 6, 6);
  RawHost served(target.port());
  served.init();
  served.connect_queue(1, 8);
  RawHost silent(target.port()), no_connect(target.port());
  no_connect.init();
  RawHost half(target.port());
  std::byte icreq[128];
  PduEncoder::icreq(icreq, 0, false, false, 0);
  half.send(std::span(icreq).first(100));
  RawHost fourth(target.port());  // would be more than it leaves to other addresses
  fourth.expect_closed();
  target.eventually([&] { return target.refused == 1; });
  silent.expect_closed();
  no_connect.expect_closed();
  half.expect_closed();
  EXPECT_EQ(target.reactor->stats().timeouts, 3u);
  // A host sees the end of its connection a moment before the target has forgotten it.
  target.eventually([&] { return target.budget.setting_up() == 0; });
  RawHost later(target.port());
  later.init();
  later.connect_queue(1, 8);
  served.send(served.capsule(command(fake::kWrite, 1, 1), patterned(1, 100)));
  EXPECT_EQ(served.expect_response(1).sct_sc(), 0) << "the others did not notice";
}

}  // namespace
}  // namespace furrow::transport
