#include "zone/event_loop.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "zone/check.h"

namespace furrow {

namespace {
constexpr std::uint64_t kForeverNs = ~std::uint64_t{0};
// Reading the clock costs as much as an idle turn: timers, and how long there has been nothing to
// do, are looked at once in so many turns.
constexpr unsigned kTurnsPerClock = 8;

std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  FURROW_CHECK(clock_gettime(clock, &now) == 0);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}
}  // namespace

EventLoop::EventLoop(Options options)
    : options_(options),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      random_(options.seed != 0
                  ? options.seed
                  : (std::uint64_t{std::random_device()()} << 32 | std::random_device()())) {
  FURROW_CHECK(wake_fd_ >= 0);
}

EventLoop::~EventLoop() { close(wake_fd_); }

void EventLoop::run() {
  thread_.store(std::this_thread::get_id());
  std::uint64_t idle_since_ns = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    if (run_once() != 0) {
      idle_since_ns = 0;
      continue;
    }
    if (options_.spin_us == ~std::uint64_t{0} || turns_ % kTurnsPerClock != 0) continue;
    const std::uint64_t now = now_ns();
    if (idle_since_ns == 0) idle_since_ns = now;
    if (now - idle_since_ns >= options_.spin_us * 1000) {
      sleep();
      idle_since_ns = 0;
    }
  }
  stop_.store(false);
  thread_.store(std::thread::id());
}

void EventLoop::stop_running() {
  stop_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // A full eventfd counter (EAGAIN) wakes the loop just as well.
  if (write(wake_fd_, &one, sizeof one) < 0) FURROW_CHECK(errno == EAGAIN);
}

unsigned EventLoop::run_once() {
  if (thread_.load(std::memory_order_relaxed) != std::this_thread::get_id()) {
    thread_.store(std::this_thread::get_id());
  }
  unsigned events = run_tasks();
  if (++turns_ % kTurnsPerClock == 0) events += fire_timers();
  // By index: a completion may add a poller (appended) or remove one (the slot becomes null).
  for (std::size_t i = 0; i < pollers_.size(); ++i) {
    if (pollers_[i] != nullptr) events += pollers_[i]->poll();
  }
  std::erase(pollers_, nullptr);
  return events;
}

void EventLoop::post(Task& task) {
  Task* head = posted_.load(std::memory_order_relaxed);
  do {
    task.next = head;
  } while (!posted_.compare_exchange_weak(head, &task, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
  // Pairs with sleep(): either this sees `sleeping_`, or sleep() sees the task.
  if (sleeping_.load(std::memory_order_seq_cst)) {
    const std::uint64_t one = 1;
    if (write(wake_fd_, &one, sizeof one) < 0) FURROW_CHECK(errno == EAGAIN);
  }
}

bool EventLoop::is_current() const {
  return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
}

unsigned EventLoop::run_tasks() {
  if (posted_.load(std::memory_order_relaxed) == nullptr) return 0;
  Task* taken = posted_.exchange(nullptr, std::memory_order_acquire);
  Task* first = nullptr;
  while (taken != nullptr) {
    Task* next = taken->next;
    taken->next = first;
    first = taken;
    taken = next;
  }
  unsigned count = 0;
  while (first != nullptr) {
    Task* next = first->next;  // before run(): the task may be posted again, or be gone
    first->run(*first);
    first = next;
    ++count;
  }
  return count;
}

void EventLoop::sleep() {
  sleeping_.store(true, std::memory_order_seq_cst);
  std::vector<pollfd>& fds = poll_fds_;
  fds.assign(1, {wake_fd_, POLLIN, 0});
  bool must_poll = posted_.load(std::memory_order_seq_cst) != nullptr || stop_.load();
  for (const Poller* poller : pollers_) {
    if (poller == nullptr) continue;
    if (poller->wake_fd() >= 0) {
      fds.push_back({poller->wake_fd(), POLLIN, 0});
    } else if (poller->busy()) {
      must_poll = true;
    }
  }
  if (!must_poll) {
    timespec timeout{};
    const timespec* limit = nullptr;
    if (!timers_.empty()) {
      const std::uint64_t now = now_ns();
      const std::uint64_t left = timers_[0]->at_ns > now ? timers_[0]->at_ns - now : 0;
      timeout = {static_cast<time_t>(left / 1'000'000'000u),
                 static_cast<long>(left % 1'000'000'000u)};
      limit = &timeout;
    }
    if (ppoll(fds.data(), fds.size(), limit, nullptr) > 0 && (fds[0].revents & POLLIN) != 0) {
      std::uint64_t count;
      if (read(wake_fd_, &count, sizeof count) < 0) FURROW_CHECK(errno == EAGAIN);
    }
  }
  sleeping_.store(false, std::memory_order_relaxed);
}

void EventLoop::start(Timer& timer, std::uint64_t delay_ns) {
  stop(timer);
  const std::uint64_t now = now_ns();
  timer.at_ns = delay_ns > kForeverNs - now ? kForeverNs : now + delay_ns;
  timer.heap_slot = static_cast<std::int32_t>(timers_.size());
  timers_.push_back(&timer);
  sift(timers_.size() - 1);
}

void EventLoop::stop(Timer& timer) {
  if (timer.heap_slot < 0) return;
  const auto slot = static_cast<std::size_t>(timer.heap_slot);
  timer.heap_slot = -1;
  Timer* last = timers_.back();
  timers_.pop_back();
  if (last == &timer) return;
  timers_[slot] = last;
  last->heap_slot = static_cast<std::int32_t>(slot);
  sift(slot);
}

// Restores the heap's order around a slot that changed.
void EventLoop::sift(std::size_t slot) {
  const auto place = [this](std::size_t at, Timer* timer) {
    timers_[at] = timer;
    timer->heap_slot = static_cast<std::int32_t>(at);
  };
  Timer* moved = timers_[slot];
  while (slot > 0 && timers_[(slot - 1) / 2]->at_ns > moved->at_ns) {
    place(slot, timers_[(slot - 1) / 2]);
    slot = (slot - 1) / 2;
  }
  for (std::size_t child = 2 * slot + 1; child < timers_.size(); child = 2 * slot + 1) {
    if (child + 1 < timers_.size() && timers_[child + 1]->at_ns < timers_[child]->at_ns) ++child;
    if (timers_[child]->at_ns >= moved->at_ns) break;
    place(slot, timers_[child]);
    slot = child;
  }
  place(slot, moved);
}

unsigned EventLoop::fire_timers() {
  unsigned fired = 0;
  if (timers_.empty()) return 0;
  const std::uint64_t now = now_ns();
  while (!timers_.empty() && timers_[0]->at_ns <= now) {
    Timer* timer = timers_[0];
    stop(*timer);
    timer->fire(*timer);
    ++fired;
  }
  return fired;
}

void EventLoop::add(Poller& poller) { pollers_.push_back(&poller); }

void EventLoop::remove(Poller& poller) { std::ranges::replace(pollers_, &poller, nullptr); }

std::uint64_t EventLoop::now_ns() const { return clock_ns(CLOCK_MONOTONIC); }

std::uint64_t EventLoop::wall_s() const { return clock_ns(CLOCK_REALTIME) / 1'000'000'000u; }

std::uint64_t EventLoop::random() { return random_(); }

}  // namespace furrow
