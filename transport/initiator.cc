#include "transport/initiator.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "transport/host_controller.h"
#include "transport/op_queue.h"
#include "transport/page_command.h"
#include "zone/check.h"

namespace furrow::transport {

namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
constexpr std::uint32_t kReconnectDelayMsMax = 2000;

// A target that takes connections and ends them with what they carry gets no operation for ever.
constexpr std::uint64_t kLossesMax = 8;

// Where an operation is, in PageOp::internal.state[0]. In state[1]: how often it was sent without
// an answer, so that it may have been done.
enum Phase : std::uint64_t { kOperate, kFlush };

Status lost(const PageOp& op) {
  if (op.internal.state[1] != 0) {
    return Status(
        Code::aborted, Origin::transport,
        "the connection was lost before the target answered; it may have been done or not",
        ECONNRESET);
  }
  return Status(Code::aborted, Origin::transport, "the server cannot be reached; nothing was done",
                ENOTCONN);
}

class InitiatorImpl final : public Initiator, private HostController::Owner {
 public:
  InitiatorImpl(Executor& executor, const InitiatorOptions& options,
                std::unique_ptr<SocketRing> ring);
  ~InitiatorImpl() override;
  Status connect();

  void submit(PageOp& op) override;
  std::uint32_t value_bytes_max() const override { return limits_.value_bytes_max; }
  std::uint64_t reconnects() const override { return reconnects_; }
  std::uint64_t system_calls() const override { return ring_->system_calls(); }

 private:
  struct RetryTimer : Timer {
    InitiatorImpl* self;
  };
  struct Work : SocketRing::Deferred {
    InitiatorImpl* self;
  };

  // HostController::Owner.
  void on_up() override;
  void on_down(Status why) override;
  void on_room() override { dispatch_waiting(); }
  void on_gone() override;

  Status check_options() const;
  Status resolve();
  Status connect_once(bool discovery);
  void make_identity();
  void open_controller(bool discovery);
  void wait_for_controller();
  void close_controller();
  void reconnect_later();
  bool dispatch(PageOp& op);
  void dispatch_waiting();
  void on_answer(HostCommand& command, const Status& status);
  void settle(PageOp& op, Status status);
  void refuse_waiting();
  void deliver_refused();

