// PDUs that a decoder must refuse, each wrong in one way: for pdu_test, and the seeds of pdu_fuzz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include "transport/pdu.h"

namespace furrow::transport {

constexpr std::uint32_t kMalformedDataBytes = 512;  // of those types that have data

// One damaged PDU and what it must be refused with.
struct Malformed {
  const char* name;
  PduDecoder::Role role;
  bool initialized;
  PduFormat format;
  PduType type;
  std::size_t at;     // where `value` is written in the header,
  std::size_t bytes;  // that many bytes of it, little-endian
  std::uint64_t value;
  Fes fes;
  std::uint32_t information;
};

inline void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.name; }

constexpr PduFormat kPlain{};
constexpr PduFormat kBothDigests{true, true, 0};
constexpr auto kToTarget = PduDecoder::Role::target;
constexpr auto kToHost = PduDecoder::Role::initiator;
constexpr auto kField = Fes::invalid_header_field;

constexpr Malformed kMalformedPdus[] = {
    Malformed{"unknown type", kToTarget, true, kPlain, PduType::capsule_cmd, 0, 1, 0x0A, kField, 0},
    Malformed{"R2T to the target", kToTarget, true, kPlain, PduType::capsule_cmd, 0, 1, 0x09,
              kField, 0},
    Malformed{"CapsuleCmd to the host", kToHost, true, kPlain, PduType::r2t, 0, 1, 0x04, kField, 0},
    Malformed{"command before ICReq", kToTarget, false, kPlain, PduType::icreq, 0, 1, 0x04,
              Fes::sequence, 0},
    Malformed{"H2CData before ICReq", kToTarget, false, kPlain, PduType::icreq, 0, 1, 0x06,
              Fes::sequence, 0},
    Malformed{"second ICReq", kToTarget, true, kPlain, PduType::capsule_cmd, 0, 1, 0x00,
              Fes::sequence, 0},
    Malformed{"second ICResp", kToHost, true, kPlain, PduType::r2t, 0, 1, 0x01, Fes::sequence, 0},
    Malformed{"HLEN small", kToTarget, true, kPlain, PduType::capsule_cmd, 2, 1, 71, kField, 2},
    Malformed{"HLEN large", kToTarget, true, kPlain, PduType::h2c_data, 2, 1, 25, kField, 2},
    Malformed{"HLEN zero", kToTarget, false, kPlain, PduType::icreq, 2, 1, 0, kField, 2},
    Malformed{"ICReq PLEN", kToTarget, false, kPlain, PduType::icreq, 4, 4, 129, kField, 4},
    Malformed{"ICResp PLEN", kToHost, false, kPlain, PduType::icresp, 4, 4, 124, kField, 4},
    Malformed{"PLEN below HLEN", kToTarget, true, kPlain, PduType::capsule_cmd, 4, 4, 71, kField,
              4},
    Malformed{"PLEN zero", kToTarget, true, kPlain, PduType::h2c_data, 4, 4, 0, kField, 4},
    Malformed{"PLEN one short", kToTarget, true, kPlain, PduType::h2c_data, 4, 4, 535, kField, 4},
    Malformed{"PLEN one long", kToTarget, true, kPlain, PduType::h2c_data, 4, 4, 537, kField, 4},
    Malformed{"PLEN 4 GiB", kToTarget, true, kPlain, PduType::capsule_cmd, 4, 4, 0xffffffff,
              Fes::limit_exceeded, 4},
    Malformed{"CapsuleResp with data", kToHost, true, kPlain, PduType::capsule_resp, 4, 4, 28,
              kField, 4},
    Malformed{"R2T with data", kToHost, true, kPlain, PduType::r2t, 4, 4, 28, kField, 4},
    Malformed{"TermReq too long", kToTarget, true, kPlain, PduType::h2c_term_req, 4, 4, 153, kField,
              4},
    Malformed{"PDO inside the header", kToTarget, true, kPlain, PduType::h2c_data, 3, 1, 20, kField,
              3},
    Malformed{"PDO beyond any header", kToTarget, true, kPlain, PduType::h2c_data, 3, 1, 148,
              kField, 3},
    Malformed{"PDO not aligned", kToTarget, true, kPlain, PduType::h2c_data, 3, 1, 26, kField, 3},
    Malformed{"PDO of 0 with data", kToTarget, true, kPlain, PduType::capsule_cmd, 3, 1, 0, kField,
              3},
    Malformed{"PDO not as HPDA asks", kToHost, true, PduFormat{false, false, 7}, PduType::c2h_data,
              3, 1, 36, kField, 3},
    Malformed{"header digest flag clear", kToTarget, true, PduFormat{true, false, 0},
              PduType::h2c_data, 1, 1, kFlagLast, kField, 1},
    Malformed{"header digest not agreed", kToTarget, true, kPlain, PduType::h2c_data, 1, 1,
              kFlagLast | kFlagHeaderDigest, kField, 1},
    Malformed{"data digest flag clear", kToTarget, true, PduFormat{false, true, 0},
              PduType::h2c_data, 1, 1, kFlagLast, kField, 1},
    Malformed{"data digest not agreed", kToTarget, true, kPlain, PduType::h2c_data, 1, 1,
              kFlagLast | kFlagDataDigest, kField, 1},
    Malformed{"ICReq with a digest", kToTarget, false, kPlain, PduType::icreq, 1, 1,
              kFlagHeaderDigest, kField, 1},
    Malformed{"DATAL zero", kToTarget, true, kPlain, PduType::h2c_data, 16, 4, 0, kField, 16},
    Malformed{"DATAL above MAXH2CDATA", kToTarget, true, kPlain, PduType::h2c_data, 16, 4, 4097,
              Fes::limit_exceeded, 16},
    Malformed{"DATAL is not what PLEN says", kToTarget, true, kPlain, PduType::h2c_data, 16, 4, 508,
              kField, 4},
    Malformed{"DATAL wraps 32 bits", kToHost, true, kPlain, PduType::c2h_data, 16, 4, 0xfffffff0,
              Fes::limit_exceeded, 16},
    Malformed{"SUCCESS without LAST", kToHost, true, kPlain, PduType::c2h_data, 1, 1, kFlagSuccess,
              kField, 1},
    Malformed{"SUCCESS on H2CData", kToTarget, true, kPlain, PduType::h2c_data, 1, 1,
              kFlagSuccess | kFlagLast, kField, 1},
    Malformed{"SGL longer than the capsule", kToTarget, true, kPlain, PduType::capsule_cmd, 40, 4,
              516, kField, 4},
    Malformed{"SGL shorter than the capsule", kToTarget, true, kPlain, PduType::capsule_cmd, 40, 4,
              508, kField, 4},
    Malformed{"data, but the SGL is not in-capsule", kToTarget, true, kPlain, PduType::capsule_cmd,
              47, 1, 0x5A, kField, 4},
    Malformed{"in-capsule SGL over the limit", kToTarget, true, kPlain, PduType::capsule_cmd, 40, 4,
              8193, Fes::limit_exceeded, 40}};

}  // namespace furrow::transport
