#include "transport/target.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <future>
#include <new>
#include <thread>
#include <utility>

#include "engine/block/block_session.h"
#include "transport/buffer_pool.h"
#include "transport/controller.h"
#include "transport/namespaces.h"
#include "transport/processors.h"
#include "transport/refusal_log.h"
#include "transport/subsystem.h"
#include "transport/tcp_listener.h"
#include "transport/tcp_reactor.h"
#include "zone/check.h"
#include "zone/threads.h"

namespace furrow::transport {

namespace {

constexpr std::uint64_t kIdleCheckNs = kNsPerMs;
constexpr unsigned kCoresMax = 256;

constexpr std::uint32_t kUsualTransferBytes = 1 << 20;

// A controller that is reset waits for its queues: they are gone by then, whatever their host does.
static_assert(TcpLimits{}.finish_ms + TcpLimits{}.linger_ms < Controller::kQuiesceTimeoutMs);

// Values of every volume fit into one transfer. Wrong options stay wrong, for check() of the
// subsystem.
TargetOptions raised(TargetOptions options, const Pool& pool) {
  for (const PageStore* store : pool.stores()) {
    const std::uint32_t longest = store->info().options.value_bytes_max;
    if (longest > options.transfer_bytes_max) options.transfer_bytes_max = std::bit_ceil(longest);
  }
  return options;
}

// Half of the slab are buffers of the largest size. Of 16 of them, hosts and addresses have the
// reserves that fair_share.h promises.
std::uint64_t page_buffer_bytes(const TargetOptions& options) {
  constexpr std::uint64_t kLargest = 16;
  if (options.transfer_bytes_max <= kUsualTransferBytes) return options.buffer_bytes_max;
  return std::max(
      options.buffer_bytes_max,
      2 * kLargest * (std::uint64_t{options.transfer_bytes_max} + BufferPool::kLargeExtraBytes));
}

// Control plane only: it allocates.
void post(Executor& executor, std::function<void()> function) {
  struct Call : Task {
    std::function<void()> function;
  };
  auto* call = new Call;
  call->function = std::move(function);
  call->run = [](Task& task) {
    const std::unique_ptr<Call> self(static_cast<Call*>(&task));
    self->function();
  };
  executor.post(*call);
}

// One core's share of the target. The first runs on the home loop, the others on their own thread.
struct Reactor {
  struct IdleTimer : Timer {
    Reactor* self;
  };

  // No connection is left: `done` is called on this reactor when its controller logic is idle too.
  void wait_until_idle(std::function<void()> done_call) {
    done = std::move(done_call);
    idle_timer.self = this;
    idle_timer.fire = [](Timer& timer) { static_cast<IdleTimer&>(timer).self->check_idle(); };
    check_idle();
  }
  void check_idle() {
    if (handler->idle()) return done();
    loop->start(idle_timer, kIdleCheckNs);
  }

  std::unique_ptr<EventLoop> own_loop;
  EventLoop* loop = nullptr;
  std::unique_ptr<SubsystemReactor> handler;
  std::unique_ptr<TcpReactor> tcp;
  // Connections that were dealt to it and are not there yet.
  std::atomic<std::uint32_t> arriving{0};
  std::thread thread;
  IdleTimer idle_timer{};
  std::function<void()> done;
};

class TargetImpl final : public Target {
 public:
  TargetImpl(EventLoop& home, const TargetOptions& options)
      : home_(home), options_(options), refusals_(home, options.log) {}
  ~TargetImpl() override;
  Status start(Pool& pool);

  std::uint16_t port() const override { return listener_->port(); }
  const std::string& subsystem_nqn() const override { return subsystem_->nqn(); }
  void stop(std::uint32_t drain_ms, std::function<void()> stopped) override;
  TargetStats stats() const override;
  void namespaces_changed(std::function<void()> served) override {
    subsystem_->namespaces_changed(std::move(served));
  }
  void withdraw_namespace(std::uint32_t nsid, std::function<void()> idle) override {
    subsystem_->withdraw_namespace(nsid, std::move(idle));
  }
  void give_back_namespace(std::uint32_t nsid) override { subsystem_->give_back_namespace(nsid); }

 private:
  struct CutTimer : Timer {
    TargetImpl* self;
  };

  Status make_reactors();
  Status make_parts(Reactor& reactor);
  Status start_thread(Reactor& reactor);
  void stay_on_cpu(std::size_t core);
  void accepted(int fd, std::string peer);
  void hand_over(int fd, std::string peer, AddressKey address);
  Reactor& least_loaded();
  void end_connections(std::size_t step);
  void part_stopped();
  void cut();
  void join();

