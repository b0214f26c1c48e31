#include <algorithm>
#include <utility>

#include "engine/zoned/zoned_session.h"
#include "transport/reactor_impl.h"
#include "transport/subsystem_impl.h"

namespace furrow::transport {

namespace {

constexpr std::uint64_t kWatchEveryNs = 1'000'000'000;
constexpr std::uint32_t kMpsBytes = 4096;  // MDTS is in units of this
constexpr std::uint32_t kTransferBytesLimit = 4u << 20;
constexpr std::uint32_t kQueueEntriesLimit = 4096;
constexpr std::uint16_t kControllersLimit = 4096;

}  // namespace

OptionsCheck check(const SubsystemOptions& options) {
  const auto invalid = [](const char* option, const char* hint) {
    return OptionsCheck{Status(Code::invalid_argument, Origin::transport, hint), option};
  };
  const auto is_nqn = [](const std::string& nqn) {
    return nqn.starts_with("nqn.") && nqn.size() <= nvme::kNqnBytesMax;
  };
  if (!options.nqn.empty() && !is_nqn(options.nqn)) {
    return invalid("nqn", "the subsystem NQN must start with \"nqn.\" and have at most 223 bytes");
  }
  if (options.nqn == nvme::kDiscoveryNqn) {
    return invalid("nqn", "the subsystem NQN must not be that of the discovery subsystem");
  }
  if (!std::ranges::all_of(options.allowed_hosts, is_nqn)) {
    return invalid("allowed_hosts",
                   "a host's NQN must start with \"nqn.\" and have at most 223 bytes");
  }
  const std::uint32_t transfer = options.transfer_bytes_max;
  if (transfer < kMpsBytes || transfer > kTransferBytesLimit || (transfer & (transfer - 1)) != 0) {
    return invalid("transfer_bytes_max", "must be a power of two from 4 KiB to 4 MiB");
  }
  if (options.in_capsule_bytes % 16 != 0 || options.in_capsule_bytes > transfer) {
    return invalid("in_capsule_bytes", "must be a multiple of 16 and at most transfer_bytes_max");
  }
  if (options.io_queue_entries_max < 32 || options.io_queue_entries_max > kQueueEntriesLimit) {
    return invalid("io_queue_entries_max", "must be from 32 to 4096");
  }
  if (options.io_queues_max == 0 || options.io_queues_max > 1024) {
    return invalid("io_queues_max", "must be from 1 to 1024");
  }
  if (options.controllers_max == 0 || options.controllers_max > kControllersLimit) {
    return invalid("controllers_max", "must be from 1 to 4096");
  }
  if (options.controllers_per_host_max == 0 ||
      options.controllers_per_host_max > options.controllers_max) {
    return invalid("controllers_per_host_max",
                   "must be from 1 to what all hosts together have (256)");
  }
  if (options.queue_entries_total_max < options.io_queue_entries_max) {
    return invalid("queue_entries_total_max",
                   "must be what one queue may have (1024 entries) or more");
  }
  return {};
}

namespace {

std::string serial_of(const Uuid& uuid) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string serial;
  for (std::size_t i = 0; i < 10; ++i) {  // the field has 20 characters
    serial += kDigits[uuid[i] >> 4];
    serial += kDigits[uuid[i] & 15];
  }
  return serial;
}

}  // namespace

Result<std::unique_ptr<Subsystem>> Subsystem::create(Pool& pool, Executor& home,
                                                     const SubsystemOptions& options) {
  SubsystemOptions adjusted = options;
  if (adjusted.nqn.empty()) adjusted.nqn = "nqn.2026-11.io.furrow:" + pool.info().name;
  if (const Status status = check(adjusted).status; !status.ok()) return status;
  return std::unique_ptr<Subsystem>(
      std::make_unique<SubsystemImpl>(pool, home, std::move(adjusted)));
}

SubsystemImpl::SubsystemImpl(Pool& pool, Executor& home, SubsystemOptions options)
    : pool_(pool),
      home_(home),
      options_(std::move(options)),
      serial_(serial_of(pool.info().uuid)),
      instance_(home.random()),
      home_mailbox_(home),
      created_ns_(home.now_ns()),
      namespaces_(std::make_shared<NamespaceTable>(pool, NamespaceTable{}, NamespaceChange{},
                                                   options_.transfer_bytes_max)) {
  watch_timer_.self = this;
  watch_timer_.fire = [](Timer& timer) { static_cast<OwnTimer&>(timer).self->watch_pool(); };
  watch_pool();
}

SubsystemImpl::~SubsystemImpl() {
  FURROW_CHECK(reactors_.empty());
  home_.stop(watch_timer_);
}

void SubsystemImpl::watch_pool() {
  refresh_gauges();
  const auto table = namespaces();
  for (const auto& ns : table->all()) {
    if (ns->kind == VolumeKind::zoned) look_for_taken_zones(*ns->store);
  }
  notify_zones();
  home_.start(watch_timer_, kWatchEveryNs);
}

