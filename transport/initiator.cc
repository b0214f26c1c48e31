#include "transport/initiator.h"

#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/initiator_impl.h"
#include "zone/check.h"

namespace furrow::transport {

namespace {

constexpr std::uint32_t kReconnectDelayMsMax = 2000;
constexpr unsigned kLastTurnsMax = 10'000;  // of the destructor, for what callbacks submit

}  // namespace

InitiatorImpl::InitiatorImpl(Executor& executor, const InitiatorOptions& options, SocketRing& ring,
                             std::unique_ptr<SocketRing> own_ring)
    : executor_(executor), options_(options), own_ring_(std::move(own_ring)), ring_(ring) {
  retry_.self = refused_work_.self = late_work_.self = this;
  retry_.fire = [](Timer& timer) { static_cast<RetryTimer&>(timer).self->open_controller(false); };
  patience_.self = this;
  patience_.fire = [](Timer& timer) { static_cast<RetryTimer&>(timer).self->give_up(); };
  hold_.self = this;
  hold_.fire = [](Timer& timer) { static_cast<RetryTimer&>(timer).self->send_again(); };
  again_timer_.self = this;
  again_timer_.fire = [](Timer& timer) { static_cast<RetryTimer&>(timer).self->send_again_now(); };
  refused_work_.run = [](SocketRing::Deferred& work) {
    static_cast<Work&>(work).self->deliver_refused();
  };
  late_work_.run = [](SocketRing::Deferred& work) { static_cast<Work&>(work).self->drop_late(); };
  executor_.add(ring_);
}

InitiatorImpl::~InitiatorImpl() {
  closing_ = given_up_ = true;  // so that what callbacks submit is refused
  executor_.stop(retry_);
  executor_.stop(patience_);
  executor_.stop(hold_);
  close_controller();
  give_up();
  for (unsigned turns = 0; !refused_.empty(); ++turns) {
    takes_more_ = turns < kLastTurnsMax;
    deliver_refused();
  }
  while (refused_work_.queued || late_work_.queued) ring_.poll();
  executor_.remove(ring_);
}

Status InitiatorImpl::check_options() const {
  const auto invalid = [](const char* hint) {
    return Status(Code::invalid_argument, Origin::transport, hint);
  };
  if (options_.io_queues == 0) return invalid("io_queues must be 1 or more");
  if (options_.queue_entries < 2 || options_.queue_entries > HostQueue::kEntriesMax) {
    return invalid("queue_entries must be from 2 to 1024");
  }
  if (options_.nsid == 0 || options_.nsid == nvme::kNsidAll) return invalid("nsid is impossible");
  if (options_.subsystem_nqn.size() > nvme::kNqnBytesMax ||
      options_.host_nqn.size() > nvme::kNqnBytesMax) {
    return invalid("an NQN has at most 223 bytes");
  }
  if (options_.keep_alive_ms == 0) return invalid("keep_alive_ms must not be 0");
  return Status();
}

Status InitiatorImpl::resolve() {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const std::string port = std::to_string(options_.port);
  if (getaddrinfo(options_.host.c_str(), port.c_str(), &hints, &found) != 0) {
    return Status(Code::io_error, Origin::transport,
                  "the server's name is neither an IP address nor a known host name");
  }
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    Address address;
    std::memcpy(&address.address, info->ai_addr, info->ai_addrlen);
    address.bytes = info->ai_addrlen;
    addresses_.push_back(address);
  }
  freeaddrinfo(found);
  return Status();
}

