// The NVM Command Set specification 1.0, section 3.2.
#include "transport/nvm_commands.h"

#include <algorithm>
#include <cstring>

#include "transport/io_commands.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

std::uint32_t range_count(const nvme::Sqe& command) { return (command.cdw10 & 0xff) + 1; }

}  // namespace

std::uint16_t NvmCommands::status_of(const BlockOp& op) {
  using enum BlockOp::Kind;
  const bool reads =
      op.kind == read || op.kind == compare || (op.kind == compare_and_write && !op.equal);
  switch (op.status.code()) {
    case Code::ok:
      return op.equal ? sc::kSuccess : sc::kCompareFailure;
    case Code::invalid_argument:
      return sc::kLbaOutOfRange;
    case Code::no_space:
      return sc::kCapacityExceeded;
    case Code::corrupt:
      return sc::kUnrecoveredRead;
    case Code::io_error:
      return reads ? sc::kUnrecoveredRead : sc::kWriteFault;
    case Code::permission:
      return sc::kWriteProtected;
    case Code::busy:
    case Code::late:
      return sc::kNamespaceNotReady;
    case Code::aborted:  // BlockOp::wanted
      return sc::kAbortedSqDeletion;
    default:
      return sc::kInternalError;
  }
}

void NvmCommands::execute(LocalNamespace& ns, Request& request) {
  switch (request.command.opc) {
    case nvme::nvm::kFlush:
      return flush(request);
    case nvme::nvm::kWrite:
      return transfer(ns, request, BlockOp::Kind::write);
    case nvme::nvm::kRead:
      return transfer(ns, request, BlockOp::Kind::read);
    case nvme::nvm::kCompare:
      return transfer(ns, request, BlockOp::Kind::compare);
    case nvme::nvm::kWriteZeroes:
      return write_zeroes(ns, request);
    case nvme::nvm::kDatasetManagement:
      return manage_datasets(ns, request);
    default:
      return io_.complete(request, sc::kInvalidOpcode);
  }
}

Durability NvmCommands::durability_of(Request& request) {
  const bool fua = (request.command.cdw12 & nvme::nvm::kForceUnitAccess) != 0;
  const std::uint8_t opcode = request.command.opc;
  if (opcode == nvme::nvm::kRead || opcode == nvme::nvm::kCompare) {
    return IoCommands::durability_of_read(fua);
  }
  return IoCommands::durability_of(request, fua);
}

void NvmCommands::prepare(Request& request, BlockOp::Kind kind) {
  BlockOp& op = request.block_op;
  op.kind = kind;
  op.durability = durability_of(request);
  op.lba = op.count = 0;
  op.data = nullptr;
  op.expected = nullptr;
  op.buffer_index = -1;
  // What a host that is gone had asked for must not go on when it is back, and has all of it done
  // again: it would undo what is written then.
  op.wanted = [](const BlockOp& asked) {
    return Queue::of(*static_cast<Request*>(asked.context)).state != Queue::State::closing;
  };
  op.on_done = &NvmCommands::done;
  op.context = &request;
}

std::uint16_t NvmCommands::take_range(const Namespace& ns, Request& request) {
  const nvme::Sqe& command = request.command;
  BlockOp& op = request.block_op;
  op.lba = std::uint64_t{command.cdw11} << 32 | command.cdw10;
  op.count = (command.cdw12 & 0xffff) + 1;
  return op.lba >= ns.lbas() || op.count > ns.lbas() - op.lba ? sc::kLbaOutOfRange : sc::kSuccess;
}

void NvmCommands::submit(Request& request) {
  io_.blocks().submit(*IoCommands::namespace_of(request).shared->store, request.block_op);
}

// Read, Write and Compare.
void NvmCommands::transfer(LocalNamespace& ns, Request& request, BlockOp::Kind kind) {
  if (const auto status = io_.check_data(request); status != sc::kSuccess) {
    return io_.complete(request, status);
  }
  prepare(request, kind);
  if (const auto status = take_range(*ns.shared, request); status != sc::kSuccess) {
    return io_.complete(request, status);
  }
  const std::uint64_t bytes = request.block_op.count * ns.shared->block_lba_bytes;
  if (bytes > io_.transfer_bytes_max()) return io_.complete(request, sc::kInvalidField);
  if (request.data_bytes < bytes) return io_.complete(request, sc::kDataSglLengthInvalid);
  // A host may describe more than it transfers; all that it sends has to land.
  const auto wanted = static_cast<std::uint32_t>(bytes);
  io_.with_buffer(request,
                  kind == BlockOp::Kind::read ? wanted : std::max(wanted, request.data_bytes));
}

