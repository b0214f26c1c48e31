// FuzzHost: the host's end of a socket pair whose other end a TcpConnection has, for target_fuzz.
// It sends whatever it is given, and holds the target to the protocol: what comes must decode, and
// answer what was asked.
//
// Threads: one; nothing blocks.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include "tests/transport/script.h"
#include "transport/pdu.h"

namespace furrow::fuzz {

using transport::PduDecoder;
using transport::PduEncoder;
using transport::PduType;

class FuzzHost {
 public:
  explicit FuzzHost(int fd) : fd_(fd) {
    asked_decoder_.set_limits({transport::kAdminInCapsuleBytes * 2, 1u << 20});
  }
  ~FuzzHost() { hang_up(); }
  FuzzHost(const FuzzHost&) = delete;
  FuzzHost& operator=(const FuzzHost&) = delete;

  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void end_output() {
    if (fd_ >= 0) shutdown(fd_, SHUT_WR);
  }
  bool open() const { return fd_ >= 0; }

  // What the socket takes; `turn` lets the target read. What it will not read is dropped.
  template <class Turn>
  void send(std::span<const std::byte> bytes, Turn&& turn) {
    watch_sent(bytes);
    for (int tries = 0; fd_ >= 0 && !bytes.empty() && tries < 8;) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
      } else if (errno == EAGAIN || errno == EINTR) {
        turn();
        ++tries;
      } else {
        return;
      }
    }
  }

  // Reads and checks all that came, when this host reads at all.
  void take() {
    if (fd_ < 0 || !reading) return;
    while (true) {
      std::byte chunk[16384];
      const ssize_t got = recv(fd_, chunk, sizeof chunk, MSG_DONTWAIT);
      if (got <= 0) {
        if (got == 0) ended = true;
        return;
      }
      check({chunk, static_cast<std::size_t>(got)});
    }
  }

  // Of a command that was sent under an identifier that no other one had; null: none yet.
  const nvme::Cqe* only_answer(std::uint16_t cid) const {
    const auto sent = asked_.find(cid);
    const auto answer = answers.find(cid);
    const bool only = sent != asked_.end() && sent->second.times == 1;
    return only && answer != answers.end() ? &answer->second : nullptr;
  }

  struct R2t {
    std::uint16_t cid, ttag;
    std::uint32_t offset, bytes;
  };

  PduEncoder encoder;
  bool reading = true;
  bool ended = false;        // the target closed
  bool initialized = false;  // ICResp came
  std::uint32_t format_choice = 0;
  std::uint16_t next_cid = 1;
  std::vector<R2t> r2ts;                       // not answered yet
  std::map<std::uint16_t, nvme::Cqe> answers;  // the last of each identifier
  std::map<std::uint16_t, Bytes> data;         // C2HData of each identifier

 private:
  struct Asked {
    std::uint32_t times = 0, unanswered = 0, bytes_max = 0;
  };

  // Follows what this host says, as the target must: which commands did it really ask?
  void watch_sent(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      switch (asked_decoder_.next(bytes)) {
        case PduDecoder::Event::header:
          watch_header();
          break;
        case PduDecoder::Event::none:
        case PduDecoder::Event::end:
          break;
        case PduDecoder::Event::error:
          return;
      }
    }
  }
  void watch_header() {
    if (asked_decoder_.type() == PduType::icreq) {
      const auto& icreq = asked_decoder_.header<transport::IcReq>();
      const bool header = (icreq.digests & 1) != 0, data_digest = (icreq.digests & 2) != 0;
      asked_decoder_.set_initialized();
      asked_decoder_.set_format({header, data_digest, 0});
      pda_ = icreq.hpda;
    } else if (asked_decoder_.type() == PduType::capsule_cmd) {
      const nvme::Sqe& sqe = asked_decoder_.header<transport::CapsuleCmd>().sqe;
      Asked& asked = asked_[sqe.cid];
      ++asked.times;
      ++asked.unanswered;
      asked.bytes_max = std::max(asked.bytes_max, sqe.sgl_length);
    }
  }

  void check(std::span<const std::byte> input) {
    while (true) {
      switch (decoder_.next(input)) {
        case PduDecoder::Event::none:
          return;
        case PduDecoder::Event::error:
          return require(false, "the target sends well-formed PDUs");
        case PduDecoder::Event::header:
          check_header();
          break;
        case PduDecoder::Event::end:
          require(decoder_.data_intact(), "the target's data digests are right");
          if (decoder_.type() == PduType::c2h_data) take_data();
          break;
      }
    }
  }
  Asked& asked(std::uint16_t cid) {
    const auto found = asked_.find(cid);
    require(found != asked_.end() && found->second.unanswered != 0,
            "the target answers commands in flight only");
    return found->second;
  }
  void check_header() {
    switch (decoder_.type()) {
      case PduType::icresp: {
        const auto& icresp = decoder_.header<transport::IcResp>();
        const bool header = (icresp.digests & 1) != 0, data_digest = (icresp.digests & 2) != 0;
        decoder_.set_initialized();
        decoder_.set_format({header, data_digest, pda_});
        encoder.set_format({header, data_digest, icresp.cpda});
        initialized = true;
        return;
      }
      case PduType::capsule_resp: {
        const nvme::Cqe& cqe = decoder_.header<transport::CapsuleResp>().cqe;
        --asked(cqe.cid).unanswered;
        answers[cqe.cid] = cqe;
        return;
      }
      case PduType::r2t: {
        const auto& pdu = decoder_.header<transport::R2t>();
        require(std::uint64_t{pdu.r2to} + pdu.r2tl <= asked(pdu.cccid).bytes_max && pdu.r2tl != 0,
                "an R2T asks for what the command has");
        r2ts.push_back({pdu.cccid, pdu.ttag, pdu.r2to, pdu.r2tl});
        return;
      }
      case PduType::c2h_data: {
        const auto& pdu = decoder_.header<transport::DataPdu>();
        require(std::uint64_t{pdu.datao} + pdu.datal <= asked(pdu.cccid).bytes_max,
                "data fits the command's buffer");
        landing_.resize(pdu.datal);
        return decoder_.set_destination(landing_.data());
      }
      default:  // C2HTermReq
        return;
    }
  }
  void take_data() {
    const auto& pdu = decoder_.header<transport::DataPdu>();
    data[pdu.cccid] = landing_;
    if ((pdu.common.flags & transport::kFlagSuccess) == 0) return;
    --asked(pdu.cccid).unanswered;
    answers[pdu.cccid] = {};
  }

  int fd_;
  PduDecoder decoder_{PduDecoder::Role::initiator};
  PduDecoder asked_decoder_{PduDecoder::Role::target};
  std::map<std::uint16_t, Asked> asked_;
  Bytes landing_;
  std::uint8_t pda_ = 0;
};

}  // namespace furrow::fuzz