// A random (version 4) UUID names the host; its NQN is made from it when none is given.
void InitiatorImpl::make_identity() {
  auto& id = controller_options_.host_id;
  const std::uint64_t random[2] = {executor_.random(), executor_.random()};
  static_assert(sizeof random == std::tuple_size_v<std::remove_reference_t<decltype(id)>>);
  std::memcpy(id.data(), random, sizeof random);
  id[6] = static_cast<std::uint8_t>((id[6] & 0x0f) | 0x40);
  id[8] = static_cast<std::uint8_t>((id[8] & 0x3f) | 0x80);
  std::string uuid;
  for (std::size_t i = 0; i < id.size(); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", id[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    uuid += digits;
  }
  controller_options_.host_nqn =
      options_.host_nqn.empty() ? "nqn.2014-08.org.nvmexpress:uuid:" + uuid : options_.host_nqn;
}

void InitiatorImpl::set_controller_options() {
  make_identity();
  controller_options_.subsystem_nqn = options_.subsystem_nqn;
  controller_options_.nsid = options_.nsid;
  controller_options_.io_queues = options_.io_queues;
  controller_options_.queue_entries = options_.queue_entries;
  controller_options_.header_digest = options_.header_digest;
  controller_options_.data_digest = options_.data_digest;
  controller_options_.keep_alive_ms = options_.keep_alive_ms;
  controller_options_.timeout_ms = options_.connect_timeout_ms;
  controller_options_.command_timeout_ms = options_.command_timeout_ms;
}

void InitiatorImpl::begin(const sockaddr_storage& address, socklen_t address_bytes) {
  set_controller_options();
  controller_options_.address = address;
  controller_options_.address_bytes = address_bytes;
  connecting_ = false;
  open_controller(false);
}

Status InitiatorImpl::connect() {
  if (const Status status = check_options(); !status.ok()) return status;
  if (const Status status = resolve(); !status.ok()) return status;
  set_controller_options();
  Status status;
  for (const Address& address : addresses_) {  // a name may have several: the first that answers
    controller_options_.address = address.address;
    controller_options_.address_bytes = address.bytes;
    status = options_.subsystem_nqn.empty() ? connect_once(true) : Status();
    if (status.ok()) status = connect_once(false);
    if (status.ok() || status.code() != Code::io_error) break;
  }
  connecting_ = false;
  return status;
}

// Blocks. Discovery leaves the NQN behind; else the controller stays.
Status InitiatorImpl::connect_once(bool discovery) {
  answered_ = false;
  down_why_ = Status();
  open_controller(discovery);
  wait_for_controller();
  if (!down_why_.ok()) {
    close_controller();
    return down_why_;
  }
  if (!discovery) return Status();
  const std::vector<std::string> found = controller_->facts().subsystems;
  close_controller();
  if (found.empty()) {
    return Status(Code::not_found, Origin::transport,
                  "discovery found no subsystem there that this host may use: name a host NQN that "
                  "the server allows (--hostnqn, its --allowed_hosts), or the subsystem (--nqn)");
  }
  if (found.size() > 1) {
    return Status(Code::invalid_argument, Origin::transport,
                  "discovery found several subsystems; name one by its NQN");
  }
  controller_options_.subsystem_nqn = found[0];
  return Status();
}

void InitiatorImpl::open_controller(bool discovery) {
  HostControllerOptions options = controller_options_;
  options.discovery = discovery;
  if (discovery) options.subsystem_nqn = nvme::kDiscoveryNqn;
  FURROW_CHECK(controller_ == nullptr);
  HostController::Owner& owner = *this;
  controller_ = std::make_unique<HostController>(ring_, executor_, owner, options);
  controller_->start();
}

// The executor does not run yet: its pollers and timers are ours to turn.
void InitiatorImpl::wait_for_controller() {
  while (!answered_) {
    if (ring_.poll() == 0) {
      pollfd wake{ring_.wake_fd(), POLLIN, 0};
      // An interruption only makes the loop turn.
      if (ring_.before_sleep()) (void)poll(&wake, 1, 1);
    }
    if (controller_ != nullptr) controller_->tick();
  }
}

void InitiatorImpl::close_controller() {
  if (controller_ == nullptr) return;
  controller_->end();
  while (controller_ != nullptr) ring_.poll();
}