void NvmCommands::write_zeroes(LocalNamespace& ns, Request& request) {
  prepare(request, BlockOp::Kind::write_zeroes);
  if (const auto status = take_range(*ns.shared, request); status != sc::kSuccess) {
    return io_.complete(request, status);
  }
  submit(request);
}

void NvmCommands::flush(Request& request) {
  prepare(request, BlockOp::Kind::flush);
  submit(request);
}

// Attributes other than Deallocate are hints, for which there is nothing to do.
void NvmCommands::manage_datasets(LocalNamespace&, Request& request) {
  if (const auto status = io_.check_data(request); status != sc::kSuccess) {
    return io_.complete(request, status);
  }
  const std::uint32_t bytes =
      range_count(request.command) * static_cast<std::uint32_t>(sizeof(nvme::DatasetRange));
  if (request.data_bytes < bytes) return io_.complete(request, sc::kDataSglLengthInvalid);
  io_.with_buffer(request, std::max(bytes, request.data_bytes));
}

void NvmCommands::start(Request& request) {
  if (request.command.opc == nvme::nvm::kDatasetManagement) {
    return io_.pull(request, &NvmCommands::ranges_pulled);
  }
  BlockOp& op = request.block_op;
  op.data = request.buffer;
  op.buffer_index = request.buffer_index;
  if (op.kind == BlockOp::Kind::read) return submit(request);
  io_.pull(request, &NvmCommands::data_pulled);
}

void NvmCommands::data_pulled(Request& request) {
  Queue::of(request).reactor->io().nvm().submit(request);
}

// All ranges are looked at before anything is deallocated.
void NvmCommands::ranges_pulled(Request& request) {
  IoCommands& io = Queue::of(request).reactor->io();
  const Namespace& ns = *IoCommands::namespace_of(request).shared;
  for (std::uint32_t i = 0; i < range_count(request.command); ++i) {
    nvme::DatasetRange range;
    std::memcpy(&range, request.buffer + i * sizeof range, sizeof range);
    if (range.slba > ns.lbas() || range.nlb > ns.lbas() - range.slba) {
      return io.complete(request, sc::kLbaOutOfRange);
    }
  }
  if ((request.command.cdw11 & nvme::nvm::kDeallocate) == 0) {
    return io.complete(request, sc::kSuccess);
  }
  io.nvm().prepare(request, BlockOp::Kind::discard);
  // Where it has to be durable, one flush for all ranges makes it so: IoCommands::complete().
  request.block_op.durability = Durability::none;
  request.cached = true;
  request.progress = 0;
  io.nvm().next_range(request);
}

void NvmCommands::next_range(Request& request) {
  while (request.progress < range_count(request.command)) {
    nvme::DatasetRange range;
    std::memcpy(&range, request.buffer + request.progress * sizeof range, sizeof range);
    ++request.progress;
    if (range.nlb == 0) continue;
    request.block_op.lba = range.slba;
    request.block_op.count = range.nlb;
    return submit(request);
  }
  io_.complete(request, sc::kSuccess);
}

void NvmCommands::done(BlockOp& op) {
  Request& request = *static_cast<Request*>(op.context);
  Queue::of(request).reactor->io().nvm().finish(request);
}

void NvmCommands::finish(Request& request) {
  const BlockOp& op = request.block_op;
  const std::uint16_t status = status_of(op);
  if (status != sc::kSuccess) return io_.complete(request, status);
  if (request.command.opc == nvme::nvm::kDatasetManagement) return next_range(request);
  const std::uint64_t bytes = op.count * IoCommands::namespace_of(request).shared->block_lba_bytes;
  ReactorImpl::Counters& counters = io_.reactor().counters();
  if (op.kind == BlockOp::Kind::write) {
    counters.host_writes.add();
    counters.bytes_written.add(bytes);
  }
  if (op.kind != BlockOp::Kind::read) return io_.complete(request, sc::kSuccess);
  counters.host_reads.add();
  counters.bytes_read.add(bytes);
  io_.push(request, static_cast<std::uint32_t>(bytes));
}

}  // namespace furrow::transport
