// Establishes when a drive is taken to have lost the order of appends: not when a failed one makes
// those behind it land earlier, by no more than what failed in front of them in that zone and did
// not land since; and in every other case. Whatever the reason, a write out of its place is one
// that failed. How: a drive that keeps the order, with failures drawn, and single cases that it
// would not come to.
#include "zone/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/log/test_seed.h"

namespace furrow::test {
namespace {

constexpr ZoneId kZone{3}, kOther{4};

TEST(Placement, InPlaceIsInOrder) {
  Placement placement;
  EXPECT_TRUE(placement.check(kZone, 0, 0));
  EXPECT_TRUE(placement.check(kZone, 8, 8));
  EXPECT_TRUE(placement.in_order());
}

TEST(Placement, ADriveThatSwapsTwoHasLostTheOrder) {
  Placement placement;
  EXPECT_FALSE(placement.check(kZone, 8, 0));
  EXPECT_FALSE(placement.in_order());
  EXPECT_EQ(placement.misplaced(), 1u);
  EXPECT_FALSE(placement.check(kZone, 0, 8));
  EXPECT_EQ(placement.misplaced(), 2u);
}

TEST(Placement, WhatFollowsAnErrorIsEarlierAndFailsAndIsNoLoss) {
  Placement placement;
  placement.not_placed(kZone, 0, 8);
  EXPECT_FALSE(placement.check(kZone, 8, 0));
  placement.not_placed(kZone, 16, 4);
  EXPECT_FALSE(placement.check(kZone, 20, 8));
  EXPECT_TRUE(placement.in_order());
  EXPECT_EQ(placement.misplaced(), 0u);
}

// The drive may have moved its write pointer past part of what failed.
TEST(Placement, AnErrorExplainsLess) {
  Placement placement;
  placement.not_placed(kZone, 0, 8);
  EXPECT_FALSE(placement.check(kZone, 8, 3));
  EXPECT_TRUE(placement.in_order());
}

TEST(Placement, AnErrorDoesNotExplainMore) {
  struct Case {
    ZoneId zone;
    std::uint64_t failed, offset, placed;
  };
  for (const Case& each : {Case{kZone, 0, 16, 4},     // further ahead than what failed
                           Case{kZone, 24, 16, 8},    // what failed is behind it
                           Case{kZone, 0, 16, 24},    // it is later than foreseen
                           Case{kOther, 0, 8, 0}}) {  // what failed is elsewhere
    Placement placement;
    placement.not_placed(each.zone, each.failed, 8);
    EXPECT_FALSE(placement.check(kZone, each.offset, each.placed));
    EXPECT_FALSE(placement.in_order()) << each.failed << " " << each.offset << " " << each.placed;
  }
}

// One that was sent again comes behind those that were in flight, by our own doing; these take its
// place.
TEST(Placement, OneThatWasSentAgainHasLostItsTurn) {
  Placement placement;
  for (int times = 0; times < 3; ++times) placement.not_placed(kZone, 0, 8);
  EXPECT_FALSE(placement.check(kZone, 8, 0));
  EXPECT_FALSE(placement.check(kZone, 0, 8));
  EXPECT_TRUE(placement.in_order());
  EXPECT_FALSE(placement.check(kZone, 32, 12)) << "it counts once";
  EXPECT_FALSE(placement.in_order());
}

TEST(Placement, OneThatLandsInItsPlaceAfterAllExplainsNothing) {
  Placement placement;
  placement.not_placed(kZone, 0, 8);
  placement.not_placed(kZone, 8, 8);
  placement.not_placed(kOther, 0, 8);
  EXPECT_TRUE(placement.check(kZone, 0, 0));
  EXPECT_TRUE(placement.check(kZone, 8, 8));
  EXPECT_FALSE(placement.check(kOther, 8, 0));
  EXPECT_TRUE(placement.in_order());
  EXPECT_FALSE(placement.check(kZone, 24, 16));
  EXPECT_FALSE(placement.in_order());
}

TEST(Placement, AResetZoneHasNothingToExplain) {
  Placement placement;
  placement.not_placed(kZone, 0, 8);
  placement.not_placed(kOther, 0, 8);
  placement.forget(kZone);
  EXPECT_FALSE(placement.check(kOther, 8, 0));
  EXPECT_TRUE(placement.in_order());
  EXPECT_FALSE(placement.check(kZone, 8, 0));
  EXPECT_FALSE(placement.in_order());
}

// Whatever fails, and in whatever order the drive says so, but for successes before the failures
// that moved them.
TEST(Placement, ADriveThatKeepsTheOrderIsNeverTakenForAnother) {
  std::mt19937_64 random{test_seed()};
  for (int round = 0; round < 200; ++round) {
    Placement placement;
    struct Write {
      std::uint64_t offset, placed;
    };
    std::vector<Write> placed;
    std::uint64_t offset = 0, pointer = 0;
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t lbas = 1 + random() % 16;
      if (random() % 4 == 0) {
        placement.not_placed(kZone, offset, lbas);
        pointer += random() % (lbas + 1);
      } else {
        placed.push_back({offset, pointer});
        pointer += lbas;
      }
      offset += lbas;
    }
    std::shuffle(placed.begin(), placed.end(), random);
    for (const Write& each : placed) {
      EXPECT_EQ(placement.check(kZone, each.offset, each.placed), each.offset == each.placed);
    }
    EXPECT_TRUE(placement.in_order()) << "round " << round;
  }
}

}  // namespace
}  // namespace furrow::test