void InitiatorImpl::on_up() {
  answered_ = true;
  if (controller_->facts().subsystems.empty()) {
    limits_.nsid = options_.nsid;
    limits_.value_bytes_max = controller_->facts().value_bytes_max;
    limits_.transfer_bytes_max = controller_->facts().transfer_bytes_max;
    value_bytes_max_.store(limits_.value_bytes_max, std::memory_order_relaxed);
    controller_options_.nguid = controller_->facts().nguid;  // another volume's would not do
  }
  // A target that was started since has nothing left of the connection before.
  const std::uint64_t instance = controller_->facts().instance;
  if (instance != 0 && instance_ != 0 && instance != instance_) forgotten_ns_ = executor_.now_ns();
  instance_ = instance;
  if (connecting_) return;
  ++reconnects_;
  delay_ms_ = 0;
  executor_.stop(patience_);
  down_ = given_up_ = false;
  send_again();
}

// What an old connection still carries may reach the target until that has ended the association
// for want of keep-alives: at most twice the time-out (Base specification 2.0, section 3.9.3). Were
// a Store done again before that, one that came after it could be undone by the first.
std::uint64_t InitiatorImpl::hold_ns() const {
  constexpr std::uint64_t kUnitMs = 1000;  // to which targets round it up
  return 2 * ((options_.keep_alive_ms + kUnitMs - 1) / kUnitMs) * kUnitMs * kNsPerMs;
}

void InitiatorImpl::send_again() {
  if (controller_ == nullptr || !controller_->up()) return;  // on_up() comes by again
  resend_.push_front_all(held_);
  const std::uint64_t now = executor_.now_ns();
  std::uint64_t first_ns = ~std::uint64_t{0};
  OpQueue ready;
  while (!resend_.empty()) {
    PageOp& op = resend_.pop();
    const std::uint64_t until = held_until_ns(op);
    if (now < until) first_ns = std::min(first_ns, until);
    (now < until ? held_ : ready).push(op);
  }
  if (!held_.empty()) executor_.start(hold_, first_ns - now);
  waiting_.push_front_all(ready);
  dispatch_waiting();
}

void InitiatorImpl::on_down(Status why) {
  answered_ = true;
  down_why_ = why;
}

void InitiatorImpl::on_gone() {
  controller_.reset();
  answered_ = true;
  lose_unflushed();
  if (connecting_ || closing_) {
    if (down_why_.ok() && connecting_) {
      down_why_ = Status(Code::aborted, Origin::transport, "the connection ended");
    }
    return;
  }
  reconnect_later();
}

// Operations fail from now on; an attempt to connect that is under way goes on.
void InitiatorImpl::give_up() {
  given_up_ = true;
  waiting_.push_front_all(held_);
  waiting_.push_front_all(resend_);
  refuse_waiting();
}

void InitiatorImpl::reconnect_later() {
  if (options_.reconnect_for_ms == 0) return give_up();
  if (!std::exchange(down_, true)) {
    executor_.start(patience_, options_.reconnect_for_ms * kNsPerMs);
  }
  // Goes on even when operations fail already: the server may come back later.
  delay_ms_ = delay_ms_ == 0 ? std::max(1U, options_.reconnect_delay_ms)
                             : std::min(delay_ms_ * 2, kReconnectDelayMsMax);
  executor_.start(retry_, delay_ms_ * kNsPerMs);
}

Result<std::unique_ptr<Initiator>> Initiator::connect(Executor& executor,
                                                      const InitiatorOptions& options) {
  auto ring = SocketRing::create();
  if (!ring) return ring.status();
  SocketRing& its_ring = **ring;
  auto initiator = std::make_unique<InitiatorImpl>(executor, options, its_ring, std::move(*ring));
  if (const Status status = initiator->connect(); !status.ok()) return status;
  return std::unique_ptr<Initiator>(std::move(initiator));
}

}  // namespace furrow::transport
