// NVMe/TCP protocol data units (NVMe over TCP Transport Specification 1.1, section 3.6):
// structures, encoder, and a pure incremental decoder that target and initiator share. Bytes in,
// events out; no sockets, no clock, no allocation.
//
// Threads: none of this is shared; one decoder and one encoder for each connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/nvme.h"

namespace furrow::transport {

enum class PduType : std::uint8_t {
  icreq = 0x00,
  icresp = 0x01,
  h2c_term_req = 0x02,
  c2h_term_req = 0x03,
  capsule_cmd = 0x04,
  capsule_resp = 0x05,
  h2c_data = 0x06,
  c2h_data = 0x07,
  r2t = 0x09,
};

// Flags of the common header.
constexpr std::uint8_t kFlagHeaderDigest = 1u << 0;
constexpr std::uint8_t kFlagDataDigest = 1u << 1;
constexpr std::uint8_t kFlagLast = 1u << 2;     // data PDUs: the last of its transfer
constexpr std::uint8_t kFlagSuccess = 1u << 3;  // C2HData: stands for a completion of zeroes

constexpr std::uint32_t kDigestBytes = 4;
constexpr std::uint32_t kHeaderBytesMax = 128;  // ICReq
// Header, digest and padding: 72 + 4 bytes rounded up to a multiple of 72 is the worst.
constexpr std::uint32_t kFrontBytesMax = 144;
constexpr std::uint8_t kPdaMax = 31;  // HPDA and CPDA: dwords, 0's based
// What the specification lets a queue take in a capsule before Connect says which queue it is, and
// the admin queue always (section 3.3.1.2, "8,192 bytes").
constexpr std::uint32_t kAdminInCapsuleBytes = 8192;
constexpr std::uint32_t kTermReqBytesMax = 24 + kHeaderBytesMax;

struct PduCommon {
  PduType type{};
  std::uint8_t flags = 0;
  std::uint8_t hlen = 0;   // header length, digest not included
  std::uint8_t pdo = 0;    // where data starts, from the PDU's first byte; 0 without data
  std::uint32_t plen = 0;  // all of it: header, digests, padding, data
};
static_assert(sizeof(PduCommon) == 8);

struct IcReq {
  PduCommon common;
  std::uint16_t pfv = 0;
  std::uint8_t hpda = 0;
  std::uint8_t digests = 0;  // bit 0 header, bit 1 data
  std::uint32_t maxr2t = 0;  // 0's based, for each command
  std::uint8_t reserved[112]{};
};
static_assert(sizeof(IcReq) == 128);

struct IcResp {
  PduCommon common;
  std::uint16_t pfv = 0;
  std::uint8_t cpda = 0;
  std::uint8_t digests = 0;
  std::uint32_t maxh2cdata = 0;
  std::uint8_t reserved[112]{};
};
static_assert(sizeof(IcResp) == 128);

struct TermReq {  // both directions; up to 128 bytes of the offending PDU's header follow
  PduCommon common;
  std::uint16_t fes = 0;
  std::uint16_t fei_low = 0;  // 32 bits of error information at byte 10, which is not aligned
  std::uint16_t fei_high = 0;
  std::uint8_t reserved[10]{};
};
static_assert(sizeof(TermReq) == 24);

struct CapsuleCmd {
  PduCommon common;
  nvme::Sqe sqe;
};
static_assert(sizeof(CapsuleCmd) == 72);

struct CapsuleResp {
  PduCommon common;
  nvme::Cqe cqe;
};
static_assert(sizeof(CapsuleResp) == 24);

struct DataPdu {  // H2CData and C2HData (whose TTAG is reserved)
  PduCommon common;
  std::uint16_t cccid = 0;
  std::uint16_t ttag = 0;
  std::uint32_t datao = 0;
  std::uint32_t datal = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(DataPdu) == 24);

struct R2t {
  PduCommon common;
  std::uint16_t cccid = 0;
  std::uint16_t ttag = 0;
  std::uint32_t r2to = 0;
  std::uint32_t r2tl = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(R2t) == 24);

// Fatal error status of a TermReq.
enum class Fes : std::uint16_t {
  none = 0,
  invalid_header_field = 1,  // error information: the field's offset in the header
  sequence = 2,
  header_digest = 3,  // error information: the digest that was received
  out_of_range = 4,
  limit_exceeded = 5,  // more data, or more R2Ts, than was agreed
  unsupported_parameter = 6,
};

struct PduError {
  Fes fes = Fes::none;
  std::uint32_t information = 0;
};

// The seed and the final inversion included. `seed` continues a digest over several pieces.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

// How this connection's PDUs look, as ICReq and ICResp agreed.
struct PduFormat {
  bool header_digest = false;
  bool data_digest = false;
  std::uint8_t pda = 0;  // of the receiver of these PDUs: data at multiples of (pda + 1) * 4
};

// Writes PDUs. Each function fills `out`, which must have kFrontBytesMax, and
// returns how many bytes it wrote: the header, its digest and the padding. The caller sends the
// data, and after that data_digest() when the format has one.
class PduEncoder {
 public:
  void set_format(const PduFormat& format) { format_ = format; }
  const PduFormat& format() const { return format_; }

