// The namespaces of one reactor's IoCommands: taking over a new set, letting go of those that went,
// who may use them, and flushing them all.
#include <algorithm>
#include <mutex>
#include <utility>

#include "transport/controller.h"
#include "transport/io_commands.h"

namespace furrow::transport {

void IoCommands::apply(const NamespaceTable& table, std::uint32_t withdrawn,
                       std::function<void()> applied) {
  by_nsid_.assign(kNamespacesMax + 1, nullptr);
  for (const auto& shared : table.all()) {
    const auto known = std::find_if(namespaces_.begin(), namespaces_.end(),
                                    [&](const auto& local) { return local->shared == shared; });
    if (known != namespaces_.end()) {
      by_nsid_[shared->nsid] = known->get();
      continue;
    }
    namespaces_.push_back(std::make_unique<LocalNamespace>());
    namespaces_.back()->shared = shared;
    const std::lock_guard lock(shared->reservations->mutex);
    namespaces_.back()->view = shared->reservations->view;
    by_nsid_[shared->nsid] = namespaces_.back().get();
  }
  Retiring retiring{{}, std::move(applied)};
  std::erase_if(namespaces_, [&](const auto& local) {
    if (find(local->shared->nsid) == local.get()) return false;
    if (local->in_flight == 0) return true;
    if (local->shared->nsid == withdrawn) retiring.waiting_for.push_back(local.get());
    return false;
  });
  if (retiring.waiting_for.empty()) return retiring.applied();
  retiring_.push_back(std::move(retiring));
}

void IoCommands::retire(LocalNamespace& ns) {
  std::vector<std::function<void()>> done;
  for (Retiring& retiring : retiring_) {
    std::erase(retiring.waiting_for, &ns);
    if (retiring.waiting_for.empty()) done.push_back(std::move(retiring.applied));
  }
  std::erase_if(retiring_, [](const Retiring& retiring) { return retiring.waiting_for.empty(); });
  std::erase_if(namespaces_, [&](const auto& local) { return local.get() == &ns; });
  for (auto& applied : done) applied();
}

void IoCommands::leave(LocalNamespace& ns) {
  if (--ns.in_flight == 0 && find(ns.shared->nsid) != &ns) retire(ns);
}

std::uint16_t IoCommands::begin(Request& request) {
  LocalNamespace& ns = namespace_of(request);
  if (ns.view != nullptr) {
    const HostId& host = Queue::of(request).controller->host().id;
    const Access access = access_of(ns.shared->csi(), request.command.opc);
    const bool writes_too = request.fused != nullptr;
    if (!ns.view->allows(host, writes_too ? Access::write : access)) {
      return nvme::sc::kReservationConflict;
    }
  }
  request.turn = static_cast<std::int8_t>(ns.turn);
  ++ns.working[ns.turn];
  return nvme::sc::kSuccess;
}

void IoCommands::pause(Request& request) {
  if (request.turn < 0) return;
  LocalNamespace& ns = namespace_of(request);
  const auto turn = static_cast<unsigned>(std::exchange(request.turn, std::int8_t{-1}));
  if (--ns.working[turn] != 0 || turn == ns.turn) return;
  ns.draining.clear();
  drain(ns);
}

// One that was resized meanwhile may know of later changes already. It is told of them again, in
// order, before they are answered.
void IoCommands::reserve(const SharedReservations& reservations, const ReservationView& view,
                         const std::shared_ptr<void>& drained) {
  for (const auto& ns : namespaces_) {
    if (ns->shared->reservations.get() != &reservations) continue;
    ns->view = view;
    if (drained == nullptr) continue;
    ns->to_drain.push_back(drained);
    drain(*ns);
  }
}

void IoCommands::drain(LocalNamespace& ns) {
  if (!ns.draining.empty() || ns.to_drain.empty()) return;
  ns.draining.swap(ns.to_drain);
  ns.turn ^= 1;
  if (ns.working[ns.turn ^ 1] == 0) ns.draining.clear();
}

// Shared by the flushes of one flush_all(): when the last lets go of it, all are done.
struct IoCommands::FlushAll {
  explicit FlushAll(std::function<void(Status)> call) : done(std::move(call)) {}
  ~FlushAll() { done(status); }
  FlushAll(const FlushAll&) = delete;
  FlushAll& operator=(const FlushAll&) = delete;

  std::function<void(Status)> done;
  Status status;
};

namespace {

struct FlushOne {
  PageOp op;
  IoCommands* commands = nullptr;
  LocalNamespace* ns = nullptr;
  std::shared_ptr<void> all;
};

}  // namespace

void IoCommands::flush_all(std::function<void(Status)> done) {
  const auto all = std::make_shared<FlushAll>(std::move(done));
  for (const auto& ns : namespaces_) {
    auto* one = new FlushOne{{}, this, ns.get(), all};
    one->op.kind = PageOp::Kind::flush;
    one->op.context = one;
    one->op.on_result = [](PageOp&) {};
    one->op.on_released = &IoCommands::flush_released;
    ++ns->in_flight;
    ++flushes_;
    session_->submit(*ns->shared->store, one->op);
  }
}

void IoCommands::flush_released(PageOp& op) {
  const std::unique_ptr<FlushOne> one(static_cast<FlushOne*>(op.context));
  auto& all = *static_cast<FlushAll*>(one->all.get());
  if (all.status.ok()) all.status = op.status;
  --one->commands->flushes_;
  one->commands->leave(*one->ns);
}

}  // namespace furrow::transport
