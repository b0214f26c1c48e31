// Establishes that a broken or malicious target never harms a host: whatever it answers, memory
// outside a command's buffer stays as it was, every command is done exactly once, and the
// connection ends with the right H2CTermReq. Also how data goes both ways with alignment and
// several R2Ts. How: one HostQueue, its ring turned by the test, against a scripted peer on a plain
// socket.
#include "transport/host_queue.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tests/transport/fake_target.h"
#include "tests/transport/loopback_listener.h"
#include "tests/transport/raw_host.h"

namespace furrow::transport {
namespace {

// Accepts one connection and answers by hand.
class ScriptedTarget {
 public:
  ~ScriptedTarget() {
    if (fd_ >= 0) close(fd_);
  }
  const sockaddr_in& address() const { return listener_.address(); }
  void disconnect() {
    close(fd_);
    fd_ = -1;
  }

  // What has arrived, without waiting; nothing when no PDU is complete or the host closed.
  std::optional<ReceivedPdu> receive() {
    if (fd_ < 0) {
      pollfd ready{listener_.fd(), POLLIN, 0};
      if (poll(&ready, 1, 0) <= 0) return std::nullopt;
      fd_ = accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
    }
    while (true) {
      std::span<const std::byte> input(buffer_);
      const PduDecoder::Event event = decoder_.next(input);
      buffer_.erase(buffer_.begin(),
                    buffer_.begin() + static_cast<std::ptrdiff_t>(buffer_.size() - input.size()));
      switch (event) {
        case PduDecoder::Event::error:
          ADD_FAILURE() << "the host sent a malformed PDU";
          return std::nullopt;
        case PduDecoder::Event::header: {
          const auto* header = reinterpret_cast<const std::byte*>(&decoder_.header<PduCommon>());
          pdu_.type = decoder_.type();
          pdu_.header.assign(header, header + decoder_.header<PduCommon>().hlen);
          pdu_.data.assign(decoder_.data_bytes(), std::byte{0});
          if (pdu_.data.empty()) return pdu_;
          decoder_.set_destination(pdu_.data.data());
          break;
        }
        case PduDecoder::Event::end:
          pdu_.intact = decoder_.data_intact();
          return pdu_;
        case PduDecoder::Event::none: {
          std::byte chunk[65536];
          const ssize_t got = recv(fd_, chunk, sizeof chunk, MSG_DONTWAIT);
          if (got < 0 && errno == EINTR) break;
          if (got == 0 || (got < 0 && errno != EAGAIN)) closed_ = true;
          if (got <= 0) return std::nullopt;
          buffer_.insert(buffer_.end(), chunk, chunk + got);
        }
      }
    }
  }
  void send(std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void icresp(std::uint8_t cpda = 0, std::uint8_t digests = 0, std::uint32_t maxh2cdata = 65536,
              std::uint16_t pfv = 0) {
    IcResp pdu;
    pdu.common = {PduType::icresp, 0, 128, 0, 128};
    pdu.pfv = pfv;
    pdu.cpda = cpda;
    pdu.digests = digests;
    pdu.maxh2cdata = maxh2cdata;
    decoder_.set_initialized();
    decoder_.set_format({(digests & 1) != 0, (digests & 2) != 0, cpda});
    encoder_.set_format({(digests & 1) != 0, (digests & 2) != 0, 0});
    send(std::as_bytes(std::span(&pdu, 1)));
  }
  void data(std::uint16_t cid, std::uint32_t offset, std::uint32_t bytes, std::uint8_t flags,
            std::uint32_t seed, bool damaged = false) {
    std::byte out[kFrontBytesMax];
    const auto page = patterned(seed, bytes);
    send({out, encoder_.data(out, PduType::c2h_data, cid, 0, offset, bytes, flags)});
    send(page);
    if (!encoder_.format().data_digest) return;
    PduEncoder::put_digest(out, crc32c(page) ^ (damaged ? 1u : 0u));
    send({out, kDigestBytes});
  }
  void response(std::uint16_t cid, std::uint32_t dw0 = 0) {
    std::byte out[kFrontBytesMax];
    nvme::Cqe cqe;
    cqe.cid = cid;
    cqe.dw0 = dw0;
    send({out, encoder_.capsule_resp(out, cqe)});
  }
  void r2t(std::uint16_t cid, std::uint16_t ttag, std::uint32_t offset, std::uint32_t bytes) {
    std::byte out[kFrontBytesMax];
    send({out, encoder_.r2t(out, cid, ttag, offset, bytes)});
  }
  bool closed() const { return closed_; }

 private:
  const LoopbackListener listener_;
  int fd_ = -1;
  PduDecoder decoder_{PduDecoder::Role::target};
  PduEncoder encoder_;
  std::vector<std::byte> buffer_;
  ReceivedPdu pdu_;
  bool closed_ = false;
};

class HostQueueTest : public testing::Test, protected HostQueue::Owner {
 protected:
  static constexpr std::uint32_t kGuardBytes = 4096;

