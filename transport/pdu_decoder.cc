#include <algorithm>
#include <cstddef>
#include <cstring>

#include "transport/pdu.h"
#include "zone/check.h"

namespace furrow::transport {

namespace {

std::uint32_t header_bytes(PduType type) {
  switch (type) {
    case PduType::icreq:
      return sizeof(IcReq);
    case PduType::icresp:
      return sizeof(IcResp);
    case PduType::h2c_term_req:
    case PduType::c2h_term_req:
      return sizeof(TermReq);
    case PduType::capsule_cmd:
      return sizeof(CapsuleCmd);
    case PduType::capsule_resp:
      return sizeof(CapsuleResp);
    case PduType::h2c_data:
    case PduType::c2h_data:
      return sizeof(DataPdu);
    case PduType::r2t:
      return sizeof(R2t);
  }
  return 0;  // no such PDU
}

bool sent_to(PduDecoder::Role role, PduType type) {
  const bool to_target = type == PduType::icreq || type == PduType::h2c_term_req ||
                         type == PduType::capsule_cmd || type == PduType::h2c_data;
  return to_target == (role == PduDecoder::Role::target);
}

bool is_init(PduType type) { return type == PduType::icreq || type == PduType::icresp; }

bool is_term(PduType type) {
  return type == PduType::h2c_term_req || type == PduType::c2h_term_req;
}

constexpr std::uint32_t kAtType = offsetof(PduCommon, type);
constexpr std::uint32_t kAtFlags = offsetof(PduCommon, flags);
constexpr std::uint32_t kAtHlen = offsetof(PduCommon, hlen);
constexpr std::uint32_t kAtPdo = offsetof(PduCommon, pdo);
constexpr std::uint32_t kAtPlen = offsetof(PduCommon, plen);

}  // namespace

PduDecoder::Event PduDecoder::fail(Fes fes, std::uint32_t information) {
  phase_ = Phase::failed;
  error_ = {fes, information};
  return Event::error;
}

// Copies input to the header until it holds `until` bytes; says whether it does.
bool PduDecoder::take(std::span<const std::byte>& input, std::uint32_t until) {
  const std::size_t count = std::min<std::size_t>(until - header_done_, input.size());
  if (count != 0) std::memcpy(header_ + header_done_, input.data(), count);
  header_done_ += static_cast<std::uint32_t>(count);
  input = input.subspan(count);
  return header_done_ == until;
}

bool PduDecoder::carries_data() const {
  return type() == PduType::capsule_cmd || type() == PduType::h2c_data ||
         type() == PduType::c2h_data;
}

// ICReq, ICResp and TermReqs never have digests.
bool PduDecoder::header_digested() const {
  return format_.header_digest && !is_init(type()) && !is_term(type());
}

std::uint32_t PduDecoder::plen_max() const {
  if (is_term(type())) return kTermReqBytesMax;
  const std::uint32_t front = header<PduCommon>().hlen + (header_digested() ? kDigestBytes : 0u);
  if (!carries_data()) return front;
  const std::uint64_t data =
      type() == PduType::capsule_cmd ? limits_.in_capsule_bytes : limits_.data_bytes;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(kFrontBytesMax + data + kDigestBytes, 0xffffffffu));
}

PduDecoder::Event PduDecoder::check_common() {
  const auto& common = header<PduCommon>();
  const std::uint32_t hlen = header_bytes(common.type);
  if (hlen == 0 || !sent_to(role_, common.type)) return fail(Fes::invalid_header_field, kAtType);
  // A TermReq may come at any time: the peer may refuse our ICReq or ICResp with it.
  if (!is_term(common.type) && is_init(common.type) == initialized_) {
    return fail(Fes::sequence, kAtType);
  }
  if (common.hlen != hlen) return fail(Fes::invalid_header_field, kAtHlen);
  const bool flagged = (common.flags & kFlagHeaderDigest) != 0;
  if (flagged != header_digested()) return fail(Fes::invalid_header_field, kAtFlags);
  if (common.plen < hlen + (header_digested() ? kDigestBytes : 0u)) {
    return fail(Fes::invalid_header_field, kAtPlen);
  }
  if (common.plen > plen_max()) {
    return fail(carries_data() ? Fes::limit_exceeded : Fes::invalid_header_field, kAtPlen);
  }
  phase_ = Phase::header;
  return Event::none;
}

PduDecoder::Event PduDecoder::check_header() {
  const auto& common = header<PduCommon>();
  if (header_digested()) {
    std::uint32_t received;
    std::memcpy(&received, header_ + common.hlen, sizeof received);
    if (received != crc32c({header_, common.hlen})) return fail(Fes::header_digest, received);
  }
  data_done_ = 0;
  crc_ = 0;
  digest_done_ = 0;
  digest_follows_ = false;
  data_intact_ = true;
  destination_ = nullptr;
  padding_left_ = 0;
  data_bytes_ = is_term(common.type) ? common.plen - common.hlen : 0;
  if (carries_data() && check_lengths() == Event::error) return Event::error;
  phase_ = data_bytes_ == 0 ? Phase::common : Phase::padding;
  fresh_ = data_bytes_ == 0;
  return Event::header;
}