namespace {

std::uint8_t warnings_of(const PoolInfo& info, std::uint8_t spare_percent) {
  std::uint8_t warnings = 0;
  if (spare_percent < SubsystemImpl::kSparePercentLow) warnings |= nvme::smart::kSpareLow;
  // It is gone, or does not make durable what was written.
  if (info.device_gone || info.flush_failed) warnings |= nvme::smart::kReliability;
  // None of its zones for data can be written, or will be again.
  const std::uint64_t zones_unusable = info.zones_bad + info.zones_metadata;
  if (zones_unusable >= info.geometry.zone_count) warnings |= nvme::smart::kReadOnly;
  return warnings;
}

}  // namespace

void SubsystemImpl::refresh_gauges() {
  const PoolInfo info = pool_.info();
  PoolGauges gauges;
  gauges.zones = info.geometry.zone_count;
  gauges.zones_bad = info.zones_bad;
  gauges.media_errors = info.media_errors;
  if (gauges.zones != 0) {
    gauges.spare_percent = static_cast<std::uint8_t>(100 - gauges.zones_bad * 100 / gauges.zones);
  }
  gauges.warnings = warnings_of(info, gauges.spare_percent);
  gauges.capacity_bytes = gauges.zones * info.geometry.zone_capacity_bytes();
  gauges.free_bytes = info.zones_free * info.geometry.zone_capacity_bytes();
  const std::lock_guard lock(mutex_);
  const bool told = std::exchange(gauges_, gauges).warnings == gauges.warnings;
  if (!told) notify_health();
}

SubsystemImpl::PoolGauges SubsystemImpl::pool_gauges() const {
  const std::lock_guard lock(mutex_);
  return gauges_;
}

Result<std::unique_ptr<SubsystemReactor>> SubsystemImpl::create_reactor(Executor& executor) {
  auto session = pool_.create_session(executor, options_.device_depth);
  if (!session) return session.status();
  return std::unique_ptr<SubsystemReactor>(
      std::make_unique<ReactorImpl>(*this, executor, std::move(*session)));
}

void SubsystemImpl::attach(ReactorImpl& reactor) {
  const std::lock_guard lock(mutex_);
  reactors_.push_back(&reactor);
}

void SubsystemImpl::detach(ReactorImpl& reactor, const SubsystemStats& totals) {
  const std::lock_guard lock(mutex_);
  std::erase(reactors_, &reactor);
  totals_.admin_commands += totals.admin_commands;
  totals_.io_commands += totals.io_commands;
  totals_.commands_failed += totals.commands_failed;
  totals_.host_reads += totals.host_reads;
  totals_.host_writes += totals.host_writes;
  totals_.bytes_read += totals.bytes_read;
  totals_.bytes_written += totals.bytes_written;
  totals_.buffer_waits += totals.buffer_waits;
  totals_.payloads_refused += totals.payloads_refused;
}

SubsystemStats SubsystemImpl::stats() const {
  const std::lock_guard lock(mutex_);
  SubsystemStats sum = totals_;
  for (const ReactorImpl* reactor : reactors_) {
    const SubsystemStats stats = reactor->stats();
    sum.admin_commands += stats.admin_commands;
    sum.io_commands += stats.io_commands;
    sum.commands_failed += stats.commands_failed;
    sum.host_reads += stats.host_reads;
    sum.host_writes += stats.host_writes;
    sum.bytes_read += stats.bytes_read;
    sum.bytes_written += stats.bytes_written;
    sum.buffer_waits += stats.buffer_waits;
    sum.payloads_refused += stats.payloads_refused;
  }
  sum.connects_refused = connects_refused_.load(std::memory_order_relaxed);
  sum.keep_alive_expired = keep_alive_expired_.load(std::memory_order_relaxed);
  sum.hosts_refused = hosts_refused_.load(std::memory_order_relaxed);
  sum.full_refused = full_refused_.load(std::memory_order_relaxed);
  sum.idle_expired = idle_expired_.load(std::memory_order_relaxed);
  sum.controllers = controllers_.size();
  return sum;
}

bool SubsystemImpl::host_allowed(const std::string& host_nqn) const {
  const auto& allowed = options_.allowed_hosts;
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), host_nqn) != allowed.end();
}

void SubsystemImpl::refuse_connects() {
  const std::lock_guard lock(mutex_);
  refuse_connects_ = true;
}

std::uint16_t SubsystemImpl::free_controller_id() {
  if (controllers_.size() >= options_.controllers_max) return 0;
  // Round the numbers, so that a late message about an old controller meets no new one.
  do {
    controller_id_last_ = controller_id_last_ >= 0xFFEF ? 1 : controller_id_last_ + 1;
  } while (controllers_.contains(controller_id_last_));
  return controller_id_last_;
}

std::vector<std::uint16_t> SubsystemImpl::controller_ids(std::uint16_t first) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint16_t> ids;
  for (auto it = controllers_.lower_bound(first); it != controllers_.end(); ++it) {
    if (it->second->kind() == Controller::Kind::nvm) ids.push_back(it->first);
  }
  return ids;
}

