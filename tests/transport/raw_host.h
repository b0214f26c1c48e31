// RawHost: an NVMe/TCP host for tests, on a blocking socket. It builds PDUs with the codec and can
// then damage any byte of them; what the target answers is decoded with the codec too.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tests/transport/loopback_listener.h"
#include "transport/pdu.h"

namespace furrow::transport {

inline constexpr int kRawTimeoutS = 30;

// One PDU as a host received it.
struct ReceivedPdu {
  PduType type{};
  std::vector<std::byte> header;
  std::vector<std::byte> data;
  bool intact = true;

  template <class Pdu>
  const Pdu& as() const {
    return *reinterpret_cast<const Pdu*>(header.data());
  }
};

class RawHost {
 public:
  // From `source`, one of the loopback addresses.
  explicit RawHost(std::uint16_t port, const char* source = "127.0.0.1")
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval timeout{kRawTimeoutS, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, source, &address.sin_addr), 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    address = loopback_address(port);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~RawHost() { disconnect(); }
  RawHost(const RawHost&) = delete;
  RawHost& operator=(const RawHost&) = delete;

  void disconnect() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // The peer sees RST, not FIN.
  void reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    disconnect();
  }

  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // Nothing: the target ended the connection (orderly or not), or decoding failed.
  std::optional<ReceivedPdu> receive() {
    ReceivedPdu pdu;
    while (true) {
      std::span<const std::byte> input(buffer_.data() + begin_, end_ - begin_);
      const PduDecoder::Event event = decoder_.next(input);
      begin_ = end_ - input.size();
      switch (event) {
        case PduDecoder::Event::error:
          ADD_FAILURE() << "the target sent a malformed PDU: FES "
                        << static_cast<int>(decoder_.error().fes);
          return std::nullopt;
        case PduDecoder::Event::header: {
          const auto* header = reinterpret_cast<const std::byte*>(&decoder_.header<PduCommon>());
          pdu.type = decoder_.type();
          pdu.header.assign(header, header + decoder_.header<PduCommon>().hlen);
          pdu.data.resize(decoder_.data_bytes());
          if (pdu.data.empty()) return pdu;
          decoder_.set_destination(pdu.data.data());
          break;
        }
        case PduDecoder::Event::end:
          pdu.intact = decoder_.data_intact();
          return pdu;
        case PduDecoder::Event::none: {
          const ssize_t got = recv(fd_, buffer_.data(), buffer_.size(), 0);
          // The kernel's work of closing the last test's io_uring interrupts this thread.
          if (got < 0 && errno == EINTR) break;
          if (got <= 0) {
            if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
              ADD_FAILURE() << "the target did not answer in " << kRawTimeoutS << " s";
            }
            return std::nullopt;
          }
          begin_ = 0;
          end_ = static_cast<std::size_t>(got);
        }
      }
    }
  }

  void init(bool header_digest = false, bool data_digest = false, std::uint8_t hpda = 0) {
    std::byte out[kFrontBytesMax];
    send({out, PduEncoder::icreq(out, hpda, header_digest, data_digest, 0)});
    const auto answer = receive();
    ASSERT_TRUE(answer && answer->type == PduType::icresp);
    initialized(*answer, header_digest, data_digest, hpda);
  }
  // What init() does with the ICResp.
  void initialized(const ReceivedPdu& icresp, bool header_digest = false, bool data_digest = false,
                   std::uint8_t hpda = 0) {
    max_h2c_data_ = icresp.as<IcResp>().maxh2cdata;
    decoder_.set_initialized();
    decoder_.set_format({header_digest, data_digest, hpda});
    encoder_.set_format({header_digest, data_digest, icresp.as<IcResp>().cpda});
  }

  // Connect with 1024 zero bytes of data, for handlers that do not read it.
  void connect_queue(std::uint16_t qid, std::uint16_t entries, bool flow_control = false) {
    nvme::Sqe sqe;
    sqe.opc = nvme::opcode::kFabrics;
    sqe.nsid = nvme::fabrics::kConnect;
    sqe.cid = 0xF00D;
    sqe.cdw10 = std::uint32_t{qid} << 16;
    sqe.cdw11 = (entries - 1u) | (flow_control ? 0u : nvme::kCattrNoFlowControl << 16u);
    send(capsule(sqe, std::vector<std::byte>(1024)));
    const auto answer = receive();
    ASSERT_TRUE(answer && answer->type == PduType::capsule_resp);
    EXPECT_EQ(answer->as<CapsuleResp>().cqe.sct_sc(), 0);
    EXPECT_EQ(answer->as<CapsuleResp>().cqe.cid, 0xF00D);
    connect_cqe_ = answer->as<CapsuleResp>().cqe;
  }

  // With in-capsule data when there is any; else the SGL says `length`.
  std::vector<std::byte> capsule(nvme::Sqe sqe, std::span<const std::byte> data = {},
                                 std::uint32_t length = 0) {
    std::byte out[kFrontBytesMax];
    sqe.flags = static_cast<std::uint8_t>(nvme::kPsdtSgl | (sqe.flags & nvme::kFuseMask));
    sqe.sgl_type = data.empty() ? nvme::kSglTransport : nvme::kSglInCapsule;
    sqe.sgl_length = data.empty() ? length : static_cast<std::uint32_t>(data.size());
    return with_data({out, encoder_.capsule_cmd(out, sqe, static_cast<std::uint32_t>(data.size()))},
                     data);
  }
  std::vector<std::byte> h2c_data(std::uint16_t cid, std::uint16_t ttag, std::uint32_t offset,
                                  std::span<const std::byte> data, bool last) {
    std::byte out[kFrontBytesMax];
    return with_data({out, encoder_.data(out, PduType::h2c_data, cid, ttag, offset,
                                         static_cast<std::uint32_t>(data.size()),
                                         last ? kFlagLast : std::uint8_t{0})},
                     data);
  }

  nvme::Cqe expect_response(std::uint16_t cid) {
    const auto pdu = receive();
    if (!pdu || pdu->type != PduType::capsule_resp) {
      ADD_FAILURE() << "expected a CapsuleResp, got " << (pdu ? static_cast<int>(pdu->type) : -1);
      return {};
    }
    EXPECT_EQ(pdu->as<CapsuleResp>().cqe.cid, cid);
    return pdu->as<CapsuleResp>().cqe;
  }

  void expect_term(Fes fes, std::optional<std::uint32_t> information = {}) {
    const auto pdu = receive();
    ASSERT_TRUE(pdu.has_value()) << "the connection ended without a TermReq";
    ASSERT_EQ(static_cast<int>(pdu->type), static_cast<int>(PduType::c2h_term_req));
    const auto& term = pdu->as<TermReq>();
    EXPECT_EQ(term.fes, static_cast<std::uint16_t>(fes));
    if (information) {
      EXPECT_EQ(term.fei_low | std::uint32_t{term.fei_high} << 16, *information);
    }
    expect_closed();
  }
  void expect_closed() { EXPECT_FALSE(receive().has_value()); }

  std::uint32_t max_h2c_data() const { return max_h2c_data_; }
  const nvme::Cqe& connect_cqe() const { return connect_cqe_; }
  PduEncoder& encoder() { return encoder_; }

 private:
  std::vector<std::byte> with_data(std::span<const std::byte> header,
                                   std::span<const std::byte> data) const {
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), data.begin(), data.end());
    if (!data.empty() && encoder_.format().data_digest) {
      bytes.resize(bytes.size() + kDigestBytes);
      PduEncoder::put_digest(bytes.data() + bytes.size() - kDigestBytes, crc32c(data));
    }
    return bytes;
  }

  int fd_;
  PduDecoder decoder_{PduDecoder::Role::initiator};
  PduEncoder encoder_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(65536);
  std::size_t begin_ = 0, end_ = 0;
  std::uint32_t max_h2c_data_ = 0;
  nvme::Cqe connect_cqe_;
};

}  // namespace furrow::transport
