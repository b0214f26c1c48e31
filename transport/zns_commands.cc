// The Zoned Namespace Command Set specification 1.1, section 3; Read, Write and Flush as in the NVM
// Command Set specification 1.0.
#include "transport/zns_commands.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/zoned/zoned_session.h"
#include "transport/io_commands.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

std::optional<ZonedOp::Kind> kind_of(std::uint8_t action) {
  switch (action) {
    case nvme::zns::kActionClose:
      return ZonedOp::Kind::close;
    case nvme::zns::kActionFinish:
      return ZonedOp::Kind::finish;
    case nvme::zns::kActionOpen:
      return ZonedOp::Kind::open;
    case nvme::zns::kActionReset:
      return ZonedOp::Kind::reset;
    case nvme::zns::kActionOffline:
      return ZonedOp::Kind::set_offline;
    default:
      return std::nullopt;
  }
}

// Zone Receive Action Specific field of a report (3.4.2.2.1): those in one state.
std::optional<ZoneState> reported_state(std::uint8_t options) {
  constexpr ZoneState kStates[] = {
      ZoneState::empty, ZoneState::implicitly_open, ZoneState::explicitly_open, ZoneState::closed,
      ZoneState::full,  ZoneState::read_only,       ZoneState::offline};
  if (options == 0 || options > std::size(kStates)) return std::nullopt;
  return kStates[options - 1];
}
constexpr std::uint8_t kReportOptionsMax = 7;

nvme::ZoneDescriptor descriptor(const Geometry& geometry, const ZoneInfo& zone) {
  const std::uint64_t start = geometry.zone_start(zone.zone).value;
  const bool has_pointer = zone.state == ZoneState::empty || is_active(zone.state);
  nvme::ZoneDescriptor out;
  out.type = nvme::zns::kTypeSequential;
  out.state = static_cast<std::uint8_t>(static_cast<std::uint8_t>(zone.state) << 4);
  out.zcap = geometry.zone_capacity_lbas;
  out.zslba = start;
  out.wp = has_pointer ? start + zone.written_lbas : ~std::uint64_t{0};
  return out;
}

std::uint64_t slba_of(const nvme::Sqe& command) {
  return std::uint64_t{command.cdw11} << 32 | command.cdw10;
}

}  // namespace

// What the zone's state does not allow says so itself, and so does a drive.
std::uint16_t ZnsCommands::status_of(const ZonedOp& op) {
  if (op.status.ok()) return sc::kSuccess;
  if (op.status.nvme() != 0) return op.status.nvme();
  switch (op.status.code()) {
    case Code::invalid_argument:
      return sc::kInvalidField;
    case Code::not_found:
      return sc::kInvalidNamespaceOrFormat;
    case Code::permission:
      return sc::kWriteProtected;
    case Code::no_space:
      return sc::kCapacityExceeded;
    case Code::io_error:
      return op.kind == ZonedOp::Kind::read ? sc::kUnrecoveredRead : sc::kWriteFault;
    case Code::aborted:  // ZonedOp::wanted
      return sc::kAbortedSqDeletion;
    default:
      return sc::kInternalError;
  }
}

void ZnsCommands::execute(LocalNamespace& ns, Request& request) {
  switch (request.command.opc) {
    case nvme::nvm::kFlush:
      prepare(request, ZonedOp::Kind::flush);
      return submit(request);
    case nvme::nvm::kWrite:
      return transfer(*ns.shared, request, ZonedOp::Kind::write);
    case nvme::nvm::kRead:
      return transfer(*ns.shared, request, ZonedOp::Kind::read);
    case nvme::zns::kAppend:
      return transfer(*ns.shared, request, ZonedOp::Kind::append);
    case nvme::zns::kManagementSend:
      return manage(request);
    case nvme::zns::kManagementReceive:
      return receive(*ns.shared, request);
    default:
      return io_.complete(request, sc::kInvalidOpcode);
  }
}

void ZnsCommands::prepare(Request& request, ZonedOp::Kind kind) {
  ZonedOp& op = request.zoned_op;
  const bool fua = (request.command.cdw12 & nvme::nvm::kForceUnitAccess) != 0;
  op.kind = kind;
  op.all = false;
  op.durability = kind == ZonedOp::Kind::read ? IoCommands::durability_of_read(fua)
                                              : IoCommands::durability_of(request, fua);
  op.lba = slba_of(request.command);
  op.count = 0;
  op.data = nullptr;
  op.buffer_index = -1;
  op.wanted = [](const ZonedOp& asked) {  // as of NvmCommands
    return Queue::of(*static_cast<Request*>(asked.context)).state != Queue::State::closing;
  };
  op.on_done = &ZnsCommands::done;
  op.context = &request;
}

void ZnsCommands::submit(Request& request) {
  io_.zoned().submit(*IoCommands::namespace_of(request).shared->store, request.zoned_op);
}

// Read, Write and Zone Append. The range is the volume's to judge, with the zone's state; only what
// no buffer would be for is refused here.
void ZnsCommands::transfer(const Namespace& ns, Request& request, ZonedOp::Kind kind) {
  if (const auto status = io_.check_data(request); status != sc::kSuccess) {
    return io_.complete(request, status);
  }
  prepare(request, kind);
  ZonedOp& op = request.zoned_op;
  op.count = (request.command.cdw12 & 0xffff) + 1;
  if (op.lba >= ns.lbas() || op.count > ns.lbas() - op.lba) {
    return io_.complete(request, sc::kLbaOutOfRange);
  }
  const std::uint64_t bytes = op.count * ns.lba_bytes;
  if (bytes > io_.transfer_bytes_max()) return io_.complete(request, sc::kInvalidField);
  if (request.data_bytes < bytes) return io_.complete(request, sc::kDataSglLengthInvalid);
  const auto wanted = static_cast<std::uint32_t>(bytes);
  io_.with_buffer(request,
                  kind == ZonedOp::Kind::read ? wanted : std::max(wanted, request.data_bytes));
}

