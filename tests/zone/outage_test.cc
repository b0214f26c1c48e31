// Establishes how long commands wait for a drive that does not answer: until it does, or one of
// them has waited for as long as is allowed; from then on each is tried once, until one is
// answered. How: commands that count their tries.
#include "zone/outage.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <limits>

namespace furrow::test {
namespace {

using std::chrono::milliseconds;

// Tries until an answer, which the try with that number would be.
unsigned tries(Outage& outage, unsigned answered_at) {
  unsigned count = 0;
  outage.wait_until([&] {
    errno = EINTR;
    return ++count == answered_at;
  });
  return count;
}
constexpr unsigned kNever = std::numeric_limits<unsigned>::max();

TEST(Outage, IsWaitedFor) {
  Outage outage;
  EXPECT_EQ(tries(outage, 1), 1u);
  EXPECT_EQ(tries(outage, 5), 5u);
}

TEST(Outage, OneWaitsItOutForAll) {
  Outage outage(milliseconds(50));
  EXPECT_GT(tries(outage, kNever), 1u);
  EXPECT_EQ(errno, EINTR) << "what the last one failed with is known";
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(tries(outage, kNever), 1u);
  EXPECT_EQ(tries(outage, 1), 1u);
  EXPECT_EQ(tries(outage, 3), 3u) << "it was over: the next one is waited for";
}

}  // namespace
}  // namespace furrow::test
