// Outage: how long commands wait for a drive that does not answer, as while its controller is reset
// or no path leads to it. Each is tried again until there is an answer, a minute at most; when one
// has waited that long the others wait no more, and those that come later are tried once, until one
// is answered. So what stands in line waits a minute together, and not each.
//
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace furrow {

class Outage {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Outage(Clock::duration longest = std::chrono::seconds(60)) : longest_(longest) {}

  // `answered`: tries a command; was there an answer? Returns when there was, or none is to be
  // waited for. (errno is that of the last try.)
  template <class Try>
  void wait_until(Try answered) {
    const Clock::time_point end = Clock::now() + longest_;
    while (!answered()) {
      if (Clock::now() >= end) silent_.store(true);
      if (silent_.load()) return;
      std::this_thread::sleep_for(kEvery);
    }
    silent_.store(false);
  }

 private:
  static constexpr auto kEvery = std::chrono::milliseconds(10);
  const Clock::duration longest_;
  std::atomic<bool> silent_{false};  // one has waited so long, and none was answered since
};

}  // namespace furrow
