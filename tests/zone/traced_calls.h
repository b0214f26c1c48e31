// Counts the system calls that a piece of work really makes, all of them, whoever makes them for
// it: by ptrace(), in a child process.
#pragma once

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace furrow::test {

// A system call without effect, for whoever traces.
inline constexpr std::uint64_t kMark = 0x4675'7272;
inline void mark(std::uint64_t value) { (void)syscall(SYS_getpriority, kMark, value); }

struct Mark {
  std::uint64_t value = 0;         // as it was given to mark()
  std::uint64_t calls_before = 0;  // by the thread since it began, marks not counted
};

// Runs `work` in a child process, on its only thread to be counted (others are not), and returns
// its marks. Failures of its expectations are the caller's. Nothing: it may not be traced here.
inline std::optional<std::vector<Mark>> trace_calls(const std::function<void()>& work) {
  const bool failed_before = testing::Test::HasFailure();
  const pid_t child = fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    (void)raise(SIGSTOP);
    work();
    _exit(testing::Test::HasFailure() && !failed_before ? 1 : 0);
  }
  std::vector<Mark> marks;
  std::uint64_t calls = 0;
  int status = 0;
  for (bool first = true;; first = false) {
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) break;
    const int stopped_by = WSTOPSIG(status);
    if (first) {
      EXPECT_EQ(ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD), 0);
    } else if (stopped_by == (SIGTRAP | 0x80)) {
      struct __ptrace_syscall_info info {};
      EXPECT_GT(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info), 0);
      if (info.op != PTRACE_SYSCALL_INFO_ENTRY) {
        // The return from one that was counted.
      } else if (info.entry.nr == SYS_getpriority && info.entry.args[0] == kMark) {
        marks.push_back({info.entry.args[1], calls});
      } else {
        ++calls;
      }
    }
    const bool signal = !first && stopped_by != (SIGTRAP | 0x80);
    EXPECT_EQ(ptrace(PTRACE_SYSCALL, child, nullptr, signal ? stopped_by : 0), 0);
    if (testing::Test::HasFatalFailure()) break;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return std::nullopt;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child failed";
  return marks;
}

}  // namespace furrow::test
