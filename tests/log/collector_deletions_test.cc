// Establishes what becomes of deletions when Collector empties a store's zones: tombstones, of keys
// and groups, stay as long as an older version may be on the medium, once each, and a page that
// goes uncovers none. How: as collector_store_test.
#include "tests/log/collector_rig.h"

namespace furrow {
namespace {

// The zone that has both goes while a page of the group is still to be found and let go of: it is
// copied, and the copy, which nobody gets, is not to be back at the next opening.
TEST_F(CollectorTest, AGroupsDeletionThatGoesOnStaysForWhatIsCopied) {
  make_log({}, kStore);
  for (std::uint64_t n = 1; n < 8; ++n) ASSERT_TRUE(put(n, 0, 1500).ok());
  const ZoneId zone = zone_of(7);
  for (std::uint64_t n = 1; n < 8; ++n) ASSERT_TRUE(remove(n).ok());
  ASSERT_TRUE(put(0, 0, 1000, {.group = 3}).ok());
  ASSERT_EQ(zone_of(0), zone);
  device_->hold(Io::Op::read);
  Group& removal = start_remove_group(3, false);
  run();
  ASSERT_EQ(device_->held(Io::Op::read), 1u) << "of the header that names the page";
  ASSERT_EQ(pool_->tables[zone.value].group_tombstones, 1u);
  churn(1000, [&] { return pool_->allocator.zone(zone).use == ZoneUse::draining; });
  for (unsigned turns = 0; turns < 1000; ++turns) {  // until it waits for the removal to end
    if (device_->held(Io::Op::read) > 1) device_->let_one_go(Io::Op::read, 1);
    executor_.run_once();
  }
  ASSERT_GE(log_->stats().relocated_bytes, 1000u);
  ASSERT_EQ(removal.answers, 0u);
  device_->let_go(Io::Op::read);
  run();
  ASSERT_EQ(removal.answers, 1u);
  ASSERT_TRUE(is_reset(zone));
  expect_absent(0);
  reopen();
  expect_absent(0);
}

// Some of its pages are let go of, and others not: all of them are gone at the next opening.
TEST_F(CollectorTest, AGroupsDeletionThatFailedHalfwayStays) {
  Shape shape;
  shape.faults = true;
  for (const bool again : {false, true}) {  // and comes to nothing
    remake(shape, kStore);
    for (std::uint64_t n = 2; n < 8; ++n) ASSERT_TRUE(put(n, 0, 1500).ok());
    const ZoneId zone = zone_of(7);
    for (std::uint64_t n = 2; n < 8; ++n) ASSERT_TRUE(remove(n).ok());
    for (const std::uint64_t n : {0, 1}) {  // a batch each
      ASSERT_TRUE(put(n, 0, 1000, {.group = 3}).ok());
      ASSERT_EQ(zone_of(n), zone);
    }
    // The header that names the first.
    faults_->fail_reads(Lba{entry(0).lba - 1}, 1);
    EXPECT_EQ(remove_group(3).code(), Code::io_error);
    faults_->heal();
    if (again) {
      device_->fail(Io::Op::write, {Code::no_space, Origin::zone});
      EXPECT_EQ(remove_group(3).code(), Code::no_space);
    }
    churn_until_reset(zone, 1000);
    reopen();
    for (const std::uint64_t n : {0, 1}) expect_absent(n);
  }
}

// Zones of which one holds two pages, and certainly (whatever the sizes) but one: with tombstones
// beside it, collecting none is sure to gain room. Deletes go on all the same, through any number
// of cuts, and make room for the next page.
TEST_F(CollectorTest, DeletionsGoOnWhereNoZoneIsSureToGainRoom) {
  Shape shape;
  shape.zones = 5;
  shape.zone_size_lbas = shape.zone_capacity_lbas = shape.segment_lbas = 82;
  shape.quota = 3;
  shape.faults = true;
  constexpr std::uint32_t kBytes = 18'737;
  options_.value_bytes_max = kBytes;
  for (const unsigned streams : {1u, 2u}) {
    for (const bool cuts : {false, true}) {
      shape.streams = streams;
      remake(shape, kStore);
      ASSERT_TRUE(put(1, 0, kBytes, {.flushed = true, .group = 4}).ok());
      ASSERT_TRUE(put(1, 0, kBytes, {.flushed = true, .group = 5}).ok());
      for (unsigned i = 0; i < 200; ++i) {
        // Of a group whose page is dead, and of one without any, which needs no room at all.
        for (const std::uint64_t group : {std::uint64_t{4}, std::uint64_t{10} + i}) {
          const Status status = remove_group(group, true);
          ASSERT_TRUE(status.ok()) << i << ": " << status.describe();
        }
        if (cuts && i % 3 == 2) power_cut();
        expect_page(1, 0, kBytes);
      }
      ASSERT_TRUE(remove_group(5, true).ok());
      expect_absent(1);
      if (cuts) power_cut();
      expect_absent(1);
    }
  }
}

// A key's delete is copied for as long as its page's record is on the medium.
TEST_F(CollectorTest, TombstonesOutliveWhatTheyDelete) {
  for (const unsigned streams : {1u, 2u}) {
    Shape shape;
    shape.streams = streams;
    remake(shape, kStore);
    ASSERT_TRUE(put(500, 0, 500).ok());
    const ZoneId first = zone_of(500);
    fill(2);
    ASSERT_TRUE(remove(500).ok());
    const auto tombstones = [&] {
      std::vector<ZoneId> zones;
      for (std::uint32_t i = 0; i < shape_.zones; ++i) {
        if (pool_->tables[i].tombstones != 0) zones.push_back(ZoneId{i});
      }
      return zones;
    };
    ASSERT_EQ(tombstones().size(), 1u);
    const ZoneId second = tombstones()[0];
    // What is in the first zone stays; of the others each is emptied in time.
    std::vector<std::uint64_t> staying, moving;
    for (const std::uint64_t n : filler_) (zone_of(n) == first ? staying : moving).push_back(n);
    for (std::uint64_t n = 5000; n < 5080; ++n) moving.push_back(n);
    std::mt19937_64 random(test_seed());
    for (unsigned i = 0; resets().size() < 40; ++i) {
      ASSERT_LT(i, 5000u);
      ASSERT_TRUE(put(moving[random() % moving.size()], i, 400).ok());
    }
    ASSERT_TRUE(is_reset(second));
    ASSERT_FALSE(is_reset(first)) << "the page's record is still there";
    EXPECT_GE(tombstones().size(), 1u);
    reopen();
    expect_absent(500);
    // With the page's zone gone the tombstone goes as well.
    moving.insert(moving.end(), staying.begin(), staying.end());
    for (unsigned i = 0; !is_reset(first) || !tombstones().empty(); ++i) {
      ASSERT_LT(i, 5000u);
      ASSERT_TRUE(put(moving[random() % moving.size()], i, 400).ok());
    }
    reopen();
    expect_absent(500);
  }
}

// Of a key's deletes only the last one is copied, and that in a batch with others.
TEST_F(CollectorTest, OneTombstoneOfAKeyIsEnough) {
  make_log({}, kStore);
  constexpr std::uint64_t kKeys = 3;
  for (std::uint64_t n = 500; n < 500 + kKeys; ++n) ASSERT_TRUE(put(n, 0, 500).ok());
  const ZoneId first = zone_of(500);
  fill(2);
  ZoneId second = zone_of(filler_.back());
  for (unsigned i = 0; i < 7; ++i) {
    for (std::uint64_t n = 500; n < 500 + kKeys; ++n) {
      ASSERT_TRUE(remove(n).ok());
      ASSERT_TRUE(put(n, 1 + i, 500).ok());
    }
  }
  for (std::uint64_t n = 500; n < 500 + kKeys; ++n) ASSERT_TRUE(remove(n).ok());
  const auto tombstones = [&](ZoneId except) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < shape_.zones; ++i) {
      if (ZoneId{i} != except) sum += pool_->tables[i].tombstones;
    }
    return sum;
  };
  ASSERT_EQ(tombstones(first), 8 * kKeys);
  ASSERT_EQ(pool_->tables[second.value].tombstones, 8 * kKeys) << "all in one zone";
  fill(3);
  std::uint64_t beside = 0;  // of those that thin out the zone
  for (const std::uint64_t n : filler_) beside += zone_of(n) == second ? 1 : 0;
  collect(second);
  ASSERT_FALSE(is_reset(first));
  EXPECT_LE(tombstones(first), kKeys + 2 * beside);
  EXPECT_GE(tombstones(first), kKeys);
  reopen();
  for (std::uint64_t n = 500; n < 500 + kKeys; ++n) expect_absent(n);
}

