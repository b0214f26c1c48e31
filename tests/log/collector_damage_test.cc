// Establishes what Collector does with a store's zones that are damaged or cannot be read: a page
// that has rotted stays so in its copy, and its older version gone; what is only not to be read, or
// missing for now, keeps its zone. How: on a PageLog, by damage to the medium and failing reads
// (TapDevice).
#include "tests/log/collector_rig.h"

namespace furrow {
namespace {

TEST_F(CollectorTest, ADamagedPageStaysSoAndItsOlderVersionGone) {
  make_log({}, kStore);
  ASSERT_TRUE(put(500, 0, 500).ok());
  const ZoneId first = zone_of(500);
  fill(2);
  ASSERT_TRUE(put(500, 1, 500).ok());
  ASSERT_TRUE(put(501, 0, 500).ok());
  const ZoneId second = zone_of(500);
  fill(3);
  damage(second, pool_->relative_lba(entry(500).lba));
  collect(second);
  ASSERT_FALSE(is_reset(first));
  EXPECT_EQ(log_->stats().corrupt_pages, 1u);
  for (int round = 0; round < 2; ++round) {
    EXPECT_NE(zone_of(500), second);
    EXPECT_EQ(exist(500), Code::ok);
    EXPECT_FALSE(get(500)) << "and reads as corrupt";
    expect_page(501, 0, 500);
    reopen();
  }
}

// While the superblock cannot say that there are such pages, one stays where it is, and keeps its
// zone, but no other one; nor is that asked all the time.
TEST_F(CollectorTest, ADamagedPageThatMayNotBeWrittenKeepsItsZoneAlone) {
  for (const Code code : {Code::io_error, Code::no_space}) {
    SCOPED_TRACE(to_string(code));
    remake({}, kStore);
    for (std::uint64_t n = 0; n < 4; ++n) ASSERT_TRUE(put(n, 0, 500).ok());
    const ZoneId first = zone_of(0);
    fill(4);
    thin_out(first);
    Status answer(code, Origin::zone);
    unsigned asked = 0;
    pool_->may_say_damaged = [&] {
      ++asked;
      EXPECT_EQ(zone_of(1), first);
      EXPECT_EQ(zone_of(2), first) << "before it is written";
      return answer;
    };
    for (const std::uint64_t n : {1, 2}) damage(first, pool_->relative_lba(entry(n).lba));
    unsigned puts = 0;
    overwrite(100, 10, 1000, [&] {
      ++puts;
      clock_.now_ns += 2'000'000'000;
      return resets().size() > 4;
    });
    EXPECT_FALSE(is_reset(first));
    EXPECT_EQ(exist(1), Code::ok);
    EXPECT_GT(asked, 0u);
    EXPECT_LE(asked, puts);
    answer = Status();
    overwrite(100, 10, 1000, [&] { return is_reset(first); });
    for (std::uint64_t n = 0; n < 4; ++n) EXPECT_EQ(exist(n), Code::ok);
    expect_page(0, 0, 500);
    EXPECT_FALSE(get(1));
  }
}

TEST_F(CollectorTest, AStoreKeepsAZoneWhosePagesNoRecordNames) {
  make_log({}, kStore);
  for (std::uint64_t n = 0; n < 4; ++n) ASSERT_TRUE(put(n, 0, 1000).ok());
  const ZoneId first = zone_of(0);
  fill(4);
  thin_out(first);
  damage(first, pool_->relative_lba(entry(2).lba) - 1);
  damage(first, shape_.segment_lbas - 1);
  overwrite(100, 10, 1000, [&] { return resets().size() > 2; });  // others are collected
  EXPECT_FALSE(is_reset(first));
  for (std::uint64_t n = 0; n < 4; ++n) expect_page(n, 0, 1000);
  EXPECT_EQ(zone_of(2), first) << "still served from there";
}

// What was in the zone when it was written and is not there now may have been hidden by reads that
// brought something else, twice; it is lost when it stays so.
TEST_F(CollectorTest, AStoreKeepsAZoneInWhichATombstoneIsMissing) {
  for (const bool comes_back : {true, false}) {
    SCOPED_TRACE(comes_back);
    remake({}, kStore);
    ASSERT_TRUE(put(500, 0, 500).ok());
    const ZoneId first = zone_of(500);
    fill(2);
    const ZoneId second = zone_of(filler_.back());
    ASSERT_TRUE(remove(500).ok());
    const std::uint32_t header = batches_of(pool_->tables[second.value]).back();
    const std::uint64_t segment = header / shape_.segment_lbas;
    ASSERT_EQ(pool_->tables[second.value].tombstones, 1u);
    fill(3);
    thin_out(second);
    const auto flip = [&] {
      flip_bit(*device_, second, header);
      flip_bit(*device_, second, (segment + 1) * shape_.segment_lbas - 1);
      device_->forget_events();
    };
    flip();
    overwrite(100, 10, 400, [&] { return is_reset(second) || log_->leaves_zones_alone(); });
    EXPECT_FALSE(is_reset(second));
    if (comes_back) flip();
    overwrite(100, 10, 400, [&] {
      if (log_->leaves_zones_alone()) clock_.now_ns += 2'000'000'000;
      return is_reset(second);
    });
    EXPECT_FALSE(is_reset(first));
    const auto reads =
        std::ranges::count_if(device_->events(true), [&](const TapDevice::Event& each) {
          return each.op == Io::Op::read && !each.answered && each.zone == second &&
                 each.lba <= header && header < each.lba + each.lbas;
        });
    // At three attempts, twice each, with what may be batches behind it; once where it is back.
    EXPECT_LE(reads, comes_back ? 1 : 15);
    if (!comes_back) continue;
    reopen();
    expect_absent(500);
  }
}

// Only attempts at which it was missing count, not those at which a page could not be read.
TEST_F(CollectorTest, ATombstoneIsLostWhenItIsMissingAtTheThirdAttempt) {
  Shape shape;
  shape.faults = true;
  for (const unsigned others : {0u, 5u}) {
    SCOPED_TRACE(others);
    remake(shape, kStore);
    ASSERT_TRUE(put(500, 0, 500).ok());
    fill(2);
    const ZoneId second = zone_of(filler_.back());
    const std::uint64_t kept = filler_.back();
    filler_.pop_back();
    ASSERT_TRUE(remove(500).ok());
    const std::uint32_t header = batches_of(pool_->tables[second.value]).back();
    fill(3);
    thin_out(second);
    run();
    const Lba page{entry(kept).lba};
    for (unsigned i = 0; i < others; ++i) {
      ASSERT_FALSE(is_reset(second));
      log_->collect(second);
      ASSERT_TRUE(run([&] { return i == 0 || !log_->leaves_zones_alone(); }));
      faults_->fail_reads(page, 1);
      run();
      ASSERT_TRUE(log_->leaves_zones_alone());
      faults_->heal();
      clock_.now_ns += 100'000'000'000;
    }
    flip_bit(*device_, second, header);
    flip_bit(*device_, second, (header / shape_.segment_lbas + 1) * shape_.segment_lbas - 1);
    device_->forget_events();
    unsigned attempts = 0;
    for (; !is_reset(second); ++attempts) {
      ASSERT_LT(attempts, 10u);
      log_->collect(second);
      run();
      clock_.now_ns += 100'000'000'000;
    }
    EXPECT_EQ(attempts, 3u);
  }
}

TEST_F(CollectorTest, APageThatCannotBeReadKeepsItsZone) {
  Shape shape;
  shape.faults = true;
  make_log(shape, kStore);
  for (std::uint64_t n = 0; n < 4; ++n) ASSERT_TRUE(put(n, 0, 1000).ok());
  const ZoneId first = zone_of(0);
  fill(4);
  thin_out(first);
  faults_->fail_reads(Lba{entry(2).lba}, 1);
  // It is tried again and again, and what can be moved is.
  churn(400, [&] { return zone_of(0) != first && zone_of(3) != first; });
  overwrite(100, 10, 1000, [&] { return resets().size() > 2; });
  EXPECT_FALSE(is_reset(first));
  for (std::uint64_t n = 0; n < 4; ++n) {
    if (n != 2) expect_page(n, 0, 1000);
  }
  EXPECT_EQ(zone_of(2), first);
  EXPECT_EQ(log_->stats().corrupt_pages, 0u) << "unreadable is not damaged";
}

// How long a zone cannot be read is told from when that was asked last, not from the clock alone.
TEST_F(CollectorTest, WhatNobodyAskedForIsNotUnreadableForLong) {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  Shape shape;
  shape.faults = true;
  make_log(shape, kStore);
  for (std::uint64_t n = 0; n < 4; ++n) ASSERT_TRUE(put(n, 0, 1000).ok());
  const ZoneId first = zone_of(0);
  fill(4);
  thin_out(first);
  const Lba page{entry(2).lba};
  faults_->fail_reads(page, 1);
  churn(400, [&] { return log_->leaves_zones_alone(); });
  clock_.now_ns += 3600 * kSecondNs;
  EXPECT_FALSE(log_->unreadable_for_long());
  faults_->heal();
  overwrite(100, 10, 1000, [&] { return is_reset(first); });
  EXPECT_FALSE(log_->unreadable_for_long());
  EXPECT_FALSE(log_->leaves_zones_alone());
}

TEST_F(CollectorTest, WhatIsAskedForAndCannotBeReadIsSoForLong) {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  Shape shape;
  shape.faults = true;
  make_log(shape, kStore);
  for (std::uint64_t n = 0; n < 4; ++n) ASSERT_TRUE(put(n, 0, 1000).ok());
  const ZoneId first = zone_of(0);
  fill(4);
  thin_out(first);
  faults_->fail_reads(Lba{entry(2).lba}, 1);
  churn(400, [&] { return log_->leaves_zones_alone(); });
  for (unsigned s = 0; s < 14; ++s) {
    EXPECT_FALSE(log_->unreadable_for_long()) << s << " s";
    clock_.now_ns += kSecondNs;
    const auto before = resets().size();
    overwrite(100, 10, 1000, [&] { return resets().size() > before; });
  }
  clock_.now_ns += 2 * kSecondNs;
  overwrite(100, 10, 1000, [&] { return log_->unreadable_for_long(); });
}

}  // namespace
}  // namespace furrow
