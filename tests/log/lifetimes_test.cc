// Establishes that a store with a stream for pages that expire keeps them apart from the others, so
// that zones of expired pages are set free with little to copy; and that with two streams to write
// to a flush covers both, a group's deletion takes what either was given before it, and a reopening
// goes on in both, or without the one that it has not got. How: on a PageLog, beside one with a
// single stream for all.
#include <cstdio>
#include <set>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class LifetimesTest : public PageLogRig {
 protected:
  static constexpr Shape kShape{.zones = 24, .quota = 20, .streams = 3};

  std::uint32_t in_s(std::uint64_t seconds) {
    return static_cast<std::uint32_t>(executor_.wall_s() + seconds);
  }
  // As many pages that expire as others, in turn.
  void fill(std::uint64_t pages, std::uint32_t expires_s) {
    for (std::uint64_t n = 0; n < pages; ++n) {
      ASSERT_TRUE(put(n, 1, 400, {.expires_s = n % 2 == 0 ? expires_s : 0}).ok()) << n;
    }
  }
  // Pages that stay are overwritten in turn once the others have expired. Copied meanwhile: bytes.
  std::uint64_t copied_after_expiry(unsigned streams) {
    drop_pool();
    Shape shape = kShape;
    shape.streams = streams;
    make_log(shape, false);
    constexpr std::uint64_t kPages = 560;
    fill(kPages, in_s(10));
    EXPECT_EQ(log_->stats().relocated_bytes, 0u) << "it was full before anything expired";
    clock_.now_ns += 11'000'000'000;
    for (std::uint64_t n = 0; n < 500; ++n) EXPECT_TRUE(put(10'000 + n % 280, n, 400).ok()) << n;
    for (std::uint64_t n = 0; n < kPages; ++n) {
      n % 2 == 0 ? expect_absent(n) : expect_page(n, 1, 400);
    }
    return log_->stats().relocated_bytes;
  }
};

TEST_F(LifetimesTest, PagesThatExpireLieInZonesOfTheirOwn) {
  make_log(kShape, false);
  fill(300, in_s(100));
  std::set<std::uint32_t> expiring, others;
  for (std::uint64_t n = 0; n < 300; ++n) (n % 2 == 0 ? expiring : others).insert(zone_of(n).value);
  EXPECT_GT(expiring.size(), 1u);
  for (const std::uint32_t zone : expiring) {
    EXPECT_FALSE(others.contains(zone)) << "zone " << zone;
    EXPECT_EQ(pool_->allocator.zone(ZoneId{zone}).stream, kShortStream);
  }
  for (const std::uint32_t zone : others) {
    EXPECT_EQ(pool_->allocator.zone(ZoneId{zone}).stream, kUserStream);
  }
}

TEST_F(LifetimesTest, ZonesOfExpiredPagesCostNoCopies) {
  const std::uint64_t together = copied_after_expiry(2), apart = copied_after_expiry(3);
  std::printf("copied: %lu bytes, %lu where they lie apart\n", together, apart);
  EXPECT_GT(together, 20'000u);
  EXPECT_LT(apart * 4, together);
}

TEST_F(LifetimesTest, AFlushCoversBothStreams) {
  Shape shape = kShape;
  shape.faults = true;
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    drop_pool();
    make_log(shape, false);
    fill(40, in_s(1000));
    Flush& flush = start_flush();
    ASSERT_TRUE(run([&] { return flush.answers != 0; }));
    ASSERT_TRUE(flush.status.ok());
    ASSERT_TRUE(put(50, 1, 400, {.flushed = true, .expires_s = in_s(1000)}).ok());
    power_cut(model);
    for (std::uint64_t n = 0; n < 40; ++n) expect_page(n, 1, 400);
    expect_page(50, 1, 400);
  }
}

// The put draws its sequence before the deletion does, and is on the device after it could be.
TEST_F(LifetimesTest, AGroupsDeletionWaitsForWhatTheOtherStreamWasGiven) {
  make_log(kShape, false);
  ASSERT_TRUE(put(1, 1, 400, {.group = 9}).ok());
  ASSERT_TRUE(put(2, 1, 400, {.group = 9, .expires_s = in_s(1000)}).ok());
  device_->hold(Io::Op::write);
  Op& late = start_put(3, 1, 400, {.group = 9, .expires_s = in_s(1000)});
  run();
  ASSERT_EQ(device_->held(Io::Op::write), 1u);
  Group& removal = start_remove_group(9);
  run();
  if (device_->held(Io::Op::write) == 2) device_->let_one_go(Io::Op::write, 1);
  run();
  EXPECT_EQ(removal.answers, 0u) << "the page would be there, and gone after a restart";
  device_->let_go(Io::Op::write);
  ASSERT_TRUE(run([&] { return removal.answers != 0; }));
  EXPECT_TRUE(removal.status.ok());
  EXPECT_TRUE(finish(late).ok());
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t n = 1; n <= 3; ++n) expect_absent(n);
    EXPECT_EQ(log_->stats().pages, 0u);
    reopen(true);
  }
}

TEST_F(LifetimesTest, GoesOnInBothZonesOrWithoutTheOneThatItHasNotGot) {
  make_log(kShape, false);
  fill(20, in_s(1000));
  const ZoneId expiring = zone_of(0), other = zone_of(1);
  reopen(true);
  ASSERT_TRUE(put(20, 1, 400, {.expires_s = in_s(1000)}).ok());
  ASSERT_TRUE(put(21, 1, 400).ok());
  EXPECT_EQ(zone_of(20), expiring);
  EXPECT_EQ(zone_of(21), other);
  options_.own_short_stream = false;
  reopen(true);
  EXPECT_EQ(pool_->allocator.zone(expiring).use, ZoneUse::sealed);
  ASSERT_TRUE(put(22, 1, 400, {.expires_s = in_s(1000)}).ok());
  EXPECT_EQ(zone_of(22), other);
  for (std::uint64_t n = 0; n < 23; ++n) expect_page(n, 1, 400);
}

}  // namespace
}  // namespace furrow
