#include "transport/controller.h"

#include <algorithm>
#include <utility>

#include "transport/reactor_impl.h"

namespace furrow::transport {

namespace sc = nvme::sc;

Controller::Controller(SubsystemImpl& subsystem, ReactorImpl& reactor, Kind kind, std::uint16_t id,
                       Host host, std::uint32_t kato_ms)
    : subsystem_(subsystem),
      reactor_(reactor),
      kind_(kind),
      id_(id),
      host_(std::move(host)),
      queues_granted_(subsystem.options().io_queues_max),
      kato_ms_(kato_ms) {
  quiesce_timer_.self = this;
  quiesce_timer_.fire = [](Timer& timer) { static_cast<OwnTimer&>(timer).self->fail_controller(); };
  keep_alive_timer_.self = this;
  keep_alive_timer_.fire = [](Timer& timer) {
    static_cast<OwnTimer&>(timer).self->keep_alive_tick();
  };
}

Controller::~Controller() {
  FURROW_CHECK(quiesce_timer_.heap_slot < 0 && keep_alive_timer_.heap_slot < 0);
}

void Controller::start() { arm_keep_alive(); }

void Controller::end() {
  if (state_ == State::ended) return;
  state_ = State::ended;
  reactor_.executor().stop(quiesce_timer_);
  reactor_.executor().stop(keep_alive_timer_);
  abort_async_events();
  close_io_queues();
}

// Configuration: the CC and CSTS properties (Base specification, 3.1.3 and 3.5).

std::uint16_t Controller::check_enable(std::uint32_t cc) const {
  const auto field = [cc](std::uint32_t shift, std::uint32_t mask) { return (cc >> shift) & mask; };
  if (field(nvme::kCcMpsShift, 15) != 0 || field(nvme::kCcAmsShift, 7) != 0) {
    return sc::kInvalidField;  // CAP offers 4 KiB pages and round robin only
  }
  const std::uint32_t css = field(nvme::kCcCssShift, 7);
  if (css != nvme::kCssNvm && css != nvme::kCssAll && css != nvme::kCssAdminOnly) {
    return sc::kInvalidField;
  }
  const std::uint32_t sqes = field(nvme::kCcIosqesShift, 15),
                      cqes = field(nvme::kCcIocqesShift, 15);
  if ((sqes != 0 && sqes != 6) || (cqes != 0 && cqes != 4)) return sc::kInvalidField;
  return sc::kSuccess;
}

std::uint16_t Controller::set_configuration(std::uint32_t cc) {
  const bool enable = (cc & nvme::kCcEnable) != 0, enabled = (cc_ & nvme::kCcEnable) != 0;
  const std::uint32_t shutdown = (cc >> nvme::kCcShnShift) & 3;
  const std::uint32_t shutdown_before = (cc_ >> nvme::kCcShnShift) & 3;
  if (state_ == State::failed) return sc::kCommandSequenceError;
  if (enable && !enabled) {
    if (state_ == State::quiescing) return sc::kCommandSequenceError;
    if (const auto status = check_enable(cc); status != sc::kSuccess) return status;
    command_sets_.store(CommandSets::enabled_by((cc >> nvme::kCcCssShift) & 7),
                        std::memory_order_relaxed);
    csts_ = nvme::kCstsReady;
    state_ = State::ready;
    const std::lock_guard lock(subsystem_.mutex());
    shared.accepts_io = true;
  }
  cc_ = cc;
  const bool reset = !enable && enabled;
  const bool shut_down = shutdown != 0 && shutdown_before == 0;
  if (reset) reset_pending_ = true;
  if (shut_down) {
    shutdown_pending_ = true;
    shutdown_flushes_ = shutdown == nvme::kShutdownNormal;
    csts_ = (csts_ & ~(3u << nvme::kCstsShstShift)) | (1u << nvme::kCstsShstShift);
  }
  if ((reset || shut_down) && state_ != State::quiescing) begin_quiesce();
  return sc::kSuccess;
}

// The I/O queues go first, with everything that is in flight on them, then what they stored is
// flushed if the host is about to take the power away; only then may CSTS say that the controller
// stopped.
void Controller::begin_quiesce() {
  state_ = State::quiescing;
  bool none;
  {
    const std::lock_guard lock(subsystem_.mutex());
    shared.accepts_io = false;
    shared.quiescing = true;
    none = shared.queues.size() == 1;
  }
  reactor_.executor().start(quiesce_timer_, kQuiesceTimeoutMs * kNsPerMs);  // the flush's too
  if (none) return quiesced();
  close_io_queues();
}

void Controller::quiesced() {
  if (state_ != State::quiescing) return;
  {
    const std::lock_guard lock(subsystem_.mutex());
    shared.quiescing = false;
  }
  const bool orderly = shutdown_pending_ && shutdown_flushes_;
  if (!orderly || kind_ == Kind::discovery) return stopped();
  // The volatile write cache goes to the medium before the host hears that it may take the power
  // away (3.6.1). An abrupt shutdown does not wait for that, and discovery has none.
  reactor_.io().flush_all([self = shared_from_this()](Status status) { self->flushed(status); });
}

void Controller::flushed(Status status) {
  if (state_ != State::quiescing) return;  // it took too long, or the host is gone
  if (status.ok()) return stopped();
  nvme::Cqe failed;
  failed.set_status(sc::kInternalError);
  errors_.add(nvme::Sqe{}, 0, failed.status);
  reactor_.executor().stop(quiesce_timer_);
  fail_controller();
}

void Controller::stopped() {
  reactor_.executor().stop(quiesce_timer_);
  state_ = State::shut_down;
  const bool was_shut_down = std::exchange(shutdown_pending_, false);
  if (was_shut_down) {
    csts_ = (csts_ & ~(3u << nvme::kCstsShstShift)) | (2u << nvme::kCstsShstShift);
  }
  if (std::exchange(reset_pending_, false) || (cc_ & nvme::kCcEnable) == 0) {
    state_ = State::disabled;
    csts_ &= ~nvme::kCstsReady;
    if (!was_shut_down) csts_ &= ~(3u << nvme::kCstsShstShift);
    command_sets_.store(CommandSets(), std::memory_order_relaxed);
    reset_features();
    reservation_log_.reset();
    abort_async_events();
  }
}

void Controller::fail_controller() {
  csts_ |= nvme::kCstsFatal;
  state_ = State::failed;
  close_io_queues();
}

void Controller::close_io_queues() {
  const std::lock_guard lock(subsystem_.mutex());
  shared.accepts_io = false;
  for (const auto& [id, queue] : shared.queues) {
    if (id == 0) continue;
    queue->reactor->mailbox().send([queue = queue] { queue->reactor->close(*queue); });
  }
}

// Keep alive (Base specification, 3.9): traffic based, so any command counts.

void Controller::arm_keep_alive() {
  const std::uint32_t unit = kKeepAliveGranularityMs;
  idle_limit_ms_ = (kato_ms_ + unit - 1) / unit * unit;
  only_without_queues_ = idle_limit_ms_ == 0;
  if (only_without_queues_) idle_limit_ms_ = subsystem_.options().idle_ms;
  idle_ticks_ = 0;
  traffic_seen_ = traffic();
  Executor& executor = reactor_.executor();
  if (idle_limit_ms_ == 0) return executor.stop(keep_alive_timer_);
  executor.start(keep_alive_timer_, idle_limit_ms_ * kNsPerMs / kKeepAliveTicks);
}

std::uint32_t Controller::traffic() const {
  const std::lock_guard lock(subsystem_.mutex());
  std::uint32_t sum = 0;
  for (const auto& [id, queue] : shared.queues) {
    sum += queue->traffic.load(std::memory_order_relaxed);
  }
  return sum;
}

// A host that switched the keep-alive off may be silent while it has I/O queues: it holds what it
// asked for. One that connects and asks for nothing only holds a place.
bool Controller::may_be_silent() const {
  const std::lock_guard lock(subsystem_.mutex());
  return only_without_queues_ && shared.queues.size() > 1;
}

void Controller::keep_alive_tick() {
  const std::uint32_t now = traffic();
  idle_ticks_ = now == traffic_seen_ && !may_be_silent() ? idle_ticks_ + 1 : 0;
  traffic_seen_ = now;
  if (idle_ticks_ >= kKeepAliveTicks) return expire();
  reactor_.executor().start(keep_alive_timer_, idle_limit_ms_ * kNsPerMs / kKeepAliveTicks);
}

void Controller::expire() {
  if (only_without_queues_) {
    subsystem_.count_idle_expired();
  } else {
    subsystem_.count_keep_alive_expired();
  }
  fail_controller();
  std::shared_ptr<Queue> admin;
  {
    const std::lock_guard lock(subsystem_.mutex());
    admin = shared.queues.at(0);
  }
  reactor_.close(*admin);
}

// Asynchronous events (Base specification, 5.2).

void Controller::async_event(Request& request) {
  if (async_event_count_ == kAsyncEventsMax) return fail(request, sc::kAsyncEventLimit);
  async_events_[async_event_count_++] = &request;
  send_events();
}

// Feature 0Bh; reservations are always told of, unless they are masked.
bool Controller::is_asked_for(Event event) const {
  static constexpr std::uint32_t kAlways = 0;
  static constexpr std::uint32_t kEnabledBy[kEvents] = {1u << 8, 1u << 31, 1u << 27, kAlways, 0xFF};
  const std::uint32_t by = kEnabledBy[static_cast<unsigned>(event)];
  return by == kAlways || (async_event_config_ & by) != 0;
}

void Controller::raise(Event event) {
  if (!is_asked_for(event)) return;
  event_pending_[static_cast<unsigned>(event)] = true;
  send_events();
}

// Of what waits for a request: the host has just said what it wants to be told of.
void Controller::drop_unasked_events() {
  warnings_new_ &= static_cast<std::uint8_t>(async_event_config_);
  if (warnings_new_ == 0) event_pending_[static_cast<unsigned>(Event::health)] = false;
  for (unsigned i = 0; i < kEvents; ++i) {
    if (!is_asked_for(static_cast<Event>(i))) event_pending_[i] = false;
  }
}

void Controller::send_events() {
  // DW0: type 7:0 (1: health, 2: notice, 6: of I/O commands), information 15:8, log page 23:16.
  static constexpr std::uint32_t kDw0[kEvents] = {2u | 0x00u << 8, 2u | 0xF0u << 8, 2u | 0xEFu << 8,
                                                  6u | 0x00u << 8, 1u | 0x00u << 8};
  static constexpr std::uint32_t kSpareBelowThreshold = 0x02u << 8;  // else it is the reliability
  for (unsigned i = 0; i < kEvents; ++i) {
    if (!event_pending_[i] || event_masked_[i] || async_event_count_ == 0) continue;
    event_pending_[i] = false;
    event_masked_[i] = true;
    Request& request = *async_events_[0];
    --async_event_count_;
    std::copy_n(async_events_.begin() + 1, async_event_count_, async_events_.begin());
    if (static_cast<Event>(i) == Event::zones && !changed_zones_.empty()) {
      request.completion.dw1 = changed_zones_.begin()->first;  // the namespace
    }
    std::uint32_t dw0 = kDw0[i] | std::uint32_t{kLogOf[i]} << 16;
    if (static_cast<Event>(i) == Event::health) {
      if (std::exchange(warnings_new_, 0) == nvme::smart::kSpareLow) dw0 |= kSpareBelowThreshold;
    }
    succeed(request, dw0);
  }
}

void Controller::abort_async_events() {
  while (async_event_count_ > 0) {
    fail(*async_events_[--async_event_count_], sc::kAbortedSqDeletion);
  }
  event_pending_ = {};
  event_masked_ = {};
  warnings_new_ = 0;
}

void Controller::namespaces_changed(const std::vector<std::uint32_t>& nsids) {
  if (kind_ == Kind::discovery || state_ == State::ended) return;
  for (const std::uint32_t nsid : nsids) {
    changed_namespaces_.add(nsid);
    if (changed_zones_.erase(nsid) != 0) zones_acknowledged();  // they cannot be read of any more
  }
  raise(Event::namespaces);
}

void Controller::zones_changed(const Namespace& ns, const std::vector<std::uint32_t>& zones) {
  if (kind_ == Kind::discovery || state_ == State::ended || !command_sets().has(ns.csi())) return;
  ChangeLog<std::uint64_t>& changed = changed_zones_[ns.nsid];
  for (const std::uint32_t zone : zones) {
    if (changed.size() > nvme::ChangedZonesLog::kZonesMax) break;
    changed.add(zone * ns.zones.zone_size_lbas);
  }
  raise(Event::zones);
}

// Or there is nothing to read of the namespace that the event named.
void Controller::zones_acknowledged() {
  const auto index = static_cast<unsigned>(Event::zones);
  event_masked_[index] = event_pending_[index] = false;
  if (!changed_zones_.empty()) raise(Event::zones);  // of another namespace
}

void Controller::health_changed() {
  if (state_ == State::ended) return;
  const auto asked = static_cast<std::uint8_t>(async_event_config_);
  const std::uint8_t before = warnings_;
  warnings_ = subsystem_.pool_gauges().warnings & asked;
  const std::uint8_t gained = warnings_ & ~before;
  warnings_new_ |= gained;
  if (gained != 0) raise(Event::health);
}

void Controller::discovery_changed() {
  if (kind_ == Kind::discovery && state_ != State::ended) raise(Event::discovery);
}

}  // namespace furrow::transport
