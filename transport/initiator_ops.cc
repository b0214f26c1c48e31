// An operation's way to the target, its answer, and what becomes of it when the connection is lost.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/initiator_impl.h"

namespace furrow::transport {

namespace {

// Where an operation is, in PageOp::internal.state[0]. In state[1]: how often it was sent without
// an answer, so that it may have been done. In state[2]: since when the target says that it cannot
// do it now; or what it said of that before. In state[3], where state[1] is not 0: when it was lost
// the last time.
enum Phase : std::uint64_t { kOperate, kFlush };
enum PutOff : std::uint64_t { kNever, kNotAnyMore };

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
  return Status(Code::aborted, Origin::transport, "the server cannot be reached; nothing was done",
                ENOTCONN);
}

void InitiatorImpl::submit(PageOp& op) {
  op.internal.self = &op;
  op.internal.state[0] = kOperate;
  op.internal.state[1] = 0;
  op.internal.state[2] = kNever;
  op.internal.scratch[0] = nullptr;
  op.status = check_page_op(op, limits_);
  if (op.status.ok() && given_up_) op.status = lost(op);
  if (!op.status.ok()) return takes_more_ ? refuse(op) : void();
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
  if (closing_ || (limit != 0 && now - since >= limit)) return false;
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
  if (closing_ || options_.reconnect_for_ms == 0 || (may_be_done && !is_idempotent(op)) ||
      op.internal.state[1] >= kLossesMax) {
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

void InitiatorImpl::settle(PageOp& op, Status status) {
  free_list_memory(op);
  op.status = status;
  op.on_result(op);
  if (op.on_released != nullptr) op.on_released(op);
}

// Its status says why.
void InitiatorImpl::refuse(PageOp& op) {
  refused_.push(op);
  ring_.defer(refused_work_);
}

void InitiatorImpl::refuse_waiting() {
  while (!waiting_.empty()) {
    PageOp& op = waiting_.pop();
    op.status = lost(op);
    refuse(op);
  }
}

// What their callbacks submit is refused in the next turn: the executor has more to do than that.
void InitiatorImpl::deliver_refused() {
  OpQueue due = std::exchange(refused_, OpQueue());
  while (!due.empty()) {
    PageOp& op = due.pop();
    settle(op, op.status);
  }
}

}  // namespace furrow::transport
