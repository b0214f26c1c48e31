// Establishes how fast a store's zone is emptied: at once as far as users have come, twice as fast
// as they use what it gives, at a slow rate without them, and at once where somebody waits. How:
// the pace by itself, and a collector's copies beside the puts and the time that pass meanwhile.
#include "log/copy_pace.h"

#include "tests/log/collector_rig.h"

namespace furrow {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kSecond = 1'000'000'000;

TEST(CopyPace, BeginsAtOnceAndThenWaits) {
  CopyPace pace;
  pace.begin(5, 100, 12 * kMiB, 4 * kMiB);
  EXPECT_EQ(pace.wait_ns(5, 100), 0u);
  pace.take(kMiB);
  const std::uint64_t wait = pace.wait_ns(5, 100);
  EXPECT_NEAR(static_cast<double>(wait), 1e9 * kMiB / CopyPace::kIdleBytesPerS, 10);
  EXPECT_NE(pace.wait_ns(5 + wait / 2, 100), 0u);
  EXPECT_EQ(pace.wait_ns(5 + wait, 100), 0u);
}

TEST(CopyPace, IsDoneWhenUsersHaveWrittenHalfOfTheGain) {
  CopyPace pace;
  pace.begin(0, 7, 12 * kMiB, 4 * kMiB);
  for (std::uint64_t written = 0; written < 2 * kMiB; written += kMiB / 4) {
    EXPECT_EQ(pace.wait_ns(0, 7 + written), 0u) << written;
    pace.take(3 * kMiB / 2);
    EXPECT_NE(pace.wait_ns(0, 7 + written), 0u) << written;
  }
  EXPECT_EQ(pace.wait_ns(0, 7 + 2 * kMiB), 0u);
}

TEST(CopyPace, WhatGivesNothingIsSlow) {
  CopyPace pace;
  pace.begin(0, 0, 16 * kMiB, 0);
  pace.take(16 * kMiB);
  EXPECT_NE(pace.wait_ns(0, 1000 * kMiB), 0u);
  EXPECT_EQ(pace.wait_ns(kSecond, 0), 0u);
}

// What users write in small pages takes the last zone that they may have, while others have lost a
// quarter of what they held.
class PacedCollectorTest : public CollectorTest {
 protected:
  void SetUp() override {
    Shape shape;
    shape.zones = 8;
    shape.zone_size_lbas = shape.zone_capacity_lbas = 1024;
    shape.segment_lbas = 512;
    shape.quota = 5;
    make_log(shape, kStore);
    for (std::uint64_t n = 0; pool_->allocator.held(kVolume) < 4; ++n) {
      ASSERT_TRUE(put(n, 0, kPageBytes).ok());
      ASSERT_TRUE(n % 4 != 3 || remove(n).ok());
    }
    ASSERT_TRUE(resets().empty());
    while (!victim_) {
      ASSERT_TRUE(put(next_++, 0, 400).ok());
      for (std::uint32_t zone = 0; zone < shape.zones; ++zone) {
        if (pool_->allocator.zone(ZoneId{zone}).use == ZoneUse::draining) victim_ = ZoneId{zone};
      }
    }
  }
  std::uint64_t copied() const { return log_->stats().relocated_bytes; }

  static constexpr std::uint32_t kPageBytes = 500;
  static constexpr std::uint64_t kGroupBytes = Collector::kGroupRecords * kPageBytes;
  std::optional<ZoneId> victim_;
};

TEST_F(PacedCollectorTest, CopiesKeepStepWithWhatUsersWrite) {
  std::uint64_t last = copied();
  unsigned steps = 0, puts = 0;
  for (; !is_reset(*victim_); ++puts) {
    ASSERT_TRUE(put(next_++, 0, 400).ok());
    steps += copied() != last ? 1 : 0;
    last = copied();
  }
  EXPECT_GE(steps, 4u);
  const std::uint64_t gain_lbas = pool_->geometry.zone_capacity_lbas - last / kPageBytes;
  EXPECT_GE(puts * 2, gain_lbas / 4) << "each takes an LBA, and one for its batch";
  EXPECT_LE(puts * 2, gain_lbas / 2);
}

TEST_F(PacedCollectorTest, SlowlyWhereUsersWriteNothing) {
  const std::uint64_t start_ns = executor_.now_ns();
  run([&] { return is_reset(*victim_); });
  const std::uint64_t ns = executor_.now_ns() - start_ns;
  EXPECT_GE(copied(), 3 * kGroupBytes);
  EXPECT_GE(ns, (copied() - 2 * kGroupBytes) * 1'000'000'000 / CopyPace::kIdleBytesPerS);
}

TEST_F(PacedCollectorTest, AtOnceWhereSomebodyWaits) {
  const std::uint64_t start_ns = executor_.now_ns();
  std::vector<Op*> ops;
  while (ops.size() < 1500) ops.push_back(&start_put(next_ + ops.size() % 100, 0, 400));
  for (Op* op : ops) ASSERT_TRUE(finish(*op).ok());
  EXPECT_TRUE(is_reset(*victim_));
  EXPECT_LE(executor_.now_ns() - start_ns, 1'000'000u);
}

TEST_F(PacedCollectorTest, AtOnceWhereItIsToEnd) {
  const std::uint64_t start_ns = executor_.now_ns();
  log_->stop_background();
  log_->start_background();  // who wanted that tries again
  EXPECT_TRUE(run([&] { return is_reset(*victim_); }));
  EXPECT_LE(executor_.now_ns() - start_ns, 1'000'000u);
}

}  // namespace
}  // namespace furrow