  HostQueueTest() {
    auto made = SocketRing::create();
    EXPECT_TRUE(made.ok());
    ring_ = std::move(*made);
  }
  ~HostQueueTest() override {
    if (queue_ != nullptr) queue_->end();
    turn_until([this] { return queue_ == nullptr; });
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool guard = i < kGuardBytes || i >= memory_.size() - kGuardBytes;
      EXPECT_TRUE(!guard || memory_[i] == std::byte{0xAB}) << "written outside of the buffer";
    }
  }

  void on_ready(HostQueue&) override { ready_ = true; }
  void on_down(HostQueue&, Status why) override { down_ = why; }
  void on_room(HostQueue&) override {}
  void on_gone(HostQueue&) override { queue_.reset(); }

  void open(bool header_digest = false, bool data_digest = false) {
    HostQueueOptions options;
    options.entries = 8;
    options.in_capsule_bytes = 4096;
    options.header_digest = header_digest;
    options.data_digest = data_digest;
    HostQueue::Owner& owner = *this;
    queue_ = std::make_unique<HostQueue>(*ring_, owner, socket(AF_INET, SOCK_STREAM, 0), options);
    sockaddr_storage address{};
    std::memcpy(&address, &target_->address(), sizeof(sockaddr_in));
    queue_->start(address, sizeof(sockaddr_in));
    EXPECT_EQ(static_cast<int>(next_pdu().type), static_cast<int>(PduType::icreq));
  }
  void bring_up(bool header_digest = false, bool data_digest = false, std::uint8_t cpda = 0) {
    open(header_digest, data_digest);
    target_->icresp(cpda,
                    static_cast<std::uint8_t>((header_digest ? 1 : 0) | (data_digest ? 2 : 0)));
    turn_until([this] { return ready_; });
  }
  void turn_until(const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!done()) {
      ring_->poll();
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "nothing happens any more";
    }
  }
  ReceivedPdu next_pdu() {
    std::optional<ReceivedPdu> pdu;
    turn_until([&] { return (pdu = target_->receive()).has_value() || target_->closed(); });
    return pdu.value_or(ReceivedPdu());
  }

  // A command with a guarded buffer; the target has its capsule when this returns.
  std::uint16_t begin(HostCommand::Direction direction, std::uint32_t bytes) {
    HostCommand* command = queue_->take();
    EXPECT_NE(command, nullptr);
    memory_.assign(kGuardBytes + bytes + kGuardBytes, std::byte{0xAB});
    if (direction == HostCommand::Direction::to_target) {
      const auto page = patterned(5, bytes);
      std::copy(page.begin(), page.end(), memory_.begin() + kGuardBytes);
    }
    command->direction = direction;
    command->data = memory_.data() + kGuardBytes;
    command->data_bytes = bytes;
    command->context = this;
    command->done = [](HostCommand& done, Status status) {
      auto& self = *static_cast<HostQueueTest*>(done.context);
      ++self.done_;
      self.status_ = status;
      self.received_ = done.received_bytes;
      self.cqe_ = done.cqe;
    };
    queue_->submit(*command);
    capsule_ = next_pdu();
    EXPECT_EQ(static_cast<int>(capsule_.type), static_cast<int>(PduType::capsule_cmd));
    return capsule_.as<CapsuleCmd>().sqe.cid;
  }
  std::uint16_t begin_read(std::uint32_t bytes) {
    return begin(HostCommand::Direction::from_target, bytes);
  }
  std::uint16_t begin_write(std::uint32_t bytes) {
    return begin(HostCommand::Direction::to_target, bytes);
  }
  void wait_done() {
    turn_until([this] { return done_ == 1; });
  }
  // The host must refuse what the target just sent.
  void expect_refusal(Fes fes) {
    const ReceivedPdu pdu = next_pdu();
    ASSERT_EQ(static_cast<int>(pdu.type), static_cast<int>(PduType::h2c_term_req));
    EXPECT_EQ(pdu.as<TermReq>().fes, static_cast<std::uint16_t>(fes));
    turn_until([this] { return queue_ == nullptr; });
    ASSERT_TRUE(down_.has_value());
    EXPECT_EQ(down_->code(), Code::protocol);
  }
  void expect_aborted() {
    EXPECT_EQ(done_, 1);
    EXPECT_EQ(status_.code(), Code::aborted);
  }
  bool read_matches(std::uint32_t seed, std::uint32_t bytes) {
    const auto page = patterned(seed, bytes);
    return std::equal(page.begin(), page.end(), memory_.begin() + kGuardBytes);
  }

