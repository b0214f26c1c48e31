// Establishes when a cache evicts beside zones that could not be read when the pool was opened:
// once what is left tells of it, and without waiting for what nobody may write. How: on a PageLog,
// by what the device is asked for (TapDevice), with answers held back.
#include "tests/log/collector_rig.h"
#include "tests/log/zone_image.h"

namespace furrow {
namespace {

class CollectorHiddenTest : public CollectorTest {
 protected:
  void make_cache(std::uint64_t quota, bool hidden) {
    drop_pool();
    make({.quota = quota});
    options_.volume = kVolume;
    options_.cache = true;
    log_ = std::make_unique<PageLog>(*pool_, options_);
    const RecoveredPages none;
    log_->load({.pages = none, .hidden = hidden, .outlived = {}});
    log_->start();
  }
  ZoneImage image(ZoneId zone, std::uint64_t generation) const {
    return ZoneImage(
        {.stamp = {superblock_.pool, zone, generation}, .hash_key = superblock_.hash_key});
  }
  // One opening cannot read that LBA, and the next one can.
  void reopen_without(ZoneId zone, std::uint32_t lba) {
    faults_->fail_reads(Lba{pool_->device_lba(zone, lba)}, 1);
    reopen();
    faults_->heal();
    reopen();
  }
};

// One that could not be read may count again one day: what is left tells that something opened
// behind it is gone.
TEST_F(CollectorHiddenTest, OneGoesWhenTheNextHoldsSomething) {
  for (const bool hidden : {false, true}) {
    make_cache(3, hidden);
    ASSERT_TRUE(put(next_, 0, 4000).ok());
    const ZoneId first = zone_of(next_++);
    const auto next_holds_a_batch = [&] {
      return std::ranges::any_of(device_->events(), [&](const TapDevice::Event& each) {
        return each.op == Io::Op::write && each.zone != first && each.lba != 0;
      });
    };
    device_->hold(Io::Op::write);
    while (!next_holds_a_batch()) {
      if (device_->held(Io::Op::write) == 0) {
        start_put(next_++, 0, 4000);
      } else {
        device_->let_one_go(Io::Op::write, 0);
      }
      run();
    }
    EXPECT_EQ(is_reset(first), !hidden);
    device_->let_go(Io::Op::write);
    run();
    EXPECT_TRUE(is_reset(first));
  }
}

// What was read is not worth a copy then, which could outlive a newer version that is hidden. What
// is pinned is.
TEST_F(CollectorHiddenTest, WhatWasOnlyReadIsNotWrittenAgain) {
  for (const bool hidden : {false, true}) {
    make_cache(4, hidden);
    const std::uint64_t read = next_++, pinned = next_++;
    ASSERT_TRUE(put(read, 0, 1000).ok());
    ASSERT_TRUE(put(pinned, 0, 1000, {.pinned = true}).ok());
    const ZoneId first = zone_of(read);
    hit(read);
    churn_until_reset(first, 1000);
    EXPECT_EQ(get(read).has_value(), !hidden);
    expect_page(pinned, 0, 1000);
  }
}

// Nor does one wait for a batch of users who wait for it: at the quota, or while that shrinks.
TEST_F(CollectorHiddenTest, NoneWaitsForABatchThatNobodyMayWrite) {
  for (const bool shrinks : {false, true}) {
    SCOPED_TRACE(shrinks);
    make_cache(shrinks ? 5 : 4, true);
    const auto held = [this] { return pool_->allocator.held(kVolume); };
    const std::uint64_t first = next_++;
    ASSERT_TRUE(put(first, 0, 4000, {.pinned = !shrinks}).ok());
    while (held() < 3) {
      Op& op = start_put(next_++, 0, 4000);
      ASSERT_TRUE(run([&] { return op.answers != 0 || held() == 3; }));
    }
    if (shrinks) {  // and whoever asked for it does not come again
      log_->shrink(3);
    } else {  // that zone gets no batch, and the one after it, for the copies, not even a header
      device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
      ASSERT_TRUE(run([&] { return held() == 4; }));
      device_->fail(Io::Op::flush, {Code::io_error, Origin::zone});
      run();
      clock_.now_ns += 2'000'000'000;
    }
    run();
    EXPECT_TRUE(put(next_++, 0, 4000).ok());
    run();
    if (!shrinks) expect_page(first, 0, 4000);
  }
}

// A page that an opening could not read, and the next one finds torn, while what stands behind it
// counts: nothing is written for it when its zone goes, which would hide what it did not replace.
TEST_F(CollectorHiddenTest, ATornPageIsNothing) {
  for (const bool expires : {false, true}) {
    SCOPED_TRACE(expires);
    remake({.faults = true}, kStore);
    const ZoneId first{6}, second{7};
    ZoneImage old = image(first, 10);
    old.add_batch({old.page(101, 11, 600), old.page(102, 12, 600), old.page(103, 13, 600)});
    ZoneImage newest = image(second, 20);
    const auto late = static_cast<std::uint32_t>(executor_.wall_s() + 1000);
    ZoneImage::Item replaced = newest.page(101, 21, 600, 1);
    if (expires) replaced = ZoneImage::expiring(replaced, late);
    const std::uint32_t torn = newest.add_batch({replaced, newest.page(104, 22, 600)}) + 1;
    newest.add_batch({newest.tombstone(102, 23)});
    newest.damage(torn);
    for (const ZoneImage& each : {old, newest}) each.write_to(*device_);
    reopen_without(second, torn);
    ASSERT_EQ(pool_->tables[second.value].torn, std::vector<std::uint32_t>{torn});
    device_->forget_events();  // of the images
    run();
    EXPECT_TRUE(is_reset(second)) << "at once: a page that rots there would pass for torn";
    for (unsigned i = 0; i < 2; ++i, reopen()) {
      expect_page(101, 0, 600);
      expect_absent(102);
      expect_page(103, 0, 600);
      expect_page(104, 0, 600);
    }
  }
}

// Nor is a header that is torn, and of which a summary tells: its zone goes as well.
TEST_F(CollectorHiddenTest, AZoneWithATornHeaderThatASummaryNamesIsEmptied) {
  remake({.faults = true}, kStore);
  const ZoneId first{6}, second{7};
  ZoneImage old = image(first, 10);
  old.add_batch({old.page(101, 11, 600), old.page(102, 12, 600), old.page(103, 13, 600)});
  ZoneImage newest = image(second, 20);
  newest.add_batch({newest.page(104, 21, 600)});
  const std::uint32_t torn =
      newest.add_batch({newest.tombstone(102, 22), newest.page(101, 23, 600, 1)});
  newest.close_segment();
  newest.damage(torn);
  for (const ZoneImage& each : {old, newest}) each.write_to(*device_);
  reopen_without(second, torn);
  device_->forget_events();  // of the images
  run();
  EXPECT_TRUE(is_reset(second)) << "at once: a page that rots there would pass for torn";
  for (unsigned i = 0; i < 2; ++i, reopen()) {
    expect_page(101, 1, 600);
    expect_absent(102);
    expect_page(103, 0, 600);
    expect_page(104, 0, 600);
  }
}

}  // namespace
}  // namespace furrow
