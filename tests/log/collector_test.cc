// Establishes how Collector makes free zones. Of a cache: the zone opened first goes, what was read
// and what is pinned is written again and nothing else, in bounds. Of a store: nothing live is
// lost, the zone with the least to copy goes, copies keep their sequence and share batches,
// tombstones stay as long as an older version may be on the medium. Of both: a zone is reset only
// after its copies are durable and its readers have left, and written again only after the reset
// is durable; a device that fails loses nothing and is not pressed; damage costs itself alone.
// Where the newest zone of a stream goes, the journal is told first that the one before it is
// durable. How: on a PageLog, by what the device is asked for (TapDevice) and what is found
// afterwards, also after reopenings and power cuts.
#include "log/collector.h"

#include <map>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class CollectorTest : public PageLogRig {
 protected:
  static constexpr bool kCache = true, kStore = false;

  void remake(const Shape& shape, bool cache) {
    drop_pool();
    cuts_.clear();
    filler_.clear();
    make_log(shape, cache);
  }
  // The zones that were reset, in their order.
  std::vector<ZoneId> resets() const {
    std::vector<ZoneId> zones;
    for (const TapDevice::Event& each : device_->events()) {
      if (each.op == Io::Op::reset && !each.answered) zones.push_back(each.zone);
    }
    return zones;
  }
  bool is_reset(ZoneId zone) const { return std::ranges::count(resets(), zone) != 0; }
  // Puts pages of `bytes` under numbers from `next_` on until `done`.
  void churn(std::uint32_t bytes, const std::function<bool()>& done) {
    for (unsigned i = 0; !done(); ++i) {
      ASSERT_LT(i, 5000u);
      const Status status = put(next_++, 0, bytes);
      ASSERT_TRUE(status.ok()) << status.describe();
    }
  }
  void churn_until_reset(ZoneId zone, std::uint32_t bytes) {
    churn(bytes, [&] { return is_reset(zone); });
  }
  // Puts the same keys again and again: all that they leave behind is dead.
  void overwrite(std::uint64_t first, std::uint64_t keys, std::uint32_t bytes,
                 const std::function<bool()>& done) {
    for (unsigned i = 0; !done(); ++i) {
      ASSERT_LT(i, 5000u);
      const Status status = put(first + i % keys, i, bytes);
      ASSERT_TRUE(status.ok()) << status.describe();
    }
  }
  // Pages that stay, each in a batch of its own, until the volume holds so many zones: small, so
  // that a store has room for that.
  void fill(std::uint64_t zones) {
    for (unsigned i = 0; pool_->allocator.held(kVolume) < zones; ++i) {
      ASSERT_LT(i, 5000u);
      filler_.push_back(next_++);
      const Status status = put(filler_.back(), 0, 400);
      ASSERT_TRUE(status.ok()) << status.describe();
    }
  }
  // Of a sealed zone of a store nothing stays but what the test put there: it has the least to
  // copy.
  void thin_out(ZoneId zone) {
    std::erase_if(filler_, [&](std::uint64_t number) {
      if (zone_of(number) != zone) return false;
      EXPECT_TRUE(remove(number).ok());
      return true;
    });
  }
  void collect(ZoneId zone) {
    ASSERT_EQ(pool_->allocator.zone(zone).use, ZoneUse::sealed);
    const auto before = resets().size();
    thin_out(zone);
    for (unsigned i = 0; !is_reset(zone); ++i) {
      ASSERT_LT(i, 5000u);
      filler_.push_back(next_++);
      const Status status = put(filler_.back(), 0, 400);
      ASSERT_TRUE(status.ok()) << status.describe();
    }
    ASSERT_EQ(resets().size(), before + 1) << "and no other one";
    run();
  }
  // Flips a bit on the medium; the zone is written anew for that, which is not counted.
  void damage(ZoneId zone, std::uint64_t lba) {
    const auto seen = resets().size();
    ASSERT_EQ(seen, 0u) << "they would be forgotten";
    flip_bit(*device_, zone, lba);
    device_->forget_events();
  }
  void hit(std::uint64_t number) { log_->hits().set(entry(number).lba); }
  ZoneId oldest() {
    return *pool_->allocator.victim(kVolume, VictimPolicy::fifo, pool_->next_sequence);
  }
  std::uint64_t next_ = 1000;
  std::vector<std::uint64_t> filler_;
};

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

