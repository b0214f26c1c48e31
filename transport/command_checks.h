// Checks that every command goes through, and what a status means for a retry.
#pragma once

#include <cstdint>
#include <new>
#include <utility>

#include "transport/connection.h"
#include "transport/nvme.h"

namespace furrow::transport {

// PSDT (Base specification, figure "Command Dword 0"): a fabrics host describes data by an SGL.
inline std::uint16_t check_psdt(const nvme::Sqe& command) {
  const bool sgl = (command.flags & nvme::kPsdtMask) == nvme::kPsdtSgl;
  return sgl ? nvme::sc::kSuccess : nvme::sc::kInvalidField;
}

// The same, of a command that is no part of a fused operation (FUSE).
inline std::uint16_t check_command(const nvme::Sqe& command) {
  if ((command.flags & nvme::kFuseMask) != 0) return nvme::sc::kInvalidField;
  return check_psdt(command);
}

// What a command's data takes may be as much as its host says, and not be there: it is to be sent
// again then. Of a step that nothing has come of where it throws.
template <class Step>
std::uint16_t or_interrupted(Step&& step) {
  try {
    return std::forward<Step>(step)();
  } catch (const std::bad_alloc&) {
    return nvme::sc::kCommandInterrupted;
  }
}

// Bits 1:0 of an opcode (or of a fabrics command type) say whether data is transferred, and where
// to.
inline bool transfers_data(std::uint8_t opcode) { return (opcode & 3) != 0; }
inline bool transfers_to_target(const nvme::Sqe& command) {
  return ((command.opc == nvme::opcode::kFabrics ? command.fctype() : command.opc) & 3) == 1;
}

// The SGL descriptor of a command that transfers data. Of no data, it says nothing that matters.
inline std::uint16_t check_sgl(const Request& request) {
  const nvme::Sqe& command = request.command;
  if (request.data_bytes == 0) return nvme::sc::kSuccess;
  if (command.sgl_type == nvme::kSglTransport) return nvme::sc::kSuccess;
  if (command.sgl_type != nvme::kSglInCapsule) return nvme::sc::kSglTypeInvalid;
  if (!transfers_to_target(command)) return nvme::sc::kSglTypeInvalid;  // a capsule goes one way
  if (command.sgl_address != 0) return nvme::sc::kSglOffsetInvalid;     // ICDOFF is 0
  if (!request.data_in_capsule) return nvme::sc::kDataSglLengthInvalid;
  return nvme::sc::kSuccess;
}

// The DNR bit: set when the same command must fail again. Never on what time can heal.
inline bool do_not_retry(std::uint16_t status) {
  switch (status) {
    case nvme::sc::kSuccess:
    case nvme::sc::kInternalError:
    case nvme::sc::kAbortRequested:
    case nvme::sc::kAbortedSqDeletion:
    case nvme::sc::kFailedFused:  // the other command says whether
    case nvme::sc::kWriteFault:   // the next write goes to another zone
    case nvme::sc::kCommandInterrupted:
    case nvme::sc::kTransientTransportError:
    case nvme::sc::kCapacityExceeded:
    case nvme::sc::kNamespaceNotReady:
    case nvme::sc::kAsyncEventLimit:
    case nvme::sc::kAbortLimit:
    case nvme::sc::kControllerBusy:
      return false;
    default:
      return true;
  }
}

// What the target could not do just now. A host that understands CRD is told to wait, as it would
// soon give up otherwise: Linux sends such a command again at once, and five times.
inline bool wants_delay(std::uint16_t status) {
  return status == nvme::sc::kTransientTransportError || status == nvme::sc::kCommandInterrupted ||
         status == nvme::sc::kNamespaceNotReady;
}

}  // namespace furrow::transport