TEST_F(CollectorTest, AnExpiredPageDoesNotUncoverItsOlderVersion) {
  make_log({}, kStore);
  ASSERT_TRUE(put(500, 0, 500).ok());
  const ZoneId first = zone_of(500);
  fill(2);
  const auto soon = static_cast<std::uint32_t>(executor_.wall_s() + 1);
  ASSERT_TRUE(put(500, 1, 500, {.expires_s = soon}).ok());
  const ZoneId second = zone_of(500);
  clock_.now_ns += 2'000'000'000;
  fill(3);
  collect(second);
  ASSERT_FALSE(is_reset(first));
  expect_absent(500);
  reopen();
  EXPECT_EQ(exist(500), Code::not_found) << "version 0 is back";
}

// It has gone with its group, and what it had replaced is of none.
TEST_F(CollectorTest, AGroupsDeletionDoesNotUncoverWhatItsPageReplaced) {
  make_log({}, kStore);
  ASSERT_TRUE(put(500, 0, 500).ok());
  const ZoneId first = zone_of(500);
  fill(2);
  ASSERT_TRUE(put(500, 1, 500, {.group = 7}).ok());
  const ZoneId second = zone_of(500);
  fill(3);
  ASSERT_TRUE(remove_group(7).ok());
  fill(4);
  collect(second);
  ASSERT_FALSE(is_reset(first));
  reopen();
  EXPECT_EQ(exist(500), Code::not_found) << "version 0 is back";
}

