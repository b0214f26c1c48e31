#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "tools/tell.h"
#include "zone/threads.h"

namespace furrow::tools {

Progress::Progress(std::string label, std::string unit)
    : label_(std::move(label)), unit_(std::move(unit)) {
  if (isatty(STDERR_FILENO) == 1) (void)start_thread(thread_, [this] { draw(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Progress::draw() {
  constexpr std::chrono::milliseconds kInterval(250);
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return stop_; })) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    tell("\r{}: {:.1f} s", label_, seconds);
    if (!unit_.empty()) tell(", {} {}", done_.load(), unit_);
    std::fflush(stderr);
  }
  tell("\r\033[K");
}

}  // namespace furrow::tools
