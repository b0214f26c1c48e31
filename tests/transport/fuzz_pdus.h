// PDUs for pdu_fuzz: well-formed ones, and digests made right again after mutation.
#pragma once

#include <cstring>
#include <random>
#include <span>

#include "tests/transport/script.h"
#include "transport/pdu.h"

namespace furrow::fuzz {

using transport::PduCommon;
using transport::PduDecoder;
using transport::PduEncoder;
using transport::PduFormat;
using transport::PduType;

// Of an input of pdu_fuzz: four bytes in front of the stream (the others: HPDA or CPDA, and how the
// stream is cut), and what the bits of the first mean.
constexpr std::size_t kPduFrontBytes = 4;
enum PduChoice : std::uint8_t {
  kToHost = 1,
  kInitialized = 2,
  kHeaderDigests = 4,
  kDataDigests = 8,
  kAsIs = 16,  // digests are not made right
};
inline PduFormat format_of(std::uint8_t choice, std::uint8_t pda) {
  return {(choice & kHeaderDigests) != 0, (choice & kDataDigests) != 0,
          static_cast<std::uint8_t>(pda & transport::kPdaMax)};
}

// With `data_bytes` zeroes where the type has data, all digests right.
inline Bytes well_formed_pdu(PduType type, const PduFormat& format, std::uint32_t data_bytes) {
  PduEncoder encoder;
  encoder.set_format(format);
  Bytes pdu(transport::kTermReqBytesMax);
  std::byte* const out = pdu.data();
  nvme::Sqe sqe;
  switch (type) {
    case PduType::icreq:
      pdu.resize(PduEncoder::icreq(out, format.pda, format.header_digest, format.data_digest, 0));
      return pdu;
    case PduType::icresp:
      pdu.resize(
          PduEncoder::icresp(out, format.pda, format.header_digest, format.data_digest, 4096));
      return pdu;
    case PduType::h2c_term_req:
    case PduType::c2h_term_req:
      pdu.resize(PduEncoder::term_req(out, type, {transport::Fes::sequence, 0}, {}));
      return pdu;
    case PduType::capsule_resp:
      pdu.resize(encoder.capsule_resp(out, {}));
      return pdu;
    case PduType::r2t:
      pdu.resize(encoder.r2t(out, 1, 2, 0, data_bytes));
      return pdu;
    case PduType::capsule_cmd:
      sqe.sgl_type = data_bytes == 0 ? nvme::kSglTransport : nvme::kSglInCapsule;
      sqe.sgl_length = data_bytes;
      pdu.resize(encoder.capsule_cmd(out, sqe, data_bytes));
      break;
    case PduType::h2c_data:
    case PduType::c2h_data:
      pdu.resize(encoder.data(out, type, 1, 2, 0, data_bytes, transport::kFlagLast));
      break;
  }
  if (data_bytes == 0) return pdu;
  const Bytes data(data_bytes);
  pdu.insert(pdu.end(), data.begin(), data.end());
  if (format.data_digest) {
    pdu.resize(pdu.size() + transport::kDigestBytes);
    PduEncoder::put_digest(pdu.data() + pdu.size() - transport::kDigestBytes,
                           transport::crc32c(data));
  }
  return pdu;
}

inline PduType any_type(std::minstd_rand& random, std::uint8_t choice) {
  static constexpr PduType kTarget[] = {PduType::capsule_cmd, PduType::h2c_data,
                                        PduType::h2c_term_req};
  static constexpr PduType kHost[] = {PduType::capsule_resp, PduType::c2h_data, PduType::r2t,
                                      PduType::c2h_term_req};
  const bool to_host = (choice & kToHost) != 0;
  if ((choice & kInitialized) == 0) return to_host ? PduType::icresp : PduType::icreq;
  return to_host ? kHost[random() % std::size(kHost)] : kTarget[random() % std::size(kTarget)];
}

// How long the PDU at the front says that it is; 0: it is not all there.
inline std::size_t pdu_bytes(std::span<const std::byte> stream) {
  PduCommon common;
  if (stream.size() < sizeof common) return 0;
  std::memcpy(&common, stream.data(), sizeof common);
  return common.plen < common.hlen || common.plen > stream.size() ? 0 : common.plen;
}

// Makes the digests of each PDU right, and the flags that announce them; what else its header says
// stays, right or wrong.
inline void mend_digests(std::span<std::byte> stream, const PduFormat& format) {
  constexpr std::size_t kFlagsAt = offsetof(PduCommon, flags);
  while (stream.size() >= sizeof(PduCommon)) {
    PduCommon common;
    std::memcpy(&common, stream.data(), sizeof common);
    const std::size_t bytes = pdu_bytes(stream);
    const bool plain = common.type <= PduType::c2h_term_req;  // ICReq, ICResp and TermReqs
    const bool has_data = common.type == PduType::capsule_cmd || common.type == PduType::h2c_data ||
                          common.type == PduType::c2h_data;
    std::uint8_t flags =
        common.flags & ~(transport::kFlagHeaderDigest | transport::kFlagDataDigest);
    if (format.header_digest && !plain) flags |= transport::kFlagHeaderDigest;
    const std::size_t data_end = bytes - transport::kDigestBytes;
    const bool with_data = has_data && bytes > common.pdo + transport::kDigestBytes &&
                           common.pdo >= common.hlen && common.pdo != 0;
    if (format.data_digest && with_data) {
      flags |= transport::kFlagDataDigest;
      PduEncoder::put_digest(stream.data() + data_end,
                             transport::crc32c(stream.first(data_end).subspan(common.pdo)));
    }
    stream[kFlagsAt] = static_cast<std::byte>(flags);
    if (format.header_digest && !plain && common.hlen >= sizeof common &&
        stream.size() >= common.hlen + transport::kDigestBytes) {
      PduEncoder::put_digest(stream.data() + common.hlen,
                             transport::crc32c(stream.first(common.hlen)));
    }
    if (bytes == 0) return;
    stream = stream.subspan(bytes);
  }
}

}  // namespace furrow::fuzz
