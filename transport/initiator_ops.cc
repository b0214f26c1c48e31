// An operation's way to the target, its answer, and what becomes of it when the connection is lost.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/op_answer.h"
#include "transport/initiator_impl.h"

namespace furrow::transport {

namespace {

// Where an operation is, in PageOp::internal.state[0]. In state[1]: how often it was sent without
// an answer, so that it may have been done. In state[2]: since when the target says that it cannot
// do it now; or what it said of that before. In state[3], where state[1] is not 0: when it was lost
// the last time.
enum Phase : std::uint64_t { kOperate, kFlush };
enum PutOff : std::uint64_t { kNever, kNotAnyMore };

bool is_late(const PageOp& op) { return op.internal.deadline.passed; }

// Did a server answer the attempt to connect, rather than none?
bool was_refused(const Status& why) {
  return why.code() == Code::not_found || why.code() == Code::permission ||
         why.code() == Code::busy;
}

constexpr std::uint64_t kAgainNsMin = 5 * kNsPerMs, kAgainNsMax = 100 * kNsPerMs;

// A command of another phase or connection: "later" is counted anew.
void begin_phase(PageOp& op, Phase phase) {
  op.internal.state[0] = phase;
  if (op.internal.state[2] != kNever) op.internal.state[2] = kNotAnyMore;
}

}  // namespace

Status InitiatorImpl::lost(const PageOp& op) const {
  if (op.internal.state[1] != 0) {
    return Status(
        Code::aborted, Origin::transport,
        "the connection was lost before the target answered; it may have been done or not",
        ECONNRESET);
  }
  if (closing_) {
    return Status(Code::aborted, Origin::transport, "the initiator ends; nothing was done",
                  ESHUTDOWN);
  }
  if (was_refused(down_why_)) {  // it says what to do
    return Status(Code::aborted, Origin::transport, down_why_.hint(), ENOTCONN, down_why_.nvme());
  }
  return Status(Code::aborted, Origin::transport, "the server cannot be reached; nothing was done",
                ENOTCONN);
}

InitiatorImpl& InitiatorImpl::self_of(PageOp& op) {
  return *static_cast<InitiatorImpl*>(op.internal.scratch[1]);
}

void InitiatorImpl::submit(PageOp& op) {
  op.internal.self = &op;
  op.internal.state[0] = kOperate;
  op.internal.state[1] = 0;
  op.internal.state[2] = kNever;
  op.internal.scratch[0] = nullptr;
  op.internal.scratch[1] = this;
  Status status = check_page_op(op, limits_);
  if (status.ok()) status = check_time_limit(op);
  if (status.ok() && given_up_) status = lost(op);
  if (!status.ok() && !takes_more_) {
    op.status = status;
    return;
  }
  accept(op, executor_, [](Timer& timer) { self_of(tell_late(timer)).drop_late_soon(); });
  if (!status.ok()) return refuse(op, status);
  if (!waiting_.empty() || !dispatch(op)) waiting_.push(op);
}

bool InitiatorImpl::dispatch(PageOp& op) {
  if (controller_ == nullptr) return false;
  HostQueue* queue = nullptr;
  HostCommand* command = controller_->take(queue);
  if (command == nullptr) return false;
  if (!encode_page_op(op, limits_, op.internal.state[0] == kFlush, *command)) {
    queue->give_back(*command);
    refuse(op, {Code::busy, Origin::transport,
                "there is no memory for what the target would list; nothing was done: list fewer "
                "keys at a time, or try again"});
    return true;
  }
  command->context = &op;
  command->done = [](HostCommand& done, Status status) {
    self_of(*static_cast<PageOp*>(done.context)).on_answer(done, status);
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
  if (deleted) controller_->leave();
  if (status.code() == Code::aborted || deleted) return on_lost(op, command.sent);
  const Status result = status.ok() ? decode_page_answer(op, command) : status;
  if (may_succeed_later(result, command.cqe) && send_later(op)) return;
  if (result.ok() && op.internal.state[0] == kOperate && needs_flush(op)) {
    begin_phase(op, kFlush);
    // This command's place is not free yet, another's may be; and the connection may be ending.
    if (!dispatch(op)) waiting_.push_front(op);
    return;
  }
  settle(op, result);
}

// Not at once, as the target would only say it again: after as long as it has said so already.
bool InitiatorImpl::send_later(PageOp& op) {
  const std::uint64_t now = executor_.now_ns(), limit = options_.command_timeout_ms * kNsPerMs;
  std::uint64_t& since = op.internal.state[2];
  if (since <= kNotAnyMore) since = now;
  if (closing_ || is_late(op) || (limit != 0 && now - since >= limit)) return false;
  const std::uint64_t delay = std::clamp(now - since, kAgainNsMin, kAgainNsMax);
  if (again_.empty()) executor_.start(again_timer_, delay);
  again_.push(op);
  return true;
}

void InitiatorImpl::send_again_now() {
  waiting_.push_front_all(again_);
  dispatch_waiting();
}

void InitiatorImpl::on_lost(PageOp& op, bool sent) {
  const bool may_be_done = sent || op.internal.state[0] == kFlush;
  if (may_be_done) {
    ++op.internal.state[1];
    op.internal.state[3] = executor_.now_ns();
  }
  if (closing_ || is_late(op) || options_.reconnect_for_ms == 0 ||
      (may_be_done && !is_idempotent(op)) || op.internal.state[1] >= kLossesMax) {
    return settle(op, lost(op));
  }
  begin_phase(op, kOperate);  // what a Store promised may be gone: from its beginning
  resend_.push(op);
}

// 0: it need not be held.
std::uint64_t InitiatorImpl::held_until_ns(const PageOp& op) const {
  const std::uint64_t lost_ns = op.internal.state[3];
  if (op.internal.state[1] == 0 || !changes_pages(op) || lost_ns < forgotten_ns_) return 0;
  return lost_ns + hold_ns();
}

// What was stored over the connection that is gone and waits for its Flush: another connection's
// would vouch for a page that its target may have lost. All else that waits goes by the next one.
void InitiatorImpl::lose_unflushed() {
  executor_.stop(again_timer_);
  waiting_.push_front_all(again_);
  OpQueue kept;
  while (!waiting_.empty()) {
    PageOp& op = waiting_.pop();
    if (op.internal.state[0] == kFlush) {
      on_lost(op, true);
    } else {
      kept.push(op);
    }
  }
  waiting_.push_front_all(kept);
}

// What is with the target ends with its answer, or with the connection; it is in none of these.
void InitiatorImpl::drop_late() {
  OpQueue late;
  for (OpQueue* const queue : {&waiting_, &again_, &resend_, &held_}) {
    OpQueue kept;
    while (!queue->empty()) {
      PageOp& op = queue->pop();
      (is_late(op) ? late : kept).push(op);
    }
    *queue = kept;
  }
  while (!late.empty()) {
    PageOp& op = late.pop();
    settle(op, given_up(op));
  }
}

Status InitiatorImpl::given_up(const PageOp& op) {
  const bool nothing_done = op.internal.state[1] == 0 && op.internal.state[0] == kOperate;
  return {Code::late, Origin::transport,
          nothing_done ? "not sent within within_us; nothing was done"
                       : "no answer within within_us; it may have been done or not"};
}

void InitiatorImpl::settle(PageOp& op, Status status) {
  free_list_memory(op);
  op.internal.status = status;
  answer(op);
}

void InitiatorImpl::refuse(PageOp& op, Status status) {
  op.internal.status = status;
  refused_.push(op);
  ring_.defer(refused_work_);
}

void InitiatorImpl::refuse_waiting() {
  while (!waiting_.empty()) {
    PageOp& op = waiting_.pop();
    refuse(op, lost(op));
  }
}

// What their callbacks submit is refused in the next turn: the executor has more to do than that.
void InitiatorImpl::deliver_refused() {
  OpQueue due = std::exchange(refused_, OpQueue());
  while (!due.empty()) {
    PageOp& op = due.pop();
    settle(op, op.internal.status);
  }
}

}  // namespace furrow::transport
