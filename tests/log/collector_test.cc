// Establishes what Collector does in caches and stores alike: a zone is reset only after its copies
// are durable and its readers have left, and written again only after the reset is durable; a
// device that fails loses nothing and is not pressed. Where the newest zone of a stream goes, the
// journal is told first that the one before it is durable. How: on a PageLog, by what the device is
// asked for (TapDevice) and what is found afterwards, also after reopenings and power cuts.
#include "tests/log/collector_rig.h"

namespace furrow {
namespace {

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

// It may be torn, and is verified at the next opening, whichever zone is the newest then.
TEST_F(NewestZoneTest, NothingIsNotedOfOneThatCouldNotBeVerified) {
  pool_->tables[before_.value].unverified = true;
  collect_newest();
  EXPECT_TRUE(notes_.empty());
  EXPECT_TRUE(is_reset(newest_));
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
  device_->fail(Io::Op::read, {Code::aborted, Origin::zone}, 1'000'000);
  for (status = Status(); status.ok();) status = put(next_++, 0, 4000);
  (void)attempt_after(0);
  EXPECT_TRUE(attempt_after(11)) << "it was well in between";
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
  EXPECT_TRUE(pool_->tables[first.value].batches.empty());
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

TEST_F(CollectorTest, RefusedResetsCountOneAfterAnother) {
  make_log({}, kCache);
  churn(4000, [&] { return pool_->allocator.held(kVolume) == 2; });
  for (unsigned round = 1; round <= 3; ++round) {
    const std::size_t before = resets().size();
    device_->fail(Io::Op::reset, {Code::io_error, Origin::zone}, 7);
    for (unsigned i = 0; i < 1000 && resets().size() < before + 8; ++i) {
      clock_.now_ns += 1'001'000'000;
      (void)put(next_++, 0, 4000);
    }
    EXPECT_EQ(resets().size(), before + 8) << round;
    EXPECT_EQ(pool_->allocator.count(ZoneUse::bad), 0u) << round;
  }
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

}  // namespace
}  // namespace furrow
