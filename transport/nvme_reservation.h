// NVMe structures of reservations (Base specification 2.0, 7.2 to 7.5 and 8.19). As in nvme.h they
// are their own codec.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/nvme.h"

namespace furrow::nvme::reservation {

// I/O opcodes, of every command set.
inline constexpr std::uint8_t kRegister = 0x0D, kReport = 0x0E, kAcquire = 0x11, kRelease = 0x15;
constexpr bool is_reservation(std::uint8_t opcode) {
  return opcode == kRegister || opcode == kReport || opcode == kAcquire || opcode == kRelease;
}

// CDW10 of Register, Acquire and Release: action 2:0, IEKEY 3. Acquire and Release: RTYPE 15:8.
inline constexpr std::uint32_t kActionMask = 7, kIgnoreExistingKey = 1u << 3;
inline constexpr std::uint32_t kTypeShift = 8;
// CDW10 of Register, 31:30: CPTPL.
inline constexpr std::uint32_t kPersistShift = 30, kPersistKeep = 0, kPersistReserved = 1,
                               kPersistOff = 2, kPersistOn = 3;
// CDW11 of Report.
inline constexpr std::uint32_t kExtended = 1;

// Identify Namespace, RESCAP: Persist Through Power Loss; all types; IEKEY as in revision 1.3 and
// later.
inline constexpr std::uint8_t kCapabilities = 0xFF;

struct RegisterData {
  std::uint64_t crkey = 0, nrkey = 0;
};
struct AcquireData {
  std::uint64_t crkey = 0, prkey = 0;
};
struct ReleaseData {
  std::uint64_t crkey = 0;
};

// Reservation Status Extended Data Structure: this header, then one of the others for each host.
struct StatusHeader {
  std::uint32_t gen = 0;
  std::uint8_t rtype = 0, regctl[2]{}, reserved7[2]{}, ptpls = 0, reserved10[54]{};
};
struct RegisteredController {
  std::uint16_t cntlid = kCntlidDynamic;
  std::uint8_t rcsts = 0, reserved3[5]{};  // bit 0: holds the reservation
  std::uint64_t rkey = 0;
  std::uint8_t hostid[16]{}, reserved32[32]{};
};
static_assert(sizeof(StatusHeader) == 64 && offsetof(StatusHeader, ptpls) == 9);
static_assert(sizeof(RegisteredController) == 64 && offsetof(RegisteredController, hostid) == 16);

// Reservation Notification log page.
struct NotificationLog {
  std::uint64_t count = 0;  // of all so far, this one included; 0: there is none
  std::uint8_t type = 0, more = 0, reserved10[2]{};
  std::uint32_t nsid = 0;
  std::uint8_t reserved16[48]{};
};
static_assert(sizeof(NotificationLog) == 64 && offsetof(NotificationLog, nsid) == 12);

}  // namespace furrow::nvme::reservation
