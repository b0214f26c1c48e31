// Establishes that a full store makes room of what has expired: a put that finds none is taken,
// waits for one sweep with all that come meanwhile, and goes on in its turn; that a sweep takes
// every expired page out of the index and no other; that it runs only when something can have
// expired (by the earliest time noted, kept up after each sweep and by recovery), and never in a
// cache. How: a store filled with pages that expire at times that the test's clock then reaches.
#include "log/expiry_sweep.h"

#include <gmock/gmock.h>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class ExpirySweepTest : public PageLogRig {
 protected:
  void SetUp() override { make_log({}, false); }
  std::uint32_t in(std::uint64_t seconds) {
    return static_cast<std::uint32_t>(executor_.wall_s() + seconds);
  }
  void wait(std::uint64_t seconds) { clock_.now_ns += seconds * 1'000'000'000; }
  // Pages that expire then (0: never) until the store is full; how many were taken.
  std::uint64_t fill(std::uint64_t first, std::uint32_t expires_s) {
    std::uint64_t n = first;
    while (put(n, 0, 1000, {.expires_s = expires_s}).ok()) ++n;
    EXPECT_EQ(ops_.back()->status.code(), Code::no_space);
    EXPECT_THAT(ops_.back()->status.describe(),
                testing::HasSubstr("delete pages, or give it a larger quota"))
        << "a quota stays";
    return n - first;
  }
};

TEST_F(ExpirySweepTest, AFullStoreMakesRoomOfWhatHasExpired) {
  for (std::uint64_t n = 0; n < 10; ++n) ASSERT_TRUE(put(n, 0, 1000).ok());
  for (std::uint64_t n = 10; n < 20; ++n) {
    ASSERT_TRUE(put(n, 0, 1000, {.expires_s = in(1000)}).ok());
  }
  const std::uint64_t filled = fill(100, in(10));
  ASSERT_GT(filled, 40u);
  wait(9);
  EXPECT_EQ(put(1000, 0, 1000).code(), Code::no_space) << "nothing has expired";
  wait(2);
  EXPECT_EQ(log_->stats().pages, 20 + filled) << "nobody has looked yet";
  EXPECT_TRUE(put(1000, 0, 1000).ok());
  EXPECT_EQ(log_->stats().pages, 21u);
  for (std::uint64_t n = 0; n < 20; ++n) expect_page(n, 0, 1000);
  for (std::uint64_t n = 100; n < 100 + filled; ++n) {
    std::array<IndexEntry, 1> found;
    EXPECT_EQ(log_->lookup(log_->hash(key_number(n)), found), 0u) << n;
  }
  for (std::uint64_t n = 2000; n < 2000 + filled / 2; ++n) {
    ASSERT_TRUE(put(n, 0, 1000).ok()) << "what they took is given back";
  }
  EXPECT_EQ(exist(100), Code::not_found);
  reopen();
  EXPECT_EQ(log_->stats().pages, 21 + filled / 2);
}

TEST_F(ExpirySweepTest, ThoseThatComeMeanwhileShareTheSweepAndKeepTheirOrder) {
  const std::uint64_t filled = fill(0, in(10));
  wait(10);
  std::vector<Op*> waiting;
  for (std::uint64_t n = 0; n < 8; ++n) waiting.push_back(&start_put(1000 + n, 0, 1000));
  waiting.push_back(&start_put(1000, 1, 1000));  // its key's lock is taken by one that waits
  EXPECT_FALSE(log_->idle());
  EXPECT_EQ(log_->stats().pages, filled);
  for (Op* op : waiting) EXPECT_TRUE(finish(*op).ok());
  for (std::size_t i = 1; i < waiting.size(); ++i) {
    EXPECT_GT(waiting[i]->answered_as, waiting[i - 1]->answered_as);
  }
  expect_page(1000, 1, 1000);
  EXPECT_EQ(log_->stats().pages, 8u);
  EXPECT_TRUE(run([&] { return log_->idle(); }));
}

// It is still on the medium, and the clock may be set back.
TEST_F(ExpirySweepTest, WhatASweepTookOutStaysRemoved) {
  const std::uint64_t last = 99 + fill(100, in(10));
  wait(10);
  ASSERT_TRUE(put(1000, 0, 1000).ok());
  ASSERT_EQ(log_->stats().pages, 1u);
  EXPECT_EQ(remove(last).code(), Code::not_found);
  clock_.now_ns -= 10'000'000'000;
  reopen();
  EXPECT_EQ(exist(last), Code::not_found);
  EXPECT_EQ(exist(last - 1), Code::ok) << "which nobody removed";
}

TEST_F(ExpirySweepTest, APutThatStillFindsNoRoomIsRefusedOnce) {
  const std::uint64_t first = fill(0, 0);
  // One page's room, of one that expires.
  ASSERT_TRUE(remove(0).ok());
  ASSERT_TRUE(remove(1).ok());
  ASSERT_TRUE(put(500, 0, 1000, {.expires_s = in(5)}).ok());
  while (put(501 + ops_.size(), 0, 1000).ok()) {
  }
  wait(5);
  Op& takes_it = start_put(600, 0, 1000);
  Op& late = start_put(601, 0, 1000);
  EXPECT_TRUE(finish(takes_it).ok());
  EXPECT_EQ(finish(late).code(), Code::no_space);
  EXPECT_GT(first, 0u);
}

