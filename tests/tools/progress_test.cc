// Establishes that progress is shown on a terminal, with what was counted, and taken away again,
// before anything else is said as well; that elsewhere nothing is printed; and that short work ends
// at once. How: stderr, or stdout too, is a pseudo terminal, or a pipe, while the work goes on.
#include "tools/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "tools/command.h"
#include "tools/tell.h"

namespace furrow::tools {
namespace {

using Clock = std::chrono::steady_clock;

// stderr, or another one, is `fd` until this is gone.
class Redirected {
 public:
  explicit Redirected(int fd, int standard = STDERR_FILENO)
      : standard_(standard), before_(dup(standard)) {
    std::fflush(stdout);
    dup2(fd, standard_);
  }
  ~Redirected() {
    std::fflush(stdout);
    dup2(before_, standard_);
    close(before_);
  }

 private:
  const int standard_, before_;
};

// What comes until `until` has come, or for 20 s.
std::string read_until(int fd, const std::string& until) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (text.find(until) == std::string::npos && Clock::now() < end) {
    char some[256];
    const ssize_t count = read(fd, some, sizeof some);
    if (count > 0) {
      text.append(some, static_cast<std::size_t>(count));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return text;
}

class OnATerminal : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(openpty(&ours_, &terminal_, nullptr, nullptr, nullptr), 0); }
  void TearDown() override {
    close(ours_);
    close(terminal_);
  }
  int ours_ = -1, terminal_ = -1;
};

TEST_F(OnATerminal, ShowsWhatWasCounted) {
  std::string text;
  {
    const Redirected to_terminal(terminal_);
    std::optional<Progress> progress(std::in_place, "checking", "pages");
    progress->count(1234);
    text = read_until(ours_, "1234 pages");
    EXPECT_NE(text.find("checking: "), std::string::npos) << text;
    progress.reset();
  }
  EXPECT_NE(text.find("1234 pages"), std::string::npos) << text;
  EXPECT_NE(read_until(ours_, "\033[K").find("\r\033[K"), std::string::npos) << "the line goes";
}

TEST_F(OnATerminal, WhatIsSaidTakesItsPlace) {
  const Redirected to_terminal(terminal_), output_too(terminal_, STDOUT_FILENO);
  const Progress progress("copying");
  read_until(ours_, "copying: ");
  tell("said\n");
  EXPECT_NE(read_until(ours_, "said").find("\r\033[Ksaid"), std::string::npos);
  read_until(ours_, "copying: ");
  EXPECT_EQ(print_text("printed\n"), kExitDone);
  EXPECT_NE(read_until(ours_, "printed").find("\r\033[Kprinted"), std::string::npos);
}

TEST_F(OnATerminal, ShortWorkDoesNotWait) {
  const Redirected to_terminal(terminal_);
  const auto start = Clock::now();
  for (int i = 0; i < 20; ++i) const Progress progress("short");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4)) << "a turn of it is a quarter second";
}

TEST(NoTerminal, NothingIsPrinted) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    const Redirected to_pipe(ends[1]);
    Progress progress("checking", "pages");
    progress.count(5);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), -1) << "not even a line's end";
  for (const int fd : ends) close(fd);
}

}  // namespace
}  // namespace furrow::tools
