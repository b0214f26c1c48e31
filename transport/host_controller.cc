// The life of a host's controller. The steps of its bring-up are in host_bringup.cc.
#include "transport/host_controller.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "zone/check.h"

namespace furrow::transport {

namespace {
constexpr std::uint64_t kFarewellNs = 100 * kNsPerMs;  // for a TermReq to get out
constexpr std::uint64_t kLeaveNs = 1000 * kNsPerMs;
constexpr std::uint32_t kAdminEntries = 32;
// More ticks than this without an answer are a time-out: one late tick, of an executor that was
// held up itself, does not blame the target.
constexpr unsigned kAgeTicks = 4;
}  // namespace

HostController::HostController(SocketRing& ring, Executor& executor, Owner& owner,
                               const HostControllerOptions& options)
    : ring_(ring), executor_(executor), owner_(owner), options_(options), data_(4096) {
  timer_.self = this;
  age_timer_.self = this;
  timer_.fire = [](Timer& timer) { static_cast<OwnTimer&>(timer).self->tick(); };
  age_timer_.fire = [](Timer& timer) { static_cast<OwnTimer&>(timer).self->age_commands(); };
}

HostController::~HostController() {
  FURROW_CHECK(queues_gone_ == queues_.size());
  stop_timers();
}

void HostController::start() {
  deadline_ns_ = executor_.now_ns() + options_.timeout_ms * kNsPerMs;
  set_due(options_.timeout_ms * kNsPerMs);
  const Status opened = open_queue(kAdminEntries, kAdminInCapsuleBytes, 8192);
  if (!opened.ok()) fail(opened);
}

Status HostController::open_queue(std::uint32_t entries, std::uint32_t in_capsule_bytes,
                                  std::uint32_t receive_bytes) {
  const int fd = socket(options_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Status(Code::io_error, Origin::transport, "cannot make a socket", errno);
  const int on = 1;
  // Failure costs latency only: the socket works without it.
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  HostQueueOptions queue;
  queue.entries = entries;
  queue.in_capsule_bytes = in_capsule_bytes;
  queue.receive_bytes = receive_bytes;
  queue.header_digest = options_.header_digest;
  queue.data_digest = options_.data_digest;
  HostQueue::Owner& owner = *this;
  queues_.push_back(std::make_unique<HostQueue>(ring_, owner, fd, queue));
  queues_.back()->start(options_.address, options_.address_bytes);
  return Status();
}

HostCommand* HostController::take(HostQueue*& queue) {
  queue = nullptr;
  if (step_ != Step::up) return nullptr;
  for (std::size_t i = 1; i < queues_.size(); ++i) {
    if (queue == nullptr || queues_[i]->in_flight() < queue->in_flight()) queue = queues_[i].get();
  }
  return queue == nullptr ? nullptr : queue->take();
}

void HostController::set_due(std::uint64_t delay_ns) {
  due_ns_ = executor_.now_ns() + delay_ns;
  executor_.start(timer_, delay_ns);
}

void HostController::tick() {
  const std::uint64_t now = executor_.now_ns();
  if (now < due_ns_) return;
  if (step_ == Step::down) {
    end();  // a farewell that nobody reads, or a target that does not part
  } else if (step_ == Step::up) {
    keep_alive();
  } else if (now >= deadline_ns_) {
    fail(Status(Code::io_error, Origin::transport,
                "the server did not answer in time; is it an NVMe/TCP target?", ETIMEDOUT));
  } else if (step_ == Step::read_csts) {
    set_due(deadline_ns_ - now);  // one question at a time, however often this is called
    run(step_);
  } else {
    set_due(deadline_ns_ - now);
  }
}

// Every half of KATO. An answer that has not come by the next one never will.
void HostController::keep_alive() {
  HostCommand* command = keep_alive_pending_ ? nullptr : queues_[0]->take();
  if (command == nullptr) {
    return fail(Status(Code::aborted, Origin::transport, "the target stopped answering"));
  }
  keep_alive_pending_ = true;
  command->sqe.opc = nvme::admin::kKeepAlive;
  command->context = this;
  command->done = [](HostCommand& done, Status) {
    static_cast<HostController*>(done.context)->keep_alive_pending_ = false;
  };
  queues_[0]->submit(*command);
  set_due(std::max(options_.keep_alive_ms / 2, 1u) * kNsPerMs);
}

// Started when the controller is up.
void HostController::age_commands() {
  for (std::size_t i = 1; i < queues_.size(); ++i) queues_[i]->age(kAgeTicks);
  if (step_ != Step::up) return;  // one of them went down
  executor_.start(age_timer_,
                  std::max(options_.command_timeout_ms * kNsPerMs / kAgeTicks, std::uint64_t{1}));
}

void HostController::stop_timers() {
  executor_.stop(timer_);
  executor_.stop(age_timer_);
}

void HostController::on_down(HostQueue& queue, Status why) {
  for (auto& other : queues_) {
    if (other.get() != &queue) other->end();
  }
  if (step_ == Step::down) return;
  step_ = Step::down;
  set_due(kFarewellNs);
  if (!ended_) owner_.on_down(why);
}

void HostController::on_room(HostQueue& queue) {
  if (step_ == Step::up && &queue != queues_[0].get()) owner_.on_room();
}

void HostController::on_gone(HostQueue&) {
  if (++queues_gone_ != queues_.size()) return;
  stop_timers();
  step_ = Step::down;
  owner_.on_gone();
}

void HostController::fail(Status why) {
  if (step_ == Step::down) return;
  step_ = Step::down;
  const bool nothing_open = queues_.empty();
  if (!ended_) owner_.on_down(why);
  if (nothing_open) {
    stop_timers();
    owner_.on_gone();
  } else {
    for (auto& queue : queues_) queue->end();
  }
}

void HostController::leave() {
  if (step_ != Step::up) return;
  step_ = Step::down;
  set_due(kLeaveNs);
}

void HostController::end() {
  ended_ = true;
  step_ = Step::down;
  stop_timers();
  for (auto& queue : queues_) queue->end();
}

}  // namespace furrow::transport
