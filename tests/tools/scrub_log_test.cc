// Establishes that findings of the scrub are said as long as there are few of them, and counted
// when there are many.
#include "tools/scrub_log.h"

#include <gtest/gtest.h>

namespace furrow::tools {
namespace {

TEST(ScrubLog, FewAreSaid) {
  ScrubLog log;
  for (int second = 0; second < 3; ++second) {
    for (std::uint64_t i = 0; i < ScrubLog::kToldMax; ++i) {
      ScrubFinding finding;
      finding.lba = i;
      EXPECT_EQ(log.found(finding), describe(finding));
    }
    EXPECT_EQ(log.second_passed(), std::nullopt);
  }
}

TEST(ScrubLog, ManyAreCounted) {
  ScrubLog log;
  unsigned said = 0;
  for (std::uint64_t i = 0; i < ScrubLog::kToldMax + 1234; ++i) said += log.found({}) ? 1 : 0;
  EXPECT_EQ(said, ScrubLog::kToldMax);
  EXPECT_EQ(log.second_passed(), "1234 more findings within a second");
  EXPECT_EQ(log.second_passed(), std::nullopt);
  EXPECT_EQ(log.found({}), describe(ScrubFinding()));
}

}  // namespace
}  // namespace furrow::tools
