#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "tools/tell.h"
#include "zone/threads.h"

namespace furrow::tools {

namespace {

// What is on the terminal, of whichever Progress.
struct Line {
  std::mutex mutex;
  bool drawn = false;

  void take_away() {
    if (!std::exchange(drawn, false)) return;
    (void)std::fputs("\r\033[K", stderr);
    (void)std::fflush(stderr);
  }
};

Line& line() {
  static Line* const only = new Line();  // outlives every static object
  return *only;
}

}  // namespace

WithoutProgress::WithoutProgress() {
  line().mutex.lock();
  line().take_away();
}

WithoutProgress::~WithoutProgress() { line().mutex.unlock(); }

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
    std::string text = fmt::format("\r{}: {:.1f} s", safe_text(label_), seconds);
    if (!unit_.empty()) text += fmt::format(", {} {}", done_.load(), unit_);
    const std::lock_guard drawing(line().mutex);
    line().drawn = true;
    (void)std::fputs(text.c_str(), stderr);
    (void)std::fflush(stderr);
  }
  const WithoutProgress gone;
}

}  // namespace furrow::tools