// It is not in the index any more, and would not have expired by the clock as it is now.
TEST_F(CollectorTest, NorDoesAPageThatAClockAheadTookOut) {
  make_log({}, kStore);
  ASSERT_TRUE(put(500, 0, 500).ok());
  const ZoneId first = zone_of(500);
  fill(2);
  const auto soon = static_cast<std::uint32_t>(executor_.wall_s() + 1);
  ASSERT_TRUE(put(500, 1, 500, {.expires_s = soon}).ok());
  const ZoneId second = zone_of(500);
  fill(3);
  clock_.now_ns += 2'000'000'000;
  reopen();
  clock_.now_ns -= 2'000'000'000;
  expect_absent(500);
  collect(second);
  ASSERT_FALSE(is_reset(first));
  reopen();
  EXPECT_EQ(exist(500), Code::not_found) << "version 0 is back";
}

// It is not known why a page is not there any more: what says that it is gone must not be durable
// before a page that has taken its place, or a power cut could leave neither.
// What an attempt has copied that came to nothing is not gone, although its record's place is
// nobody's any more: a deletion of its sequence would take the copy away, or be taken for it.
TEST_F(CollectorTest, WhatAnEarlierAttemptHasCopiedIsNotDeleted) {
  Shape shape;
  shape.faults = true;
  make_log(shape, kStore);
  fill(2);
  const ZoneId older = zone_of(filler_.front());
  const auto later = static_cast<std::uint32_t>(executor_.wall_s() + 1'000'000);
  for (std::uint64_t n = 0; n < 8; ++n) {
    const bool expires = n % 2 == 0;
    ASSERT_TRUE(
        put(n, n, 1000, {.group = expires ? 0u : 7u, .expires_s = expires ? later : 0}).ok());
  }
  const ZoneId zone = zone_of(0);
  ASSERT_EQ(zone_of(7), zone);
  fill(3);
  ASSERT_TRUE(put(8, 0, 400, {.group = 8}).ok());
  ASSERT_TRUE(remove_group(8).ok());  // there are deletions of groups
  faults_->fail_reads(Lba{entry(5).lba}, 1);
  log_->collect(zone);
  run();
  for (std::uint64_t n = 0; n < 8; ++n) ASSERT_EQ(zone_of(n) == zone, n == 5) << n;
  std::uint64_t before = 0;
  for (const ZoneDirectory& table : pool_->tables) before += table.tombstones;
  faults_->heal();
  clock_.now_ns += 1'000'000'000;
  log_->collect(zone);
  run();
  ASSERT_TRUE(is_reset(zone));
  ASSERT_FALSE(is_reset(older));
  std::uint64_t after = 0;
  for (const ZoneDirectory& table : pool_->tables) after += table.tombstones;
  EXPECT_EQ(after, before);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t n = 0; n < 8; ++n) expect_page(n, n, 1000);
    reopen();
  }
}

