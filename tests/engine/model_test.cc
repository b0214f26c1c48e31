// Establishes that a page store agrees with a plain map, in both modes, whatever is asked of it and
// however it is stopped.
//
// A seed draws the device, and rounds of operations: puts of each durability, condition, size,
// group and time to live, gets into memory of all kinds, deletes, exist, pin, unpin, list, flush
// and group deletions, a dozen in flight on different keys. Between rounds the clock jumps, the
// pool is closed and opened, or the power is cut in the middle of a round (FaultDevice, both crash
// models), sometimes again while the pool is being recovered. Each answer is compared with
// store_model.h, and each key after each stop. FURROW_SEED=N runs one seed. FURROW_DRIVE=URI
// has some seeds, from that one on, on that zoned drive, all of whose data is lost (tests/vm), with
// everything in flight together: there the pool is closed, or stopped as by a kill (KillDevice).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/engine/model_run.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

class ModelTest : public ::testing::TestWithParam<VolumeMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, ModelTest, ::testing::Values(VolumeMode::cache, VolumeMode::store),
                         [](const auto& mode) {
                           return mode.param == VolumeMode::cache ? "cache" : "store";
                         });

TEST_P(ModelTest, AgreesWithAMap) {
  const char* env = std::getenv("FURROW_SEED");
  const char* drive = std::getenv("FURROW_DRIVE");
  // (Two seeds alone: such as reset zones in either mode.)
  const std::uint64_t first = env != nullptr ? std::strtoull(env, nullptr, 0) : rounds(1, 3);
  const std::uint64_t seeds = drive != nullptr ? 3 : env != nullptr ? 1 : rounds(16, 2);
  std::uint64_t found = 0, cuts = 0, recovery_cuts = 0, kills = 0, resets = 0, refusals = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const std::string replay = "FURROW_SEED=" + std::to_string(seed);
    SCOPED_TRACE(replay);
    std::printf("%s\n", replay.c_str());
    ModelRun run(seed, GetParam(), drive != nullptr ? drive : "");
    ASSERT_NO_FATAL_FAILURE(run.make());
    for (unsigned lives = 0; lives < 12; ++lives) {
      if (lives == 8 && GetParam() == VolumeMode::store) {
        ASSERT_NO_FATAL_FAILURE(run.fill());
      }
      ASSERT_NO_FATAL_FAILURE(run.live());
      ASSERT_NO_FATAL_FAILURE(run.stop());
    }
    found += run.found;
    cuts += run.cuts;
    recovery_cuts += run.recovery_cuts;
    kills += run.kills;
    resets += run.resets;
    refusals += run.refusals;
  }
  std::printf("found %lu, cuts %lu, in recovery %lu, kills %lu, resets %lu, refused %lu\n", found,
              cuts, recovery_cuts, kills, resets, refusals);
  if (seeds == 1) return;
  // The test means little where little happens.
  EXPECT_GT(found, 600 * seeds);
  EXPECT_GT(drive != nullptr ? kills : cuts, seeds);
  if (seeds >= 16) {  // two seeds may have none
    EXPECT_GT(recovery_cuts, seeds / 4);
  }
  EXPECT_GT(resets, (drive != nullptr ? 1 : 6) * seeds);
  if (GetParam() == VolumeMode::store) {
    EXPECT_GE(refusals, seeds);
  }
}

}  // namespace
}  // namespace furrow::testing
