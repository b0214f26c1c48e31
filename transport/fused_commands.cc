#include "transport/fused_commands.h"

#include <algorithm>
#include <utility>

#include "transport/command_checks.h"
#include "transport/io_commands.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

namespace {

std::uint32_t landing_bytes(const Request& request, std::uint64_t bytes) {
  return std::max(static_cast<std::uint32_t>(bytes), request.data_bytes);
}
// Of the second command's data, in the pair's buffer: where a device may write from.
std::uint32_t offset_of_second(const Request& first) {
  constexpr auto kAlign = static_cast<std::uint32_t>(kBlockPageBytes);
  return (first.data_bytes + kAlign - 1) / kAlign * kAlign;
}

bool same_range(const nvme::Sqe& a, const nvme::Sqe& b) {
  return a.nsid == b.nsid && a.cdw10 == b.cdw10 && a.cdw11 == b.cdw11 &&
         (a.cdw12 & 0xffff) == (b.cdw12 & 0xffff);
}

}  // namespace

void FusedCommands::execute(LocalNamespace* ns, Request& request) {
  const bool is_second = (request.command.flags & nvme::kFuseMask) == nvme::kFuseSecond;
  Queue& queue = Queue::of(request);
  Request* const waiting = queue.fused_first;
  const bool first_failed = std::exchange(queue.fused_first_failed, false);
  std::uint16_t status = sc::kSuccess;
  if (ns == nullptr) {
    status = sc::kInvalidNamespaceOrFormat;
  } else if (check_psdt(request.command) != sc::kSuccess || ns->shared->csi() != nvme::csi::kNvm ||
             request.command.opc != (is_second ? nvme::nvm::kWrite : nvme::nvm::kCompare)) {
    status = sc::kInvalidField;  // no such fused operation
  } else if (is_second && waiting == nullptr) {
    status = first_failed ? sc::kFailedFused : sc::kMissingFused;
  }
  if (status != sc::kSuccess) {
    if (waiting != nullptr) {
      const bool gone = ns == nullptr && waiting->command.nsid == request.command.nsid;
      give_up_first(queue, gone ? status : sc::kFailedFused);
    }
    queue.fused_first_failed = !is_second;
    return io_.complete(request, status);
  }
  if (is_second) return second(*ns, request);
  queue.fused_first = &request;
}

void FusedCommands::give_up_first(Queue& queue, std::uint16_t status) {
  Request* const first = std::exchange(queue.fused_first, nullptr);
  if (first != nullptr) io_.complete(*first, status);
}

void FusedCommands::second(LocalNamespace& ns, Request& request) {
  Request& first = *std::exchange(Queue::of(request).fused_first, nullptr);
  ns.in_flight += 2;
  first.context = request.context = &ns;
  first.fused = &request;
  request.fused = &first;
  begin_pair(ns, first, request);
}

// Of one command of a pair.
std::uint16_t FusedCommands::check(const Request& request, std::uint64_t bytes) const {
  if (const auto status = io_.check_data(request); status != sc::kSuccess) return status;
  if (request.data_bytes > kDataBytesMax) return sc::kInvalidField;
  return request.data_bytes < bytes ? sc::kDataSglLengthInvalid : sc::kSuccess;
}

void FusedCommands::begin_pair(LocalNamespace& ns, Request& first, Request& second) {
  if (!same_range(first.command, second.command)) {
    return complete(first, sc::kInvalidField, sc::kInvalidField);
  }
  const Namespace& shared = *ns.shared;
  io_.nvm().prepare(first, BlockOp::Kind::compare_and_write);
  BlockOp& op = first.block_op;
  first.cached = false;  // the second is what writes
  op.durability = NvmCommands::durability_of(second);
  if (NvmCommands::durability_of(first) == Durability::flushed) op.durability = Durability::flushed;
  op.on_done = &FusedCommands::done;
  if (const auto status = NvmCommands::take_range(shared, first); status != sc::kSuccess) {
    return complete(first, status, sc::kFailedFused);
  }
  const std::uint64_t lbas_of_block = kBlockPageBytes / shared.block_lba_bytes;
  if (op.lba / lbas_of_block != (op.lba + op.count - 1) / lbas_of_block) {
    return complete(first, sc::kAtomicWriteUnitExceeded, sc::kFailedFused);
  }
  const std::uint64_t bytes = op.count * shared.block_lba_bytes;
  const std::uint16_t its = check(first, bytes), seconds = check(second, bytes);
  if (its != sc::kSuccess || seconds != sc::kSuccess) {
    return complete(first, its != sc::kSuccess ? its : sc::kFailedFused,
                    seconds != sc::kSuccess ? seconds : sc::kFailedFused);
  }
  if (const auto status = io_.begin(first); status != sc::kSuccess) {
    return complete(first, status, sc::kFailedFused);
  }
  io_.with_buffer(first, offset_of_second(first) + landing_bytes(second, bytes));
}

// One after the other: the second is only asked for when the first is there.
void FusedCommands::start(Request& first) {
  BlockOp& op = first.block_op;
  op.expected = first.buffer;
  op.data = first.buffer + offset_of_second(first);
  op.buffer_index = first.buffer_index;
  io_.pull(first, &FusedCommands::first_pulled);
}

void FusedCommands::first_pulled(Request& first) {
  IoCommands& io = Queue::of(first).reactor->io();
  io.pause(first);
  Request& second = *first.fused;
  second.on_pulled = &FusedCommands::second_pulled;
  second.connection->pull(second, first.block_op.data);
}

void FusedCommands::second_pulled(Request& second) {
  const Queue& queue = Queue::of(second);
  IoCommands& io = queue.reactor->io();
  Request& first = *second.fused;
  if (!second.pull_status.ok()) {
    return io.fused().complete(first, sc::kFailedFused, sc::kTransientTransportError);
  }
  if (queue.state == Queue::State::closing) {
    return io.fused().complete(first, sc::kAbortedSqDeletion, sc::kAbortedSqDeletion);
  }
  if (const auto status = io.begin(first); status != sc::kSuccess) {
    return io.fused().complete(first, status, sc::kFailedFused);
  }
  io.nvm().submit(first);
}

void FusedCommands::done(BlockOp& op) {
  Request& first = *static_cast<Request*>(op.context);
  Queue::of(first).reactor->io().fused().finish(first);
}

void FusedCommands::finish(Request& first) {
  const BlockOp& op = first.block_op;
  const std::uint16_t status = NvmCommands::status_of(op);
  if (!op.status.ok() && op.equal) {  // compared, and not written
    return complete(first, sc::kFailedFused, status);
  }
  if (status != sc::kSuccess) return complete(first, status, sc::kFailedFused);
  ReactorImpl::Counters& counters = io_.reactor().counters();
  counters.host_writes.add();
  counters.bytes_written.add(op.count * IoCommands::namespace_of(first).shared->block_lba_bytes);
  complete(first, sc::kSuccess, sc::kSuccess);
}

void FusedCommands::complete(Request& first, std::uint16_t its, std::uint16_t seconds) {
  Request& second = *std::exchange(first.fused, nullptr);
  second.fused = nullptr;
  io_.complete(first, its);
  io_.complete(second, seconds);
}

}  // namespace furrow::transport
