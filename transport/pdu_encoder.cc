#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "transport/pdu.h"
#include "zone/check.h"

namespace furrow::transport {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  // ISA-L takes an int and does not write; it neither starts nor ends with the inversion.
  constexpr std::size_t kPieceBytes = std::size_t{1} << 30;
  std::uint32_t crc = ~seed;
  while (!bytes.empty()) {
    const std::size_t piece = std::min(bytes.size(), kPieceBytes);
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    crc = crc32_iscsi(data, static_cast<int>(piece), crc);
    bytes = bytes.subspan(piece);
  }
  return ~crc;
}

void PduEncoder::put_digest(std::byte* out, std::uint32_t digest) {
  std::memcpy(out, &digest, sizeof digest);
}

namespace {
template <class Pdu>
std::uint32_t put_plain(std::byte* out, Pdu& pdu, PduType type) {
  pdu.common.type = type;
  pdu.common.hlen = sizeof pdu;
  pdu.common.plen = sizeof pdu;
  std::memcpy(out, &pdu, sizeof pdu);
  return sizeof pdu;
}

std::uint8_t digest_bits(bool header, bool data) {
  return static_cast<std::uint8_t>((header ? 1 : 0) | (data ? 2 : 0));
}
}  // namespace

std::uint32_t PduEncoder::icreq(std::byte* out, std::uint8_t hpda, bool header_digest,
                                bool data_digest, std::uint32_t maxr2t) {
  IcReq pdu;
  pdu.hpda = hpda;
  pdu.digests = digest_bits(header_digest, data_digest);
  pdu.maxr2t = maxr2t;
  return put_plain(out, pdu, PduType::icreq);
}

std::uint32_t PduEncoder::icresp(std::byte* out, std::uint8_t cpda, bool header_digest,
                                 bool data_digest, std::uint32_t maxh2cdata) {
  IcResp pdu;
  pdu.cpda = cpda;
  pdu.digests = digest_bits(header_digest, data_digest);
  pdu.maxh2cdata = maxh2cdata;
  return put_plain(out, pdu, PduType::icresp);
}

std::uint32_t PduEncoder::term_req(std::byte* out, PduType direction, const PduError& error,
                                   std::span<const std::byte> offending) {
  const std::size_t copied = std::min<std::size_t>(offending.size(), kHeaderBytesMax);
  TermReq pdu;
  pdu.common.type = direction;
  pdu.common.hlen = sizeof pdu;
  pdu.common.plen = static_cast<std::uint32_t>(sizeof pdu + copied);
  pdu.fes = static_cast<std::uint16_t>(error.fes);
  pdu.fei_low = static_cast<std::uint16_t>(error.information);
  pdu.fei_high = static_cast<std::uint16_t>(error.information >> 16);
  std::memcpy(out, &pdu, sizeof pdu);
  if (copied != 0) std::memcpy(out + sizeof pdu, offending.data(), copied);
  return pdu.common.plen;
}

// Completes the common header at `out` for a PDU whose header is already there, and appends the
// header's digest and the padding before data.
std::uint32_t PduEncoder::finish(std::byte* out, PduCommon& common,
                                 std::uint32_t data_bytes) const {
  std::uint32_t length = common.hlen;
  if (format_.header_digest) {
    common.flags |= kFlagHeaderDigest;
    length += kDigestBytes;
  }
  common.plen = length;
  if (data_bytes != 0) {
    const std::uint32_t alignment = (format_.pda + 1u) * 4u;
    length = (length + alignment - 1) / alignment * alignment;
    FURROW_CHECK(length <= kFrontBytesMax);
    common.pdo = static_cast<std::uint8_t>(length);
    common.plen = length + data_bytes;
    if (format_.data_digest) {
      common.flags |= kFlagDataDigest;
      common.plen += kDigestBytes;
    }
  }
  std::memcpy(out, &common, sizeof common);
  std::uint32_t written = common.hlen;
  if (format_.header_digest) {
    put_digest(out + written, crc32c({out, common.hlen}));
    written += kDigestBytes;
  }
  if (length != written) std::memset(out + written, 0, length - written);
  return length;
}

std::uint32_t PduEncoder::capsule_cmd(std::byte* out, const nvme::Sqe& sqe,
                                      std::uint32_t data_bytes) const {
  PduCommon common{PduType::capsule_cmd, 0, sizeof(CapsuleCmd), 0, 0};
  std::memcpy(out + sizeof common, &sqe, sizeof sqe);
  return finish(out, common, data_bytes);
}

std::uint32_t PduEncoder::capsule_resp(std::byte* out, const nvme::Cqe& cqe) const {
  PduCommon common{PduType::capsule_resp, 0, sizeof(CapsuleResp), 0, 0};
  std::memcpy(out + sizeof common, &cqe, sizeof cqe);
  return finish(out, common, 0);
}

std::uint32_t PduEncoder::data(std::byte* out, PduType type, std::uint16_t cccid,
                               std::uint16_t ttag, std::uint32_t datao, std::uint32_t datal,
                               std::uint8_t flags) const {
  DataPdu pdu{{type, flags, sizeof(DataPdu), 0, 0}, cccid, ttag, datao, datal, 0};
  std::memcpy(out, &pdu, sizeof pdu);
  return finish(out, pdu.common, datal);
}

std::uint32_t PduEncoder::r2t(std::byte* out, std::uint16_t cccid, std::uint16_t ttag,
                              std::uint32_t r2to, std::uint32_t r2tl) const {
  R2t pdu{{PduType::r2t, 0, sizeof(R2t), 0, 0}, cccid, ttag, r2to, r2tl, 0};
  std::memcpy(out, &pdu, sizeof pdu);
  return finish(out, pdu.common, 0);
}

}  // namespace furrow::transport