// What the PDU itself says about its data's length. A capsule has no such field but its SGL; of one
// whose SGL has an offset, a command that fails for that (SGL Offset Invalid), it is what is there.
std::uint32_t PduDecoder::declared_data_bytes() const {
  if (type() != PduType::capsule_cmd) return header<DataPdu>().datal;
  const auto& [common, sqe] = header<CapsuleCmd>();
  if (sqe.sgl_type != nvme::kSglInCapsule) return 0;
  if (sqe.sgl_address == 0) return sqe.sgl_length;
  const std::uint32_t around = common.pdo + (format_.data_digest ? kDigestBytes : 0u);
  return common.pdo == 0 || common.plen < around ? 0 : common.plen - around;
}

// PDO, and PLEN == header + digest + padding + data + digest.
PduDecoder::Event PduDecoder::check_lengths() {
  const auto& common = header<PduCommon>();
  const bool capsule = common.type == PduType::capsule_cmd;
  const std::uint32_t length_at =
      capsule ? offsetof(CapsuleCmd, sqe.sgl_length) : offsetof(DataPdu, datal);
  const std::uint32_t declared = declared_data_bytes();
  const std::uint32_t front = header_done_;  // header and its digest
  if (!capsule) {
    const bool lone_success = (common.flags & kFlagSuccess) != 0 &&
                              ((common.flags & kFlagLast) == 0 || type() == PduType::h2c_data);
    if (lone_success) return fail(Fes::invalid_header_field, kAtFlags);
    if (declared == 0) return fail(Fes::invalid_header_field, length_at);
  }
  const std::uint64_t limit = capsule ? limits_.in_capsule_bytes : limits_.data_bytes;
  if (declared > limit) return fail(Fes::limit_exceeded, length_at);
  if (declared == 0) {  // a capsule without data: PDO says nothing
    return common.plen == front ? Event::none : fail(Fes::invalid_header_field, kAtPlen);
  }
  const std::uint32_t alignment = (format_.pda + 1u) * 4u;
  if (common.pdo < front || common.pdo > kFrontBytesMax || common.pdo % alignment != 0) {
    return fail(Fes::invalid_header_field, kAtPdo);
  }
  if (((common.flags & kFlagDataDigest) != 0) != format_.data_digest) {
    return fail(Fes::invalid_header_field, kAtFlags);
  }
  const std::uint64_t sum =
      std::uint64_t{common.pdo} + declared + (format_.data_digest ? kDigestBytes : 0u);
  if (common.plen != sum) return fail(Fes::invalid_header_field, kAtPlen);
  data_bytes_ = declared;
  padding_left_ = common.pdo - front;
  digest_follows_ = format_.data_digest;
  return Event::none;
}

std::span<std::byte> PduDecoder::landing() const {
  if (phase_ != Phase::data || destination_ == nullptr) return {};
  return {destination_ + data_done_, data_bytes_ - data_done_};
}

void PduDecoder::landed(std::size_t bytes) {
  FURROW_CHECK(bytes <= landing().size());
  if (digest_follows_) crc_ = crc32c(landing().first(bytes), crc_);
  data_done_ += static_cast<std::uint32_t>(bytes);
}

// Data that came with other bytes: copied to its destination.
PduDecoder::Event PduDecoder::take_data(std::span<const std::byte>& input) {
  const std::size_t count = std::min<std::size_t>(data_bytes_ - data_done_, input.size());
  if (count != 0) {
    if (digest_follows_) crc_ = crc32c(input.first(count), crc_);
    if (destination_ != nullptr) std::memcpy(destination_ + data_done_, input.data(), count);
    data_done_ += static_cast<std::uint32_t>(count);
    input = input.subspan(count);
  }
  if (data_done_ < data_bytes_) return Event::none;
  phase_ = digest_follows_ ? Phase::digest : Phase::common;
  fresh_ = !digest_follows_;
  return fresh_ ? Event::end : Event::none;
}

PduDecoder::Event PduDecoder::take_digest(std::span<const std::byte>& input) {
  while (digest_done_ < kDigestBytes && !input.empty()) {
    digest_[digest_done_++] = input.front();
    input = input.subspan(1);
  }
  if (digest_done_ < kDigestBytes) return Event::none;
  std::uint32_t received;
  std::memcpy(&received, digest_, sizeof received);
  data_intact_ = received == crc_;
  phase_ = Phase::common;
  fresh_ = true;
  return Event::end;
}

PduDecoder::Event PduDecoder::next(std::span<const std::byte>& input) {
  if (phase_ == Phase::failed) return Event::error;
  if (fresh_) {  // the last PDU's header stayed readable until now
    header_done_ = 0;
    fresh_ = false;
  }
  if (phase_ == Phase::common) {
    if (!take(input, sizeof(PduCommon))) return Event::none;
    if (check_common() == Event::error) return Event::error;
  }
  if (phase_ == Phase::header) {
    const std::uint32_t length = header<PduCommon>().hlen + (header_digested() ? kDigestBytes : 0u);
    return take(input, length) ? check_header() : Event::none;
  }
  if (phase_ == Phase::padding) {
    const std::size_t skipped = std::min<std::size_t>(padding_left_, input.size());
    padding_left_ -= static_cast<std::uint32_t>(skipped);
    input = input.subspan(skipped);
    if (padding_left_ != 0) return Event::none;
    phase_ = Phase::data;
  }
  if (phase_ == Phase::data) {
    const Event event = take_data(input);
    if (phase_ != Phase::digest) return event;
  }
  return take_digest(input);
}

}  // namespace furrow::transport
