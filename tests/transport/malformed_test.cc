// Establishes that a host which breaks the protocol harms nobody but itself: one regression test
// for each of the "checks on every PDU" of reference/nvme-tcp.md that needs connection state, and
// for each NVMe/TCP target CVE listed there. The connection must end with the right C2HTermReq, or
// the command with the right status; a second connection must not notice; every request must come
// back. How: raw sockets against a reactor with a fake controller (pdu_test covers the checks that
// the codec makes alone).
//
// Where each check of the reference is tested (M: here, P: pdu_test's MalformedPdu and the rest):
//   type legal for direction and state, HLEN exact: P, and EveryTypeInEachDirectionAndPhase; M
//     CommandsBeforeIcreqAndIcreqTwice, TypesThatNoHostSends
//   PDO bounded both ways, with CPDA = 0 too: P "PDO ...", PdoInsideTheHeaderDigestIsRefused
//   PLEN's sum, and its cap: P "PLEN ...", "DATAL is not what PLEN says"
//   TTAG in range (0 too), live, expecting data: M H2cDataTags, H2cDataTwice, H2cDataForARead
//   TTAG matches CCCID: M H2cDataOfAnotherCommand
//   DATAO is the next, DATAO + DATAL in 64 bits: M H2cDataOffsetsAndLengths
//   DATAL not 0 and at most MAXH2CDATA: M H2cDataOfNothingOrTooMuch; P "DATAL ..."
//   in-capsule SGL length is the capsule's: M InCapsuleSglThatLies, InCapsuleDataOverTheLimit; P
//   Connect first: M ConnectMustComeFirstAndAlone; bringup_test Connect
//   H2CData before Connect, or for a read: M H2cDataBeforeConnect, H2cDataForARead
//   log offset and length: admin_commands_test LogPage
//   after a TermReq everything is discarded: M AfterATermReqEverythingIsDiscarded
//   one teardown, idempotent: M EndsAtAnyMomentOfSetUp, IcreqAgainstTeardown
//   time, memory and connection budgets: tcp_connection_test TcpConnectionBudget; slow_host_test
//   CVE-2023-6356, -6535, -6536: M H2cDataTags, H2cDataOffsetsAndLengths
//   CVE-2023-5178: M EndsAtAnyMomentOfSetUp
//   CVE-2024-46737: setup_memory_test
//   CVE-2025-38035: M EndsWhileItIsAccepted
//   CVE-2026-22998: M H2cDataBeforeConnect, H2cDataForARead
//   CVE-2026-46135: M IcreqAgainstTeardown
//   CVE-2026-64534, -64535: M DataDigestErrorsFailTheCommandAlone, DigestErrorThenTheEnd
//   CVE-2025-57275: Reservations.RegistrantsAreBounded, ReservationWire.ReportsOfManyRegistrants
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/log/test_seed.h"
#include "tests/transport/fake_target.h"
#include "tests/transport/raw_host.h"

namespace furrow::transport::malformed_test {
namespace {

nvme::Sqe command(std::uint8_t opcode, std::uint16_t cid, std::uint32_t seed = 0) {
  nvme::Sqe sqe;
  sqe.opc = opcode;
  sqe.cid = cid;
  sqe.cdw12 = seed;
  return sqe;
}

class MalformedTest : public testing::Test {
 protected:
  MalformedTest() : bystander_(target_.port()) {
    bystander_.init();
    bystander_.connect_queue(1, 8);
    bystander_.send(bystander_.capsule(command(fake::kWrite, 1, 3), {}, 8192));
    const auto r2t = bystander_.receive();
    EXPECT_TRUE(r2t && r2t->type == PduType::r2t);
    if (r2t) bystander_ttag_ = r2t->as<R2t>().ttag;
  }
  // The bystander was in the middle of a transfer all the time.
  void TearDown() override {
    bystander_.send(bystander_.h2c_data(1, bystander_ttag_, 0, patterned(3, 8192), true));
    EXPECT_EQ(bystander_.expect_response(1).sct_sc(), 0) << "the other connection noticed";
    target_.on_reactor([&] { target_.handler.go_on(); });
  }
  void bring_up(RawHost& host, bool header_digest = false, bool data_digest = false) {
    host.init(header_digest, data_digest);
    host.connect_queue(1, 16);
  }
  // A write of 8192 bytes whose R2T has come; returns its tag.
  std::uint16_t begin_write(RawHost& host, std::uint16_t cid) {
    host.send(host.capsule(command(fake::kWrite, cid, 1), {}, 8192));
    const auto r2t = host.receive();
    EXPECT_TRUE(r2t && r2t->type == PduType::r2t);
    return r2t ? r2t->as<R2t>().ttag : std::uint16_t{0xffff};
  }

