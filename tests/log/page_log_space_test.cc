// Establishes what PageLog promises about its space: a store says no_space before it is stuck,
// drops nothing, and goes on when something is deleted, also where zones are lost or the medium is
// full; a cache takes whatever is put and stays within its quota. How: a log on a small device.
#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class PageLogSpaceTest : public PageLogRig {
 protected:
  void SetUp() override { make_log({}, false); }
  // Pages of `bytes` under new keys until one is refused; how many were taken.
  std::uint64_t fill(std::uint64_t first, std::uint32_t bytes) {
    for (std::uint64_t n = first;; ++n) {
      const Status status = put(n, 0, bytes);
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), Code::no_space) << status.describe();
      return n - first;
    }
  }
  // Pages in batches of so many, until a new store that has room enough holds so many zones. How
  // many pages those are.
  std::uint64_t fill_zones(std::uint64_t zones, unsigned batch) {
    Shape shape;
    shape.zones = 14;
    shape.quota = 12;
    remake(shape, false);
    std::uint64_t pages = 0;
    while (pool_->allocator.held(kVolume) < zones) {
      std::vector<Op*> puts;
      for (unsigned i = 0; i < batch; ++i) puts.push_back(&start_put(pages++, 1, 400));
      for (Op* op : puts) EXPECT_TRUE(finish(*op).ok());
    }
    return pages;
  }
  // While it is cut off again and again, and holds no more zones than so many.
  void remove_all(std::uint64_t pages, std::uint64_t held_max) {
    for (std::uint64_t n = 0; n < pages; ++n) {
      if (n % 8 == 7) reopen_cut_off();
      ASSERT_LE(pool_->allocator.held_max(kVolume), held_max) << n;
      const Status removed = remove(n);
      ASSERT_TRUE(removed.ok()) << n << ": " << removed.describe();
    }
    run();
    EXPECT_LT(pool_->allocator.held(kVolume), shape_.quota);
    EXPECT_EQ(pool_->allocator.held_max(kVolume), shape_.quota);
    EXPECT_TRUE(put(1, 2, 400).ok());
  }
};