  std::unique_ptr<SocketRing> ring_;
  std::unique_ptr<ScriptedTarget> target_ = std::make_unique<ScriptedTarget>();
  std::unique_ptr<HostQueue> queue_;
  std::vector<std::byte> memory_;
  ReceivedPdu capsule_;
  bool ready_ = false;
  std::optional<Status> down_;
  int done_ = 0;
  Status status_;
  std::uint32_t received_ = 0;
  nvme::Cqe cqe_;
};

TEST_F(HostQueueTest, ReadInPiecesThenAShortOne) {
  bring_up();
  std::uint16_t cid = begin_read(20000);
  target_->data(cid, 0, 20000, 0, 3);
  target_->response(cid, 77);
  wait_done();
  EXPECT_TRUE(status_.ok());
  EXPECT_EQ(cqe_.dw0, 77u);
  EXPECT_TRUE(read_matches(3, 20000));
  done_ = 0;
  cid = begin_read(20000);
  target_->data(cid, 0, 600, kFlagLast | kFlagSuccess, 4);
  wait_done();
  EXPECT_EQ(received_, 600u);
  EXPECT_TRUE(read_matches(4, 600));
}

TEST_F(HostQueueTest, WritesInCapsuleAligned) {
  bring_up(true, true, 7);
  const std::uint16_t cid = begin_write(4000);
  EXPECT_EQ(capsule_.as<PduCommon>().pdo % 32, 0);
  EXPECT_EQ(capsule_.data, patterned(5, 4000));
  EXPECT_TRUE(capsule_.intact);
  target_->response(cid);
  wait_done();
  EXPECT_TRUE(status_.ok());
}

TEST_F(HostQueueTest, WritesByR2tInPiecesOfMaxh2cdata) {
  bring_up(false, true, 3);
  const auto page = patterned(5, 200000);
  const std::uint16_t cid = begin_write(200000);
  EXPECT_TRUE(capsule_.data.empty());
  std::uint32_t got = 0;
  for (const std::uint32_t asked : {70000u, 130000u}) {
    target_->r2t(cid, 0x1234, got, asked);
    for (const std::uint32_t end = got + asked; got < end;) {
      const ReceivedPdu pdu = next_pdu();
      ASSERT_EQ(static_cast<int>(pdu.type), static_cast<int>(PduType::h2c_data));
      EXPECT_EQ(pdu.as<DataPdu>().cccid, cid);
      EXPECT_EQ(pdu.as<DataPdu>().ttag, 0x1234);
      EXPECT_EQ(pdu.as<DataPdu>().datao, got);
      EXPECT_LE(pdu.data.size(), 65536u);
      EXPECT_TRUE(pdu.intact);
      EXPECT_TRUE(std::equal(pdu.data.begin(), pdu.data.end(), page.begin() + got));
      got += static_cast<std::uint32_t>(pdu.data.size());
      EXPECT_EQ((pdu.as<PduCommon>().flags & kFlagLast) != 0, got == end);
    }
  }
  EXPECT_EQ(done_, 0);
  target_->response(cid);
  wait_done();
}

TEST_F(HostQueueTest, DamagedDataFailsItsCommandAlone) {
  bring_up(false, true);
  std::uint16_t cid = begin_read(5000);
  target_->data(cid, 0, 5000, kFlagLast, 3, true);
  target_->response(cid);
  wait_done();
  EXPECT_EQ(status_.code(), Code::io_error);
  done_ = 0;
  cid = begin_read(5000);
  target_->data(cid, 0, 5000, kFlagLast, 3);
  target_->response(cid);
  wait_done();
  EXPECT_TRUE(status_.ok());
}

TEST_F(HostQueueTest, ImpossibleIcresps) {
  struct Case {
    std::uint8_t cpda, digests;
    std::uint32_t maxh2cdata;
    std::uint16_t pfv;
    Fes fes;
  };
  for (const Case& bad :
       {Case{0, 0, 65536, 1, Fes::unsupported_parameter},
        Case{32, 0, 65536, 0, Fes::invalid_header_field},
        Case{0, 1, 65536, 0, Fes::invalid_header_field},
        Case{0, 0, 0, 0, Fes::invalid_header_field}, Case{0, 0, 4095, 0, Fes::invalid_header_field},
        Case{0, 0, 4098, 0, Fes::invalid_header_field}}) {
    target_ = std::make_unique<ScriptedTarget>();
    open();
    target_->icresp(bad.cpda, bad.digests, bad.maxh2cdata, bad.pfv);
    expect_refusal(bad.fes);
    EXPECT_FALSE(ready_);
  }
}

TEST_F(HostQueueTest, TypesThatNoTargetSends) {
  for (const unsigned type : {0x00, 0x02, 0x04, 0x06, 0x08, 0x0A, 0xFF}) {
    SCOPED_TRACE(type);
    target_ = std::make_unique<ScriptedTarget>();
    ready_ = false;
    bring_up();
    const PduCommon common{static_cast<PduType>(type), 0, 24, 0, 24};
    target_->send(std::as_bytes(std::span(&common, 1)));
    ASSERT_NO_FATAL_FAILURE(expect_refusal(Fes::invalid_header_field));
  }
}

TEST_F(HostQueueTest, DataForNoCommand) {
  bring_up();
  const std::uint16_t cid = begin_read(4096);
  target_->data(static_cast<std::uint16_t>(cid ^ 0x400), 0, 64, 0, 1);  // an older generation
  expect_refusal(Fes::invalid_header_field);
  expect_aborted();
}

TEST_F(HostQueueTest, DataForAnIndexBeyondTheQueue) {
  bring_up();
  const std::uint16_t cid = begin_read(4096);
  target_->data(static_cast<std::uint16_t>((cid & 0xfc00) | 8), 0, 64, 0, 1);
  expect_refusal(Fes::invalid_header_field);
  expect_aborted();
}

TEST_F(HostQueueTest, DataForAWrite) {
  bring_up();
  const std::uint16_t cid = begin_write(8192);
  target_->data(cid, 0, 64, 0, 1);
  expect_refusal(Fes::sequence);
  expect_aborted();
}

TEST_F(HostQueueTest, DataBeyondTheBuffer) {
  bring_up();
  const std::uint16_t cid = begin_read(4096);
  target_->data(cid, 0, 4100, kFlagLast, 1);
  expect_refusal(Fes::out_of_range);
  expect_aborted();
}

TEST_F(HostQueueTest, DataAtAnotherOffset) {
  bring_up();
  const std::uint16_t cid = begin_read(4096);
  target_->data(cid, 0xfffffff0, 64, kFlagLast, 1);
  expect_refusal(Fes::invalid_header_field);
  expect_aborted();
}

TEST_F(HostQueueTest, DataAfterTheLast) {
  bring_up();
  const std::uint16_t cid = begin_read(4096);
  target_->data(cid, 0, 64, kFlagLast, 1);
  target_->data(cid, 64, 64, kFlagLast, 1);
  expect_refusal(Fes::sequence);
  expect_aborted();
}

TEST_F(HostQueueTest, TwoResponses) {
  bring_up();
  const std::uint16_t cid = begin_read(4096);
  target_->response(cid);
  target_->response(cid);
  expect_refusal(Fes::invalid_header_field);
  EXPECT_EQ(done_, 1);
  EXPECT_TRUE(status_.ok());
}

TEST_F(HostQueueTest, R2tForARead) {
  bring_up();
  const std::uint16_t cid = begin_read(4096);
  target_->r2t(cid, 0, 0, 4096);
  expect_refusal(Fes::sequence);
  expect_aborted();
}

TEST_F(HostQueueTest, R2tForInCapsuleData) {
  bring_up();
  const std::uint16_t cid = begin_write(4096);
  target_->r2t(cid, 0, 0, 4096);
  expect_refusal(Fes::invalid_header_field);
  expect_aborted();
}

TEST_F(HostQueueTest, R2tsThatAskForWhatIsNotThere) {
  struct Case {
    std::uint32_t offset, bytes;
    Fes fes;
  };
  for (const Case& bad :
       {Case{0, 0, Fes::invalid_header_field}, Case{0, 8193, Fes::out_of_range},
        Case{0xffffffff, 2, Fes::out_of_range}, Case{4096, 4096, Fes::invalid_header_field}}) {
    target_ = std::make_unique<ScriptedTarget>();
    done_ = 0;
    ready_ = false;
    bring_up();
    const std::uint16_t cid = begin_write(8192);
    target_->r2t(cid, 0, bad.offset, bad.bytes);
    expect_refusal(bad.fes);
    expect_aborted();
  }
}

TEST_F(HostQueueTest, SeveralR2tsAtATime) {
  bring_up();
  const std::uint16_t cid = begin_write(1 << 20);
  std::byte out[2 * kFrontBytesMax];
  PduEncoder encoder;
  std::uint32_t bytes = encoder.r2t(out, cid, 0, 0, 1 << 19);
  bytes += encoder.r2t(out + bytes, cid, 1, 1 << 19, 1 << 19);
  target_->send({out, bytes});
  expect_refusal(Fes::limit_exceeded);
  expect_aborted();
}

TEST_F(HostQueueTest, R2tForWhatWasSentAlready) {
  bring_up();
  const std::uint16_t cid = begin_write(8192);
  target_->r2t(cid, 1, 0, 6000);
  EXPECT_EQ(static_cast<int>(next_pdu().type), static_cast<int>(PduType::h2c_data));
  target_->r2t(cid, 1, 4096, 4096);  // overlaps the first
  expect_refusal(Fes::invalid_header_field);
  expect_aborted();
}

TEST_F(HostQueueTest, ResponseToNoCommand) {
  bring_up();
  const std::uint16_t cid = begin_read(4096);
  target_->response(static_cast<std::uint16_t>(cid + 1));  // of a command that was never sent
  expect_refusal(Fes::invalid_header_field);
  expect_aborted();
}

// The same index, used again: what comes for the command before it must not land in this one.
TEST_F(HostQueueTest, DataForTheCommandBefore) {
  bring_up();
  const std::uint16_t before = begin_read(4096);
  target_->response(before);
  wait_done();
  done_ = 0;
  EXPECT_NE(begin_read(4096), before);
  target_->data(before, 0, 64, kFlagLast, 1);
  expect_refusal(Fes::invalid_header_field);
  expect_aborted();
}

TEST_F(HostQueueTest, CommandsWithoutAnAnswerGrowOld) {
  bring_up();
  begin_read(4096);
  for (int i = 0; i < 4; ++i) queue_->age(4);
  EXPECT_FALSE(down_.has_value());
  queue_->age(4);
  turn_until([this] { return queue_ == nullptr; });
  EXPECT_EQ(down_->code(), Code::late);
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(status_.code(), Code::late);
  EXPECT_EQ(status_.sys_errno(), ETIMEDOUT);
}

TEST_F(HostQueueTest, C2hTermReqAndAbruptEnd) {
  bring_up();
  begin_read(4096);
  std::byte term[kTermReqBytesMax];
  target_->send({term, PduEncoder::term_req(term, PduType::c2h_term_req, {Fes::sequence, 0}, {})});
  turn_until([this] { return queue_ == nullptr; });
  expect_aborted();
  EXPECT_EQ(down_->code(), Code::protocol);
}

TEST_F(HostQueueTest, EndInTheMiddleOfData) {
  bring_up();
  const std::uint16_t cid = begin_read(100000);
  std::byte out[kFrontBytesMax];
  PduEncoder encoder;
  target_->send({out, encoder.data(out, PduType::c2h_data, cid, 0, 0, 100000, kFlagLast)});
  target_->send(patterned(1, 50000));
  target_->disconnect();
  turn_until([this] { return queue_ == nullptr; });
  expect_aborted();
}

TEST_F(HostQueueTest, NobodyListens) {
  HostQueueOptions options;
  HostQueue::Owner& owner = *this;
  queue_ = std::make_unique<HostQueue>(*ring_, owner, socket(AF_INET, SOCK_STREAM, 0), options);
  sockaddr_storage address{};
  std::memcpy(&address, &target_->address(), sizeof(sockaddr_in));
  target_ = std::make_unique<ScriptedTarget>();
  queue_->start(address, sizeof(sockaddr_in));
  turn_until([this] { return queue_ == nullptr; });
  EXPECT_EQ(down_->sys_errno(), ECONNREFUSED);
}

}  // namespace
}  // namespace furrow::transport