TEST_F(CollectorTest, WhatReplacedAPageIsDurableBeforeThatPagesDeletion) {
  for (const bool expires : {true, false}) {  // or it is of a group
    remake({}, kStore);
    ASSERT_TRUE(put(500, 0, 500).ok());
    fill(2);
    log_->collect(zone_of(500));  // so that collection has a zone, with an older version
    run();
    if (!expires) {  // there are deletions of groups
      ASSERT_TRUE(put(499, 0, 500, {.group = 8}).ok());
      ASSERT_TRUE(remove_group(8).ok());
    }
    const auto late = static_cast<std::uint32_t>(executor_.wall_s() + 1000);
    ASSERT_TRUE(
        put(500, 1, 500, {.group = expires ? 0u : 7u, .expires_s = expires ? late : 0}).ok());
    const ZoneId second = zone_of(500);
    fill(3);
    start_flush();
    run();
    ASSERT_TRUE(put(500, 2, 500).ok());
    device_->hold(Io::Op::flush);
    log_->collect(second);
    run();
    EXPECT_EQ(device_->held(Io::Op::flush), 1u);
    for (const ZoneDirectory& table : pool_->tables) EXPECT_EQ(table.tombstones, 0u) << expires;
    device_->let_go(Io::Op::flush);
    run();
    EXPECT_TRUE(is_reset(second));
    expect_page(500, 2, 500);
    reopen();
    expect_page(500, 2, 500);
  }
}

// Else a volume that is nearly full would be full while one of its zones is emptied.
TEST_F(CollectorTest, ADeletionThatIsCopiedCountsOnce) {
  Shape shape;
  shape.zones = 9;
  shape.zone_size_lbas = shape.zone_capacity_lbas = 512;
  shape.segment_lbas = 256;
  shape.quota = 6;
  make_log(shape, kStore);
  constexpr std::uint64_t kPages = 150, kDeletions = 40;
  for (std::uint64_t n = 0; n < kPages; ++n) ASSERT_TRUE(put(n, 0, 500).ok());
  const ZoneId pages = zone_of(0);
  fill(3);
  const ZoneId deletions = zone_of(next_ - 1);
  for (std::uint64_t n = 0; n < kDeletions; ++n) ASSERT_TRUE(remove(n).ok());
  ASSERT_EQ(pool_->tables[deletions.value].tombstones, kDeletions);
  fill(4);
  thin_out(deletions);
  const auto cost = [this] {
    log_->on_zone_abandoned(ZoneId{kMetadataZones}, {Code::aborted, Origin::log});  // counts anew
    return log_->stats().cost_bytes.load();
  };
  const std::uint64_t before = cost();
  device_->hold(Io::Op::reset);
  std::uint64_t puts = 0;
  for (; !is_reset(deletions); ++puts) ASSERT_TRUE(put(next_++, 0, 400).ok());
  ASSERT_FALSE(is_reset(pages));
  EXPECT_GE(pool_->tables[deletions.value].tombstones, kDeletions) << "it has them still";
  EXPECT_EQ(cost(), before + puts * PageLog::cost_bytes(*pool_, 400));
  device_->let_go(Io::Op::reset);
}

// A zone that held pages of the group was to be reset, and has them still.
TEST_F(CollectorTest, AGroupsDeletionStaysForAZoneThatIsNotResetYet) {
  make_log({}, kStore);
  ASSERT_TRUE(put(0, 0, 1000, {.group = 3}).ok());
  const ZoneId first = zone_of(0);
  fill(2);
  const ZoneId second = zone_of(filler_.back());
  ASSERT_NE(second, first);
  ASSERT_TRUE(remove_group(3).ok());
  ASSERT_EQ(pool_->tables[second.value].group_tombstones, 1u);
  fill(3);
  thin_out(first);
  device_->fail(Io::Op::reset, {Code::io_error, Origin::zone});
  const auto failed = [&] {
    return pool_->tables[first.value].end_lba == 0 &&
           pool_->allocator.zone(first).use == ZoneUse::sealed;
  };
  for (unsigned i = 0; !failed(); ++i) {
    ASSERT_LT(i, 1000u);
    Op& op = start_put(next_++, 0, 400);
    ASSERT_TRUE(run([&] { return op.answers != 0 || failed(); }));
  }
  log_->collect(second);  // as scrub wants it
  for (unsigned i = 0; !is_reset(second); ++i) {
    ASSERT_LT(i, 100u);
    clock_.now_ns += 20'000'000;
    (void)put(next_++, 0, 400);
  }
  ASSERT_EQ(resets(), (std::vector{first, second}));
  reopen();
  expect_absent(0);
}

}  // namespace
}  // namespace furrow
