#include "engine/op_answer.h"

namespace furrow {

PageOp& tell_late(Timer& timer) {
  auto& deadline = static_cast<PageOp::Internal::Deadline&>(timer);
  PageOp& op = *deadline.op;
  deadline.passed = true;
  op.status = {Code::late, Origin::engine,
               "no answer within within_us; its memory is in use until it is released"};
  if (op.on_result != nullptr) op.on_result(op);
  return op;
}

Status check_time_limit(const PageOp& op) {
  if (op.within_us == 0 || op.on_released != nullptr) return {};
  return {Code::invalid_argument, Origin::engine, "within_us needs on_released"};
}

void accept(PageOp& op, Executor& executor, void (*when_late)(Timer&)) {
  constexpr std::uint64_t kNsPerUs = 1000;
  PageOp::Internal& in = op.internal;
  in.reply_to = &executor;
  in.deadline.passed = false;
  if (op.within_us == 0 || op.on_released == nullptr) return;  // the latter is refused
  in.deadline.op = &op;
  in.deadline.fire = when_late;
  executor.start(in.deadline, op.within_us * kNsPerUs);
}

void answer(PageOp& op) {
  PageOp::Internal& in = op.internal;
  void (*const on_released)(PageOp&) = op.on_released;
  op.status = in.status;
  if (op.within_us != 0) in.reply_to->stop(in.deadline);
  if (!in.deadline.passed && op.on_result != nullptr) op.on_result(op);
  if (on_released != nullptr) on_released(op);
}

}  // namespace furrow