  FakeTarget target_;
  RawHost bystander_;
  std::uint16_t bystander_ttag_ = 0;
};

constexpr std::uint32_t kAtCccid = offsetof(DataPdu, cccid), kAtTtag = offsetof(DataPdu, ttag),
                        kAtDatao = offsetof(DataPdu, datao), kAtDatal = offsetof(DataPdu, datal);

TEST_F(MalformedTest, IcreqOfAnotherVersionOrAlignment) {
  std::byte icreq[128];
  PduEncoder::icreq(icreq, 0, false, false, 0);
  icreq[8] = std::byte{1};
  RawHost version(target_.port());
  version.send(icreq);
  version.expect_term(Fes::unsupported_parameter, 8);
  RawHost alignment(target_.port());
  PduEncoder::icreq(icreq, 32, false, false, 0);
  alignment.send(icreq);
  alignment.expect_term(Fes::invalid_header_field, 10);
}

TEST_F(MalformedTest, CommandsBeforeIcreqAndIcreqTwice) {
  RawHost early(target_.port());
  early.send(early.capsule(command(fake::kRead, 1)));
  early.expect_term(Fes::sequence);
  RawHost twice(target_.port());
  bring_up(twice);
  std::byte icreq[128];
  PduEncoder::icreq(icreq, 0, false, false, 0);
  twice.send(icreq);
  twice.expect_term(Fes::sequence);
}

// None ends a connection without a word.
TEST_F(MalformedTest, TypesThatNoHostSends) {
  for (const unsigned type : {0x01, 0x03, 0x05, 0x07, 0x08, 0x09, 0x0A, 0xFF}) {
    SCOPED_TRACE(type);
    RawHost host(target_.port());
    bring_up(host);
    std::vector<std::byte> pdu = host.capsule(command(fake::kRead, 1));
    pdu[0] = static_cast<std::byte>(type);
    host.send(pdu);
    host.expect_term(Fes::invalid_header_field, 0);
  }
}

// CVE-2026-46135: ICReq racing the teardown.
TEST_F(MalformedTest, IcreqAgainstTeardown) {
  std::byte icreq[128];
  PduEncoder::icreq(icreq, 0, true, true, 0);
  for (std::size_t i = 0; i < 40; ++i) {
    RawHost host(target_.port());
    host.send(std::span(icreq).first(i % 2 == 0 ? 128 : i * 3));
    if (i % 3 != 0) host.reset();
  }
  target_.eventually([&] { return target_.budget.connections() == 1; });
}

// CVE-2026-22998: H2CData before Connect, and for a command that reads.
TEST_F(MalformedTest, H2cDataBeforeConnect) {
  RawHost host(target_.port());
  host.init();
  host.send(host.h2c_data(0, 0, 0, patterned(1, 64), true));
  host.expect_term(Fes::invalid_header_field, kAtTtag);
}

TEST_F(MalformedTest, H2cDataForARead) {
  RawHost host(target_.port());
  bring_up(host);
  host.send(host.capsule(command(fake::kHold, 5), {}, 4096));
  target_.eventually([&] { return target_.handler.outstanding == 2; });
  // Whatever slot it has: every tag is tried on a connection of its own.
  for (std::uint16_t tag = 0; tag < 32; ++tag) {
    RawHost reader(target_.port());
    bring_up(reader);
    reader.send(reader.capsule(command(fake::kHold, 5), {}, 4096));
    reader.send(reader.h2c_data(5, tag, 0, patterned(1, 64), true));
    reader.expect_term(Fes::invalid_header_field, kAtTtag);
    target_.on_reactor([&] { target_.handler.go_on(); });
  }
}

// CVE-2023-6356, -6535, -6536: H2CData whose tag, length or offset nobody checked.
TEST_F(MalformedTest, H2cDataTags) {
  for (const std::uint16_t tag : {0, 31, 32, 4000, 0xffff}) {
    RawHost host(target_.port());
    bring_up(host);
    std::uint16_t cid = 7;
    const std::uint16_t first = begin_write(host, cid);
    if (first == tag) {  // another holds its place, then it is nobody's
      begin_write(host, ++cid);
      host.send(host.h2c_data(7, first, 0, patterned(1, 8192), true));
      EXPECT_EQ(host.expect_response(7).sct_sc(), nvme::sc::kSuccess);
    }
    host.send(host.h2c_data(cid, tag, 0, patterned(1, 64), false));
    host.expect_term(Fes::invalid_header_field, kAtTtag);
  }
}

TEST_F(MalformedTest, H2cDataOfAnotherCommand) {
  RawHost host(target_.port());
  bring_up(host);
  const std::uint16_t tag = begin_write(host, 7);
  begin_write(host, 8);
  host.send(host.h2c_data(8, tag, 0, patterned(1, 8192), true));
  host.expect_term(Fes::invalid_header_field, kAtCccid);
}

TEST_F(MalformedTest, H2cDataOffsetsAndLengths) {
  struct Case {
    std::uint32_t offset, bytes;
    bool last;
    Fes fes;
    std::uint32_t information;
  };
  for (const Case& bad : {
           Case{4, 64, false, Fes::invalid_header_field, kAtDatao},  // not the next one
           Case{0, 8196, true, Fes::out_of_range, kAtDatao},         // beyond the R2T
           Case{8128, 128, true, Fes::out_of_range, kAtDatao},       // its end is beyond it
           Case{0xfffffff0, 32, true, Fes::out_of_range, kAtDatao},  // wraps 32 bits
           Case{0, 64, true, Fes::invalid_header_field, 1},          // LAST too early
           Case{0, 8192, false, Fes::invalid_header_field, 1},       // LAST missing
       }) {
    RawHost host(target_.port());
    bring_up(host);
    const std::uint16_t tag = begin_write(host, 7);
    host.send(host.h2c_data(7, tag, bad.offset, patterned(1, bad.bytes), bad.last));
    host.expect_term(bad.fes, bad.information);
  }
}

TEST_F(MalformedTest, H2cDataOfNothingOrTooMuch) {
  RawHost nothing(target_.port());
  bring_up(nothing);
  auto pdu = nothing.h2c_data(7, begin_write(nothing, 7), 0, patterned(1, 64), false);
  std::memset(pdu.data() + kAtDatal, 0, 4);
  nothing.send(pdu);
  nothing.expect_term(Fes::invalid_header_field, kAtDatal);

  RawHost huge(target_.port());
  bring_up(huge);
  pdu = huge.h2c_data(7, begin_write(huge, 7), 0, patterned(1, 64), false);
  const std::uint32_t bytes = huge.max_h2c_data() + 4, plen = bytes + 24;
  std::memcpy(pdu.data() + kAtDatal, &bytes, 4);
  std::memcpy(pdu.data() + 4, &plen, 4);
  huge.send(pdu);
  huge.expect_term(Fes::limit_exceeded, kAtDatal);
}

TEST_F(MalformedTest, H2cDataTwice) {
  RawHost host(target_.port());
  bring_up(host);
  const std::uint16_t tag = begin_write(host, 7);
  auto twice = host.h2c_data(7, tag, 0, patterned(1, 8192), true);
  twice.insert(twice.end(), twice.begin(),
               twice.begin() + static_cast<std::ptrdiff_t>(twice.size()));
  host.send(twice);
  // The answer to the first may or may not get out before.
  auto pdu = host.receive();
  if (pdu && pdu->type == PduType::capsule_resp) pdu = host.receive();
  ASSERT_TRUE(pdu && pdu->type == PduType::c2h_term_req);
  EXPECT_EQ(pdu->as<TermReq>().fes, static_cast<std::uint16_t>(Fes::invalid_header_field));
}

TEST_F(MalformedTest, InCapsuleDataOverTheLimit) {
  RawHost io(target_.port());
  bring_up(io);
  io.send(io.capsule(command(fake::kWrite, 1, 1), patterned(1, 16384 + 4)));
  io.expect_term(Fes::limit_exceeded);
  for (const bool connected : {false, true}) {  // 8 KiB before Connect and on the admin queue
    RawHost admin(target_.port());
    admin.init();
    if (connected) admin.connect_queue(0, 16);
    admin.send(admin.capsule(command(fake::kWrite, 1, 1), patterned(1, 8192 + 4)));
    admin.expect_term(Fes::limit_exceeded);
  }
}

TEST_F(MalformedTest, InCapsuleSglThatLies) {
  for (const std::uint32_t length : {60u, 68u, 0u, 0xffffffffu}) {
    RawHost host(target_.port());
    bring_up(host);
    auto pdu = host.capsule(command(fake::kWrite, 1, 1), patterned(1, 64));
    std::memcpy(pdu.data() + 40, &length, 4);
    host.send(pdu);
    host.expect_term(length > 16384 ? Fes::limit_exceeded : Fes::invalid_header_field);
  }
}

TEST_F(MalformedTest, UnknownSglTypeFailsTheCommandAlone) {
  RawHost host(target_.port());
  bring_up(host);
  auto pdu = host.capsule(command(fake::kWrite, 1, 1), {}, 4096);
  pdu[47] = std::byte{0x40};  // keyed: RDMA's
  host.send(pdu);
  EXPECT_EQ(host.expect_response(1).sct_sc(), nvme::sc::kSglTypeInvalid);
  host.send(host.capsule(command(fake::kWrite, 1, 1), patterned(1, 64)));
  EXPECT_EQ(host.expect_response(1).sct_sc(), 0);
}

TEST_F(MalformedTest, ConnectMustComeFirstAndAlone) {
  RawHost host(target_.port());
  host.init();
  const int before = target_.handler.requests;
  host.send(host.capsule(command(fake::kWrite, 1, 1), patterned(1, 64)));
  EXPECT_EQ(host.expect_response(1).sct_sc(), nvme::sc::kCommandSequenceError);
  EXPECT_EQ(target_.handler.requests, before) << "the handler must not see it";
  // Its data comes in the capsule, as none is taken before it is done.
  nvme::Sqe connect = command(nvme::opcode::kFabrics, 2);
  connect.nsid = nvme::fabrics::kConnect;
  host.send(host.capsule(connect, {}, 1024));
  EXPECT_EQ(host.expect_response(2).sct_sc(), nvme::sc::kSglTypeInvalid);
  EXPECT_EQ(target_.handler.requests, before);
  host.connect_queue(1, 16);

  RawHost many(target_.port());
  many.init();
  std::vector<std::byte> two;
  for (std::uint16_t cid = 0; cid < 2; ++cid) {  // there is one slot until Connect is answered
    const auto pdu = many.capsule(command(fake::kWrite, cid, 1));
    two.insert(two.end(), pdu.begin(), pdu.end());
  }
  many.send(two);
  many.expect_term(Fes::sequence);
}

// CVE-2026-64534, -64535: digest errors, alone and with the connection ending right behind them.
TEST_F(MalformedTest, DataDigestErrorsFailTheCommandAlone) {
  RawHost host(target_.port());
  bring_up(host, true, true);
  auto capsule = host.capsule(command(fake::kWrite, 1, 1), patterned(1, 6000));
  capsule[200] ^= std::byte{1};
  host.send(capsule);
  EXPECT_EQ(host.expect_response(1).sct_sc(), nvme::sc::kTransientTransportError);
  const std::uint16_t tag = begin_write(host, 2);
  auto data = host.h2c_data(2, tag, 0, patterned(1, 8192), true);
  data.back() ^= std::byte{1};
  host.send(data);
  EXPECT_EQ(host.expect_response(2).sct_sc(), nvme::sc::kTransientTransportError);
  host.send(host.capsule(command(fake::kLateWrite, 3, 1), patterned(1, 100)));
  capsule[10] = std::byte{0};
  host.send(host.capsule(command(fake::kWrite, 4, 1), patterned(1, 100)));
  EXPECT_EQ(host.expect_response(4).sct_sc(), 0) << "the connection goes on";
  EXPECT_EQ(target_.reactor->stats().digest_errors, 2u);
}

TEST_F(MalformedTest, DigestErrorThenTheEnd) {
  for (int i = 0; i < 20; ++i) {
    RawHost host(target_.port());
    bring_up(host, false, true);
    auto capsule = host.capsule(command(i % 2 == 0 ? fake::kWrite : fake::kLateWrite, 1, 1),
                                patterned(1, 6000));
    capsule.back() ^= std::byte{1};
    host.send(capsule);
    if (i % 4 < 2) host.reset();
  }
  target_.eventually([&] {
    target_.handler.go_on();
    return target_.handler.outstanding == 1;
  });
}

TEST_F(MalformedTest, HeaderDigestErrorIsFatal) {
  RawHost host(target_.port());
  bring_up(host, true, false);
  auto pdu = host.capsule(command(fake::kWrite, 1, 1), patterned(1, 64));
  std::uint32_t digest;
  pdu[20] ^= std::byte{1};
  std::memcpy(&digest, pdu.data() + 72, 4);
  host.send(pdu);
  host.expect_term(Fes::header_digest, digest);
}

TEST_F(MalformedTest, AfterATermReqEverythingIsDiscarded) {
  RawHost host(target_.port());
  bring_up(host);
  const int before = target_.handler.requests;
  std::vector<std::byte> stream = host.h2c_data(1, 9, 0, patterned(1, 64), true);
  for (std::uint16_t cid = 0; cid < 10; ++cid) {
    const auto pdu = host.capsule(command(fake::kWrite, cid, 1), patterned(1, 64));
    stream.insert(stream.end(), pdu.begin(), pdu.end());
  }
  host.send(stream);
  host.expect_term(Fes::invalid_header_field);
  EXPECT_EQ(target_.handler.requests, before);
}

TEST_F(MalformedTest, H2cTermReqEndsTheConnection) {
  RawHost host(target_.port());
  bring_up(host);
  host.send(host.capsule(command(fake::kHold, 1)));
  std::byte term[kTermReqBytesMax];
  const auto bytes =
      PduEncoder::term_req(term, PduType::h2c_term_req, {Fes::header_digest, 7}, patterned(1, 99));
  host.send({term, bytes});
  host.expect_closed();
}

// CVE-2023-5178: ends at any moment of set-up, many at a time.
TEST_F(MalformedTest, EndsAtAnyMomentOfSetUp) {
  std::vector<std::unique_ptr<RawHost>> hosts;
  for (int i = 0; i < 24; ++i) {
    hosts.push_back(std::make_unique<RawHost>(target_.port()));
    std::byte icreq[128];
    PduEncoder::icreq(icreq, 0, false, false, 0);
    if (i % 4 > 0) hosts.back()->send(icreq);
    nvme::Sqe connect = command(nvme::opcode::kFabrics, 1);
    connect.nsid = nvme::fabrics::kConnect;
    connect.cdw11 = 15;
    const auto pdu = hosts.back()->capsule(connect, std::vector<std::byte>(1024));
    if (i % 4 > 1) hosts.back()->send(std::span(pdu).first(i % 4 == 2 ? 80 : pdu.size()));
    if (i % 3 == 0) hosts.back()->reset();
  }
  hosts.clear();
  target_.eventually([&] { return target_.budget.connections() == 1; });
}

// CVE-2025-38035: the socket's state changes before, or while, anybody listens to it. A reset that
// is there when the target takes the connection over is an end like any other.
TEST_F(MalformedTest, EndsWhileItIsAccepted) {
  for (int i = 0; i < 50; ++i) {
    RawHost host(target_.port());
    std::byte icreq[128];
    PduEncoder::icreq(icreq, 0, false, false, 0);
    if (i % 2 == 0) host.send(std::span(icreq).first(64));
    host.reset();
  }
  RawHost last(target_.port());
  last.init();
  last.connect_queue(1, 8);  // so the target has accepted those before it
  target_.eventually(
      [&] { return target_.budget.connections() == 2 && target_.budget.setting_up() == 0; });
}

// Sessions with random damage: no particular answer is expected, only that the target survives.
TEST_F(MalformedTest, RandomDamage) {
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 150; ++round) {
    RawHost host(target_.port());
    const bool digests = random() % 2 == 0;
    bring_up(host, digests, digests);
    std::vector<std::byte> stream;
    const auto add = [&](const std::vector<std::byte>& pdu) {
      stream.insert(stream.end(), pdu.begin(), pdu.end());
    };
    for (std::uint16_t cid = 0; cid < 8; ++cid) {
      const std::uint32_t size = 4 * (1 + random() % 4000);
      if (random() % 3 == 0) {
        add(host.capsule(command(fake::kRead, cid, 1), {}, size));
      } else if (random() % 2 == 0) {
        add(host.capsule(command(fake::kWrite, cid, 1), patterned(1, std::min(size, 16384u))));
      } else {
        add(host.capsule(command(fake::kWrite, cid, 1), {}, size));
        add(host.h2c_data(cid, static_cast<std::uint16_t>(1 + cid), 0, patterned(1, size), true));
      }
    }
    for (unsigned i = random() % 4; i > 0; --i) {
      // Opcodes stay: the fake controller knows a few only.
      const std::size_t at = random() % stream.size();
      if (at >= 8) stream[at] ^= static_cast<std::byte>(1u << random() % 8);
    }
    // A damaged opcode or CDW is the handler's business, which takes none it does not know.
    target_.handler.lenient = true;
    host.send(stream);
    if (random() % 2 == 0) host.reset();
  }
  target_.eventually([&] {
    target_.handler.go_on();
    return target_.budget.connections() == 1;
  });
}

}  // namespace
}  // namespace furrow::transport::malformed_test
