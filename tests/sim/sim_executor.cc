#include "tests/sim/sim_executor.h"

#include <algorithm>

namespace furrow::sim {

namespace {
constexpr std::uint64_t kTurnNs = 500;
}  // namespace

void SimExecutor::post(Task& task) {
  task.next = nullptr;
  (first_task_ == nullptr ? first_task_ : last_task_->next) = &task;
  last_task_ = &task;
}

void SimExecutor::start(Timer& timer, std::uint64_t delay_ns) {
  stop(timer);
  timer.at_ns = clock_.now_ns + delay_ns;
  timer.heap_slot = 0;
  timers_.push_back(&timer);
}

void SimExecutor::stop(Timer& timer) {
  if (timer.heap_slot < 0) return;
  timer.heap_slot = -1;
  std::erase(timers_, &timer);
}

bool SimExecutor::run_once() {
  clock_.now_ns += kTurnNs;
  unsigned events = run_tasks();
  const std::vector<Poller*> pollers = pollers_;
  for (Poller* poller : pollers) {
    if (std::ranges::find(pollers_, poller) != pollers_.end()) events += poller->poll();
  }
  events += fire_timers();
  if (events != 0 || first_task_ != nullptr) return true;
  std::uint64_t due = device_due_();
  for (const Timer* timer : timers_) due = std::min(due, timer->at_ns);
  if (due == kNever) return false;
  clock_.now_ns = std::max(clock_.now_ns, due);
  return true;
}

// What tasks post is for the next turn.
unsigned SimExecutor::run_tasks() {
  Task* task = first_task_;
  first_task_ = last_task_ = nullptr;
  unsigned count = 0;
  for (; task != nullptr; ++count) {
    Task* const next = task->next;  // before it runs: it may be posted again, or be gone
    task->run(*task);
    task = next;
  }
  return count;
}

unsigned SimExecutor::fire_timers() {
  std::vector<Timer*> due;
  for (Timer* timer : timers_) {
    if (timer->at_ns <= clock_.now_ns) due.push_back(timer);
  }
  std::ranges::stable_sort(due, {}, &Timer::at_ns);
  for (Timer* timer : due) {
    if (timer->heap_slot < 0) continue;  // an earlier one stopped it
    stop(*timer);
    timer->fire(*timer);
  }
  return static_cast<unsigned>(due.size());
}

}  // namespace furrow::sim
