#include "transport/io_commands.h"

#include <utility>

#include "transport/command_checks.h"
#include "transport/nvme_reservation.h"
#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

IoCommands::IoCommands(ReactorImpl& reactor, std::unique_ptr<PageSession> session,
                       std::uint64_t buffer_bytes_max, std::uint32_t transfer_bytes_max)
    : reactor_(reactor),
      session_(std::move(session)),
      blocks_(*session_, reactor.executor()),
      zoned_(*session_, reactor.executor()),
      kv_(*this),
      nvm_(*this),
      fused_(*this),
      zns_(*this),
      reservations_(reactor),
      buffers_(buffer_bytes_max, transfer_bytes_max),
      transfer_bytes_max_(transfer_bytes_max) {
  // A kernel that will not pin this much (RLIMIT_MEMLOCK) serves unregistered buffers as well.
  const iovec slab = buffers_.slab();
  registered_ = session_->register_buffers({&slab, 1}).ok();
}

void IoCommands::execute(Request& request) {
  request.context = nullptr;
  request.buffer = nullptr;
  request.fused = nullptr;
  request.cached = false;
  const nvme::Sqe& command = request.command;
  const std::uint8_t fuse = command.flags & nvme::kFuseMask;
  LocalNamespace* ns = find(command.nsid);
  if (ns != nullptr && !Queue::of(request).command_sets.has(ns->shared->csi())) ns = nullptr;
  if (fuse == nvme::kFuseFirst || fuse == nvme::kFuseSecond) return fused_.execute(ns, request);
  if (const auto status = check_command(command); status != sc::kSuccess) {
    return complete(request, status);
  }
  if (ns == nullptr) return complete(request, sc::kInvalidNamespaceOrFormat);
  if (nvme::reservation::is_reservation(command.opc)) {
    return reservations_.execute(ns->shared, request);
  }
  ++ns->in_flight;
  request.context = ns;
  if (const auto status = begin(request); status != sc::kSuccess) {
    return complete(request, status);
  }
  switch (ns->shared->csi()) {
    case nvme::csi::kNvm:
      return nvm_.execute(*ns, request);
    case nvme::csi::kZoned:
      return zns_.execute(*ns, request);
    default:
      return kv_.execute(*ns, request);
  }
}

std::uint16_t IoCommands::check_data(const Request& request) const {
  if (const auto status = check_sgl(request); status != sc::kSuccess) return status;
  return request.data_bytes > transfer_bytes_max_ ? sc::kInvalidField : sc::kSuccess;
}

void IoCommands::start(Request& request) {
  request.buffer_index = registered_ ? 0 : -1;
  if (request.fused != nullptr) return fused_.start(request);
  switch (namespace_of(request).shared->csi()) {
    case nvme::csi::kNvm:
      return nvm_.start(request);
    case nvme::csi::kZoned:
      return zns_.start(request);
    default:
      return kv_.start(request);
  }
}

void IoCommands::pull(Request& request, void (*next)(Request&)) {
  pause(request);
  request.after_pull = next;
  request.on_pulled = &IoCommands::pulled;
  request.connection->pull(request, request.buffer);
}

void IoCommands::pulled(Request& request) {
  const Queue& queue = Queue::of(request);
  IoCommands& self = queue.reactor->io();
  if (!request.pull_status.ok()) return self.complete(request, sc::kTransientTransportError);
  // The host has given this queue up: what it sends now must not be stored behind its back.
  if (queue.state == Queue::State::closing) return self.complete(request, sc::kAbortedSqDeletion);
  if (const auto status = self.begin(request); status != sc::kSuccess) {
    return self.complete(request, status);
  }
  request.after_pull(request);
}

Durability IoCommands::durability_of(Request& request, bool fua) {
  request.cached = !fua && Queue::of(request).controller->write_cache_enabled();
  return request.cached ? Durability::none : Durability::flushed;
}

void IoCommands::complete(Request& request, std::uint16_t status) {
  if (request.fused != nullptr) return fused_.complete(request, status, sc::kFailedFused);
  const bool cached = std::exchange(request.cached, false);
  if (cached && status == sc::kSuccess && !Queue::of(request).controller->write_cache_enabled()) {
    return flush(request);
  }
  pause(request);
  reactor_.set_result(request, status);
  request.on_done = &IoCommands::sent;
  request.connection->complete(request);
}

void IoCommands::flush(Request& request) {
  PageOp& op = request.page_op;
  op.kind = PageOp::Kind::flush;
  op.key = Key{};
  op.context = &request;
  op.on_result = [](PageOp&) {};
  op.on_released = [](PageOp& done) {
    Request& its = *static_cast<Request*>(done.context);
    const std::uint16_t status = done.status.ok() ? sc::kSuccess : sc::kInternalError;
    Queue::of(its).reactor->io().complete(its, status);
  };
  session_->submit(*namespace_of(request).shared->store, op);
}

void IoCommands::push(Request& request, std::uint32_t bytes) {
  pause(request);
  request.completion.set_status(sc::kSuccess);
  request.on_done = &IoCommands::sent;
  request.connection->push(request, request.buffer, bytes);
}

void IoCommands::sent(Request& request) { Queue::of(request).reactor->io().end(request); }

void IoCommands::end(Request& request) {
  Queue& queue = Queue::of(request);
  auto* ns = static_cast<LocalNamespace*>(std::exchange(request.context, nullptr));
  std::byte* buffer = std::exchange(request.buffer, nullptr);
  if (ns != nullptr) leave(*ns);
  if (buffer != nullptr) {
    buffers_.give(buffer, queue.holders());
    if (first_waiting_ != nullptr) serve_waiting();
  }
  reactor_.request_done(queue);
}

}  // namespace furrow::transport
