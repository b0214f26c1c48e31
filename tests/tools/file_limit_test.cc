// Establishes that the soft limit of open files is raised as far as the hard one lets it, and never
// lowered. How: with this process's own limits, in children, as a hard limit cannot be raised
// again.
#include "tools/file_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

namespace furrow::tools {
namespace {

// Ends the process with 0 when, with these limits, asking for `wanted` gives `expected`.
[[noreturn]] void raise_in_child(rlim_t soft, rlim_t hard, std::uint64_t wanted,
                                 std::uint64_t expected) {
  const rlimit limit{soft, hard};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) std::_Exit(3);
  const auto raised = raise_file_limit(wanted);
  rlimit now{};
  if (getrlimit(RLIMIT_NOFILE, &now) != 0) std::_Exit(3);
  const bool right = raised.ok() && *raised == expected && now.rlim_cur == expected;
  std::_Exit(right && now.rlim_max == hard ? 0 : 1);
}

TEST(FileLimit, IsRaisedToTheHardLimitAtMost) {
  EXPECT_EXIT(raise_in_child(64, 200, 128, 128), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(raise_in_child(64, 200, 300, 200), testing::ExitedWithCode(0), "");
}

TEST(FileLimit, IsNeverLowered) {
  EXPECT_EXIT(raise_in_child(128, 200, 64, 128), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace furrow::tools
