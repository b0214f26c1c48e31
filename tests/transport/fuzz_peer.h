// FuzzPeer: a target that answers a host's commands as a good one would, and goes wrong where the
// script, or a test, says so; for initiator_fuzz and hostile_target_test. It holds the host to the
// protocol: what comes must decode, and be data that the host was asked for.
//
// Threads: one; nothing blocks.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "tests/transport/script.h"
#include "transport/pdu.h"

namespace furrow::fuzz {

using transport::PduDecoder;
using transport::PduEncoder;
using transport::PduType;

constexpr std::uint32_t kPageSeed = 5;  // of all that the host stores

class FuzzPeer {
 public:
  FuzzPeer(int fd, ScriptReader& script) : fd_(fd), script_(script) {}
  ~FuzzPeer() { hang_up(); }
  FuzzPeer(const FuzzPeer&) = delete;
  FuzzPeer& operator=(const FuzzPeer&) = delete;

  // Reads what came and answers it. Says whether anything did.
  bool turn() {
    bool any = flush();
    while (fd_ >= 0 && !deaf) {
      std::byte chunk[16384];
      const ssize_t got = recv(fd_, chunk, sizeof chunk, MSG_DONTWAIT);
      if (got <= 0) {
        if (got == 0) hang_up();
        break;
      }
      any = true;
      take({chunk, static_cast<std::size_t>(got)});
    }
    return flush() || any;
  }
  // What the script makes a target say unasked.
  void say(const Bytes& bytes) {
    if (!mute) out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  // Answers that were held back.
  void go_on() {
    for (const Bytes& late : std::exchange(late_, {})) say(late);
  }
  std::uint16_t last_cid() const { return last_cid_; }
  const PduEncoder& encoder() const { return encoder_; }
  bool io() const { return io_; }
  bool open() const { return fd_ >= 0; }

  bool mute = false;  // reads, and says nothing more
  bool deaf = false;  // reads nothing more
  // A test's own answers: true when it took the command over.
  std::function<bool(FuzzPeer&, const nvme::Sqe&)> take_over;
  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // What was said goes, and behind it the end.
  void end_output() {
    (void)flush();
    require(out_.empty(), "a few answers fit in a socket");
    shutdown(fd_, SHUT_WR);
  }
  void complete(std::uint16_t cid, std::uint32_t dw0, std::uint32_t dw1,
                std::uint16_t status = nvme::sc::kSuccess, bool dnr = false) {
    nvme::Cqe cqe;
    cqe.cid = cid;
    cqe.set_status(status, dnr);
    cqe.dw0 = script_.wrong() ? script_.number() : dw0;
    cqe.dw1 = dw1;
    if (script_.wrong()) cqe.status = static_cast<std::uint16_t>(script_.number() << 1);
    std::byte out[transport::kFrontBytesMax];
    const auto bytes = encoder_.capsule_resp(out, cqe);
    answer(Bytes(out, out + bytes), sizeof(transport::CapsuleResp));
  }
  void send_data(std::uint16_t cid, std::uint32_t offset, std::span<const std::byte> data,
                 unsigned flags) {
    std::byte out[transport::kFrontBytesMax];
    const auto front =
        encoder_.data(out, PduType::c2h_data, cid, 0, offset,
                      static_cast<std::uint32_t>(data.size()), static_cast<std::uint8_t>(flags));
    Bytes pdu(out, out + front);
    pdu.insert(pdu.end(), data.begin(), data.end());
    if (encoder_.format().data_digest) {
      pdu.resize(pdu.size() + transport::kDigestBytes);
      PduEncoder::put_digest(pdu.data() + pdu.size() - transport::kDigestBytes,
                             transport::crc32c(data) ^ (script_.wrong() ? 1u : 0u));
    }
    answer(std::move(pdu), sizeof(transport::DataPdu));
  }

 private:
  bool flush() {
    if (fd_ < 0 || out_.empty()) return false;
    const ssize_t sent = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) out_.erase(out_.begin(), out_.begin() + sent);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) hang_up();
    return sent > 0;
  }

  void take(std::span<const std::byte> input) {
    while (fd_ >= 0 && !deaf) {
      switch (decoder_.next(input)) {
        case PduDecoder::Event::none:
          return;
        case PduDecoder::Event::error:
          return require(false, "the host sends well-formed PDUs");
        case PduDecoder::Event::header:
          data_.assign(decoder_.data_bytes(), std::byte{0});
          decoder_.set_destination(data_.data());
          if (data_.empty()) answer_pdu();
          break;
        case PduDecoder::Event::end:
          require(decoder_.data_intact(), "the host's data digests are right");
          answer_pdu();
          break;
      }
    }
  }

