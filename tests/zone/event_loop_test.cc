// Establishes that EventLoop runs tasks in the order of each posting thread, fires timers in order
// of their time (started again, stopped, started from within), polls and drops pollers, sleeps when
// there is nothing to do and wakes for tasks, timers and file descriptors, and that other threads
// can give its turns. Runs under TSan.
#include "zone/event_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>

namespace furrow {
namespace {

struct Call : Task {
  explicit Call(std::function<void()> body) : what(std::move(body)) {
    run = [](Task& task) { static_cast<Call&>(task).what(); };
  }
  std::function<void()> what;
};

struct Alarm : Timer {
  explicit Alarm(std::function<void()> body) : what(std::move(body)) {
    fire = [](Timer& timer) { static_cast<Alarm&>(timer).what(); };
  }
  std::function<void()> what;
};

EventLoop::Options sleepy() {
  EventLoop::Options options;
  options.spin_us = 0;
  options.seed = 7;
  return options;
}

EventLoop::Options lends_asleep() {
  EventLoop::Options options = sleepy();
  options.lends = EventLoop::Lends::asleep;
  return options;
}

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

TEST(EventLoop, RunsTasksOfEachThreadInOrder) {
  static constexpr unsigned kThreads = 4, kTasks = 2000;
  EventLoop loop(sleepy());
  struct Numbered : Task {
    unsigned thread, number;
    std::array<unsigned, kThreads>* next;
    unsigned* total;
    bool* ordered;
    EventLoop* loop;
  };
  std::array<unsigned, kThreads> next{};
  unsigned total = 0;
  bool ordered = true;
  std::vector<std::vector<Numbered>> tasks(kThreads, std::vector<Numbered>(kTasks));
  std::thread runner([&] { loop.run(); });
  std::vector<std::thread> posters;
  for (unsigned t = 0; t < kThreads; ++t) {
    posters.emplace_back([&, t] {
      for (unsigned i = 0; i < kTasks; ++i) {
        Numbered& task = tasks[t][i];
        task.thread = t;
        task.number = i;
        task.next = &next;
        task.total = &total;
        task.ordered = &ordered;
        task.loop = &loop;
        task.run = [](Task& posted) {
          auto& self = static_cast<Numbered&>(posted);
          *self.ordered = *self.ordered && (*self.next)[self.thread]++ == self.number &&
                          self.loop->is_current();
          if (++*self.total == kThreads * kTasks) self.loop->stop_running();
        };
        loop.post(task);
        if (i % 100 == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& poster : posters) poster.join();
  runner.join();
  EXPECT_EQ(total, kThreads * kTasks);
  EXPECT_TRUE(ordered);
  EXPECT_FALSE(loop.is_current());
}

// While the thread that posted it may still be about to wake the loop.
TEST(EventLoop, MayEndOnceItsTaskHasRun) {
  for (unsigned i = 0; i < 2000; ++i) {
    bool ran = false;
    Call last([&] { ran = true; });
    auto loop = std::make_unique<EventLoop>();
    std::thread poster([&last, its_loop = loop.get()] { its_loop->post(last); });
    while (!ran) loop->run_once();
    loop.reset();
    poster.join();
  }
}

TEST(EventLoop, ATaskMayPostItselfAgain) {
  EventLoop loop;
  unsigned runs = 0;
  Call again([] {});
  again.what = [&] {
    if (++runs == 10) {
      loop.stop_running();
    } else {
      loop.post(again);
    }
  };
  loop.post(again);
  loop.run();
  EXPECT_EQ(runs, 10u);
}

TEST(EventLoop, FiresTimersInOrderOfTime) {
  EventLoop loop(sleepy());
  std::string fired;
  Alarm a([&] { fired += 'a'; }), b([&] { fired += 'b'; }), c([&] { fired += 'c'; });
  Alarm end([&] { loop.stop_running(); });
  loop.start(c, 3'000'000);
  loop.start(a, 1'000'000);
  loop.start(end, 8'000'000);
  loop.start(b, 2'000'000);
  const std::uint64_t began_ns = loop.now_ns();
  loop.run();
  EXPECT_EQ(fired, "abc");
  EXPECT_GE(loop.now_ns() - began_ns, 8'000'000u);
  EXPECT_EQ(a.heap_slot, -1);
}

TEST(EventLoop, TimersStartAgainAndStop) {
  EventLoop loop(sleepy());
  std::string fired;
  Alarm stopped([&] { fired += 'x'; });
  Alarm moved([&] { fired += 'm'; });
  Alarm chained([] {});
  chained.what = [&] {
    fired += 'c';
    if (fired.size() < 4) loop.start(chained, 0);
  };
  Alarm killer([&] { loop.stop(stopped); });
  Alarm end([&] { loop.stop_running(); });
  loop.stop(stopped);  // not started: nothing happens
  loop.start(stopped, 3'000'000);
  loop.start(moved, 1'000'000);
  loop.start(moved, 5'000'000);  // restarts
  loop.start(chained, 0);
  loop.start(killer, 2'000'000);
  loop.start(end, 9'000'000);
  loop.run();
  EXPECT_EQ(fired, "ccccm");
}

// Random starts and stops beside a plain list.
TEST(EventLoop, ManyTimersKeepTheirOrder) {
  EventLoop loop(sleepy());
  struct Numbered : Timer {
    std::vector<std::uint64_t>* fired;
  };
  std::vector<std::uint64_t> fired;
  std::vector<Numbered> timers(300);
  unsigned expected = 0;
  for (Numbered& timer : timers) {
    timer.fired = &fired;
    timer.fire = [](Timer& self) { static_cast<Numbered&>(self).fired->push_back(self.at_ns); };
    loop.start(timer, loop.random() % 3'000'000);
  }
  for (int i = 0; i < 1000; ++i) {
    Numbered& timer = timers[loop.random() % timers.size()];
    if (loop.random() % 3 == 0) {
      loop.stop(timer);
    } else {
      loop.start(timer, loop.random() % 3'000'000);
    }
  }
  for (const Numbered& timer : timers) expected += timer.heap_slot >= 0;
  Alarm end([&] { loop.stop_running(); });
  loop.start(end, 20'000'000);
  loop.run();
  EXPECT_EQ(fired.size(), expected);
  EXPECT_TRUE(std::is_sorted(fired.begin(), fired.end()));
}

class FakePoller final : public Poller {
 public:
  explicit FakePoller(int fd) : fd_(fd) {}
  unsigned poll() override {
    ++polls;
    return on_poll ? on_poll() : 0;
  }
  int wake_fd() const override { return fd_; }
  bool busy() const override { return is_busy; }
  bool before_sleep() override { return ++sleeps > refuses; }
  std::function<unsigned()> on_poll;
  unsigned polls = 0, sleeps = 0, refuses = 0;
  bool is_busy = false;

 private:
  int fd_;
};

TEST(EventLoop, SleepsAndWakesForAFileDescriptor) {
  EventLoop loop(sleepy());
  constexpr unsigned kRefusals = 3;
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  FakePoller poller(fd);
  poller.refuses = kRefusals;
  poller.is_busy = true;
  poller.on_poll = [&]() -> unsigned {
    std::uint64_t count = 0;
    if (read(fd, &count, sizeof count) != sizeof count) return 0;
    loop.stop_running();
    return 1;
  };
  loop.add(poller);
  const double cpu_before = cpu_seconds();
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::uint64_t one = 1;
    ASSERT_EQ(write(fd, &one, sizeof one), 8);
  });
  loop.run();
  waker.join();
  EXPECT_LT(cpu_seconds() - cpu_before, 0.1) << "it did not sleep";
  EXPECT_LT(poller.polls, 50u);
  EXPECT_EQ(poller.sleeps, kRefusals + 1) << "each refusal is followed by turns";
  loop.remove(poller);
  close(fd);
}

TEST(EventLoop, DoesNotSleepWhileAPollerWithoutADescriptorIsBusy) {
  for (const EventLoop::Options& options : {sleepy(), lends_asleep()}) {
    EventLoop loop(options);
    FakePoller poller(-1);
    poller.is_busy = true;
    poller.on_poll = [&] {
      if (poller.polls == 1000) loop.stop_running();
      return 0u;
    };
    loop.add(poller);
    loop.run();
    EXPECT_GE(poller.polls, 1000u);
  }
}

TEST(EventLoop, PollersComeAndGoWhileItRuns) {
  EventLoop loop;
  FakePoller first(-1), second(-1);
  first.on_poll = [&] {
    loop.remove(first);  // from within its own poll
    loop.add(second);
    return 1u;
  };
  second.on_poll = [&] { return 0u; };
  loop.add(first);
  EXPECT_EQ(loop.run_once(), 1u);
  loop.run_once();
  EXPECT_EQ(first.polls, 1u);
  EXPECT_EQ(second.polls, 2u);
  loop.remove(second);
  loop.run_once();
  EXPECT_EQ(second.polls, 2u);
}

TEST(EventLoop, WakesForATaskFromAnotherThread) {
  EventLoop loop(sleepy());
  std::thread runner([&] { loop.run(); });
  for (int i = 0; i < 200; ++i) {
    std::atomic<bool> ran{false};
    Call task([&] { ran.store(true); });
    loop.post(task);
    while (!ran.load()) std::this_thread::yield();
  }
  loop.stop_running();
  runner.join();
}

// Runs a loop on a thread of its own; where() says on which thread a task ran.
class RunningLoop {
 public:
  explicit RunningLoop(EventLoop::Options options = sleepy())
      : loop(options), runner_([this] { loop.run(); }) {}
  ~RunningLoop() {
    loop.stop_running();
    runner_.join();
  }
  EventLoop::Turns take_turns() {
    for (;;) {
      if (EventLoop::Turns turns = loop.take_turns()) return turns;
      std::this_thread::yield();
    }
  }
  std::thread::id own_thread() const { return runner_.get_id(); }
  EventLoop loop;

 private:
  std::thread runner_;
};

// A source that is busy until somebody completes it, and then tells who saw that.
class Source {
 public:
  Source() {
    poller.is_busy = true;
    poller.on_poll = [this]() -> unsigned {
      std::uint64_t count = 0;
      if (read(poller.wake_fd(), &count, sizeof count) != sizeof count) return 0;
      seen_by = std::this_thread::get_id();
      seen.store(true);
      return 1;
    };
  }
  ~Source() { close(poller.wake_fd()); }
  void complete() {
    const std::uint64_t one = 1;
    ASSERT_EQ(write(poller.wake_fd(), &one, sizeof one), 8);
  }
  FakePoller poller{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::thread::id seen_by;
  std::atomic<bool> seen{false};
};

TEST(EventLoop, LendsItsTurnsWhileThereIsNothingToDo) {
  RunningLoop running;
  for (int i = 0; i < 200; ++i) {
    bool ran = false, current = false;
    std::thread::id where;
    Call task([&] {
      where = std::this_thread::get_id();
      current = running.loop.is_current();
      ran = true;
    });
    {
      EventLoop::Turns turns = running.take_turns();
      EXPECT_FALSE(running.loop.take_turns()) << "two threads have the turns";
      running.loop.post(task);
      turns.run_until([&] { return ran; });
    }
    EXPECT_EQ(where, std::this_thread::get_id());
    EXPECT_TRUE(current);
    EXPECT_FALSE(running.loop.is_current());
  }
}

TEST(EventLoop, DoesNotLendItsTurnsWhileAPollerIsBusy) {
  EventLoop loop(sleepy());
  FakePoller poller(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  poller.is_busy = true;
  loop.add(poller);
  std::thread runner([&] { loop.run(); });
  std::atomic<bool> ran{false};
  Call task([&] { ran.store(true); });
  loop.post(task);
  while (!ran.load()) std::this_thread::yield();  // from now on it is in run()
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(loop.take_turns());
  loop.stop_running();
  runner.join();
  loop.remove(poller);
  close(poller.wake_fd());
}

TEST(EventLoop, LendsNoTurnsIfAsked) {
  EventLoop::Options options = sleepy();
  options.lends = EventLoop::Lends::never;
  EventLoop loop(options);
  EXPECT_FALSE(loop.take_turns()) << "nor before run()";
  std::thread runner([&] { loop.run(); });
  const double cpu_before = cpu_seconds();
  for (int i = 0; i < 100; ++i) {
    std::atomic<bool> ran{false};
    Call task([&] { ran.store(true); });
    loop.post(task);
    while (!ran.load()) std::this_thread::yield();
    if (i < 4) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(loop.take_turns());
  }
  EXPECT_LT(cpu_seconds() - cpu_before, 0.1) << "it does not sleep";
  loop.stop_running();
  runner.join();
}

// A completion is seen by who has the turns, or by run() when nobody has; which sleeps meanwhile.
TEST(EventLoop, LendsItsTurnsWhileItSleepsIfAsked) {
  RunningLoop running(lends_asleep());
  for (int i = 0; i < 100; ++i) {
    Source source;
    const bool seen_by_lender = i % 2 != 0;
    {
      EventLoop::Turns turns = running.take_turns();
      running.loop.add(source.poller);
    }
    {
      EventLoop::Turns turns = running.take_turns();
      if (!seen_by_lender) {
        source.complete();
        turns.run_until([&] { return source.seen.load(); });
      }
    }
    if (seen_by_lender) source.complete();
    while (!source.seen.load()) std::this_thread::yield();
    EXPECT_EQ(source.seen_by, seen_by_lender ? running.own_thread() : std::this_thread::get_id());
    const double cpu_before = cpu_seconds();
    if (i < 4) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_LT(cpu_seconds() - cpu_before, 0.04) << "run() does not sleep";
    EventLoop::Turns turns = running.take_turns();
    running.loop.remove(source.poller);
  }
}

// What one turn has left for the next is not slept over, be it of four turns or of twenty.
TEST(EventLoop, WhoGivesTheTurnsBackLeavesNothingThatNobodyWatchesFor) {
  std::atomic<unsigned> steps{0}, last{0};
  RunningLoop running(lends_asleep());
  Source source;
  source.poller.on_poll = [&]() -> unsigned {
    if (steps.load() == last.load()) return 0;
    ++steps;
    return 1;
  };
  {
    EventLoop::Turns turns = running.take_turns();
    running.loop.add(source.poller);
  }
  for (unsigned i = 0; i < 40; ++i) {
    bool ran = false;
    Call task([&] { ran = true; });
    EventLoop::Turns turns = running.take_turns();
    steps = 0;
    last = 1 + i % 20;
    running.loop.post(task);
    turns.run_until([&] { return ran; });
    { const EventLoop::Turns given_back(std::move(turns)); }
    while (steps.load() != last.load()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // run() sleeps again
  }
  EventLoop::Turns turns = running.take_turns();
  running.loop.remove(source.poller);
}

TEST(EventLoop, WhoHasTheTurnsSleepsAndWakesForOthersTasks) {
  RunningLoop running;
  bool ran = false;
  std::thread::id where;
  Call task([&] {
    where = std::this_thread::get_id();
    ran = true;
  });
  EventLoop::Turns turns = running.take_turns();
  const double cpu_before = cpu_seconds();
  std::thread poster([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    running.loop.post(task);
  });
  turns.run_until([&] { return ran; });
  EXPECT_LT(cpu_seconds() - cpu_before, 0.05) << "it did not sleep";
  poster.join();
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(EventLoop, WhatIsLeftWhenTurnsAreGivenBackIsRuns) {
  RunningLoop running;
  std::atomic<int> ran{0};
  std::thread::id timers_thread, tasks_thread;
  Alarm timer([&] {
    timers_thread = std::this_thread::get_id();
    ++ran;
  });
  Call task([&] {
    tasks_thread = std::this_thread::get_id();
    ++ran;
  });
  {
    EventLoop::Turns turns = running.take_turns();
    running.loop.start(timer, 5'000'000);
    running.loop.post(task);
  }
  while (ran.load() != 2) std::this_thread::yield();
  EXPECT_EQ(timers_thread, running.own_thread());
  EXPECT_EQ(tasks_thread, running.own_thread());
}

// Some give turns, some only post and wait, a timer goes on meanwhile: nothing is lost, and never
// are two at it.
TEST(EventLoop, ManyThreadsShareTheTurns) {
  static constexpr unsigned kThreads = 4, kTasks = 1000;
  RunningLoop running;
  std::atomic<bool> inside{false};
  unsigned total = 0, together = 0, ticks = 0;  // of the loop's thread
  Alarm tick([] {});
  tick.what = [&] {
    ++ticks;
    running.loop.start(tick, 50'000);
  };
  Call begin([&] { running.loop.start(tick, 0); });
  running.loop.post(begin);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kTasks; ++i) {
        std::atomic<bool> done{false};
        Call task([&] {
          together += inside.exchange(true) ? 1 : 0;
          ++total;
          inside.store(false);
          done.store(true);
        });
        EventLoop::Turns turns = (t + i) % 3 != 0 ? running.loop.take_turns() : EventLoop::Turns();
        running.loop.post(task);
        if (turns) turns.run_until([&] { return done.load(); });
        while (!done.load()) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  bool stopped = false;
  Call end([&] {
    running.loop.stop(tick);
    stopped = true;
  });
  EventLoop::Turns turns = running.take_turns();
  running.loop.post(end);
  turns.run_until([&] { return stopped; });
  EXPECT_EQ(total, kThreads * kTasks);
  EXPECT_EQ(together, 0u);
  EXPECT_GT(ticks, 0u);
}

}  // namespace
}  // namespace furrow