  EventLoop& home_;
  const TargetOptions options_;
  TcpLimits limits_;
  ConnectionBudget budget_;
  std::unique_ptr<TcpListener> listener_;
  std::unique_ptr<Subsystem> subsystem_;
  std::vector<std::unique_ptr<Reactor>> reactors_;
  RefusalLogger refusals_;
  std::atomic<std::uint64_t> accept_errors_{0};
  CutTimer cut_timer_{};
  std::size_t parts_running_ = 0;     // while stopping: the listener, the reactors, cuts
  std::size_t reactors_in_step_ = 0;  // of the end, that have not done it yet
  std::function<void()> stopped_;
};

SubsystemOptions subsystem_options(const TargetOptions& options) {
  SubsystemOptions subsystem;
  subsystem.nqn = options.subsystem_nqn;
  subsystem.allowed_hosts = options.allowed_hosts;
  subsystem.in_capsule_bytes = options.in_capsule_bytes;
  subsystem.transfer_bytes_max = options.transfer_bytes_max;
  subsystem.io_queue_entries_max = options.io_queue_entries_max;
  subsystem.controllers_per_host_max = options.controllers_per_host_max;
  subsystem.queue_entries_total_max = options.queue_entries_total_max;
  subsystem.idle_ms = options.idle_ms;
  subsystem.buffer_bytes_max = page_buffer_bytes(options);
  return subsystem;
}

Status TargetImpl::start(Pool& pool) {
  if (const Status status = check(options_).status; !status.ok()) return status;
  // First of all: a port that is taken is the likeliest trouble.
  auto listener = TcpListener::open(options_.listen_host, options_.listen_port);
  if (!listener) return listener.status();
  listener_ = std::move(*listener);

  auto made = Subsystem::create(pool, home_, subsystem_options(options_));
  if (!made) return made.status();
  subsystem_ = std::move(*made);
  limits_.in_capsule_bytes = subsystem_->options().in_capsule_bytes;
  limits_.h2c_data_bytes = subsystem_->options().transfer_bytes_max;
  limits_.setup_ms = options_.setup_timeout_ms;
  limits_.data_ms = options_.data_timeout_ms;
  limits_.stash_bytes_max = options_.buffer_bytes_max;
  budget_.set_limits({options_.connections_max, options_.connections_per_address_max,
                      std::max(options_.connections_max / 4, 16u)});

  if (const Status status = make_reactors(); !status.ok()) return status;
  if (!options_.cpus.empty()) {
    for (std::size_t core = 0; core < reactors_.size(); ++core) {
      post(*reactors_[core]->loop, [this, core] { stay_on_cpu(core); });
    }
  }
  listener_->start(
      reactors_[0]->tcp->ring(), home_,
      [this](int fd, std::string peer) { accepted(fd, std::move(peer)); },
      [this](int error) {
        ++accept_errors_;
        refusals_.cannot_accept(error);
      });
  subsystem_->add_port(listener_->address(), listener_->port());
  return Status();
}

Status TargetImpl::make_reactors() {
  for (unsigned core = 0; core < options_.cores; ++core) {
    reactors_.push_back(std::make_unique<Reactor>());
    Reactor& reactor = *reactors_.back();
    if (core == 0) {
      reactor.loop = &home_;
    } else {
      auto loop = EventLoop::make({.spin_us = options_.spin_us});
      if (!loop) return loop.status();
      reactor.own_loop = std::move(*loop);
      reactor.loop = reactor.own_loop.get();
    }
    const Status made = core == 0 ? make_parts(reactor) : start_thread(reactor);
    if (!made.ok()) return made;
  }
  return Status();
}

// On the thread that the reactor runs on: its rings have one user from the first moment.
Status TargetImpl::make_parts(Reactor& reactor) {
  auto handler = subsystem_->create_reactor(*reactor.loop);
  if (!handler) return handler.status();
  reactor.handler = std::move(*handler);
  auto tcp = TcpReactor::create(*reactor.loop, *reactor.handler, limits_, budget_);
  if (!tcp) return tcp.status();
  reactor.tcp = std::move(*tcp);
  return Status();
}

Status TargetImpl::start_thread(Reactor& reactor) {
  std::promise<Status> promise;
  std::future<Status> made = promise.get_future();
  const Status started = furrow::start_thread(
      reactor.thread, [this, &reactor, promise = std::move(promise)]() mutable {
        const Status status = make_parts(reactor);
        promise.set_value(status);
        if (status.ok()) reactor.loop->run();
      });
  return started.ok() ? made.get() : started;
}

// On that reactor's thread. Not before its loop runs: the home executor's belongs to the caller
// until then, and threads that it starts would stay there, too.
void TargetImpl::stay_on_cpu(std::size_t core) {
  const unsigned cpu = options_.cpus[core];
  if (stay_on(cpu) || !options_.log) return;
  post(home_, [this, cpu] {
    options_.log("a reactor cannot stay on processor " + std::to_string(cpu) +
                 ", which was taken from this process");
  });
}

TargetImpl::~TargetImpl() {
  join();
  home_.stop(cut_timer_);
  listener_.reset();
  for (auto& reactor : reactors_) {
    reactor->tcp.reset();
    reactor->handler.reset();
  }
  subsystem_.reset();
}

// What a reactor works on are the commands of I/O queues. Which connection will be one is known at
// Connect only, so those on their way there count as well; admin queues decide between equals.
Reactor& TargetImpl::least_loaded() {
  const auto load = [](const std::unique_ptr<Reactor>& reactor) {
    const TcpReactor::Load& now = reactor->tcp->load();
    const std::uint32_t arriving = reactor->arriving.load();
    return std::pair(arriving + now.setting_up + now.io_queues, arriving + now.connections);
  };
  return **std::min_element(reactors_.begin(), reactors_.end(),
                            [&](const auto& a, const auto& b) { return load(a) < load(b); });
}

void TargetImpl::accepted(int fd, std::string peer) {
  using Verdict = ConnectionBudget::Verdict;
  const AddressKey address = address_key(fd);
  bool taken = false;
  try {
    const Verdict verdict = budget_.take(address);
    taken = verdict == Verdict::taken;
    if (taken) return hand_over(fd, std::move(peer), address);
    refusals_.refused(verdict, peer);
  } catch (const std::bad_alloc&) {
    if (taken) budget_.give(address, false);
    ++accept_errors_;
  }
  close(fd);
}

// std::bad_alloc: the socket is still the caller's.
void TargetImpl::hand_over(int fd, std::string peer, AddressKey address) {
  Reactor& reactor = least_loaded();
  if (reactor.loop == &home_) return reactor.tcp->adopt(fd, std::move(peer), address);
  ++reactor.arriving;
  try {
    post(*reactor.loop, [&reactor, fd, peer = std::move(peer), address]() mutable {
      reactor.tcp->adopt(fd, std::move(peer), address);
      --reactor.arriving;
    });
  } catch (const std::bad_alloc&) {
    --reactor.arriving;
    throw;
  }
}

void TargetImpl::stop(std::uint32_t drain_ms, std::function<void()> stopped) {
  FURROW_CHECK(!stopped_);
  stopped_ = std::move(stopped);
  parts_running_ = 1 + reactors_.size();
  refusals_.tell_rest();
  subsystem_->remove_port(listener_->address(), listener_->port());
  subsystem_->refuse_connects();
  cut_timer_.self = this;
  cut_timer_.fire = [](Timer& timer) { static_cast<CutTimer&>(timer).self->cut(); };
  home_.start(cut_timer_, drain_ms * kNsPerMs);
  listener_->stop([this] { post(home_, [this] { part_stopped(); }); });
  end_connections(0);
}

// One step after the other, each on all reactors; then what is left of their work.
void TargetImpl::end_connections(std::size_t step) {
  reactors_in_step_ = reactors_.size();
  const auto done = [this, step] {
    post(home_, [this, step] {
      if (--reactors_in_step_ == 0) end_connections(step + 1);
    });
  };
  for (auto& held : reactors_) {
    Reactor& reactor = *held;
    post(*reactor.loop, [this, &reactor, step, done] {
      switch (step) {
        case 0:
          return reactor.tcp->stop_accepting(done);
        case 1:
          return reactor.tcp->end_queues(done);
        case 2:
          return reactor.tcp->drain(done);
        default:
          return reactor.wait_until_idle([this] { post(home_, [this] { part_stopped(); }); });
      }
    });
  }
}

void TargetImpl::cut() {
  for (auto& held : reactors_) {
    Reactor& reactor = *held;
    ++parts_running_;  // no task may be left in a loop that ends
    post(*reactor.loop, [this, &reactor] {
      reactor.tcp->cut();
      post(home_, [this] { part_stopped(); });
    });
  }
}

void TargetImpl::part_stopped() {
  if (--parts_running_ != 0) return;
  home_.stop(cut_timer_);
  join();
  post(home_, std::move(stopped_));  // it may destroy this
}

void TargetImpl::join() {
  for (auto& reactor : reactors_) {
    if (!reactor->thread.joinable()) continue;
    reactor->loop->stop_running();
    reactor->thread.join();
  }
}

TargetStats TargetImpl::stats() const {
  using Verdict = ConnectionBudget::Verdict;
  TargetStats stats;
  stats.connections = budget_.connections();
  stats.connections_accepted = budget_.count(Verdict::taken);
  stats.refused_full = budget_.count(Verdict::target_full);
  stats.refused_address = budget_.count(Verdict::address_full);
  stats.accept_errors = accept_errors_;
  stats.refused_setting_up = budget_.count(Verdict::setting_up_full);
  stats.connections_refused = stats.refused_full + stats.refused_address + stats.refused_setting_up;
  for (const auto& reactor : reactors_) {
    const TcpStats& tcp = reactor->tcp->stats();
    stats.commands += tcp.commands;
    stats.protocol_errors += tcp.protocol_errors;
    stats.digest_errors += tcp.digest_errors;
    stats.timeouts += tcp.timeouts;
    stats.stashes_refused += tcp.stashes_refused;
    stats.system_calls += reactor->tcp->system_calls();
    const TcpReactor::Load& load = reactor->tcp->load();
    stats.reactors.push_back({load.connections, load.io_queues});
  }
  const SubsystemStats subsystem = subsystem_->stats();
  stats.commands_failed = subsystem.commands_failed;
  stats.keep_alive_expired = subsystem.keep_alive_expired;
  stats.connects_refused = subsystem.connects_refused;
  stats.refused_host = subsystem.hosts_refused;
  stats.refused_controllers = subsystem.full_refused;
  stats.idle_expired = subsystem.idle_expired;
  stats.buffer_waits = subsystem.buffer_waits;
  stats.payloads_refused = subsystem.payloads_refused;
  return stats;
}

}  // namespace

OptionsCheck check(const TargetOptions& options) {
  const auto invalid = [](const char* option, const char* hint) {
    return OptionsCheck{Status(Code::invalid_argument, Origin::transport, hint), option};
  };
  constexpr const char* kNotZero = "must not be 0";
  if (options.cores == 0 || options.cores > kCoresMax) return invalid("cores", "must be 1 to 256");
  if (!options.cpus.empty() && options.cpus.size() != options.cores) {
    return invalid("cpus", "must be as many as there are reactors");
  }
  if (!std::ranges::all_of(options.cpus, may_run_on)) {
    return invalid("cpus", "only processors that this process may use (taskset -p tells them)");
  }
  if (options.data_timeout_ms == 0) return invalid("data_timeout_ms", kNotZero);
  if (options.setup_timeout_ms == 0) return invalid("setup_timeout_ms", kNotZero);
  if (options.connections_max == 0) return invalid("connections_max", kNotZero);
  if (options.connections_per_address_max == 0) {
    return invalid("connections_per_address_max", kNotZero);
  }
  return check(subsystem_options(options));
}

std::uint64_t memory_bytes_max(const TargetOptions& options) {
  constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * kKiB;
  constexpr std::uint64_t kPayload = 16 * kMiB, kRings = 8 * kMiB;
  constexpr std::uint64_t kConnection = 160 * kKiB, kController = 24 * kKiB, kControllers = 256;
  constexpr std::uint64_t kBlockSteps = BlockSession::kStepsMax * BlockSession::kStepBytes;
  // Of each namespace its state, and what reactors know of it.
  constexpr std::uint64_t kReservations =
      2 * kNamespacesMax * Reservations::kRegistrantsMax * sizeof(Reservations::Registrant);
  constexpr std::uint64_t kSlot = 2560;
  static_assert(sizeof(CommandSlot) <= kSlot);
  static_assert(sizeof(TcpConnection) + SendBatch::kArenaBytes + 65536 / 8 +
                    TcpConnection::kReceiveBytesMax + 16 * kKiB <=
                kConnection);
  return options.cores * (page_buffer_bytes(options) + options.buffer_bytes_max + kPayload +
                          kRings + kBlockSteps) +
         options.connections_max * kConnection + options.queue_entries_total_max * 2 * kSlot +
         kControllers * kController + kReservations;
}

std::uint64_t descriptors_max(const TargetOptions& options) {
  // Of a reactor: its event loop, rings for sockets and for the device.
  constexpr std::uint64_t kReactor = 8, kProgram = 64;
  return options.connections_max + options.cores * kReactor + kProgram;
}

Result<std::unique_ptr<Target>> Target::start(Pool& pool, EventLoop& home,
                                              const TargetOptions& options) {
  auto target = std::make_unique<TargetImpl>(home, raised(options, pool));
  if (const Status status = target->start(pool); !status.ok()) return status;
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace furrow::transport