void SubsystemImpl::queue_gone(Queue& queue) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Controller>& controller = queue.controller;
  Controller::Shared& shared = controller->shared;
  const auto its = shared.queues.find(queue.id);
  if (its != shared.queues.end() && its->second.get() == &queue) shared.queues.erase(its);
  queue_entries_ -= queue.entries;
  if (queue.id == 0) shared.alive = false;
  if (shared.queues.empty()) {
    controllers_.erase(controller->id());
    return;
  }
  const bool only_admin = shared.queues.size() == 1 && shared.alive;
  if (shared.quiescing && only_admin) {
    controller->reactor().mailbox().send([controller] { controller->quiesced(); });
  }
}

// Namespaces and ports.

std::shared_ptr<const NamespaceTable> SubsystemImpl::namespaces() const {
  const std::lock_guard lock(mutex_);
  return namespaces_;
}

void SubsystemImpl::namespaces_changed(std::function<void()> served) {
  change_namespaces({}, std::move(served));
}

void SubsystemImpl::withdraw_namespace(std::uint32_t nsid, std::function<void()> idle) {
  change_namespaces({.withdrawn = nsid}, std::move(idle));
}

void SubsystemImpl::give_back_namespace(std::uint32_t nsid) {
  change_namespaces({.given_back = nsid}, [] {});
}

void SubsystemImpl::change_namespaces(const NamespaceChange& change,
                                      std::function<void()> applied) {
  const auto before = namespaces();
  auto after =
      std::make_shared<NamespaceTable>(pool_, *before, change, options_.transfer_bytes_max);
  publish(after, change.withdrawn, std::move(applied));
  notify_namespaces(*before, *after);
}

// `applied` runs on the home executor when every reactor has the table, and no command uses what
// NSID `withdrawn` meant before.
void SubsystemImpl::publish(std::shared_ptr<const NamespaceTable> table, std::uint32_t withdrawn,
                            std::function<void()> applied) {
  // When the last holder lets go, every reactor is done.
  const std::shared_ptr<void> all_done(
      nullptr, [this, applied = std::move(applied)](void*) { home_mailbox_.send(applied); });
  const std::lock_guard lock(mutex_);
  namespaces_ = table;
  for (ReactorImpl* reactor : reactors_) {
    reactor->mailbox().send([reactor, table, withdrawn, all_done] {
      reactor->io().apply(*table, withdrawn, [all_done] { (void)all_done; });
    });
  }
}

void SubsystemImpl::notify_namespaces(const NamespaceTable& before, const NamespaceTable& after) {
  std::vector<std::uint32_t> changed;
  for (const auto& ns : before.all()) {
    if (after.find(ns->nsid) != ns) changed.push_back(ns->nsid);
  }
  for (const auto& ns : after.all()) {
    if (before.find(ns->nsid) == nullptr) changed.push_back(ns->nsid);
  }
  if (changed.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, controller] : controllers_) {
    if (!controller->shared.alive) continue;
    controller->reactor().mailbox().send(
        [controller = controller, changed] { controller->namespaces_changed(changed); });
  }
}

void SubsystemImpl::zones_changed() {
  home_mailbox_.send([this] { notify_zones(); });
}

void SubsystemImpl::notify_zones() {
  const auto table = namespaces();
  for (const auto& ns : table->all()) {
    if (ns->kind != VolumeKind::zoned || !furrow::zones_changed(*ns->store)) continue;
    const std::vector<std::uint32_t> zones = take_changed_zones(*ns->store);
    const std::lock_guard lock(mutex_);
    for (const auto& [id, controller] : controllers_) {
      if (!controller->shared.alive) continue;
      controller->reactor().mailbox().send(
          [controller = controller, ns, zones] { controller->zones_changed(*ns, zones); });
    }
  }
}

void SubsystemImpl::add_port(const std::string& address, std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  ports_.push_back({address, port, ++port_id_last_});
  ++generation_;
  notify_discovery();
}

void SubsystemImpl::remove_port(const std::string& address, std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  const auto removed = std::erase_if(
      ports_, [&](const Port& known) { return known.address == address && known.port == port; });
  if (removed == 0) return;
  ++generation_;
  notify_discovery();
}

void SubsystemImpl::notify_discovery() {
  for (const auto& [id, controller] : controllers_) {
    if (!controller->shared.alive || controller->kind() != Controller::Kind::discovery) continue;
    controller->reactor().mailbox().send(
        [controller = controller] { controller->discovery_changed(); });
  }
}

void SubsystemImpl::notify_health() {
  for (const auto& [id, controller] : controllers_) {
    if (!controller->shared.alive || controller->kind() == Controller::Kind::discovery) continue;
    controller->reactor().mailbox().send(
        [controller = controller] { controller->health_changed(); });
  }
}

SubsystemImpl::DiscoveryLog SubsystemImpl::discovery_log() const {
  const std::lock_guard lock(mutex_);
  return {generation_, ports_};
}

}  // namespace furrow::transport