  static std::uint32_t icreq(std::byte* out, std::uint8_t hpda, bool header_digest,
                             bool data_digest, std::uint32_t maxr2t);
  static std::uint32_t icresp(std::byte* out, std::uint8_t cpda, bool header_digest,
                              bool data_digest, std::uint32_t maxh2cdata);
  // `offending`: as much of the refused PDU's header as was received. Here `out` must have
  // kTermReqBytesMax.
  static std::uint32_t term_req(std::byte* out, PduType direction, const PduError& error,
                                std::span<const std::byte> offending);
  std::uint32_t capsule_cmd(std::byte* out, const nvme::Sqe& sqe, std::uint32_t data_bytes) const;
  std::uint32_t capsule_resp(std::byte* out, const nvme::Cqe& cqe) const;
  // `flags`: LAST and SUCCESS.
  std::uint32_t data(std::byte* out, PduType type, std::uint16_t cccid, std::uint16_t ttag,
                     std::uint32_t datao, std::uint32_t datal, std::uint8_t flags) const;
  std::uint32_t r2t(std::byte* out, std::uint16_t cccid, std::uint16_t ttag, std::uint32_t r2to,
                    std::uint32_t r2tl) const;
  static void put_digest(std::byte* out, std::uint32_t digest);

 private:
  std::uint32_t finish(std::byte* out, PduCommon& common, std::uint32_t data_bytes) const;

  PduFormat format_;
};

// Reads PDUs of one direction and checks all that needs no knowledge of commands: type against
// direction and phase, HLEN, PDO in both directions, PLEN's sum and cap, digests, alignment.
//
//   while (true) switch (decoder.next(input)) {
//     case none: all input is used up; come back with more
//     case header: `header<T>()` is valid; when data_bytes() != 0 call set_destination()
//     case end: the data is complete; data_intact() is its digest's verdict
//     case error: `error()` and `offending()` say why; the decoder is finished
//   }
//
// Data may also be read straight into its destination: read into landing(), then landed(n).
class PduDecoder {
 public:
  enum class Role : std::uint8_t { target, initiator };
  enum class Event : std::uint8_t { none, header, end, error };

  struct Limits {
    std::uint32_t in_capsule_bytes = kAdminInCapsuleBytes;  // of a CapsuleCmd
    std::uint32_t data_bytes = 0xffffffffu;                 // of a data PDU: MAXH2CDATA
  };

  explicit PduDecoder(Role role) : role_(role) {}
  void set_format(const PduFormat& format) { format_ = format; }
  void set_limits(const Limits& limits) { limits_ = limits; }
  // ICReq or ICResp was taken: from now on everything else, and no second one.
  void set_initialized() { initialized_ = true; }

  // Uses up `input` from its front.
  Event next(std::span<const std::byte>& input);

  template <class Pdu>
  const Pdu& header() const {
    static_assert(sizeof(Pdu) <= kHeaderBytesMax);
    return *reinterpret_cast<const Pdu*>(header_);
  }
  PduType type() const { return header<PduCommon>().type; }
  std::uint32_t data_bytes() const { return data_bytes_; }
  std::uint32_t data_done() const { return data_done_; }
  bool in_data() const { return phase_ == Phase::data; }
  bool data_intact() const { return data_intact_; }

  // Where the data goes from here on; null: nowhere (its digest is checked all the same). May be
  // changed between events: `destination` is where the PDU's first data byte goes or would have.
  void set_destination(std::byte* destination) { destination_ = destination; }
  std::span<std::byte> landing() const;
  void landed(std::size_t bytes);

  const PduError& error() const { return error_; }
  std::span<const std::byte> offending() const { return {header_, header_done_}; }

 private:
  enum class Phase : std::uint8_t { common, header, padding, data, digest, failed };

  Event fail(Fes fes, std::uint32_t information);
  bool take(std::span<const std::byte>& input, std::uint32_t until);
  Event check_common();
  Event check_header();
  Event check_lengths();
  Event take_data(std::span<const std::byte>& input);
  Event take_digest(std::span<const std::byte>& input);
  std::uint32_t declared_data_bytes() const;
  std::uint32_t plen_max() const;
  bool carries_data() const;
  bool header_digested() const;

  alignas(8) std::byte header_[kHeaderBytesMax + kDigestBytes]{};
  std::byte* destination_ = nullptr;
  std::uint32_t header_done_ = 0;  // bytes in header_
  std::uint32_t padding_left_ = 0;
  std::uint32_t data_bytes_ = 0, data_done_ = 0;
  std::uint32_t crc_ = 0;
  std::byte digest_[kDigestBytes]{};
  std::uint32_t digest_done_ = 0;
  bool digest_follows_ = false;
  bool fresh_ = true;  // a new PDU starts with the next byte
  bool data_intact_ = true;
  bool initialized_ = false;
  Role role_;
  Phase phase_ = Phase::common;
  PduFormat format_;
  Limits limits_;
  PduError error_;
};

}  // namespace furrow::transport
