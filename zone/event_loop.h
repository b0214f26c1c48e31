// EventLoop: the Executor that real threads run. It polls its pollers, runs tasks and timers, and
// when a while has passed with nothing to do it sleeps in the kernel (adaptive polling).
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "zone/executor.h"

namespace furrow {

class EventLoop final : public Executor {
 public:
  struct Options {
    std::uint64_t spin_us = 50;  // how long to poll without work before sleeping; ~0: never sleep
    std::uint64_t seed = 0;      // of random(); 0: from the system
  };
  EventLoop() : EventLoop(Options{}) {}
  explicit EventLoop(Options options);
  ~EventLoop() override;

  // Runs until stop_running(). The calling thread becomes the executor's thread.
  void run();
  void stop_running();  // any thread; idempotent
  // One turn without blocking; returns the number of events. For callers with a loop of their own.
  unsigned run_once();

  void post(Task& task) override;
  bool is_current() const override;
  void start(Timer& timer, std::uint64_t delay_ns) override;
  void stop(Timer& timer) override;
  void add(Poller& poller) override;
  void remove(Poller& poller) override;
  std::uint64_t now_ns() const override;
  std::uint64_t wall_s() const override;
  std::uint64_t random() override;

 private:
  unsigned run_tasks();
  unsigned fire_timers();
  void sleep();
  void sift(std::size_t slot);

  Options options_;
  std::atomic<Task*> posted_{nullptr};  // a stack; reversed when taken
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stop_{false};
  std::atomic<std::thread::id> thread_{};
  int wake_fd_ = -1;            // eventfd
  std::vector<Timer*> timers_;  // a binary heap by at_ns
  std::vector<Poller*> pollers_;
  std::vector<pollfd> poll_fds_;  // of sleep()
  unsigned turns_ = 0;
  std::mt19937_64 random_;
};

}  // namespace furrow
