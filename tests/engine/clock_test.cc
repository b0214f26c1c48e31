// Establishes that a clock that is ahead for a while, and is then set back, uncovers nothing: a
// page that had expired by it is absent or itself again, never the version before it; and a key
// that was deleted meanwhile stays deleted.
//
// The pool is opened with the time two hours ahead, and the clock set back while it is open.
#include <gtest/gtest.h>

#include "tests/engine/rig.h"

namespace furrow::testing::clock_test {
namespace {

constexpr std::int64_t kAheadS = 7200;

Status put_for(Rig& rig, std::uint64_t key, std::uint64_t version, std::uint64_t ttl_s) {
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.key = key_of(key);
  auto page = content(key, version, 20000);
  op.data = page.data();
  op.length = 20000;
  op.ttl_s = static_cast<std::uint32_t>(ttl_s);
  return rig.run(op);
}

VolumeOptions volume(VolumeMode mode) {
  VolumeOptions options;
  options.name = "pages";
  options.mode = mode;
  options.value_bytes_max = 64 << 10;
  return options;
}

// Beyond what 32 bits of seconds have, and not begun anew at 1970.
TEST(ClockTest, ATimeToLiveBeyondTheClocksEndIsUpToIt) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::store)));
  ASSERT_TRUE(put_for(rig, 1, 1, ~std::uint32_t{0}).ok());
  EXPECT_TRUE(rig.get(1).ok());
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  rig.loop.advance_s(70ll * 365 * 86400);
  EXPECT_TRUE(rig.get(1).ok());
  rig.loop.advance_s(10ll * 365 * 86400);
  EXPECT_EQ(rig.get(1).status().code(), Code::not_found);
}

// In the store, collection looks at the newer version's zone when the clock is right again.
TEST(ClockTest, AVersionThatHadExpiredHidesTheOneBeforeIt) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::store)));
  for (std::uint64_t i = 0; i < 120; ++i) ASSERT_TRUE(rig.put(i, 1, 20000).ok());
  for (std::uint64_t i = 0; i < 60; ++i) ASSERT_TRUE(rig.put(1000 + i % 8, i, 20000).ok());
  ASSERT_TRUE(put_for(rig, 10, 2, 3600).ok());
  for (std::uint64_t i = 0; i < 60; ++i) ASSERT_TRUE(rig.put(1000 + i % 8, i, 20000).ok());
  rig.loop.advance_s(kAheadS);
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.get(10).status().code(), Code::not_found);
  rig.loop.advance_s(-kAheadS);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::uint64_t key = i % 20 == 0 ? 2000 + i : 1000 + i % 8;
    ASSERT_TRUE(rig.put(key, 1, 20000).ok()) << i;
  }
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 120; ++i) {
      EXPECT_EQ(rig.get(i).status().code(), i == 10 ? Code::not_found : Code::ok) << i;
    }
    ASSERT_NO_FATAL_FAILURE(rig.reopen());
  }
}

class ClockModesTest : public ::testing::TestWithParam<VolumeMode> {};
INSTANTIATE_TEST_SUITE_P(Modes, ClockModesTest,
                         ::testing::Values(VolumeMode::cache, VolumeMode::store),
                         [](const auto& each) {
                           return each.param == VolumeMode::cache ? "cache" : "store";
                         });

TEST_P(ClockModesTest, WhatWasDeletedAfterItHadExpiredStaysDeleted) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(GetParam())));
  ASSERT_TRUE(put_for(rig, 1, 1, 3600).ok());
  ASSERT_TRUE(put_for(rig, 2, 1, 3600).ok());
  rig.loop.advance_s(kAheadS);
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.simple(PageOp::Kind::remove, 1).code(), Code::not_found);
  rig.loop.advance_s(-kAheadS);
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.get(1).status().code(), Code::not_found);
  EXPECT_TRUE(rig.get(2).ok()) << "it has not expired after all";
}

}  // namespace
}  // namespace furrow::testing::clock_test