TEST_F(PageLogSpaceTest, AFullStoreSaysSoAndDropsNothing) {
  for (const std::uint32_t bytes : {100u, 4096u, 8192u}) {
    for (const unsigned streams : {1u, 2u}) {
      Shape shape;
      shape.streams = streams;
      remake(shape, false);
      const std::uint64_t taken = fill(0, bytes);
      ASSERT_GT(taken * bytes, bytes == 100 ? 10'000u : shape.quota * 96 * 512 / 5) << bytes;
      EXPECT_EQ(log_->stats().pages, taken);
      for (std::uint64_t n = 0; n < taken; ++n) expect_page(n, 0, bytes);
      // Overwriting adds nothing, however often, and something smaller neither.
      for (std::uint64_t n = 0; n < 3 * taken; ++n) {
        const Status status = put(n % taken, 1, bytes);
        ASSERT_TRUE(status.ok()) << bytes << " " << n << ": " << status.describe();
      }
      EXPECT_EQ(put(taken, 0, bytes).code(), Code::no_space);
      // Each delete makes room for one.
      for (std::uint64_t n = 0; n < taken / 4; ++n) ASSERT_TRUE(remove(n).ok());
      std::uint64_t again = 0;
      while (put(1000 + again, 0, bytes).ok()) ++again;
      EXPECT_GE(again, taken / 8) << "less what the tombstones take";
      run();
      for (std::uint64_t n = 0; n < taken / 4; ++n) expect_absent(n);
      for (std::uint64_t n = taken / 4; n < taken; ++n) expect_page(n, 1, bytes);
      for (std::uint64_t n = 0; n < again; ++n) expect_page(1000 + n, 0, bytes);
      EXPECT_LE(log_->stats().zones, shape.quota);
      reopen();
      for (std::uint64_t n = taken / 4; n < taken; ++n) expect_page(n, 1, bytes);
      EXPECT_EQ(log_->stats().pages, again + taken - taken / 4);
    }
  }
}

TEST_F(PageLogSpaceTest, PutsOnTheirWayCountAsWell) {
  const std::uint64_t taken = fill(0, 2000);
  for (std::uint64_t n = 0; n < 5; ++n) ASSERT_TRUE(remove(n).ok());
  run();
  // All at once: no more are admitted than one by one.
  std::vector<Op*> burst;
  for (std::uint64_t n = 0; n < 40; ++n) burst.push_back(&start_put(1000 + n, 0, 2000));
  unsigned admitted = 0;
  for (Op* op : burst) admitted += finish(*op).ok() ? 1 : 0;
  EXPECT_GE(admitted, 3u);
  EXPECT_LE(admitted, 5u);
  EXPECT_EQ(log_->stats().pages, taken - 5 + admitted);
}

TEST_F(PageLogSpaceTest, TheLastZoneOfAStoreIsForRelocationAlone) {
  EXPECT_TRUE(log_->may_open_zone(false));
  std::vector<ZoneId> taken;
  while (pool_->allocator.held(kVolume) + 1 < shape_.quota) {
    taken.push_back(*pool_->allocator.take(kVolume, 0, 1, 1));
  }
  EXPECT_FALSE(log_->may_open_zone(false));
  EXPECT_TRUE(log_->may_open_zone(true));
  taken.push_back(*pool_->allocator.take(kVolume, 0, 1, 1));
  EXPECT_FALSE(log_->may_open_zone(true));
  run();
  for (const ZoneId zone : taken) pool_->allocator.release(zone);
  EXPECT_TRUE(log_->may_open_zone(false));
  run();
}

// A store from which something has expired writes a deletion for keys that it has not got as well.
// However many go together, and so take less than was reckoned: no zone is wanted then.
TEST_F(PageLogSpaceTest, WhereDeletesHaveTheRoomAPutIsTakenWhenTheirZonesAreCollected) {
  constexpr std::uint64_t kTriesMax = 4;
  for (const auto& [quota, batch] : {std::pair{3u, 64u}, {3u, 1000u}, {12u, 64u}, {12u, 1000u}}) {
    SCOPED_TRACE(std::to_string(batch) + " deletes at a time, a quota of " + std::to_string(quota));
    Shape shape;
    shape.zones = 14;
    shape.quota = quota;
    remake(shape, false);
    const auto expires_s = static_cast<std::uint32_t>(executor_.wall_s() + 1);
    ASSERT_TRUE(put(1, 1, 400, {.expires_s = expires_s}).ok());
    clock_.now_ns += 2'000'000'000;
    reopen();
    Status status;
    for (std::uint64_t n = 100; status.ok() && n < 20'000; n += batch) {
      std::vector<Op*> removed;
      for (std::uint64_t i = 0; i < batch; ++i)
        removed.push_back(&start(KeyOp::Kind::remove, n + i));
      for (Op* op : removed) ASSERT_EQ(finish(*op).code(), Code::not_found);
      status = put(2, 1, 400);
      if (status.ok()) {
        ASSERT_TRUE(remove(2).ok());
      }
    }
    ASSERT_EQ(status.code(), Code::no_space) << "they never had it";
    EXPECT_NE(status.describe().find("deletes"), std::string::npos) << status.describe();
    for (std::uint64_t tries = 0; !status.ok() && tries < kTriesMax; ++tries) {
      run();
      status = put(2, 1, 400);
    }
    EXPECT_TRUE(status.ok()) << status.describe();
  }
}

// Zones are back in whose place it took others. Each opening is soon cut off, and what was written
// to is ended by that.
TEST_F(PageLogSpaceTest, WithItsWholeQuotaOrMoreAStoreTakesDeletesAndShrinks) {
  for (const std::uint64_t beyond : {0, 1, 3}) {
    SCOPED_TRACE(beyond);
    const std::uint64_t pages = fill_zones(5 + beyond, 1);
    shape_.quota = 5;
    reopen_cut_off();
    EXPECT_FALSE(log_->may_open_zone(false)) << "what is beyond it is for copies";
    remove_all(pages, 6 + beyond);
  }
}

// .. and pages take so much that no zone gains anything by its collection.
TEST_F(PageLogSpaceTest, WithMoreThanItsQuotaIsForAStoreTakesDeletesAndShrinks) {
  const std::uint64_t pages = fill_zones(5, 64);
  shape_.quota = 6;
  reopen_cut_off();
  EXPECT_EQ(put(1'000'000, 1, 400).code(), Code::no_space);
  EXPECT_TRUE(put(1, 2, 400).ok()) << "it takes the place of another one";
  remove_all(pages, 8);
}

// .. up to what it may hold then, also while the pool is being closed.
TEST_F(PageLogSpaceTest, WhatIsSureOfAZoneIsNotEndedByAClose) {
  (void)fill_zones(5, 64);
  shape_.quota = 6;
  reopen_cut_off();
  run();
  ASSERT_EQ(pool_->allocator.held(kVolume) + 1, shape_.quota);
  ASSERT_TRUE(log_->may_open_zone(false));
  Op& removed = start(KeyOp::Kind::remove, 1);
  ASSERT_TRUE(run([&] { return removed.lock.writing; }));
  log_->stop_background();
  log_->fail_stranded();
  EXPECT_TRUE(finish(removed).ok()) << removed.status.describe();
}

// While its quota becomes smaller, and it holds far more, a few zones are freed at a time.
TEST_F(PageLogSpaceTest, BeyondItsQuotaUsersHaveTurnsWhileItShrinks) {
  const std::uint64_t pages = fill_zones(11, 1);
  for (std::uint64_t n = 8; n < pages; ++n) ASSERT_TRUE(remove(n).ok());
  shape_.quota = 5;
  reopen();
  const std::uint64_t held = pool_->allocator.held(kVolume);
  ASSERT_GT(held, shape_.quota + 2);
  log_->shrink(held - 2);
  Op& removed = start(KeyOp::Kind::remove, 0);
  ASSERT_TRUE(run([&] { return removed.answers != 0; }));
  EXPECT_TRUE(removed.status.ok()) << removed.status.describe();
  EXPECT_LT(pool_->allocator.held(kVolume), held) << "zones go first";
  EXPECT_GT(pool_->allocator.held(kVolume), shape_.quota) << "and not all of them";
  log_->end_shrinking();
}

TEST_F(PageLogSpaceTest, AVolumeWithTooFewZonesLeftSaysSo) {
  ASSERT_TRUE(put(1, 0, 100).ok());
  drop_pool();
  make_pool();
  pool_->allocator.dismiss(kVolume);
  ASSERT_TRUE(pool_->allocator.admit(kVolume, 2, 2).ok());
  log_ = std::make_unique<PageLog>(*pool_, options_);
  EXPECT_EQ(put(2, 0, 100).code(), Code::no_space);
}

// What is there may lose something, as it may be deleted.
TEST_F(PageLogSpaceTest, WhereTheMediumIsFullAStoreTakesDeletesAndWhatShrinks) {
  for (std::uint64_t n = 0; n < 2; ++n) ASSERT_TRUE(put(n, 1, 1000).ok());
  device_->set_short_of_room(true);
  EXPECT_EQ(put(0, 2, 10).code(), Code::no_space);
  EXPECT_EQ(put(0, 2, 1001, {.shrinks = true}).code(), Code::no_space);
  EXPECT_EQ(put(9, 1, 10, {.shrinks = true}).code(), Code::no_space);
  expect_page(0, 1, 1000);
  EXPECT_TRUE(put(0, 2, 1000, {.shrinks = true}).ok());
  expect_page(0, 2, 1000);
  EXPECT_TRUE(remove(1).ok());
  device_->set_short_of_room(false);
  EXPECT_TRUE(put(0, 3, 10).ok());
}

// A store far from its quota resets none, as it needs none; but their space is all that there is.
TEST_F(PageLogSpaceTest, WhereTheMediumIsFullZonesInWhichNothingLivesAreReset) {
  Shape shape;
  shape.zones = 24;
  shape.quota = 20;
  remake(shape, false);
  std::uint64_t pages = 0;
  for (; pool_->allocator.held(kVolume) < 8; ++pages) {
    ASSERT_TRUE(put(pages, 1, 4000, {.group = 1 + pages % 2}).ok());
  }
  ASSERT_TRUE(remove_group(1).ok());
  run();
  const std::uint64_t held = pool_->allocator.held(kVolume);
  EXPECT_EQ(log_->stats().zones_reset, 0u);
  device_->set_short_of_room(true);
  EXPECT_EQ(put(pages, 1, 10).code(), Code::no_space);
  run();
  EXPECT_EQ(log_->stats().zones_reset, 0u) << "something lives in each";
  // The last page of a zone is enough, whoever asks for what next.
  ASSERT_TRUE(remove_group(2).ok());
  run();
  EXPECT_GE(log_->stats().zones_reset, held - 2);
  device_->set_short_of_room(false);
  ASSERT_TRUE(put(0, 2, 4000).ok());
  expect_page(0, 2, 4000);
}

// Those that were dead before are found by a put that is refused.
TEST_F(PageLogSpaceTest, WhereTheMediumIsFullARefusedPutFindsDeadZones) {
  Shape shape;
  shape.zones = 24;
  shape.quota = 20;
  remake(shape, false);
  for (std::uint64_t n = 0; pool_->allocator.held(kVolume) < 8; ++n) {
    ASSERT_TRUE(put(n, 1, 4000, {.group = 1}).ok());
  }
  ASSERT_TRUE(remove_group(1).ok());
  run();
  EXPECT_EQ(log_->stats().zones_reset, 0u);
  device_->set_short_of_room(true);
  EXPECT_EQ(put(0, 1, 10).code(), Code::no_space);
  run();
  EXPECT_GE(log_->stats().zones_reset, 5u);
  device_->set_short_of_room(false);
}

TEST_F(PageLogSpaceTest, ACacheTakesWhateverIsPutAndStaysWithinItsQuota) {
  remake({}, true);
  for (std::uint64_t n = 0; n < 600; ++n) {
    ASSERT_TRUE(put(n, 0, 4000).ok()) << n;
    ASSERT_LE(log_->stats().zones, shape_.quota);
  }
  for (std::uint64_t n = 590; n < 600; ++n) expect_page(n, 0, 4000);
  expect_absent(0);
  EXPECT_GT(log_->stats().evicted_pages, 400u);
  EXPECT_EQ(log_->stats().pages + log_->stats().evicted_pages, 600u);
  // From the first eviction on, a delete of a key that is not there leaves a tombstone.
  device_->forget_events();
  EXPECT_EQ(remove(0).code(), Code::not_found);
  EXPECT_EQ(device_->count(Io::Op::write), 1u);
}

// Its group is deleted while the pages that were to take the places of its own are on their way.
TEST_F(PageLogSpaceTest, WhatIsPinnedAnewCountsWhenThereIsNothingLeftToReplace) {
  remake({}, true);
  const Put in_group{.pinned = true, .group = 1};
  std::uint64_t pins = 0;
  while (put(pins, 0, 4000, in_group).ok()) ++pins;
  ASSERT_GT(pins, 1u);
  Group& removal = start_remove_group(1);
  device_->hold(Io::Op::write);
  ASSERT_TRUE(run([this] { return device_->held(Io::Op::write) == 1; }));
  std::vector<Op*> anew;
  for (std::uint64_t n = 0; n < pins; ++n) {
    anew.push_back(&start_put(n, 1, 4000, {.pinned = true}));
  }
  device_->let_one_go(Io::Op::write, 0);
  ASSERT_TRUE(run([&] { return removal.answers != 0; }));
  EXPECT_EQ(log_->stats().pages, 0u);
  Op& another = start_put(pins, 1, 4000, {.pinned = true});
  run();
  device_->let_go(Io::Op::write);
  EXPECT_EQ(finish(another).code(), Code::no_space);
  for (Op* op : anew) EXPECT_TRUE(finish(*op).ok());
  EXPECT_EQ(put(pins, 1, 4000, {.pinned = true}).code(), Code::no_space);
  for (std::uint64_t n = 0; n < pins; ++n) expect_page(n, 1, 4000);
}

// They have expired, and are swept out of the index meanwhile.
TEST_F(PageLogSpaceTest, WhatIsStoredAnewCountsWhenASweepHasTakenWhatItReplaces) {
  remake({}, false);
  constexpr std::uint64_t kExpiring = 4;
  const auto expires_s = static_cast<std::uint32_t>(executor_.wall_s() + 10);
  std::uint64_t pages = 0;
  while (put(pages, 0, 1000, {.expires_s = pages < kExpiring ? expires_s : 0}).ok()) ++pages;
  clock_.now_ns += 10'000'000'000;
  device_->hold(Io::Op::write);
  std::vector<Op*> anew;
  for (std::uint64_t n = 0; n < kExpiring; ++n) anew.push_back(&start_put(n, 1, 1000));
  run();
  ASSERT_NE(device_->held(Io::Op::write), 0u);
  Op& another = start_put(pages, 1, 1000);
  run();
  EXPECT_EQ(log_->stats().pages, pages - kExpiring) << "nobody has swept";
  device_->let_go(Io::Op::write);
  EXPECT_EQ(finish(another).code(), Code::no_space);
  for (Op* op : anew) EXPECT_TRUE(finish(*op).ok());
  for (std::uint64_t n = 0; n < pages; ++n) expect_page(n, n < kExpiring ? 1 : 0, 1000);
}

// Nor does it replace what its group's deletion takes while its batch header is read.
TEST_F(PageLogSpaceTest, WhatIsPinnedAnewCountsWhenItsPageHasGoneBeforeItWasRead) {
  remake({}, true);
  std::uint64_t pins = 0;
  while (put(pins, 0, 4000, {.pinned = true, .group = 1}).ok()) ++pins;
  Group& removal = start_remove_group(1);
  device_->hold(Io::Op::write);
  ASSERT_TRUE(run([this] { return device_->held(Io::Op::write) == 1; }));
  device_->hold(Io::Op::read);
  std::vector<Op*> anew;
  for (std::uint64_t n = 0; n < pins; ++n) {
    anew.push_back(&start_put(n, 1, 4000, {.pinned = true}));
  }
  run();
  device_->let_one_go(Io::Op::write, 0);
  // The deletion's own read of a batch header came last.
  for (run(); removal.answers == 0; run()) {
    ASSERT_GT(device_->held(Io::Op::read), anew.size()) << "nothing can go on";
    device_->let_one_go(Io::Op::read, device_->held(Io::Op::read) - 1);
  }
  EXPECT_EQ(log_->stats().pages, 0u);
  device_->let_go(Io::Op::read);
  run();
  Op& another = start_put(pins, 1, 4000, {.pinned = true});
  run();
  device_->let_go(Io::Op::write);
  EXPECT_EQ(finish(another).code(), Code::no_space);
  for (Op* op : anew) EXPECT_TRUE(finish(*op).ok());
  for (std::uint64_t n = 0; n < pins; ++n) expect_page(n, 1, 4000);
}

// Collection takes the key's lock from a put that waits for a zone, which then begins anew: its
// page is counted once.
TEST_F(PageLogSpaceTest, APutThatBeginsAnewCountsOnce) {
  remake({}, false);
  std::uint64_t keys = 0;
  while (pool_->allocator.held(kVolume) < 3) ASSERT_TRUE(put(keys++, 0, 400).ok());
  const ZoneId first = zone_of(0);
  for (std::uint64_t n = 1; zone_of(n) == first; ++n) ASSERT_TRUE(put(n, 1, 400).ok());
  device_->hold(Io::Op::read);
  const Op* waiting = nullptr;
  do {
    waiting = &start_put(keys++, 0, 400);
    run();
  } while (waiting->answers != 0);
  Op& again = start_put(0, 2, 900);
  run();
  device_->let_one_go(Io::Op::read, device_->held(Io::Op::read) - 1);  // of the key's header
  run();
  ASSERT_EQ(again.answers, 0u) << "it waits as well";
  device_->let_go(Io::Op::read);
  ASSERT_TRUE(finish(again).ok());
  run();
  ASSERT_GE(log_->stats().relocated_bytes, 400u) << "what it replaces has been copied";
  EXPECT_EQ(log_->stats().pages, keys);
  EXPECT_EQ(log_->stats().cost_bytes,
            (keys - 1) * PageLog::cost_bytes(*pool_, 400) + PageLog::cost_bytes(*pool_, 900));
}

}  // namespace
}  // namespace furrow
