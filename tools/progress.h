// Progress: on a terminal, a line on stderr that shows that long work goes on. Elsewhere nothing.
// What is said meanwhile (tell(), print()) takes its place.
//
// Threads: made and destroyed on one thread; count() from any. The line is drawn by a thread of its
// own, so that work which blocks needs no hooks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace furrow::tools {

class Progress {
 public:
  // `unit`: what count() counts, as in "keys"; empty: only the time is shown.
  explicit Progress(std::string label, std::string unit = "");
  ~Progress();  // removes the line
  void count(std::uint64_t done) { done_.store(done, std::memory_order_relaxed); }

 private:
  void draw();

  std::string label_, unit_;
  std::atomic<std::uint64_t> done_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace furrow::tools