// --- the newest zone of a stream ---

class NewestZoneTest : public CollectorTest {
 protected:
  // Three zones of pages, of which the newest ends with a torn one, so that nothing more is written
  // there: `before_` and `newest_` are the last two.
  void SetUp() override {
    make_log({}, kStore);
    fill(3);
    churn(400, [&] { return entry(next_ - 1).lba % shape_.zone_size_lbas > 10; });
    const IndexEntry last = entry(next_ - 1);
    newest_ = zone_of(next_ - 1);
    for (std::uint32_t i = 0; i < shape_.zones; ++i) {
      const ZoneAllocator::Zone& zone = pool_->allocator.zone(ZoneId{i});
      if (zone.use == ZoneUse::sealed) before_ = std::max(before_, ZoneId{i});
    }
    drop_pool();
    flip_bit(*device_, newest_, last.lba % shape_.zone_size_lbas);
    device_->forget_events();
    recover_log();
    ASSERT_EQ(pool_->allocator.zone(newest_).use, ZoneUse::sealed);
    pool_->note_durable = [this](DurableNote& note) {
      EXPECT_FALSE(is_reset(newest_));
      notes_.push_back(&note);
    };
  }
  // As the journal would.
  void answer(Status status) {
    ASSERT_EQ(notes_.size(), 1u);
    DurableNote& note = *notes_[0];
    notes_.clear();
    note.status = status;
    if (status.ok()) pool_->tables[note.zone.value].durable = true;
    note.on_noted(note);
    run();
  }
  void collect_newest() {
    log_->collect(newest_);
    run();
  }

  ZoneId newest_, before_;
  std::vector<DurableNote*> notes_;
};

TEST_F(NewestZoneTest, ItIsNotedThatTheOneBeforeItIsDurable) {
  collect_newest();
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_EQ(notes_[0]->zone, before_);
  EXPECT_FALSE(is_reset(newest_));
  ASSERT_NO_FATAL_FAILURE(answer(Status()));
  EXPECT_TRUE(is_reset(newest_));
  EXPECT_TRUE(notes_.empty());
}

TEST_F(NewestZoneTest, ItStaysWhereThatCannotBeNoted) {
  collect_newest();
  ASSERT_NO_FATAL_FAILURE(answer({Code::io_error, Origin::log}));
  EXPECT_FALSE(is_reset(newest_));
  EXPECT_EQ(pool_->allocator.zone(newest_).use, ZoneUse::sealed);
  for (const std::uint64_t number : filler_) expect_page(number, 0, 400);
  clock_.now_ns += 10'000'000'000;
  collect_newest();
  ASSERT_NO_FATAL_FAILURE(answer(Status()));
  EXPECT_TRUE(is_reset(newest_));
  for (const std::uint64_t number : filler_) expect_page(number, 0, 400);
}

TEST_F(NewestZoneTest, WhatWasNotedIsNotNotedAgain) {
  pool_->tables[before_.value].durable = true;
  collect_newest();
  EXPECT_TRUE(notes_.empty());
  EXPECT_TRUE(is_reset(newest_));
}

TEST_F(NewestZoneTest, NothingIsNotedWhereOneBehindItHasData) {
  const Status status = put(next_++, 0, 400);
  ASSERT_TRUE(status.ok()) << status.describe();
  ASSERT_NE(zone_of(next_ - 1), newest_);
  collect_newest();
  EXPECT_TRUE(notes_.empty());
  EXPECT_TRUE(is_reset(newest_));
}

TEST_F(NewestZoneTest, NothingIsNotedOfAnOlderOne) {
  log_->collect(before_);
  run();
  EXPECT_TRUE(notes_.empty());
  EXPECT_TRUE(is_reset(before_));
}

// --- cache ---

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

