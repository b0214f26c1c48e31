#include "zone/event_loop.h"

#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

#include "zone/check.h"
#include "zone/descriptors.h"

namespace furrow {

namespace {
constexpr std::uint64_t kForever = ~std::uint64_t{0};
// Reading the clock costs as much as an idle turn: timers, and how long there has been nothing to
// do, are looked at once in so many turns.
constexpr unsigned kTurnsPerClock = 8;
constexpr unsigned kLastTurns = 4;             // of who gives the turns back, at most
constexpr std::uint64_t kRetryNs = 5'000'000;  // of run(), while others have the turns

std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  FURROW_CHECK(clock_gettime(clock, &now) == 0);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void wake(int event_fd) {
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) wakes just as well.
  if (write(event_fd, &one, sizeof one) < 0) FURROW_CHECK(errno == EAGAIN);
}

// Until one of them is readable, the first of which is an eventfd, or `at_ns`.
void sleep_until(std::span<pollfd> fds, std::uint64_t at_ns) {
  timespec timeout{};
  if (at_ns != kForever) {
    const std::uint64_t now = clock_ns(CLOCK_MONOTONIC);
    const std::uint64_t left = at_ns > now ? at_ns - now : 0;
    timeout = {static_cast<time_t>(left / 1'000'000'000u),
               static_cast<long>(left % 1'000'000'000u)};
  }
  const timespec* const limit = at_ns != kForever ? &timeout : nullptr;
  if (ppoll(fds.data(), fds.size(), limit, nullptr) > 0 && (fds[0].revents & POLLIN) != 0) {
    std::uint64_t count;
    if (read(fds[0].fd, &count, sizeof count) < 0) FURROW_CHECK(errno == EAGAIN);
  }
}

}  // namespace

EventLoop::EventFds::EventFds()
    : wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), rest(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (wake >= 0 && rest >= 0) return;
  error = errno;
  for (const int fd : {wake, rest}) {
    if (fd >= 0) close(fd);
  }
}

const char* EventLoop::EventFds::why() const {
  return error == EMFILE ? kNoDescriptor : "cannot make an eventfd";
}

EventLoop::EventFds EventLoop::EventFds::needed() {
  const EventFds fds;
  if (fds.error != 0) throw std::system_error(fds.error, std::generic_category(), fds.why());
  return fds;
}

EventLoop::EventLoop(Options options) : EventLoop(options, EventFds::needed()) {}

Result<std::unique_ptr<EventLoop>> EventLoop::make(Options options) {
  const EventFds fds;
  if (fds.error != 0) return Status(Code::io_error, Origin::zone, fds.why(), fds.error);
  return std::unique_ptr<EventLoop>(new EventLoop(options, fds));
}

EventLoop::EventLoop(Options options, const EventFds& fds)
    : options_(options),
      wake_fd_(fds.wake),
      rest_fd_(fds.rest),
      random_(options.seed != 0
                  ? options.seed
                  : (std::uint64_t{std::random_device()()} << 32 | std::random_device()())) {}

// Who posted a task that has run may still be about to wake this.
EventLoop::~EventLoop() {
  while (posting_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  close(wake_fd_);
  close(rest_fd_);
}

void EventLoop::run() {
  const std::lock_guard turns(turns_mutex_);
  IdleTime idle;
  while (!stop_.load(std::memory_order_acquire)) turn(idle, true);
  stop_.store(false);
  thread_.store(std::thread::id());
}

// And rests, or sleeps, when there has been nothing to do for long enough.
void EventLoop::turn(IdleTime& idle, bool may_rest) {
  if (run_once() != 0) {
    idle.since_ns = 0;
    return;
  }
  if (options_.spin_us == kForever || turns_ % kTurnsPerClock != 0) return;
  const std::uint64_t now = now_ns();
  if (may_rest && options_.lends != Lends::never && !anything_busy()) {
    rest(now + options_.spin_us * 1000);
    return;
  }
  if (idle.since_ns == 0) idle.since_ns = now;
  if (now - idle.since_ns < options_.spin_us * 1000) return;
  if (may_rest && options_.lends == Lends::asleep) {
    rest(now);
  } else {
    sleep();
  }
  idle.since_ns = 0;
}

void EventLoop::stop_running() {
  stop_.store(true, std::memory_order_release);
  wake(wake_fd_);
  wake(rest_fd_);
}

EventLoop::Turns EventLoop::take_turns() {
  if (options_.lends == Lends::never || !turns_mutex_.try_lock()) return {};
  state_.store(State::turning, std::memory_order_relaxed);
  return Turns(*this);
}

// run() need not know of it unless something is left to do that it does not watch for.
void EventLoop::give_back() {
  // What a turn's events have led to may be for the next one: not given to the kernel yet.
  bool more = true;
  for (unsigned i = 0; i < kLastTurns && more; ++i) more = anything_busy() && run_once() != 0;
  thread_.store(std::thread::id());
  const bool busy = anything_busy();
  bool left = more || must_be_polled() || first_timer_ns() < rests_until_ns_.load();
  state_.store(State::resting, std::memory_order_seq_cst);
  left = left || posted_.load(std::memory_order_seq_cst) != nullptr;
  turns_mutex_.unlock();
  if (!left && !(busy && !watches_.load(std::memory_order_seq_cst))) return;
  recalled_.store(true, std::memory_order_relaxed);
  wake(rest_fd_);
}

// Of run(): lends the turns until there is something to do. Awake for a while, as what comes next
// often comes soon.
void EventLoop::rest(std::uint64_t awake_until_ns) {
  if (must_be_polled() || !watch(rest_fds_, rest_fd_)) return;
  const std::uint64_t until_ns = first_timer_ns();
  rests_until_ns_.store(until_ns);
  watches_.store(options_.lends == Lends::asleep);
  thread_.store(std::thread::id());
  state_.store(State::resting, std::memory_order_seq_cst);
  turns_mutex_.unlock();
  const auto called = [this] {
    if (recalled_.load(std::memory_order_relaxed) || stop_.load(std::memory_order_relaxed)) {
      return true;
    }
    return state_.load(std::memory_order_seq_cst) == State::resting &&
           posted_.load(std::memory_order_seq_cst) != nullptr;
  };
  while (!called() && now_ns() < std::min(until_ns, awake_until_ns)) std::this_thread::yield();
  if (!called()) sleep_until(rest_fds_, until_ns);
  rests_until_ns_.store(0);
  watches_.store(false, std::memory_order_seq_cst);
  // Who has the turns by now sees to everything, and would be in the way of whoever waits for them.
  const std::span<pollfd> recall(rest_fds_.data(), 1);
  while (!turns_mutex_.try_lock()) sleep_until(recall, now_ns() + kRetryNs);
  recalled_.store(false, std::memory_order_relaxed);
  state_.store(State::turning, std::memory_order_relaxed);
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
  posting_.fetch_add(1, std::memory_order_relaxed);  // seen by who sees the task
  Task* head = posted_.load(std::memory_order_relaxed);
  do {
    task.next = head;
  } while (!posted_.compare_exchange_weak(head, &task, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
  // Pairs with sleep(), rest() and give_back(): either this sees their state, or they the task.
  const State state = state_.load(std::memory_order_seq_cst);
  if (state != State::turning) wake(state == State::asleep ? wake_fd_ : rest_fd_);
  posting_.fetch_sub(1, std::memory_order_release);  // the last look at this
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

bool EventLoop::anything_busy() const {
  return std::ranges::any_of(
      pollers_, [](const Poller* poller) { return poller != nullptr && poller->busy(); });
}

std::uint64_t EventLoop::first_timer_ns() const {
  return timers_.empty() ? kForever : timers_[0]->at_ns;
}

// Nothing tells when there is something to do.
bool EventLoop::must_be_polled() const {
  return std::ranges::any_of(pollers_, [](const Poller* poller) {
    return poller != nullptr && poller->wake_fd() < 0 && poller->busy();
  });
}

// False: one of them is not to be slept over yet.
bool EventLoop::watch(std::vector<pollfd>& fds, int event_fd) {
  fds.assign(1, {event_fd, POLLIN, 0});
  bool ready = true;
  for (Poller* poller : pollers_) {
    if (poller == nullptr || poller->wake_fd() < 0) continue;
    ready &= poller->before_sleep();
    fds.push_back({poller->wake_fd(), POLLIN, 0});
  }
  return ready;
}

// Of who has the turns.
void EventLoop::sleep() {
  state_.store(State::asleep, std::memory_order_seq_cst);
  const bool awake =
      posted_.load(std::memory_order_seq_cst) != nullptr || stop_.load() || must_be_polled();
  if (!awake && watch(poll_fds_, wake_fd_)) sleep_until(poll_fds_, first_timer_ns());
  state_.store(State::turning, std::memory_order_relaxed);
}

void EventLoop::start(Timer& timer, std::uint64_t delay_ns) {
  stop(timer);
  const std::uint64_t now = now_ns();
  timer.at_ns = delay_ns > kForever - now ? kForever : now + delay_ns;
  timers_.push_back(&timer);
  timer.heap_slot = static_cast<std::int32_t>(timers_.size() - 1);
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

void EventLoop::add(Poller& poller) {
  pollers_.push_back(&poller);
  watches_.store(false);
  poll_fds_.reserve(pollers_.size() + 1);  // so that sleep() allocates nothing
}

void EventLoop::remove(Poller& poller) { std::ranges::replace(pollers_, &poller, nullptr); }

std::uint64_t EventLoop::now_ns() const { return clock_ns(CLOCK_MONOTONIC); }

std::uint64_t EventLoop::wall_s() const { return clock_ns(CLOCK_REALTIME) / 1'000'000'000u; }

std::uint64_t EventLoop::random() { return random_(); }

}  // namespace furrow
