// NVMe structures shared by target and initiator: the 64-byte submission queue entry, the 16-byte
// completion queue entry, opcodes and status codes. Field names as in the NVMe Base specification.
// The wire is little-endian and so is every machine that Furrow supports (asserted).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace furrow::nvme {

static_assert(std::endian::native == std::endian::little);

struct Sqe {
  std::uint8_t opc = 0;
  std::uint8_t flags = 0;  // FUSE 1:0, PSDT 7:6
  std::uint16_t cid = 0;
  std::uint32_t nsid = 0;  // fabrics: FCTYPE in bits 7:0
  std::uint32_t cdw2 = 0, cdw3 = 0;
  std::uint64_t mptr = 0;
  std::uint64_t sgl_address = 0;  // SGL1: address or offset
  std::uint32_t sgl_length = 0;
  std::uint8_t sgl_reserved[3]{};
  std::uint8_t sgl_type = 0;      // type 7:4, subtype 3:0
  std::uint32_t cdw10 = 0, cdw11 = 0, cdw12 = 0, cdw13 = 0, cdw14 = 0, cdw15 = 0;
};
static_assert(sizeof(Sqe) == 64);

struct Cqe {
  std::uint32_t dw0 = 0, dw1 = 0;
  std::uint16_t sqhd = 0, sqid = 0;
  std::uint16_t cid = 0;
  std::uint16_t status = 0;  // bit 0 phase, SC 8:1, SCT 11:9, CRD 13:12, M 14, DNR 15

  void set_status(std::uint16_t sct_sc, bool dnr = false) {
    status = static_cast<std::uint16_t>(sct_sc << 1 | (dnr ? 0x8000u : 0u));
  }
  std::uint16_t sct_sc() const { return (status >> 1) & 0x7ff; }  // SCT 10:8, SC 7:0
  bool dnr() const { return (status & 0x8000u) != 0; }
};
static_assert(sizeof(Cqe) == 16);

}  // namespace furrow::nvme
