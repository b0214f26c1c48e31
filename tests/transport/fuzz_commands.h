// Commands that target_fuzz's scripts can say in a few bytes, as good hosts say them but for what
// the script wants otherwise: reservations, pairs of fused commands, and what disks and zones
// understand. The seeds (target_seeds.cc) write these scripts.
#pragma once

#include <cstring>

#include "tests/transport/fuzz_target.h"
#include "tests/transport/script.h"
#include "transport/nvme.h"
#include "transport/nvme_reservation.h"

namespace furrow::fuzz {

// What is sent: the data in the capsule where there is any, else the SGL says `length`.
struct FuzzCommand {
  nvme::Sqe sqe;
  Bytes data;
  std::uint32_t length = 0;
};

inline void append(Bytes& to, const void* from, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(from);
  to.insert(to.end(), begin, begin + bytes);
}

// Blocks that hold `tag`; tag 0: as they were before anybody wrote.
inline Bytes blocks_of(unsigned tag, std::size_t bytes) {
  return tag == 0 ? Bytes(bytes) : patterned(tag, bytes);
}

// Script: which of the four, namespace, action and IEKEY, type, two keys (of a few, or any), and
// whether CPTPL, EDS or the data's length are wrong.
inline FuzzCommand reservation_command(ScriptReader& script) {
  namespace wire = nvme::reservation;
  static constexpr std::uint8_t kOpcodes[] = {wire::kRegister, wire::kAcquire, wire::kRelease,
                                              wire::kReport};
  FuzzCommand out;
  out.sqe.opc = kOpcodes[script.choice(4)];
  out.sqe.nsid = kPages + script.choice(4);
  const std::uint32_t action = script.u8() & 0x0f, type = script.choice(8);
  const auto key = [&script] {
    const unsigned which = script.choice(6);
    return std::uint64_t{which < 5 ? which : script.number()};
  };
  const std::uint64_t keys[] = {key(), key()};
  if (out.sqe.opc == wire::kReport) {
    out.sqe.cdw10 = script.wrong() ? script.number() : 1023;
    out.sqe.cdw11 = script.wrong() ? 0 : wire::kExtended;
    out.length = script.wrong() ? script.number() : (out.sqe.cdw10 + 1) * 4;
    return out;
  }
  out.sqe.cdw10 = action;
  if (out.sqe.opc != wire::kRegister) out.sqe.cdw10 |= type << wire::kTypeShift;
  if (script.wrong()) out.sqe.cdw10 |= std::uint32_t{script.u8()} << wire::kPersistShift;
  append(out.data, keys, out.sqe.opc == wire::kRelease ? sizeof keys[0] : sizeof keys);
  if (script.wrong()) out.data.resize(script.u8());
  return out;
}

// Script: the opcode, where, how much, FUA, what it holds, and whether it comes by R2T.
inline FuzzCommand disk_command(ScriptReader& script) {
  static constexpr std::uint8_t kOpcodes[] = {
      nvme::nvm::kWrite, nvme::nvm::kRead,        nvme::nvm::kCompare,
      nvme::nvm::kFlush, nvme::nvm::kWriteZeroes, nvme::nvm::kDatasetManagement};
  FuzzCommand out;
  out.sqe.opc = kOpcodes[script.choice(6)];
  out.sqe.nsid = kDisk;
  const std::uint32_t lba = script.number(), lbas = 1 + script.u8();
  const bool fua = script.wrong();
  const unsigned tag = script.choice(4);
  const bool by_r2t = script.wrong();
  if (out.sqe.opc == nvme::nvm::kDatasetManagement) {
    const std::uint32_t ranges = 1 + lbas % 4;
    for (std::uint32_t i = 0; i < ranges; ++i) {
      const nvme::DatasetRange range{0, lbas + i, lba + i * 3};
      append(out.data, &range, sizeof range);
    }
    out.sqe.cdw10 = ranges - 1;
    out.sqe.cdw11 = nvme::nvm::kDeallocate;
    return out;
  }
  out.sqe.cdw10 = lba;
  out.sqe.cdw12 = (lbas - 1) | (fua ? nvme::nvm::kForceUnitAccess : 0);
  if (out.sqe.opc == nvme::nvm::kFlush || out.sqe.opc == nvme::nvm::kWriteZeroes) return out;
  out.length = lbas * kDiskLbaBytes;
  if (out.sqe.opc == nvme::nvm::kRead || by_r2t) return out;
  out.data = blocks_of(tag, std::min(out.length, 16384u));
  return out;
}

// Script: the opcode, zone, LBA in it, how much, action or report, and what it holds.
inline FuzzCommand zone_command(ScriptReader& script) {
  static constexpr std::uint8_t kOpcodes[] = {
      nvme::nvm::kWrite, nvme::zns::kAppend,         nvme::nvm::kRead,
      nvme::nvm::kFlush, nvme::zns::kManagementSend, nvme::zns::kManagementReceive};
  constexpr std::uint32_t kZoneLbas = 256;  // of fuzz_target.h's device
  FuzzCommand out;
  out.sqe.opc = kOpcodes[script.choice(6)];
  out.sqe.nsid = kZones;
  const std::uint32_t zone = script.choice(5), lba = script.number(), lbas = 1 + script.choice(32);
  const std::uint8_t action = script.u8();
  const bool all = script.wrong();
  const unsigned tag = script.choice(4);
  out.sqe.cdw10 = zone * kZoneLbas + lba;
  out.sqe.cdw12 = lbas - 1;
  if (out.sqe.opc == nvme::zns::kManagementSend) {
    out.sqe.cdw12 = 0;
    out.sqe.cdw13 = action % 8u | (all ? nvme::zns::kSelectAll : 0);
  } else if (out.sqe.opc == nvme::zns::kManagementReceive) {
    out.sqe.cdw12 = lbas * 128 / 4 - 1;
    out.sqe.cdw13 = std::uint32_t{action} << 8 | (all ? nvme::zns::kPartialReport : 0);
    out.length = lbas * 128;
  } else if (out.sqe.opc == nvme::nvm::kRead) {
    out.length = lbas * 512;
  } else if (out.sqe.opc != nvme::nvm::kFlush) {
    out.data = blocks_of(tag, lbas * 512);
  }
  return out;
}

// How a pair departs from Compare and Write as it should be: bits of the script's first byte.
enum PairShape : std::uint8_t {
  kNoFirst = 1,
  kNoSecond = 2,
  kSwapped = 4,
  kBetween = 8,  // a command of the script's
  kOtherRange = 16,
  kOtherNamespace = 32,
  kOtherOpcode = 64,
  kByR2t = 128,
};
struct FuzzPair {
  std::uint8_t shape = 0;
  FuzzCommand first, second;
};

// Script: shape, where, how much, what is expected and what is to be there, FUA.
inline FuzzPair fused_pair(ScriptReader& script) {
  FuzzPair out;
  out.shape = script.u8();
  const std::uint32_t lba = script.number(), lbas = 1 + script.choice(9);
  const unsigned expected = script.choice(4), wanted = script.choice(4);
  const bool fua = script.wrong();
  out.first.sqe.opc = nvme::nvm::kCompare;
  out.first.sqe.flags = nvme::kFuseFirst;
  out.second.sqe.opc = (out.shape & kOtherOpcode) != 0 ? nvme::nvm::kRead : nvme::nvm::kWrite;
  out.second.sqe.flags = nvme::kFuseSecond;
  for (FuzzCommand* command : {&out.first, &out.second}) {
    command->sqe.nsid = kDisk;
    command->sqe.cdw10 = lba;
    command->sqe.cdw12 = lbas - 1;
    command->length = lbas * kDiskLbaBytes;
  }
  if (fua) out.second.sqe.cdw12 |= nvme::nvm::kForceUnitAccess;
  if ((out.shape & kOtherRange) != 0) out.second.sqe.cdw10 += 1;
  if ((out.shape & kOtherNamespace) != 0) out.second.sqe.nsid = kZones;
  if ((out.shape & kByR2t) != 0) return out;
  out.first.data = blocks_of(expected, out.first.length);
  out.second.data = blocks_of(wanted, out.second.length);
  return out;
}

}  // namespace furrow::fuzz