  void answer_pdu() {
    switch (decoder_.type()) {
      case PduType::icreq:
        return answer_icreq();
      case PduType::capsule_cmd:
        return answer_command(decoder_.header<transport::CapsuleCmd>().sqe);
      case PduType::h2c_data:
        return take_h2c_data(decoder_.header<transport::DataPdu>());
      default:  // H2CTermReq
        return;
    }
  }

  // An answer as it should be, or not.
  void answer(Bytes pdu, std::size_t header_bytes) {
    const std::uint8_t how = script_.u8();
    if (how < 0xB0) return say(pdu);
    switch (how % 8) {
      case 0:
        return;  // never
      case 1:
        say(pdu);
        return say(pdu);
      case 2:
        late_.push_back(std::move(pdu));
        return;
      case 3:
        say(script_.bytes(script_.u8()));
        return say(pdu);
      case 4:
        return hang_up();
      case 5:
        say(term_req());
        return say(pdu);
      default:
        pdu[script_.u8() % header_bytes] ^= static_cast<std::byte>(script_.u8());
        if (encoder_.format().header_digest && pdu[0] != std::byte{1} && !script_.wrong()) {
          PduEncoder::put_digest(pdu.data() + header_bytes,
                                 transport::crc32c({pdu.data(), header_bytes}));
        }
        return say(pdu);
    }
  }
  static Bytes term_req() {
    std::byte term[transport::kTermReqBytesMax];
    const auto bytes =
        PduEncoder::term_req(term, PduType::c2h_term_req, {transport::Fes::sequence, 0}, {});
    return {term, term + bytes};
  }

  void answer_icreq() {
    const auto& icreq = decoder_.header<transport::IcReq>();
    transport::IcResp pdu;
    pdu.common = {PduType::icresp, 0, sizeof pdu, 0, sizeof pdu};
    pdu.cpda = script_.wrong() ? script_.u8() : 0;
    pdu.digests = icreq.digests;
    pdu.maxh2cdata = script_.wrong() ? script_.number() : 4096u << script_.choice(5);
    if (script_.wrong()) pdu.digests ^= script_.u8();
    if (script_.wrong()) pdu.pfv = script_.u8();
    h2c_data_bytes_ = pdu.maxh2cdata;
    decoder_.set_initialized();
    decoder_.set_format({(pdu.digests & 1) != 0, (pdu.digests & 2) != 0, pdu.cpda});
    encoder_.set_format({(pdu.digests & 1) != 0, (pdu.digests & 2) != 0, icreq.hpda});
    Bytes bytes(sizeof pdu);
    std::memcpy(bytes.data(), &pdu, sizeof pdu);
    say(bytes);
  }

