// Establishes that progress is shown on a terminal, with what was counted, and taken away again;
// that elsewhere nothing is printed; and that short work ends at once. How: stderr is a pseudo
// terminal, or a pipe, while the work goes on.
#include "tools/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>

namespace furrow::tools {
namespace {

using Clock = std::chrono::steady_clock;

// stderr is `fd` until this is gone.
class Redirected {
 public:
  explicit Redirected(int fd) : before_(dup(STDERR_FILENO)) { dup2(fd, STDERR_FILENO); }
  ~Redirected() {
    dup2(before_, STDERR_FILENO);
    close(before_);
  }

 private:
  int before_;
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
