// Crew: threads that run jobs in phases, each on its own event loop. A phase ends when all have
// ended. One loop may be the pool's home executor: it goes on running until the last has ended, as
// the others need it.
#pragma once

#include <atomic>
#include <barrier>
#include <functional>
#include <thread>
#include <vector>

#include "bench/driver.h"

namespace furrow::bench {

class Crew {
 public:
  // `home`: null when no loop serves the others; else it is the loop of member 0.
  Crew(unsigned members, EventLoop* home)
      : home_(home), left_(members), barrier_(members, Reset{this, members}) {}

  // Member's thread: runs the job with its driver, then waits for all others.
  void run(EventLoop& loop, Driver& driver, Job& job) {
    driver.start(job, [this, &loop] {
      if (&loop != home_) loop.stop_running();
      if (left_.fetch_sub(1) == 1 && home_ != nullptr) home_->stop_running();
    });
    loop.run();
    barrier_.arrive_and_wait();
  }
  // Waits for all others without running anything.
  void meet() { barrier_.arrive_and_wait(); }

 private:
  struct Reset {
    Crew* crew;
    unsigned members;
    void operator()() const noexcept { crew->left_.store(members); }
  };
  EventLoop* home_;
  std::atomic<unsigned> left_;
  std::barrier<Reset> barrier_;
};

}  // namespace furrow::bench