TEST_F(ExpirySweepTest, OneSweepASecondAtMostAndTheNextWhenItIsTime) {
  ASSERT_TRUE(put(1, 0, 1000, {.expires_s = in(5)}).ok());
  ASSERT_TRUE(put(2, 0, 1000, {.expires_s = in(20)}).ok());
  fill(100, 0);
  wait(5);
  ASSERT_TRUE(put(1000, 0, 1000).ok());
  EXPECT_EQ(put(1001, 0, 1000).code(), Code::no_space);
  expect_page(2, 0, 1000);
  wait(14);
  EXPECT_EQ(put(1001, 0, 1000).code(), Code::no_space) << "the next one expires a second later";
  wait(1);
  EXPECT_TRUE(put(1001, 0, 1000).ok()) << "what a sweep passes by is noted";
  EXPECT_EQ(put(1002, 0, 1000).code(), Code::no_space);
}

// Each of them would have the whole index looked at for the next put that finds no room.
TEST_F(ExpirySweepTest, PagesThatHaveExpiredWhenTheyComeWaitForTheNextSecond) {
  const std::uint64_t filled = fill(0, 0);
  ASSERT_TRUE(put(1, 1, 1000, {.expires_s = in(0)}).ok());
  ASSERT_TRUE(put(1000, 0, 1000).ok());
  ASSERT_EQ(log_->stats().pages, filled);
  ASSERT_TRUE(put(2, 1, 1000, {.expires_s = in(0)}).ok());
  EXPECT_EQ(put(1001, 0, 1000).code(), Code::no_space);
  EXPECT_EQ(log_->stats().pages, filled) << "the index was looked at again";
  wait(1);
  EXPECT_TRUE(put(1001, 0, 1000).ok());
  EXPECT_EQ(log_->stats().pages, filled);
}

TEST_F(ExpirySweepTest, TimesAreKnownAfterReopening) {
  fill(100, in(50));
  reopen();
  EXPECT_EQ(put(1000, 0, 1000).code(), Code::no_space);
  wait(50);
  EXPECT_TRUE(put(1000, 0, 1000).ok());
  EXPECT_EQ(log_->stats().pages, 1u);
}

TEST_F(ExpirySweepTest, AnOverwrittenPagesTimeDoesNotCount) {
  ASSERT_TRUE(put(1, 0, 1000, {.expires_s = in(5)}).ok());
  ASSERT_TRUE(put(1, 1, 1000).ok());
  fill(100, 0);
  wait(10);
  EXPECT_EQ(put(1000, 0, 1000).code(), Code::no_space);
  expect_page(1, 1, 1000);
}

// Zones are back in whose place the store took others, and others were promised the rest. One page
// in eight stays, and without the others any zone's copies find room.
TEST_F(ExpirySweepTest, WhereNoZoneCanBeFreedWhatHasExpiredMakesRoom) {
  for (const bool overwrites : {false, true}) {
    SCOPED_TRACE(overwrites);
    // A put is refused before it waits for a zone, where copies have none of their own; an
    // overwrite is not, and waits.
    Shape shape;
    shape.zones = 14;
    shape.quota = 12;
    shape.streams = overwrites ? 2 : 1;
    remake(shape, false);
    std::uint64_t n = 0;
    const auto more = [&] {
      std::vector<Op*> batch;
      for (unsigned i = 0; i < 16; ++i, ++n) {
        batch.push_back(&start_put(n, 0, 400, {.expires_s = n % 8 == 0 ? 0 : in(100)}));
      }
      for (Op* op : batch) ASSERT_TRUE(finish(*op).ok());
    };
    while (pool_->allocator.held(kVolume) < (overwrites ? 5 : 6)) more();
    if (!overwrites) more();
    shape_.quota = shape_.others_quota = 6;
    if (overwrites) {
      reopen_cut_off();
    } else {
      reopen();
    }
    run();
    const std::uint64_t number = overwrites ? 8 : 1'000'000;
    EXPECT_EQ(put(number, 1, 400).code(), Code::no_space);
    wait(99);
    EXPECT_EQ(put(number, 1, 400).code(), Code::no_space);
    wait(1);
    (void)put(number, 1, 400);
    run();
    EXPECT_TRUE(put(number, 2, 400).ok()) << ops_.back()->status.describe();
    for (std::uint64_t stays = 0; stays < n; stays += 8) {
      expect_page(stays, stays == number ? 2 : 0, 400);
    }
  }
}

// It holds more than its quota and needs that, as far as anybody knows who has not looked.
TEST_F(ExpirySweepTest, WhatIsBeyondTheQuotaIsToBeHadInAMoment) {
  Shape shape;
  shape.zones = 14;
  shape.quota = 12;
  remake(shape, false);
  const std::uint32_t expires_s = in(100);
  for (std::uint64_t n = 0; pool_->allocator.held(kVolume) < 8; ++n) {
    ASSERT_TRUE(put(n, 0, 1000, {.expires_s = expires_s}).ok());
  }
  shape_.quota = 4;
  reopen();
  run();
  EXPECT_FALSE(log_->sheds_zones());
  wait(100);
  Op& refused = start_put(1'000'000, 0, 1000);
  ASSERT_EQ(refused.answers, 0u);
  EXPECT_TRUE(log_->sheds_zones());
  EXPECT_TRUE(finish(refused).ok());
  run();
  EXPECT_LE(pool_->allocator.held(kVolume), shape_.quota);
  EXPECT_FALSE(log_->sheds_zones());
}

// A cache has room for whatever comes; an expired page leaves with its zone. Nothing is swept.
TEST_F(ExpirySweepTest, ACacheIsNotSwept) {
  drop_pool();
  make_log({}, true);
  std::uint64_t n = 0;
  while (put(n, 0, 1000, {.pinned = true, .expires_s = in(5)}).ok()) ++n;
  const std::uint64_t held = log_->stats().pages;
  wait(10);
  EXPECT_EQ(put(1000, 0, 1000, {.pinned = true}).code(), Code::no_space);
  EXPECT_EQ(log_->stats().pages, held);
}

}  // namespace
}  // namespace furrow