void ZnsCommands::manage(Request& request) {
  const std::uint32_t how = request.command.cdw13;
  const auto kind = kind_of(static_cast<std::uint8_t>(how));
  // Zones have no descriptor extensions, and no random write area.
  if (!kind || (how & nvme::zns::kSendOptions) != 0) {
    return io_.complete(request, sc::kInvalidField);
  }
  prepare(request, *kind);
  request.zoned_op.all = (how & nvme::zns::kSelectAll) != 0;
  submit(request);
}

void ZnsCommands::receive(const Namespace& ns, Request& request) {
  const nvme::Sqe& command = request.command;
  if (const auto status = io_.check_data(request); status != sc::kSuccess) {
    return io_.complete(request, status);
  }
  const auto action = static_cast<std::uint8_t>(command.cdw13);
  const auto options = static_cast<std::uint8_t>(command.cdw13 >> 8);
  if (action != nvme::zns::kReportZones || options > kReportOptionsMax) {
    return io_.complete(request, sc::kInvalidField);
  }
  if (slba_of(command) >= ns.lbas()) return io_.complete(request, sc::kLbaOutOfRange);
  const std::uint64_t bytes = (std::uint64_t{command.cdw12} + 1) * 4;
  if (bytes > io_.transfer_bytes_max()) return io_.complete(request, sc::kInvalidField);
  if (request.data_bytes < bytes) return io_.complete(request, sc::kDataSglLengthInvalid);
  io_.with_buffer(request, static_cast<std::uint32_t>(bytes));
}

void ZnsCommands::start(Request& request) {
  if (request.command.opc == nvme::zns::kManagementReceive) {
    return report(*IoCommands::namespace_of(request).shared, request);
  }
  ZonedOp& op = request.zoned_op;
  op.data = request.buffer;
  op.buffer_index = request.buffer_index;
  if (op.kind == ZonedOp::Kind::read) return submit(request);
  io_.pull(request, &ZnsCommands::data_pulled);
}

void ZnsCommands::data_pulled(Request& request) {
  Queue::of(request).reactor->io().zns().submit(request);
}

// As many descriptors as have room; how many zones there are of the kind that was asked for, or
// with Partial Report how many of these are in the buffer.
void ZnsCommands::report(const Namespace& ns, Request& request) {
  const nvme::Sqe& command = request.command;
  const auto bytes = static_cast<std::uint32_t>((command.cdw12 + 1) * 4);
  const bool partial = (command.cdw13 & nvme::zns::kPartialReport) != 0;
  const auto wanted = reported_state(static_cast<std::uint8_t>(command.cdw13 >> 8));
  const Geometry geometry = zoned_geometry(*ns.store);
  nvme::ZoneReportHeader header;
  std::memset(request.buffer, 0, bytes);
  std::uint64_t at = sizeof header;
  for (std::uint32_t i = geometry.zone_of(Lba{slba_of(command)}).value; i < geometry.zone_count;
       ++i) {
    const ZoneInfo zone = zoned_zone(*ns.store, i);
    if (wanted && zone.state != *wanted) continue;
    const bool fits = at + sizeof(nvme::ZoneDescriptor) <= bytes;
    if (!fits && partial) break;
    ++header.zones;
    if (!fits) continue;
    const nvme::ZoneDescriptor out = descriptor(geometry, zone);
    std::memcpy(request.buffer + at, &out, sizeof out);
    at += sizeof out;
  }
  std::memcpy(request.buffer, &header, std::min<std::size_t>(bytes, sizeof header));
  io_.push(request, bytes);
}

void ZnsCommands::done(ZonedOp& op) {
  Request& request = *static_cast<Request*>(op.context);
  Queue::of(request).reactor->io().zns().finish(request);
}

void ZnsCommands::finish(Request& request) {
  const ZonedOp& op = request.zoned_op;
  const std::uint16_t status = status_of(op);
  if (status != sc::kSuccess) {
    const PageStore& store = *IoCommands::namespace_of(request).shared->store;
    if (zones_changed(store)) io_.reactor().subsystem().zones_changed();
    return io_.complete(request, status);
  }
  const std::uint64_t bytes = op.count * IoCommands::namespace_of(request).shared->lba_bytes;
  ReactorImpl::Counters& counters = io_.reactor().counters();
  if (op.kind == ZonedOp::Kind::read) {
    counters.host_reads.add();
    counters.bytes_read.add(bytes);
    return io_.push(request, static_cast<std::uint32_t>(bytes));
  }
  if (op.kind == ZonedOp::Kind::write || op.kind == ZonedOp::Kind::append) {
    counters.host_writes.add();
    counters.bytes_written.add(bytes);
  }
  if (op.kind == ZonedOp::Kind::append) {
    request.completion.dw0 = static_cast<std::uint32_t>(op.appended_at);
    request.completion.dw1 = static_cast<std::uint32_t>(op.appended_at >> 32);
  }
  io_.complete(request, sc::kSuccess);
}

}  // namespace furrow::transport