  Executor& executor_;
  const InitiatorOptions options_;
  std::unique_ptr<SocketRing> ring_;
  HostControllerOptions controller_options_;
  struct Address {
    sockaddr_storage address{};
    socklen_t bytes = 0;
  };
  std::vector<Address> addresses_;
  std::unique_ptr<HostController> controller_;
  PageLimits limits_;
  OpQueue waiting_;  // for room or for the connection
  OpQueue resend_;   // lost with the connection
  OpQueue refused_;  // whose status is final, to be told in a turn of the executor
  Work refused_work_{};
  RetryTimer retry_{};
  Status down_why_;
  bool connecting_ = true;  // within connect()
  bool answered_ = false;   // connect(): up or down
  bool given_up_ = false;   // down for longer than reconnect_for_ms
  bool closing_ = false;
  std::uint32_t delay_ms_ = 0;
  std::uint64_t down_since_ns_ = 0;
  std::uint64_t reconnects_ = 0;
};

InitiatorImpl::InitiatorImpl(Executor& executor, const InitiatorOptions& options,
                             std::unique_ptr<SocketRing> ring)
    : executor_(executor), options_(options), ring_(std::move(ring)) {
  retry_.self = refused_work_.self = this;
  retry_.fire = [](Timer& timer) { static_cast<RetryTimer&>(timer).self->open_controller(false); };
  refused_work_.run = [](SocketRing::Deferred& work) {
    static_cast<Work&>(work).self->deliver_refused();
  };
  executor_.add(*ring_);
}

InitiatorImpl::~InitiatorImpl() {
  closing_ = true;
  executor_.stop(retry_);
  close_controller();
  waiting_.push_front_all(resend_);
  refuse_waiting();
  deliver_refused();
  while (refused_work_.queued) ring_->poll();
  executor_.remove(*ring_);
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

Status InitiatorImpl::connect() {
  if (const Status status = check_options(); !status.ok()) return status;
  if (const Status status = resolve(); !status.ok()) return status;
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
    return Status(Code::not_found, Origin::transport, "discovery found no subsystem there");
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
  controller_ = std::make_unique<HostController>(*ring_, executor_, owner, options);
  controller_->start();
}

// The executor does not run yet: its pollers and timers are ours to turn.
void InitiatorImpl::wait_for_controller() {
  while (!answered_) {
    if (ring_->poll() == 0) {
      pollfd wake{ring_->wake_fd(), POLLIN, 0};
      (void)poll(&wake, 1, 1);  // an interruption only makes the loop turn
    }
    if (controller_ != nullptr) controller_->tick();
  }
}

void InitiatorImpl::close_controller() {
  if (controller_ == nullptr) return;
  controller_->end();
  while (controller_ != nullptr) ring_->poll();
}

void InitiatorImpl::on_up() {
  answered_ = true;
  if (controller_->facts().subsystems.empty()) {
    limits_.nsid = options_.nsid;
    limits_.value_bytes_max = controller_->facts().value_bytes_max;
    limits_.transfer_bytes_max = controller_->facts().transfer_bytes_max;
  }
  if (connecting_) return;
  ++reconnects_;
  delay_ms_ = 0;
  down_since_ns_ = 0;
  given_up_ = false;
  waiting_.push_front_all(resend_);
  dispatch_waiting();
}

void InitiatorImpl::on_down(Status why) {
  answered_ = true;
  down_why_ = why;
}

void InitiatorImpl::on_gone() {
  controller_.reset();
  answered_ = true;
  if (connecting_ || closing_) {
    if (down_why_.ok() && connecting_) {
      down_why_ = Status(Code::aborted, Origin::transport, "the connection ended");
    }
    return;
  }
  reconnect_later();
}

void InitiatorImpl::reconnect_later() {
  const std::uint64_t now = executor_.now_ns();
  if (down_since_ns_ == 0) down_since_ns_ = now;
  if (now - down_since_ns_ >= options_.reconnect_for_ms * kNsPerMs) {
    given_up_ = true;
    waiting_.push_front_all(resend_);
    refuse_waiting();
  }
  if (options_.reconnect_for_ms == 0) return;
  // Goes on even when operations fail already: the server may come back later.
  delay_ms_ =
      delay_ms_ == 0 ? options_.reconnect_delay_ms : std::min(delay_ms_ * 2, kReconnectDelayMsMax);
  executor_.start(retry_, delay_ms_ * kNsPerMs);
}

void InitiatorImpl::submit(PageOp& op) {
  op.internal.self = &op;
  op.internal.state[0] = kOperate;
  op.internal.state[1] = 0;
  op.internal.scratch[0] = nullptr;
  op.status = check_page_op(op, limits_);
  if (op.status.ok() && given_up_) op.status = lost(op);
  if (!op.status.ok()) {
    refused_.push(op);
    ring_->defer(refused_work_);
    return;
  }
  if (!waiting_.empty() || !dispatch(op)) waiting_.push(op);
}

bool InitiatorImpl::dispatch(PageOp& op) {
  if (controller_ == nullptr) return false;
  HostQueue* queue = nullptr;
  HostCommand* command = controller_->take(queue);
  if (command == nullptr) return false;
  encode_page_op(op, limits_, op.internal.state[0] == kFlush, *command);
  command->context = &op;
  op.internal.scratch[1] = this;
  command->done = [](HostCommand& done, Status status) {
    auto& answered = *static_cast<PageOp*>(done.context);
    static_cast<InitiatorImpl*>(answered.internal.scratch[1])->on_answer(done, status);
  };
  queue->submit(*command);
  return true;
}

void InitiatorImpl::dispatch_waiting() {
  while (!waiting_.empty()) {
    PageOp& op = waiting_.pop();
    if (dispatch(op)) continue;
    waiting_.push_front(op);
    return;
  }
}

void InitiatorImpl::on_answer(HostCommand& command, const Status& status) {
  PageOp& op = *static_cast<PageOp*>(command.context);
  // A target that ends a queue says so of the commands that it did not come to; it is no answer.
  const bool deleted = status.ok() && command.cqe.sct_sc() == nvme::sc::kAbortedSqDeletion;
  if (status.code() == Code::aborted || deleted) {
    const bool may_be_done = command.sent || op.internal.state[0] == kFlush;
    if (may_be_done) ++op.internal.state[1];
    if (closing_ || options_.reconnect_for_ms == 0 || (may_be_done && !is_idempotent(op)) ||
        op.internal.state[1] >= kLossesMax) {
      return settle(op, lost(op));
    }
    op.internal.state[0] = kOperate;  // what a Store promised may be gone: from its beginning
    resend_.push(op);
    return;
  }
  const Status result = status.ok() ? decode_page_answer(op, command) : status;
  if (result.ok() && op.internal.state[0] == kOperate && needs_flush(op)) {
    op.internal.state[0] = kFlush;
    // This command's place is not free yet, another's may be.
    if (!dispatch(op)) waiting_.push_front(op);
    return;
  }
  settle(op, result);
}

void InitiatorImpl::settle(PageOp& op, Status status) {
  free_list_memory(op);
  op.status = status;
  op.on_result(op);
  if (op.on_released != nullptr) op.on_released(op);
}

void InitiatorImpl::refuse_waiting() {
  while (!waiting_.empty()) {
    PageOp& op = waiting_.pop();
    op.status = lost(op);
    refused_.push(op);
  }
  ring_->defer(refused_work_);
}

void InitiatorImpl::deliver_refused() {
  while (!refused_.empty()) {
    PageOp& op = refused_.pop();
    settle(op, op.status);
  }
}

}  // namespace

Result<std::unique_ptr<Initiator>> Initiator::connect(Executor& executor,
                                                      const InitiatorOptions& options) {
  auto ring = SocketRing::create();
  if (!ring) return ring.status();
  auto initiator = std::make_unique<InitiatorImpl>(executor, options, std::move(*ring));
  if (const Status status = initiator->connect(); !status.ok()) return status;
  return std::unique_ptr<Initiator>(std::move(initiator));
}

}  // namespace furrow::transport