  void answer_command(const nvme::Sqe& sqe) {
    last_cid_ = sqe.cid;
    Pending& pending = pending_[sqe.cid];
    pending = {sqe, 0, sqe.sgl_length};
    if (!data_.empty()) check_stored(0);
    if (take_over && take_over(*this, sqe)) return;
    if (sqe.opc == nvme::opcode::kFabrics) return answer_fabrics(sqe);
    if (io_ && sqe.opc == nvme::kv::kStore && data_.empty()) return ask(pending);
    if ((sqe.opc & 3) == 2) return answer_read(sqe);
    // Set Features (number of queues) wants DW0, which is 0: one queue.
    complete(sqe.cid, 0, 0);
  }
  void answer_fabrics(const nvme::Sqe& sqe) {
    std::uint64_t value = 0;
    if (sqe.fctype() == nvme::fabrics::kConnect) {
      io_ = sqe.cdw10 >> 16 != 0;
      value = 7;
    }
    if (sqe.fctype() == nvme::fabrics::kPropertyGet) {
      switch (sqe.cdw11) {
        case nvme::property::kCap:
          value = 127 | nvme::kCapCssAll;
          break;
        case nvme::property::kCsts:
          value = nvme::kCstsReady;
          break;
        default:
          value = 0x20000;
      }
    }
    complete(sqe.cid, static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32));
  }

  Bytes payload_of(const nvme::Sqe& sqe) {
    Bytes payload(sqe.sgl_length);
    const auto copy = [&](const auto& from) {
      std::memcpy(payload.data(), &from, std::min(sizeof from, payload.size()));
    };
    if (io_ && sqe.opc == nvme::kv::kRetrieve) {
      return patterned(sqe.cdw2, 1 + sqe.sgl_length / 2);
    }
    if (io_) {  // List
      payload.assign(4 + 8 * 3, std::byte{0});
      payload[0] = std::byte{3};
      for (std::size_t i = 0; i < 3; ++i) {
        payload[4 + i * 8] = std::byte{3};
        payload[6 + i * 8] = static_cast<std::byte>('a' + i);
      }
      payload.resize(std::min<std::size_t>(payload.size(), sqe.sgl_length));
    } else if (sqe.opc == nvme::admin::kGetLogPage) {
      nvme::DiscoveryLogHeader header;
      header.numrec = script_.number();
      copy(header);
    } else if (sqe.nsid == 0) {
      nvme::IdentifyController identify;
      identify.ioccsz = 4 + (script_.choice(3) << 8);
      identify.iorcsz = 1;
      identify.mdts = 4;
      copy(identify);
    } else {
      nvme::IdentifyNamespaceKv identify;
      identify.nsze = 1;
      identify.kvf[0].vml = 65536;
      copy(identify);
    }
    return payload;
  }
  // Data in any number of pieces, then a completion unless SUCCESS stands for it.
  void answer_read(const nvme::Sqe& sqe) {
    Bytes payload = payload_of(sqe);
    const std::uint32_t length = static_cast<std::uint32_t>(payload.size());
    if (script_.wrong()) payload.resize(std::min(script_.number(), 100000u));
    for (unsigned pokes = script_.wrong() ? script_.choice(8) : 0; pokes > 0; --pokes) {
      const std::uint16_t at = script_.u16();
      if (at < payload.size()) payload[at] = static_cast<std::byte>(script_.u8());
    }
    const unsigned pieces = script_.choice(4) + 1;
    std::uint32_t offset = script_.wrong() ? script_.number() : 0;
    const bool folded = script_.wrong();
    const std::size_t step = payload.size() / pieces + 1;
    for (std::size_t at = 0; at < payload.size(); at += step) {
      const std::size_t count = std::min(step, payload.size() - at);
      const bool last = at + count == payload.size();
      send_data(
          sqe.cid, offset, {payload.data() + at, count},
          last ? (folded ? transport::kFlagLast | transport::kFlagSuccess : transport::kFlagLast)
               : 0);
      offset += static_cast<std::uint32_t>(count);
    }
    if (!folded) complete(sqe.cid, io_ && sqe.opc == nvme::kv::kRetrieve ? length : 0, 0);
  }
  struct Pending {
    nvme::Sqe sqe;
    std::uint32_t asked = 0, left = 0;  // of its data: asked for by R2T, not come yet
  };
  // R2Ts for a Store, in pieces.
  void ask(Pending& pending) {
    const std::uint32_t share = pending.left / (script_.choice(3) + 1) + 1;
    std::uint32_t bytes = std::min(share, pending.left), offset = pending.asked;
    pending.asked += bytes;
    if (script_.wrong()) offset = script_.number();
    if (script_.wrong()) bytes = script_.number();
    std::byte out[transport::kFrontBytesMax];
    const auto length = encoder_.r2t(out, pending.sqe.cid, script_.u8(), offset, bytes);
    answer(Bytes(out, out + length), sizeof(transport::R2t));
  }
  void check_stored(std::uint32_t offset) {
    if (!io_ || pending_[last_cid_].sqe.opc != nvme::kv::kStore) return;
    for (std::size_t i = 0; i < data_.size(); ++i) {
      require(data_[i] == pattern(kPageSeed, offset + i), "the host sends the page's own bytes");
    }
  }
  void take_h2c_data(const transport::DataPdu& pdu) {
    const auto found = pending_.find(pdu.cccid);
    require(found != pending_.end(), "H2CData names a command that was sent");
    Pending& pending = found->second;
    require(pdu.datal <= h2c_data_bytes_, "H2CData is no longer than MAXH2CDATA");
    require(std::uint64_t{pdu.datao} + pdu.datal <= pending.sqe.sgl_length,
            "H2CData is the page's");
    last_cid_ = pdu.cccid;
    check_stored(pdu.datao);
    pending.left -= std::min(pending.left, pdu.datal);
    if ((pdu.common.flags & transport::kFlagLast) == 0) return;
    if (pending.left != 0 && pending.asked < pending.sqe.sgl_length) return ask(pending);
    complete(pdu.cccid, 0, 0);
  }

  int fd_;
  ScriptReader& script_;
  PduDecoder decoder_{PduDecoder::Role::target};
  PduEncoder encoder_;
  Bytes data_, out_;
  bool io_ = false;  // an I/O queue: the opcodes of the two kinds overlap
  std::map<std::uint16_t, Pending> pending_;
  std::vector<Bytes> late_;
  std::uint32_t h2c_data_bytes_ = 0;
  std::uint16_t last_cid_ = 0;
};

}  // namespace furrow::fuzz
