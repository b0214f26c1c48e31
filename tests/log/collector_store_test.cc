// Establishes how Collector makes free zones of a store: nothing live is lost, the zone with the
// least to copy goes, copies keep their sequence and share batches, tombstones stay as long as an
// older version may be on the medium. How: on a PageLog, by what the device is asked for
// (TapDevice) and what is found afterwards, also after reopenings and power cuts.
#include <map>

#include "tests/log/collector_rig.h"

namespace furrow {
namespace {

TEST_F(CollectorTest, TheZoneWithTheLeastToCopyGoesFirst) {
  make_log({}, kStore);
  std::map<std::uint32_t, std::uint64_t> first_of;  // zone to number
  std::vector<ZoneId> zones;
  for (std::uint64_t n = 0; zones.size() < 4; ++n) {
    ASSERT_TRUE(put(n, 0, 1000).ok());
    if (zones.empty() || zones.back() != zone_of(n)) {
      zones.push_back(zone_of(n));
      first_of[zone_of(n).value] = n;
    }
  }
  ASSERT_TRUE(resets().empty());
  // Of the first zone some die, of the second most, of the third some.
  const std::uint64_t begin = first_of[zones[1].value], end = first_of[zones[2].value];
  for (std::uint64_t n = begin; n + 3 < end; ++n) ASSERT_TRUE(remove(n).ok());
  for (std::uint64_t n = 0; n < 5; ++n) ASSERT_TRUE(remove(n).ok());
  for (std::uint64_t n = end; n < end + 5; ++n) ASSERT_TRUE(remove(n).ok());
  std::uint64_t n = 500;
  for (; resets().empty(); ++n) ASSERT_TRUE(put(n, 0, 1000).ok());
  EXPECT_EQ(resets()[0], zones[1]);
  for (std::uint64_t live = end - 3; live < end; ++live) {
    expect_page(live, 0, 1000);
    EXPECT_NE(zone_of(live), zones[1]);
  }
}

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
  make_log(shape, kStore);
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
  churn_until_reset(zone, 1000);
  reopen();
  for (const std::uint64_t n : {0, 1}) expect_absent(n);
}

// Pages that stay, in one old zone with a few that have died, and others that are written again and
// again. Greedy waits until hardly anything else has less to copy; cost_benefit lets the old zone
// go first, as what is left in it will not die by itself.
TEST_F(CollectorTest, EachPolicyPicksItsZoneOfHotAndColdPages) {
  for (const VictimPolicy policy : {VictimPolicy::greedy, VictimPolicy::cost_benefit}) {
    options_.victim_policy = policy;
    remake({}, kStore);
    for (std::uint64_t n = 0; pool_->allocator.held(kVolume) <= 1; ++n) {
      ASSERT_TRUE(put(n, 0, 400).ok());
    }
    const ZoneId cold = zone_of(0);
    for (std::uint64_t n = 0; n < 5; ++n) ASSERT_TRUE(remove(n).ok());
    // Each of the hot zones has a few live pages less than the cold one, and the last one the
    // least.
    std::vector<ZoneId> hot;
    for (std::uint64_t held = 3; held <= 4; ++held) {
      const std::uint64_t first = next_;
      fill(held);
      hot.push_back(zone_of(next_ - 2));
      for (std::uint64_t n = first; n < first + 8 + held; ++n) {
        if (zone_of(n) != hot.back()) continue;
        ASSERT_TRUE(remove(n).ok());
      }
    }
    churn(400, [&] { return !resets().empty(); });
    EXPECT_EQ(resets()[0], policy == VictimPolicy::greedy ? hot.back() : cold);
    for (std::uint64_t n = 5; n < 20; ++n) expect_page(n, 0, 400);
  }
}

TEST_F(CollectorTest, AZoneThatNeedsNoCopiesGoesBeforeAll) {
  make_log({}, kStore);
  for (std::uint64_t n = 0; n < 5; ++n) ASSERT_TRUE(put(n, 0, 1000).ok());
  overwrite(100, 10, 1000, [&] { return !resets().empty(); });
  EXPECT_EQ(log_->stats().relocated_bytes, 0u);
  for (std::uint64_t n = 0; n < 5; ++n) expect_page(n, 0, 1000);
}

// A power cut could leave the copy of a deletion, and not the page that was written before it.
TEST_F(CollectorTest, NothingIsCopiedFromAZoneBeforeItIsDurable) {
  make_log({}, kStore);
  fill(4);
  unsigned watched = 0;
  for (std::uint64_t n = 0; watched < 3; ++n) {
    ASSERT_LT(n, 5000u);
    const std::uint64_t copied = log_->stats().relocated_bytes;
    std::optional<ZoneId> filled;  // by the put before
    if (n != 0) filled = ZoneId{zone_of(1000 + (n - 1) % 10)};
    device_->hold(Io::Op::flush);
    Op& op = start_put(1000 + n % 10, n, 1000);
    run();
    if (filled && pool_->allocator.zone(*filled).use == ZoneUse::draining) {
      ++watched;
      EXPECT_EQ(log_->stats().relocated_bytes, copied);
    }
    device_->let_go(Io::Op::flush);
    ASSERT_TRUE(finish(op).ok());
  }
}

TEST_F(CollectorTest, CopiesKeepTheirSequenceAndShareBatches) {
  Shape shape;
  shape.zones = 8;
  shape.zone_size_lbas = shape.zone_capacity_lbas = 512;
  shape.segment_lbas = 256;
  shape.quota = 5;
  shape.faults = true;
  shape.delay_polls_max = 4;
  for (const unsigned streams : {1u, 2u}) {
    shape.streams = streams;
    remake(shape, kStore);
    // Each in a batch of its own: 150 batches, 300 LBAs and summaries.
    for (std::uint64_t n = 0; n < 150; ++n) ASSERT_TRUE(put(n, 0, 500).ok());
    const ZoneId first = zone_of(0);
    std::map<Key, std::uint64_t> sequences;
    for (const SurveyedBatch& batch : batches(first)) {
      for (const PageRecord& r : batch.records) sequences[r.key] = r.sequence;
    }
    fill(3);
    collect(first);
    const ZoneId copies = zone_of(0);
    EXPECT_NE(copies, first);
    std::size_t copied = 0, in_batches = 0;
    for (const SurveyedBatch& batch : batches(copies)) {
      std::size_t of_these = 0;
      for (const PageRecord& r : batch.records) {
        const auto was = sequences.find(r.key);
        if (was == sequences.end()) continue;
        EXPECT_EQ(r.sequence, was->second);
        ++of_these;
      }
      copied += of_these;
      in_batches += of_these != 0 ? 1 : 0;
    }
    EXPECT_EQ(copied, 150u);
    EXPECT_LE(in_batches, 150 / Collector::kGroupRecords + 2 + 2) << "64 to a group, and segments";
    for (std::uint64_t n = 0; n < 150; ++n) expect_page(n, 0, 500);
  }
}

// Random puts, deletes and group deletions against a map, through many collections.
TEST_F(CollectorTest, NothingLiveIsLost) {
  Shape shape;
  shape.faults = true;
  for (const unsigned streams : {1u, 2u}) {
    shape.streams = streams;
    remake(shape, kStore);
    std::mt19937_64 random(test_seed() + streams);
    struct Version {
      std::uint64_t version;
      std::uint32_t bytes;
    };
    std::map<std::uint64_t, Version> model;
    std::uint64_t version = 0, refused = 0;
    for (unsigned i = 0; i < 4000; ++i) {
      const std::uint64_t n = random() % 90;
      if (random() % 5 == 0) {
        const Status status = remove(n);
        ASSERT_EQ(status.code(), model.contains(n) ? Code::ok : Code::not_found) << i;
        model.erase(n);
      } else {
        const auto bytes = static_cast<std::uint32_t>(1 + random() % 3000);
        const Status status = put(n, ++version, bytes);
        ASSERT_TRUE(status.ok() || status.code() == Code::no_space) << status.describe();
        refused += status.ok() ? 0 : 1;
        if (status.ok()) model[n] = {version, bytes};
      }
      if (i % 500 != 499) continue;
      if (i % 1000 == 999) {
        Flush& flush = start_flush();
        ASSERT_TRUE(run([&] { return flush.answers == 1; }));
        power_cut(i % 2000 == 999 ? CrashModel::drive : CrashModel::emu);
      } else {
        reopen();
      }
      for (std::uint64_t k = 0; k < 90; ++k) {
        const auto known = model.find(k);
        if (known == model.end()) {
          expect_absent(k);
        } else {
          expect_page(k, known->second.version, known->second.bytes);
        }
      }
      ASSERT_FALSE(testing::Test::HasFailure()) << i;
    }
    EXPECT_LT(refused, 2000u);
  }
}

// A key's delete is copied for as long as its page's record is on the medium.
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

// Until their zone is reset the originals are there as well: what has been copied to a zone that
// goes offline before that is copied once more, tombstones too.
TEST_F(CollectorTest, CopiesThatGoOfflineAreMadeAgain) {
  Shape shape;
  shape.faults = true;
  for (const bool earlier : {false, true}) {  // an attempt at the zone that came to nothing
    remake(shape, kStore);
    ASSERT_TRUE(
        put(50, 0, 1000, {.flushed = true}).ok());  // older than the tombstone, and elsewhere
    fill(2);
    log_->collect(zone_of(50));  // so that collection has a zone
    run();
    for (std::uint64_t n = 0; n < 8; ++n) {
      ASSERT_TRUE(put(n, n, 1000, {.pinned = n == 3, .group = n}).ok());
    }
    ASSERT_TRUE(remove(50).ok());
    const ZoneId first = zone_of(0);
    ASSERT_EQ(zone_of(7), first);
    fill(3);
    if (!earlier) device_->hold(Io::Op::flush);
    if (earlier) faults_->fail_reads(Lba{entry(5).lba}, 1);
    log_->collect(first);
    ASSERT_TRUE(run([&] { return zone_of(0) != first && zone_of(7) != first; }));
    if (earlier) {
      run();
      ASSERT_EQ(zone_of(5), first);
      faults_->heal();
      clock_.now_ns += 1'000'000'000;
    }
    const ZoneId lost = zone_of(0);
    faults_->degrade(lost, ZoneState::offline);
    for (std::uint64_t n = 0; n < 8; ++n) EXPECT_EQ(get(n).has_value(), earlier && n == 5);
    device_->let_go(Io::Op::flush);
    run();
    if (earlier) {
      log_->collect(first);
      run();
    }
    EXPECT_TRUE(is_reset(first));
    for (std::uint64_t n = 0; n < 8; ++n) {
      EXPECT_NE(zone_of(n), lost);
      EXPECT_NE(zone_of(n), first);
      expect_page(n, n, 1000);
      EXPECT_EQ(entry(n).pinned, n == 3);
    }
    reopen();
    for (std::uint64_t n = 0; n < 8; ++n) expect_page(n, n, 1000);
    expect_absent(50);
  }
}

TEST_F(CollectorTest, APutThatComesWhileItsPageIsCopiedWins) {
  for (const bool cache : {kCache, kStore}) {
    remake({}, cache);
    for (std::uint64_t n = 0; n < 8; ++n) ASSERT_TRUE(put(n, 0, 1000, {.pinned = true}).ok());
    const ZoneId first = zone_of(0);
    fill(4);
    if (!cache) thin_out(first);
    bool raced = false;
    for (unsigned i = 0; i < 2000 && !raced; ++i) {
      start_put(next_++, 0, 400);
      // Whenever the zone is being emptied, its reads wait for a moment.
      run([&] { return pool_->allocator.zone(first).use == ZoneUse::draining; });
      if (pool_->allocator.zone(first).use != ZoneUse::draining) continue;
      device_->hold(Io::Op::read);
      run();
      Op& over = start_put(3, 1, 900, {.pinned = true});
      Op& removal = start(KeyOp::Kind::remove, 4);
      run();
      while (device_->held(Io::Op::read) != 0) {
        device_->let_one_go(Io::Op::read, device_->held(Io::Op::read) - 1);
        run();
      }
      device_->let_go(Io::Op::read);
      EXPECT_TRUE(finish(over).ok());
      EXPECT_TRUE(finish(removal).ok());
      raced = true;
    }
    ASSERT_TRUE(raced);
    run();
    for (int round = 0; round < 2; ++round) {
      for (std::uint64_t n = 0; n < 8; ++n) {
        if (n == 3) {
          expect_page(3, 1, 900);
        } else if (n == 4) {
          expect_absent(4);
        } else {
          expect_page(n, 0, 1000);
        }
      }
      reopen();
    }
  }
}

// A copy that would be made now of what was there before would lie behind the new version.
TEST_F(CollectorTest, APutThatCameBeforeTheCopyWins) {
  for (const bool cache : {kCache, kStore}) {
    remake({}, cache);
    for (std::uint64_t n = 0; n < 8; ++n) ASSERT_TRUE(put(n, 0, 1000, {.pinned = true}).ok());
    const ZoneId first = zone_of(0);
    fill(4);
    if (!cache) thin_out(first);
    for (unsigned i = 0; pool_->allocator.zone(first).use != ZoneUse::draining; ++i) {
      ASSERT_LT(i, 2000u);
      start_put(next_++, 0, 400);
      run([&] { return pool_->allocator.zone(first).use == ZoneUse::draining; });
    }
    device_->hold(Io::Op::write);
    Op& over = start_put(3, 1, 900);
    run();
    EXPECT_EQ(over.answers, 0u);
    EXPECT_FALSE(is_reset(first));
    device_->let_go(Io::Op::write);
    EXPECT_TRUE(finish(over).ok());
    ASSERT_TRUE(run([&] { return is_reset(first); }));
    run();
    for (int round = 0; round < 2; ++round) {
      for (std::uint64_t n = 0; n < 8; ++n) expect_page(n, n == 3 ? 1 : 0, n == 3 ? 900 : 1000);
      reopen();
    }
  }
}

TEST_F(CollectorTest, StopsAndGoesOn) {
  make_log({}, kStore);
  Collector collector(*log_);  // beside the log's own, which is not asked
  EXPECT_TRUE(collector.idle());
  collector.kick();
  EXPECT_TRUE(collector.idle()) << "there are zones enough";
  EXPECT_FALSE(collector.evicted());
  EXPECT_EQ(collector.attempts_failed(), 0u);
  log_->stop_background();
  ASSERT_TRUE(put(0, 0, 1000).ok());
  std::vector<ZoneId> taken;
  while (pool_->allocator.held(kVolume) + 1 < shape_.quota) {
    taken.push_back(*pool_->allocator.take(kVolume, 0, 1, 1));
  }
  collector.stop();
  collector.kick();
  EXPECT_TRUE(collector.idle());
  collector.resume();
  EXPECT_FALSE(collector.idle()) << "it looks for a zone";
  run();
  EXPECT_TRUE(collector.found_nothing()) << "all of them are open";
  for (const ZoneId zone : taken) pool_->allocator.set_use(zone, ZoneUse::sealed);
  collector.kick();
  run();
  EXPECT_FALSE(collector.found_nothing());
  EXPECT_EQ(log_->stats().zones_reset, 1u) << "one is enough";
  EXPECT_TRUE(collector.idle());
}

// Its key was locked before collection came to the key's page, and it is kept from being written
// only afterwards.
TEST_F(CollectorTest, CopiesOvertakeAPutThatAShrinkingStoreKeepsWaiting) {
  remake({}, kStore);
  fill(4);
  const std::uint64_t number = filler_.front();
  const ZoneId first = zone_of(number);
  filler_.erase(filler_.begin());
  thin_out(first);
  device_->hold(Io::Op::read);
  Op& late = start_put(number, 1, 400);
  run();
  ASSERT_EQ(device_->held(Io::Op::read), 1u) << "the header of its page";
  log_->shrink(4);
  for (run(); device_->held(Io::Op::read) > 1; run()) device_->let_one_go(Io::Op::read, 1);
  ASSERT_EQ(pool_->allocator.zone(first).use, ZoneUse::draining);
  device_->let_go(Io::Op::read);
  EXPECT_TRUE(run([&] { return late.answers == 1; }));
  EXPECT_TRUE(late.status.ok()) << late.status.describe();
  EXPECT_TRUE(is_reset(first));
  expect_page(number, 1, 400);
}

// Zones that hold less than they say, with nothing dead in them: they can be emptied into each
// other for ever. What waits meanwhile has room in the quota as it is.
TEST_F(CollectorTest, AStoreThatCannotShrinkGoesOn) {
  constexpr std::uint64_t kHoldsLbas = 40;
  Shape shape;
  shape.zones = 14;
  shape.quota = 8;
  shape.faults = true;
  remake(shape, kStore);
  const auto make_short = [&] {
    faults_->heal();
    for (std::uint32_t i = kMetadataZones; i < shape_.zones; ++i) {
      faults_->fail_writes(Lba{pool_->device_lba(ZoneId{i}, kHoldsLbas)},
                           shape_.zone_capacity_lbas - kHoldsLbas);
    }
  };
  std::size_t seen = 0;
  const auto answered = [&](const Op& op) {  // a reset makes a zone whole
    if (resets().size() != seen) make_short();
    seen = resets().size();
    return op.answers != 0;
  };
  make_short();
  const auto put_one = [&] {
    Op& op = start_put(next_++, 0, 2000);
    EXPECT_TRUE(run([&] { return answered(op); }));
    EXPECT_TRUE(op.status.ok()) << op.status.describe();
  };
  while (pool_->allocator.held(kVolume) < 6) put_one();
  while (log_->written_lba(zone_of(next_ - 1)) + 5 <= kHoldsLbas) put_one();
  run();
  Op& late = start_put(next_++, 0, 2000);
  const std::size_t writes = device_->count(Io::Op::write);
  ASSERT_TRUE(run([&] { return device_->count(Io::Op::write) != writes; }));
  log_->shrink(log_->quota_min());  // before it is told that there is no room for it
  EXPECT_TRUE(run([&] { return answered(late); }));
  EXPECT_TRUE(late.status.ok()) << late.status.describe();
  EXPECT_FALSE(log_->shrinking());
  EXPECT_EQ(log_->take_shrinking_failure().code(), Code::no_space);
  EXPECT_GT(resets().size(), 100u);
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
    log_->on_zone_abandoned();  // counts anew
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

}  // namespace
}  // namespace furrow
