// Fabrics commands on an admin queue: Property Get and Set, and what is refused there.
#include "transport/command_checks.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {
constexpr std::uint32_t kVersion = 0x00020000;     // 2.0.0
constexpr std::uint64_t kTimeoutHalfSeconds = 30;  // CAP.TO and CRTO: above the quiesce time-out
}  // namespace

void Controller::fabrics(Request& request) {
  switch (request.command.fctype()) {
    case nvme::fabrics::kPropertyGet:
      return property_get(request);
    case nvme::fabrics::kPropertySet:
      return property_set(request);
    case nvme::fabrics::kConnect:  // never twice on a queue
      return fail(request, sc::kCommandSequenceError);
    case nvme::fabrics::kDisconnect:  // of I/O queues only
      return fail(request, sc::kInvalidQueueType);
    default:
      return fail(request, sc::kInvalidOpcode);
  }
}

std::uint64_t Controller::capabilities() const {
  const std::uint64_t mqes = subsystem_.options().io_queue_entries_max - 1;
  const std::uint64_t contiguous_queues_required = 1ull << 16;
  // The discovery controller has no I/O command set; the other one tells its sets by Identify.
  const std::uint64_t css =
      kind_ == Kind::discovery ? nvme::kCapCssAdminOnly : nvme::kCapCssAll | nvme::kCapCssNvm;
  return mqes | contiguous_queues_required | kTimeoutHalfSeconds << 24 | css | nvme::kCapCrwms;
}

void Controller::property_get(Request& request) {
  const nvme::Sqe& command = request.command;
  const bool eight_bytes = (command.cdw10 & 7) == 1;
  if ((command.cdw10 & 7) > 1) return fail(request, sc::kInvalidField);
  if (eight_bytes) {
    if (command.cdw11 != nvme::property::kCap) return fail(request, sc::kInvalidField);
    const std::uint64_t cap = capabilities();
    request.completion.dw1 = static_cast<std::uint32_t>(cap >> 32);
    return succeed(request, static_cast<std::uint32_t>(cap));
  }
  switch (command.cdw11) {
    case nvme::property::kVs:
      return succeed(request, kVersion);
    case nvme::property::kCc:
      return succeed(request, cc_);
    case nvme::property::kCsts:
      return succeed(request, csts_);
    case nvme::property::kCrto:
      return succeed(request, static_cast<std::uint32_t>(kTimeoutHalfSeconds));
    default:
      return fail(request, sc::kInvalidField);
  }
}

void Controller::property_set(Request& request) {
  const nvme::Sqe& command = request.command;
  if ((command.cdw10 & 7) != 0 || command.cdw11 != nvme::property::kCc) {
    return fail(request, sc::kInvalidField);
  }
  const std::uint16_t status = set_configuration(command.cdw12);
  if (status != sc::kSuccess) return fail(request, status);
  succeed(request);
}

}  // namespace furrow::transport
