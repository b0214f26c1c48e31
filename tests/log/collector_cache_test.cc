// Establishes how Collector makes free zones of a cache: the zone opened first goes, what was read
// and what is pinned is written again and nothing else, in bounds; a deleted group stays deleted;
// damage costs itself alone. How: on a PageLog, by what the device is asked for (TapDevice) and
// what is found afterwards, also after reopenings.
#include "tests/log/collector_rig.h"
#include "tests/log/zone_image.h"

namespace furrow {
namespace {

TEST_F(CollectorTest, HitBitsAreChosenForPagesAsTheyAre) {
  make_log({}, kCache);
  std::vector<ZoneId> zones;
  for (std::uint64_t i = 0; zones.size() < 4; ++i) {
    ASSERT_LT(i, 100u);
    ASSERT_TRUE(put(i, 0, 4000).ok());
    if (zones.empty() || zones.back() != zone_of(i)) zones.push_back(zone_of(i));
  }
  const std::uint64_t all = shape_.zone_size_lbas / 8;
  EXPECT_EQ(log_->hits().bytes(zones[0]), all) << "nothing was known of them";
  EXPECT_EQ(log_->hits().bytes(zones[3]), all / 2) << "two LBAs a bit for pages of eight";
  drop_pool();
  recover_log();
  for (const ZoneId zone : zones) EXPECT_EQ(log_->hits().bytes(zone), all / 2);
}

TEST_F(CollectorTest, ACacheEvictsInTheOrderOfItsZones) {
  make_log({}, kCache);
  std::vector<ZoneId> opened;
  while (resets().size() < 8) {
    ASSERT_TRUE(put(next_++, 0, 4000).ok());
    const ZoneId zone = zone_of(next_ - 1);
    if (opened.empty() || opened.back() != zone) opened.push_back(zone);
    EXPECT_LE(pool_->allocator.held(kVolume), shape_.quota);
  }
  const std::vector<ZoneId> gone = resets();
  EXPECT_TRUE(std::equal(gone.begin(), gone.end(), opened.begin()));
  run();
  EXPECT_LE(pool_->allocator.held(kVolume) + 1, shape_.quota) << "one zone ahead of the writer";
  EXPECT_EQ(log_->stats().relocated_bytes, 0u);
  EXPECT_EQ(log_->stats().evicted_zones, resets().size());
  EXPECT_EQ(log_->stats().zones_reset, resets().size());
  EXPECT_EQ(log_->stats().pages + log_->stats().evicted_pages, next_ - 1000);
}

TEST_F(CollectorTest, WhatWasReadIsWrittenAgainUpToHalfAZone) {
  make_log({}, kCache);
  churn(1000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  const std::uint64_t end = next_ - 1;  // the last one is in the second zone
  for (std::uint64_t n = 1000; n < end; ++n) hit(n);
  churn_until_reset(first, 1000);
  std::uint64_t kept = 0;
  for (std::uint64_t n = 1000; n < end; ++n) {
    if (!get(n)) continue;
    expect_page(n, 0, 1000);
    EXPECT_NE(zone_of(n), first);
    ++kept;
  }
  EXPECT_EQ(kept, shape_.zone_capacity_lbas / 2 / 2) << "two LBAs each";
  EXPECT_EQ(log_->stats().relocated_bytes, kept * 1000);
  // They were not read since: the next time they go.
  const ZoneId second = zone_of(1000);
  churn_until_reset(second, 1000);
  for (std::uint64_t n = 1000; n < end; ++n) expect_absent(n);
}

// What is noted of an LBA is of the page that is there now: that it was read, and when it expires.
TEST_F(CollectorTest, ANewPageHasNothingOfTheOneThatWasInItsPlace) {
  make_log({}, kCache);
  const auto before = static_cast<std::uint32_t>(executor_.wall_s() + 1000);
  std::vector<std::uint64_t> second;  // zone's pages
  while (pool_->allocator.held(kVolume) < 3) {
    ASSERT_TRUE(put(next_++, 0, 4000, {.expires_s = before}).ok());
    if (pool_->allocator.held(kVolume) == 2) second.push_back(next_ - 1);
  }
  const ZoneId zone = zone_of(second[0]);
  const std::uint64_t lba = entry(second[0]).lba;
  for (const std::uint64_t number : second) hit(number);
  churn_until_reset(zone, 4000);
  IndexEntry its;
  for (unsigned i = 0; its.lba != lba; ++i) {
    ASSERT_LT(i, 1000u);
    ASSERT_TRUE(put(next_++, 0, 4000, {.expires_s = before + 1}).ok());
    its = entry(next_ - 1);
  }
  EXPECT_FALSE(log_->hits().test(lba));
  EXPECT_EQ(log_->expiry(its), before + 1);
}

TEST_F(CollectorTest, OnlyWhatWasReadIsWrittenAgain) {
  make_log({}, kCache);
  churn(1000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  for (std::uint64_t n = 1000; n < 1020; n += 4) hit(n);
  churn_until_reset(first, 1000);
  for (std::uint64_t n = 1000; n < 1020; ++n) EXPECT_EQ(get(n).has_value(), n % 4 == 0) << n;
}

TEST_F(CollectorTest, PagesThatWouldHaveExpiredLaterCountAsEvicted) {
  make_log({}, kCache);
  const auto later = static_cast<std::uint32_t>(executor_.wall_s() + 1'000'000);
  for (std::uint64_t n = 0; n < 20; ++n) ASSERT_TRUE(put(n, 0, 1000, {.expires_s = later}).ok());
  const ZoneId zone = zone_of(0);
  ASSERT_EQ(zone, zone_of(19));
  churn_until_reset(zone, 1000);
  EXPECT_GE(log_->stats().evicted_pages, 20u);
}

TEST_F(CollectorTest, PinnedPagesStayWithTheirGroupAndExpiry) {
  make_log({}, kCache);
  const auto later = static_cast<std::uint32_t>(executor_.wall_s() + 1'000'000);
  for (std::uint64_t n = 0; n < 20; ++n) {
    ASSERT_TRUE(put(n, 0, 1000, {.pinned = true, .group = 3, .expires_s = later}).ok());
  }
  for (unsigned round = 0; round < 3; ++round) {
    const ZoneId zone = zone_of(0);
    churn_until_reset(zone, 1000);
    for (std::uint64_t n = 0; n < 20; ++n) {
      expect_page(n, 0, 1000);
      EXPECT_TRUE(entry(n).pinned);
      EXPECT_EQ(log_->expiry(entry(n)), later);
    }
  }
  ASSERT_TRUE(remove_group(3).ok());
  for (std::uint64_t n = 0; n < 20; ++n) expect_absent(n);
}

// Copies are written in batches of fewer records than users' can have, and what is pinned fits the
// last zone alone all the same, when the one before it has failed: also what was stored many at
// once, and is small.
TEST_F(CollectorTest, PinnedPagesOfAZoneFitTheLastOne) {
  make_log({.zone_size_lbas = 1024, .zone_capacity_lbas = 1024, .segment_lbas = 1024}, kCache);
  std::uint64_t pinned = 0;
  next_ = 5000;
  while (pool_->allocator.held(kVolume) < 2) {
    std::vector<Op*> together;
    for (unsigned i = 0; i < 255; ++i) {
      together.push_back(&start_put(pinned++, 0, 400, {.pinned = true}));
    }
    for (Op* op : together) ASSERT_TRUE(finish(*op).ok());
  }
  churn(8000, [this] { return pool_->allocator.held(kVolume) + 2 == shape_.quota; });
  device_->hold(Io::Op::read);
  churn(8000, [this] { return pool_->allocator.held(kVolume) + 1 == shape_.quota; });
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  Op& waits = start_put(next_++, 0, 8000);
  run();
  device_->let_go(Io::Op::read);
  EXPECT_TRUE(finish(waits).ok());
  for (unsigned i = 0; i < 20; ++i) EXPECT_TRUE(put(next_++, 0, 8000).ok());
  EXPECT_TRUE(remove(0).ok());
  for (std::uint64_t n = 1; n < pinned; ++n) expect_page(n, 0, 400);
  const std::size_t before = resets().size();
  churn(8000, [&] { return resets().size() > before + 2 * shape_.quota; });
  reopen();
  expect_absent(0);
  for (std::uint64_t n = 1; n < pinned; ++n) expect_page(n, 0, 400);
}

// Zones as a pool may have them that was written before segments took no more than so many pinned
// pages: full of such ones.
class OlderPinsTest : public CollectorTest {
 protected:
  void make_pins(std::uint64_t quota, std::uint32_t zones, std::uint32_t pages) {
    make_log({.quota = quota}, kCache);
    drop_pool();
    pins_ = zones * pages;
    for (std::uint32_t i = 0; i < zones; ++i) {
      const std::uint32_t number = kMetadataZones + i;
      ZoneImage image({.stamp = {superblock_.pool, ZoneId{number}, 100 * number},
                       .hash_key = superblock_.hash_key});
      for (std::uint32_t segment = 0; segment < 3; ++segment) {
        std::vector<ZoneImage::Item> items;
        for (std::uint32_t n = 0; n < pages / 3; ++n) {
          const std::uint32_t page = i * pages + segment * pages / 3 + n;
          items.push_back(image.page(page, 100 * number + 1 + page, 2000));
          items.back().record.pinned = true;
        }
        image.add_batch(std::move(items));
        image.close_segment();
      }
      image.write_to(*device_);
    }
    recover_log();
    next_ = 5000;
  }
  // All at once; how many were refused.
  unsigned overwrite_pins(std::uint64_t version) {
    std::vector<Op*> together;
    for (std::uint64_t n = 0; n < pins_; ++n) {
      together.push_back(&start_put(n, version, 2000, {.pinned = true}));
    }
    unsigned refused = 0;
    for (Op* op : together) {
      const Status status = finish(*op);
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), Code::no_space) << status.describe();
      EXPECT_NE(status.describe().find("can be overwritten"), std::string::npos);
      ++refused;
    }
    return refused;
  }
  // As scrub does, where it had to read a page twice.
  Status rewrite(std::uint64_t number) {
    Op& op = prepare(KeyOp::Kind::rewrite, number);
    const IndexEntry old = entry(number);
    op.memory = AlignedBuffer(4 * kLbaBytes);
    std::ranges::copy(page_bytes(number, 0, 2000), op.memory.data());
    op.data = op.memory.data();
    op.length = old.length;
    op.capacity = static_cast<std::uint32_t>(op.memory.size());
    op.pinned = old.pinned;
    op.rewritten_lba = old.lba;
    op.rewritten_generation = generation(zone_of(number));
    log_->submit(op);
    return finish(op);
  }
  std::uint64_t pins_ = 0;
};

TEST_F(OlderPinsTest, FitTheLastZone) {
  make_pins(6, 2, 21);
  const std::size_t before = resets().size();
  churn(400, [&] { return resets().size() > before + 3 * shape_.quota; });
  for (std::uint64_t n = 0; n < pins_; ++n) expect_page(n, 0, 2000);
}

TEST_F(OlderPinsTest, CanBeOverwrittenAtOnce) {
  make_pins(6, 2, 21);
  EXPECT_EQ(put(next_, 0, 2000, {.pinned = true}).code(), Code::no_space) << "over the limit";
  for (std::uint64_t n = 0; n < pins_; ++n) EXPECT_TRUE(rewrite(n).ok()) << n;
  for (std::uint64_t n = 0; n < pins_; ++n) expect_page(n, 0, 2000);
  for (std::uint64_t version = 1; version < 6; ++version) EXPECT_EQ(overwrite_pins(version), 0u);
  for (std::uint64_t n = 0; n < pins_; ++n) expect_page(n, 5, 2000);
  EXPECT_EQ(put(next_, 0, 2000, {.pinned = true}).code(), Code::no_space);
}

// New versions would stand less closely than there is room for, and then nothing could be stored
// or deleted any more.
TEST_F(OlderPinsTest, ThatFillNearlyAllAreNotOverwritten) {
  make_pins(3, 2, 15);
  EXPECT_EQ(overwrite_pins(1), pins_);
  for (std::uint64_t n = 0; n < pins_; ++n) EXPECT_EQ(rewrite(n).code(), Code::no_space) << n;
  EXPECT_TRUE(put(next_++, 0, 2000).ok());
  for (std::uint64_t n = 0; n < 12; ++n) ASSERT_TRUE(remove(n).ok()) << n;
  for (std::uint64_t n = 12; n < pins_; ++n) {
    ASSERT_TRUE(put(n, 2, 2000, {.pinned = true}).ok()) << n;
  }
  const std::size_t before = resets().size();
  churn(400, [&] { return resets().size() > before + 3 * shape_.quota; });
  for (std::uint64_t n = 12; n < pins_; ++n) expect_page(n, 2, 2000);
}

// When its turn comes its key is locked, as it is being stored anew: a copy of what was there
// before would stand behind the new version, and outlive it.
TEST_F(CollectorTest, WhatWasOverwrittenBeforeItsTurnIsNotWrittenAgain) {
  make_log({}, kCache);
  ASSERT_TRUE(put(0, 0, 4000, {.pinned = true}).ok());
  const ZoneId first = zone_of(0);
  device_->hold(Io::Op::read);
  churn(1000, [&] { return pool_->allocator.zone(first).use == ZoneUse::draining; });
  Op& over = start_put(0, 1, 400);
  run();
  ASSERT_EQ(device_->held(Io::Op::read), 2u) << "of the zone, and a header";
  for (unsigned summary = 0; summary < 2; ++summary) {
    device_->let_one_go(Io::Op::read, summary == 0 ? 0 : 1);
    run();
  }
  ASSERT_EQ(device_->held(Io::Op::read), 1u) << "the header";
  const auto room = [this] {
    return shape_.zone_capacity_lbas - 1 - pool_->relative_lba(entry(next_ - 1).lba);
  };
  churn(400, [&] { return room() <= 8; });
  device_->let_go(Io::Op::read);
  ASSERT_TRUE(finish(over).ok());
  const ZoneId second = zone_of(0);
  ASSERT_EQ(second, zone_of(next_ - 1));
  churn_until_reset(first, 1000);
  EXPECT_EQ(log_->stats().relocated_bytes, 0u);
  churn_until_reset(second, 1000);
  reopen();
  expect_absent(0);
}

// A group is deleted while its page is copied.
class LateCopyTest : public CollectorTest {
 protected:
  // The copy is on its way behind the group's tombstone. Reads are held.
  void begin_late_copy() {
    remake(shape_, kCache);
    ASSERT_TRUE(put(0, 0, 4000, {.pinned = true, .group = 3}).ok());
    first_ = zone_of(0);
    device_->hold(Io::Op::read);
    churn(1000, [this] { return pool_->allocator.zone(first_).use == ZoneUse::draining; });
    for (unsigned summary = 0; summary < 2; ++summary) {  // its footer, and all of it
      run();
      device_->let_one_go(Io::Op::read, 0);
    }
    run();
    ASSERT_EQ(device_->held(Io::Op::read), 1u) << "the page's";
    // Room for the tombstone, and none for the page.
    const auto room = [this] {
      return shape_.zone_capacity_lbas - 1 - pool_->relative_lba(entry(next_ - 1).lba);
    };
    churn(400, [&] { return room() <= 8; });
    tombstone_ = zone_of(next_ - 1);
    Group& removal = start_remove_group(3, true);
    run();
    device_->let_one_go(Io::Op::read, 1);  // of the header that names the page
    ASSERT_TRUE(run([&] { return removal.answers == 1; }));
    ASSERT_EQ(pool_->tables[tombstone_.value].group_tombstones, 1u);
  }
  void end_late_copy() {
    device_->let_go(Io::Op::read);
    run();
    ASSERT_EQ(log_->stats().relocated_bytes, 4000u);
  }
  ZoneId first_, tombstone_;  // zones: of the page at first, and of the group's tombstone
};

// Its tombstone lies in a zone that goes before the copy's does, be the process killed in between
// or not: the page must not be back then.
TEST_F(LateCopyTest, TheGroupStaysDeleted) {
  enum { unkilled, killed_with_both, killed_with_the_copy };
  for (const int how : {unkilled, killed_with_both, killed_with_the_copy}) {
    SCOPED_TRACE(how);
    ASSERT_NO_FATAL_FAILURE(begin_late_copy());
    if (how == killed_with_both) device_->fail(Io::Op::reset, {Code::io_error, Origin::zone});
    ASSERT_NO_FATAL_FAILURE(end_late_copy());
    if (how == killed_with_both) reopen();
    churn_until_reset(first_, 1000);
    if (how == killed_with_the_copy) reopen();
    churn_until_reset(tombstone_, 1000);
    reopen();
    expect_absent(0);
    const std::size_t before = resets().size();
    churn(1000, [&] { return resets().size() > before + 2 * shape_.quota; });
    for (std::uint32_t i = 0; i < pool_->geometry.zone_count; ++i) {
      EXPECT_EQ(pool_->tables[i].group_tombstones, 0u) << "when all it deletes is gone, it goes";
    }
  }
}

// Of the tombstone's zone nothing else counts, and it must not go without it: when what it would be
// written to fails, and the last zone that there is as well. The power is cut after so many turns.
TEST_F(LateCopyTest, ATombstoneWithoutAPlaceKeepsItsZone) {
  shape_.faults = true;
  bool ended = false;
  for (unsigned turns = 0; !ended; turns += 2) {
    SCOPED_TRACE(turns);
    ASSERT_LT(turns, 1000u);
    ASSERT_NO_FATAL_FAILURE(begin_late_copy());
    ASSERT_NO_FATAL_FAILURE(end_late_copy());
    churn(1000, [this] { return oldest() == tombstone_; });
    run();
    ASSERT_EQ(pool_->allocator.zone(tombstone_).use, ZoneUse::sealed);
    device_->hold(Io::Op::read);
    churn(1000, [this] { return pool_->allocator.zone(tombstone_).use == ZoneUse::draining; });
    run();
    device_->fail(Io::Op::write, {Code::io_error, Origin::zone}, 2);
    device_->let_go(Io::Op::read);
    for (unsigned turn = 0; turn < turns && !ended; ++turn) ended = !executor_.run_once();
    ASSERT_NO_FATAL_FAILURE(power_cut());
    expect_absent(0);
    churn_until_reset(tombstone_, 1000);
    ASSERT_NO_FATAL_FAILURE(power_cut());
    expect_absent(0);
  }
}

// Nor does it where the last zone has taken something else, so that there is no room for anything:
// until the quota is larger, or an opening has given the last zone back.
TEST_F(LateCopyTest, ATombstoneWithoutRoomWaitsForAQuotaOrAnOpening) {
  for (const bool larger : {true, false}) {
    SCOPED_TRACE(larger);
    ASSERT_NO_FATAL_FAILURE(begin_late_copy());
    ASSERT_NO_FATAL_FAILURE(end_late_copy());
    std::uint64_t read = next_;
    while (zone_of(read - 1) == tombstone_) --read;
    churn(1000, [this] { return oldest() == tombstone_; });
    run();
    device_->hold(Io::Op::read);
    churn(1000, [this] { return pool_->allocator.zone(tombstone_).use == ZoneUse::draining; });
    hit(read);
    device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
    Op& waits = start_put(next_++, 0, 1000);  // its zone is sealed, there is the last one alone
    const std::uint64_t before = log_->stats().relocated_bytes;
    while (log_->stats().relocated_bytes == before) {
      run();
      ASSERT_NE(device_->held(Io::Op::read), 0u);
      device_->let_one_go(Io::Op::read, 0);
      run();
    }
    device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
    device_->let_go(Io::Op::read);
    run();
    EXPECT_EQ(waits.status.code(), Code::no_space) << waits.status.describe();
    EXPECT_EQ(put(next_++, 0, 1000).code(), Code::no_space);
    EXPECT_FALSE(is_reset(tombstone_));
    if (larger) {
      pool_->allocator.set_quota(kVolume, shape_.quota + 1);
      log_->resized();
    } else {
      reopen();
    }
    churn_until_reset(tombstone_, 1000);
    if (larger) ++shape_.quota;
    reopen();
    expect_absent(0);
  }
}

// The tombstone lies in the zone that is emptied itself, and was looked at before the page was
// copied.
TEST_F(LateCopyTest, TheTombstoneIsInTheZoneItself) {
  make_log({}, kCache);
  ASSERT_TRUE(put(0, 0, 4000, {.pinned = true, .group = 3}).ok());
  const ZoneId first = zone_of(0);
  device_->hold(Io::Op::read);
  Group& removal = start_remove_group(3);
  run();
  ASSERT_EQ(device_->held(Io::Op::read), 1u) << "the header that names the page";
  ASSERT_EQ(pool_->tables[first.value].group_tombstones, 1u);
  churn(1000, [&] { return pool_->allocator.zone(first).use == ZoneUse::draining; });
  for (unsigned summary = 0; summary < 2; ++summary) {
    run();
    device_->let_one_go(Io::Op::read, 1);
  }
  run();  // the page is asked for
  device_->let_one_go(Io::Op::read, 1);
  run();
  ASSERT_EQ(log_->stats().relocated_bytes, 4000u);
  device_->let_go(Io::Op::read);
  ASSERT_TRUE(run([&] { return removal.answers == 1; }));
  expect_absent(0);
  churn_until_reset(first, 1000);
  reopen();
  expect_absent(0);
}

// In whichever order an opening has found them.
TEST_F(LateCopyTest, OfItsPagesTheOneInTheLatestZoneCounts) {
  std::vector<Outlived> pages{{3, 0, 1}, {3, 0, ~std::uint64_t{0} / 2}};
  for (int order = 0; order < 2; ++order, std::ranges::reverse(pages)) {
    drop_pool();
    make({});
    options_.volume = kVolume;
    options_.cache = true;
    log_ = std::make_unique<PageLog>(*pool_, options_);
    const RecoveredPages none;
    log_->load({.pages = none, .outlived = pages});
    log_->start();
    churn(1000, [this] { return !resets().empty(); });
    ASSERT_TRUE(remove_group(3).ok());
    const auto deletions = [this](std::uint32_t i) { return pool_->tables[i].group_tombstones; };
    std::uint32_t zone = 0;
    while (deletions(zone) == 0) ASSERT_LT(++zone, pool_->geometry.zone_count);
    const std::size_t before = resets().size();
    churn(1000, [&] { return resets().size() > before && resets().back() == ZoneId{zone}; });
    run();
    std::uint64_t left = 0;
    for (std::uint32_t i = 0; i < pool_->geometry.zone_count; ++i) left += deletions(i);
    EXPECT_EQ(left, 1u);
  }
}

TEST_F(CollectorTest, ExpiredPagesAreNotWrittenAgain) {
  make_log({}, kCache);
  const auto soon = static_cast<std::uint32_t>(executor_.wall_s() + 1);
  for (std::uint64_t n = 0; n < 10; ++n) {
    ASSERT_TRUE(put(n, 0, 1000, {.pinned = n % 2 == 0, .expires_s = soon}).ok());
    hit(n);
  }
  const ZoneId zone = zone_of(0);
  clock_.now_ns += 2'000'000'000;
  churn_until_reset(zone, 1000);
  EXPECT_EQ(log_->stats().relocated_bytes, 0u);
}

TEST_F(CollectorTest, ACacheLetsGoOfPagesThatNoRecordNamesAnyMore) {
  make_log({}, kCache);
  churn(1000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  const std::uint64_t end = next_ - 1;
  const std::uint64_t header = pool_->relative_lba(entry(1003).lba) - 1;
  damage(first, header);
  damage(first, shape_.segment_lbas - 1);  // and the summary that names it, too
  churn_until_reset(first, 1000);
  for (std::uint64_t n = 1000; n < end; ++n) {
    std::array<IndexEntry, 1> found;
    EXPECT_EQ(log_->lookup(log_->hash(key_number(n)), found), 0u) << n;
  }
  EXPECT_EQ(log_->stats().pages + log_->stats().evicted_pages, next_ - 1000);
}

TEST_F(CollectorTest, ADamagedSummaryCostsNothing) {
  make_log({}, kCache);
  for (std::uint64_t n = 0; n < 20; ++n) ASSERT_TRUE(put(n, 0, 1000, {.pinned = true}).ok());
  const ZoneId first = zone_of(0);
  churn(1000, [&] { return pool_->allocator.held(kVolume) == 2; });
  for (std::uint64_t segment = 1; segment <= 3; ++segment) {
    damage(first, segment * shape_.segment_lbas - 1);
  }
  churn_until_reset(first, 1000);
  for (std::uint64_t n = 0; n < 20; ++n) expect_page(n, 0, 1000);
}

}  // namespace
}  // namespace furrow
