// run_ops(): operations that are submitted on a loop's thread and waited for on the caller's, for
// the blocking facades (SyncPageStore, SyncInitiator). Where the loop lends its turns, its thread
// is the caller's.
//
// Threads: any but the loop's, which must be in run().
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>

#include "engine/page_op.h"
#include "zone/event_loop.h"

namespace furrow {

// Calls submit(op) for each of `ops` on the loop's thread, all before the first is waited for;
// returns when all are released. Sets their callbacks and context.
template <class Submit>
void run_ops(EventLoop& loop, std::span<PageOp> ops, const Submit& submit) {
  struct Batch : Task {
    std::span<PageOp> ops;
    const Submit* submit = nullptr;
    std::size_t left = 0;
    std::mutex mutex;
    std::condition_variable answered;
  } batch;
  if (ops.empty()) return;
  batch.ops = ops;
  batch.submit = &submit;
  batch.left = ops.size();
  for (PageOp& op : ops) {
    op.context = &batch;
    op.on_result = [](PageOp&) {};
    op.on_released = [](PageOp& done) {
      auto& its_batch = *static_cast<Batch*>(done.context);
      // Notified with the mutex held: the caller cannot leave, and end the batch, before.
      const std::lock_guard lock(its_batch.mutex);
      if (--its_batch.left == 0) its_batch.answered.notify_one();
    };
  }
  batch.Task::run = [](Task& task) {
    auto& its_batch = static_cast<Batch&>(task);
    // The last one's release may end the batch before this loop looks at it again.
    const std::span<PageOp> its_ops = its_batch.ops;
    const Submit& its_submit = *its_batch.submit;
    for (PageOp& op : its_ops) its_submit(op);
  };
  EventLoop::Turns turns = loop.take_turns();
  loop.post(batch);
  if (turns) return turns.run_until([&] { return batch.left == 0; });
  std::unique_lock lock(batch.mutex);
  batch.answered.wait(lock, [&] { return batch.left == 0; });
}

}  // namespace furrow
