// Establishes that the simulation would notice: each bug that zone/canary.h plants is found, by the
// seed that is known to find it or, when what seeds mean has changed, within a stated number of
// seeds of its scenario (the new one is printed: write it down here). Without any bug the same
// seeds pass.
//
// A canary that is not found is a hole in the simulation, not in the engine.
#include "zone/canary.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/sim/simulation.h"

// A run that fails leaves its pool where it is: LeakSanitizer has nothing to say here.
extern "C" int __lsan_is_turned_off() { return 1; }

namespace furrow::sim {
namespace {

constexpr std::uint64_t kSteps = 1000;

struct Planted {
  Canary canary;
  const char* scenario;
  std::uint64_t seed;   // finds it
  std::uint64_t seeds;  // otherwise it is found within
};

void PrintTo(const Planted& planted, std::ostream* out) {
  *out << kCanaryNames[static_cast<std::size_t>(planted.canary)];
}

bool fails(const char* scenario, std::uint64_t seed, std::string& failure) {
  Simulation simulation({seed, kSteps, scenario});
  const bool failed = !simulation.run();
  failure = simulation.failure();
  return failed;
}

// The known seed, or else the first one that fails; 0: none of them does.
std::uint64_t failing_seed(const Planted& planted, std::string& failure) {
  if (fails(planted.scenario, planted.seed, failure)) return planted.seed;
  for (std::uint64_t seed = 1; seed <= planted.seeds; ++seed) {
    if (fails(planted.scenario, seed, failure)) return seed;
  }
  return 0;
}

class CanaryTest : public ::testing::TestWithParam<Planted> {
 protected:
  ~CanaryTest() override { planted_canary = Canary::none; }
};

TEST_P(CanaryTest, IsFound) {
  planted_canary = GetParam().canary;
  std::string failure;
  const std::uint64_t seed = failing_seed(GetParam(), failure);
  EXPECT_NE(seed, 0u) << "not found in " << GetParam().seeds << " seeds of " << GetParam().scenario;
  if (seed != 0) {
    std::printf("found by furrow-sim --canary=%s --seed=%llu --scenario=%s: %s\n",
                kCanaryNames[static_cast<std::size_t>(GetParam().canary)].data(),
                static_cast<unsigned long long>(seed), GetParam().scenario, failure.c_str());
  }
}

TEST_P(CanaryTest, IsWhatFails) {
  std::string failure;
  EXPECT_FALSE(fails(GetParam().scenario, GetParam().seed, failure)) << failure;
}

constexpr Planted kPlanted[] = {
    {Canary::flush_skipped, "mixed", 1, 10},
    {Canary::acknowledged_early, "mixed", 1, 10},
    {Canary::header_not_durable, "metadata", 14, 500},
    {Canary::copies_not_durable, "store", 68, 500},
    {Canary::reset_not_durable, "store", 72, 1000},
    {Canary::not_noted_durable, "rot", 863, 10'000},
    {Canary::reset_under_read, "full", 39, 500},
    {Canary::tombstone_dropped, "full", 49, 1000},
    {Canary::checkpoint_not_durable, "metadata", 6, 5000},
    {Canary::summary_unchecked, "rot", 8, 1000},
    {Canary::header_counts, "store", 62, 1000},
    {Canary::tail_unchecked, "store", 2, 10},
    {Canary::zone_limits_ignored, "store", 9, 200},
    {Canary::zones_not_flushed, "zoned", 2, 100},
};

INSTANTIATE_TEST_SUITE_P(Planted, CanaryTest, ::testing::ValuesIn(kPlanted), [](const auto& each) {
  return std::string(kCanaryNames[static_cast<std::size_t>(each.param.canary)]);
});

// This one leaves the flush of a zone's header out as well, which would make up for it. It is not
// that which its seed finds.
TEST(HeaderCanaryTest, IsNotWhatTheOtherFinds) {
  planted_canary = Canary::header_not_durable;
  std::string failure;
  for (const Planted& each : kPlanted) {
    if (each.canary != Canary::reset_not_durable) continue;
    EXPECT_FALSE(fails(each.scenario, each.seed, failure)) << failure;
  }
  planted_canary = Canary::none;
}

}  // namespace
}  // namespace furrow::sim