TEST_F(CollectorTest, OnlyWhatWasReadIsWrittenAgain) {
  make_log({}, kCache);
  churn(1000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  for (std::uint64_t n = 1000; n < 1020; n += 4) hit(n);
  churn_until_reset(first, 1000);
  for (std::uint64_t n = 1000; n < 1020; ++n) EXPECT_EQ(get(n).has_value(), n % 4 == 0) << n;
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

// Its tombstone lies in a zone that goes before the copy's does, be the process killed in between
// or not: the page must not be back then.
TEST_F(CollectorTest, AGroupDeletedWhileItsPageIsCopiedStaysDeleted) {
  enum { unkilled, killed_with_both, killed_with_the_copy };
  for (const int how : {unkilled, killed_with_both, killed_with_the_copy}) {
    SCOPED_TRACE(how);
    remake({}, kCache);
    ASSERT_TRUE(put(0, 0, 4000, {.pinned = true, .group = 3}).ok());
    const ZoneId first = zone_of(0);
    device_->hold(Io::Op::read);
    churn(1000, [&] { return pool_->allocator.zone(first).use == ZoneUse::draining; });
    for (unsigned summary = 0; summary < 2; ++summary) {  // its footer, and all of it
      run();
      device_->let_one_go(Io::Op::read, 0);
    }
    run();
    ASSERT_EQ(device_->held(Io::Op::read), 1u) << "the page's";
    // Room for the tombstone, and none for the page.
    const auto room = [&] {
      return shape_.zone_capacity_lbas - 1 - pool_->relative_lba(entry(next_ - 1).lba);
    };
    churn(400, [&] { return room() <= 8; });
    const ZoneId tombstone = zone_of(next_ - 1);
    Group& removal = start_remove_group(3);
    run();
    device_->let_one_go(Io::Op::read, 1);  // of the header that names the page
    ASSERT_TRUE(run([&] { return removal.answers == 1; }));
    ASSERT_EQ(pool_->tables[tombstone.value].group_tombstones, 1u);
    if (how == killed_with_both) device_->fail(Io::Op::reset, {Code::io_error, Origin::zone});
    device_->let_go(Io::Op::read);
    run();
    ASSERT_EQ(log_->stats().relocated_bytes, 4000u);
    if (how == killed_with_both) reopen();
    churn_until_reset(first, 1000);
    if (how == killed_with_the_copy) reopen();
    churn_until_reset(tombstone, 1000);
    reopen();
    expect_absent(0);
    const std::size_t before = resets().size();
    churn(1000, [&] { return resets().size() > before + 2 * shape_.quota; });
    for (std::uint32_t i = 0; i < pool_->geometry.zone_count; ++i) {
      EXPECT_EQ(pool_->tables[i].group_tombstones, 0u) << "when all it deletes is gone, it goes";
    }
  }
}

// The tombstone lies in the zone that is emptied itself, and was looked at before the page was
// copied.
TEST_F(CollectorTest, AGroupDeletedBeforeItsPageIsCopiedStaysDeleted) {
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

// --- both: order and durability ---

TEST_F(CollectorTest, ResetComesBehindDurableCopiesAndReuseBehindADurableReset) {
  for (const bool cache : {kCache, kStore}) {
    remake({}, cache);
    for (std::uint64_t n = 0; n < 8; ++n) ASSERT_TRUE(put(n, 0, 1000, {.pinned = true}).ok());
    const ZoneId first = zone_of(0);
    fill(4);
    device_->forget_events();
    if (cache) {
      churn_until_reset(first, 400);
    } else {
      collect(first);
    }
    run();
    const ZoneId copies = zone_of(0);
    for (std::uint64_t n = 0; n < 8; ++n) expect_page(n, 0, 1000);
    for (unsigned i = 0; i < 5000 && pool_->allocator.zone(first).use != ZoneUse::open; ++i) {
      ASSERT_TRUE(put(100 + i % 20, i, 1000).ok());
    }
    const std::vector<TapDevice::Event> events = device_->events();
    const auto at = [&](auto test) {
      return std::find_if(events.begin(), events.end(), test) - events.begin();
    };
    const auto reset = at([&](const auto& e) { return e.op == Io::Op::reset && e.zone == first; });
    const auto reset_done =
        at([&](const auto& e) { return e.op == Io::Op::reset && e.zone == first && e.answered; });
    const auto reused = at([&](const auto& e) { return e.op == Io::Op::write && e.zone == first; });
    ASSERT_LT(reset_done, reused);
    // Where the copies went: the zones that hold them were last written before a flush that ended
    // before the reset.
    std::ptrdiff_t copied = 0;
    for (std::ptrdiff_t i = 0; i < reset; ++i) {
      const TapDevice::Event& e = events[static_cast<std::size_t>(i)];
      if (e.op == Io::Op::write && e.zone == copies && e.answered && e.lbas > 16) copied = i;
    }
    const auto flush_between = [&](std::ptrdiff_t from, std::ptrdiff_t to) {
      bool asked = false;
      for (std::ptrdiff_t i = from; i < to; ++i) {
        const TapDevice::Event& e = events[static_cast<std::size_t>(i)];
        if (e.op != Io::Op::flush) continue;
        if (e.answered && asked) return true;
        asked |= !e.answered;
      }
      return false;
    };
    ASSERT_NE(copied, 0) << "the batch of the copies";
    EXPECT_TRUE(flush_between(copied, reset)) << cache;
    EXPECT_TRUE(flush_between(reset_done, reused)) << cache;
  }
}

TEST_F(CollectorTest, AZoneIsNotResetUnderAReader) {
  make_log({}, kCache);
  churn(4000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  Epoch::Reader& reader = pool_->epoch.add();
  const unsigned side = reader.enter();
  std::vector<Op*> given;
  for (unsigned i = 0; i < 60; ++i) given.push_back(&start_put(next_++, 0, 4000));
  EXPECT_FALSE(run([&] { return clock_.now_ns > 50'000'000; }) && is_reset(first));
  EXPECT_EQ(pool_->allocator.zone(first).use, ZoneUse::resetting);
  expect_absent(1000);
  const unsigned later = reader.enter();  // one that comes now cannot have seen its pages
  reader.leave(side);
  ASSERT_TRUE(run([&] { return is_reset(first); }));
  reader.leave(later);
  for (Op* op : given) EXPECT_TRUE(finish(*op).ok());
  pool_->epoch.remove(reader);
}

TEST_F(CollectorTest, AFailedFlushKeepsTheZoneAndIsTriedAgainLater) {
  make_log({}, kCache);
  churn(4000, [&] { return pool_->allocator.held(kVolume) + 1 == shape_.quota; });
  run();
  const std::size_t before = resets().size();
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone}, 1'000'000);
  unsigned failed = 0;
  for (unsigned i = 0; i < 60 && failed == 0; ++i) {
    const Status status = put(next_++, 0, 4000);
    if (!status.ok()) {
      ++failed;
      EXPECT_EQ(status.code(), Code::io_error);
    }
  }
  EXPECT_EQ(failed, 1u) << "who waits for a zone is told";
  EXPECT_EQ(resets().size(), before);
  device_->forget_events();
  EXPECT_EQ(put(next_++, 0, 4000).code(), Code::io_error);
  device_->fail(Io::Op::flush, Status(), 0);
  clock_.now_ns += 2'000'000'000;
  EXPECT_TRUE(put(next_++, 0, 4000).ok());
  churn_until_reset(oldest(), 4000);
}

TEST_F(CollectorTest, ADeviceThatAnswersNothingIsLeftAloneForAWhile) {
  make_log({}, kCache);
  churn(4000, [&] { return pool_->allocator.held(kVolume) + 2 == shape_.quota; });
  run();
  device_->fail(Io::Op::read, {Code::aborted, Origin::zone}, 1'000'000);
  Status status;
  while (status.ok()) status = put(next_++, 0, 4000);
  EXPECT_EQ(status.code(), Code::aborted) << "who waits for a zone is told why";
  std::size_t reads = device_->count(Io::Op::read);
  const auto attempt_after = [&](std::uint64_t ms) {
    clock_.now_ns += ms * 1'000'000;
    EXPECT_EQ(put(next_++, 0, 4000).code(), Code::aborted);
    const std::size_t before = std::exchange(reads, device_->count(Io::Op::read));
    return reads != before;
  };
  EXPECT_FALSE(attempt_after(0));
  while (!attempt_after(1)) {
  }
  EXPECT_FALSE(attempt_after(9)) << "each time twice as long";
  unsigned waited_ms = 9;
  while (!attempt_after(1)) ++waited_ms;
  EXPECT_GE(waited_ms, 15u);
  for (unsigned i = 0; i < 10; ++i) EXPECT_TRUE(attempt_after(1001)) << "but a second at most";
  EXPECT_TRUE(resets().empty());
  device_->fail(Io::Op::read, Status(), 0);
  clock_.now_ns += 1'001'000'000;
  churn(4000, [&] { return resets().size() == 3; });
}

TEST_F(CollectorTest, AZoneThatTheDeviceGivesUpIsUsedNoMore) {
  make_log({}, kCache);
  churn(4000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  device_->fail(Io::Op::reset, {Code::zone_state, Origin::zone});
  churn_until_reset(first, 4000);
  run();
  EXPECT_EQ(pool_->allocator.zone(first).use, ZoneUse::bad);
  ASSERT_EQ(cuts_.size(), 1u) << "nothing of it must come back";
  EXPECT_EQ(cuts_[0].zone, first);
  EXPECT_EQ(cuts_[0].end_lba, 0u);
  churn(4000, [&] { return resets().size() == 8; });
  EXPECT_EQ(std::ranges::count(resets(), first), 1) << "it is not tried again";
  EXPECT_LE(pool_->allocator.held(kVolume), shape_.quota);
}

TEST_F(CollectorTest, AResetThatFailsIsTriedAgain) {
  make_log({}, kCache);
  churn(4000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  device_->fail(Io::Op::reset, {Code::io_error, Origin::zone});
  churn_until_reset(first, 4000);
  run();
  EXPECT_EQ(pool_->allocator.zone(first).use, ZoneUse::sealed);
  // What was in it is elsewhere, and nothing is looked for in it any more: it may be empty.
  EXPECT_TRUE(pool_->tables[first.value].batch_lbas.empty());
  EXPECT_EQ(pool_->tables[first.value].records, 0u);
  EXPECT_EQ(pool_->tables[first.value].end_lba, 0u);
  clock_.now_ns += 1'001'000'000;
  churn(4000, [&] { return std::ranges::count(resets(), first) == 2; });
  EXPECT_TRUE(cuts_.empty());
}

TEST_F(CollectorTest, AZoneThatRefusesEightResetsIsUsedNoMore) {
  make_log({}, kCache);
  churn(4000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  device_->fail(Io::Op::reset, {Code::io_error, Origin::zone}, 8);
  for (unsigned i = 0; i < 1000 && pool_->allocator.zone(first).use != ZoneUse::bad; ++i) {
    clock_.now_ns += 1'001'000'000;
    (void)put(next_++, 0, 4000);  // refused while no zone can be had
  }
  EXPECT_EQ(pool_->allocator.zone(first).use, ZoneUse::bad);
  EXPECT_EQ(std::ranges::count(resets(), first), 8);
  EXPECT_EQ(cuts_.size(), 1u);
}

TEST_F(CollectorTest, AZoneWhoseResetIsNotDurableIsResetOnceMore) {
  make_log({}, kCache);
  churn(4000, [&] { return pool_->allocator.held(kVolume) == 2; });
  const ZoneId first = zone_of(1000);
  device_->hold(Io::Op::reset);
  std::vector<Op*> given;
  for (unsigned i = 0; i < 40; ++i) given.push_back(&start_put(next_++, 0, 4000));
  run();
  ASSERT_EQ(device_->held(Io::Op::reset), 1u);
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone});
  device_->let_go(Io::Op::reset);
  run();
  EXPECT_EQ(pool_->allocator.zone(first).use, ZoneUse::sealed) << "nobody writes to it";
  clock_.now_ns += 1'001'000'000;
  churn(4000, [&] { return std::ranges::count(resets(), first) == 2; });
}

// --- store ---

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

TEST_F(CollectorTest, ADamagedPageIsDroppedAndItsOlderVersionStaysGone) {
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
    expect_absent(500);
    EXPECT_EQ(exist(500), Code::not_found);
    expect_page(501, 0, 500);
    reopen();
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
    const std::uint32_t header = pool_->tables[second.value].batch_lbas.back();
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
    unsigned attempts = 1;
    overwrite(100, 10, 400, [&] {
      if (log_->leaves_zones_alone()) {
        ++attempts;
        clock_.now_ns += 2'000'000'000;
      }
      return is_reset(second);
    });
    EXPECT_FALSE(is_reset(first));
    EXPECT_LT(attempts, 20u);
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
    const std::uint32_t header = pool_->tables[second.value].batch_lbas.back();
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

}  // namespace
}  // namespace furrow
