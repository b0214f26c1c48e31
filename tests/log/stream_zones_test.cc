// Establishes what becomes of a stream's zone that takes no more before it is full: a failed write
// loses nothing that another zone can take, no other zone is begun before the journal says where
// the data ends, three zones that take nothing are the end of it; and a zone that is ended early is
// finished and left for another, with all that was written to it. How: a stream alone, on a device
// that fails and holds back what the test wants.
#include "log/stream.h"
#include "tests/log/stream_rig.h"

namespace furrow {
namespace {

TEST_F(StreamTest, AfterAFailedWriteAllGoesToAnotherZoneInOrder) {
  put_now(0, 100);
  const ZoneId bad = zone_of(*pages_[0]);
  const auto end = static_cast<std::uint32_t>(stream_->written_lba(bad));
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  device_->forget_events();
  for (std::uint64_t i = 1; i <= 5; ++i) put(i, 100);
  EXPECT_TRUE(run());
  expect_elsewhere(bad);
  ASSERT_EQ(cuts_.size(), 1u) << "where its data ends goes to the journal";
  EXPECT_EQ(cuts_[0].zone, bad);
  EXPECT_EQ(cuts_[0].end_lba, end);
  EXPECT_EQ(device_->count(Io::Op::finish), 1u);
  EXPECT_EQ(info(bad).state, ZoneState::full);
  EXPECT_EQ(pool_->allocator.zone(bad).use, ZoneUse::sealed);
  EXPECT_EQ(batches_of(pool_->tables[bad.value]), std::vector<std::uint32_t>{1});
  EXPECT_FALSE(pool_->device_full);
  EXPECT_EQ(pool_->failed_writes, 1u);
  EXPECT_EQ(pool_->write_failure.code(), Code::io_error);
}

// Three in a row are the end of it, not three in a zone's life, or one that took no header.
TEST_F(StreamTest, ZonesThatFailNowAndThenCostNothing) {
  for (std::uint64_t round = 0; round < 4; ++round) {
    device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
    put_now(2 * round, 100);
    put_now(2 * round + 1, 100);
  }
  EXPECT_EQ(owner_.zones_abandoned, 4u);
}

// What it took before may not be durable.
TEST_F(StreamTest, AZoneThatHasFailedIsNotDurableYet) {
  put_now(0, 100);
  ASSERT_FALSE(stream_->filled_unflushed());
  owner_.may_open = false;
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  put(1, 100);
  EXPECT_TRUE(run());
  ASSERT_FALSE(stream_->has_zone());
  EXPECT_TRUE(stream_->filled_unflushed());
  stream_->flush_filled();
  EXPECT_TRUE(run());
  EXPECT_FALSE(stream_->filled_unflushed());
}

// Recovery verifies the newest zone only: with another one behind it, the zone that failed would
// count to its end.
TEST_F(StreamTest, NoOtherZoneIsBegunBeforeTheJournalSaysWhereTheFailedOneEnds) {
  put_now(0, 100);
  Status noted(Code::io_error, Origin::log, "the journal cannot be written");
  pool_->note_cuts = [&noted] { return noted; };
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  Page& told = put(1, 100);
  EXPECT_TRUE(run());
  EXPECT_EQ(told.answers, 1u);
  EXPECT_EQ(told.status.describe(), noted.describe());
  EXPECT_EQ(owner_.zones_opened, 1u);
  noted = Status();
  EXPECT_NE(zone_of(put_now(2, 100)), zone_of(*pages_[0]));
  EXPECT_EQ(owner_.zones_opened, 2u);
}

// Also where both were written: a drive may have moved its write pointer for the one that failed.
TEST_F(StreamTest, WhatWasInFlightBehindAFailedWriteIsNotAnsweredFromThere) {
  const Status failed(Code::io_error, Origin::zone);
  for (const bool written : {false, true}) {
    remake(large(4096), 300 << 10);
    cuts_.clear();
    put_now(0, 1);
    const ZoneId bad = zone_of(*pages_[0]);
    const auto end = static_cast<std::uint32_t>(stream_->written_lba(bad));
    device_->hold(Io::Op::write);
    if (!written) device_->fail(Io::Op::write, failed);
    put(1, 100);
    EXPECT_TRUE(run());
    put(2, 300 << 10);
    EXPECT_TRUE(run());
    ASSERT_EQ(device_->held(Io::Op::write), 2u);
    if (written) device_->fail_one(Io::Op::write, 0, failed);
    device_->let_go(Io::Op::write);
    EXPECT_TRUE(run());
    expect_elsewhere(bad);
    ASSERT_EQ(cuts_.size(), 1u);
    EXPECT_EQ(cuts_[0].end_lba, end);
  }
}

TEST_F(StreamTest, AFullDeviceIsToldAtOnceAndNotTriedAgainAndAgain) {
  put_now(0, 100);
  device_->fail(Io::Op::write, {Code::no_space, Origin::zone});
  device_->forget_events();
  Page& told = put(1, 100);
  EXPECT_TRUE(run());
  EXPECT_EQ(told.status.code(), Code::no_space);
  EXPECT_EQ(writes().size(), 1u);
  EXPECT_TRUE(pool_->device_full);
  EXPECT_EQ(pool_->failed_writes, 0u);
  put_now(2, 100);  // there is room again
  EXPECT_FALSE(pool_->device_full);
}

TEST_F(StreamTest, AfterThreeZonesThatFailTheAppendFails) {
  put_now(0, 100);
  owner_.zones_opened = 0;
  // The batch, then twice a batch in a new zone whose header was taken.
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone}, 100);
  Page& told = put(1, 100);
  EXPECT_TRUE(run());
  EXPECT_EQ(told.answers, 1u);
  EXPECT_EQ(told.status.code(), Code::io_error);
  EXPECT_LE(owner_.zones_opened, 3u);
  device_->fail(Io::Op::write, Status(), 0);
  for (std::uint32_t i = kMetadataZones; i < shape_.zones; ++i) {
    if (pool_->allocator.zone(ZoneId{i}).use == ZoneUse::sealed &&
        info(ZoneId{i}).written_lbas == 0)
      pool_->allocator.release(ZoneId{i});
  }
  put_now(2, 100);
}

TEST_F(StreamTest, AZoneWhoseHeaderCannotBeWrittenIsReset) {
  device_->fail(Io::Op::write, {Code::no_space, Origin::zone});
  Page& told = put(1, 100);
  EXPECT_TRUE(run());
  EXPECT_EQ(told.status.code(), Code::no_space);
  EXPECT_EQ(device_->count(Io::Op::reset), 1u);
  EXPECT_EQ(device_->count(Io::Op::finish), 0u);
  EXPECT_TRUE(cuts_.empty()) << "it holds nothing, and nobody could tell whose life it was";
}

TEST_F(StreamTest, AZoneThatGoesReadOnlyIsLeftForAnother) {
  Shape shape;
  shape.faults = true;
  remake(shape, 8 << 10);
  put_now(0, 100);
  const ZoneId bad = zone_of(*pages_[0]);
  faults_->degrade(bad, ZoneState::read_only);
  Page& moved = put_now(1, 100);
  EXPECT_NE(zone_of(moved), bad);
  EXPECT_EQ(pool_->allocator.zone(bad).use, ZoneUse::sealed)
      << "drained like any, reset tells more";
}

// Others would go round for ever on a device whose zones hold less than they say.
TEST_F(StreamTest, ZonesThatTakeAHeaderAndNothingElseAreThreeToo) {
  Shape shape;
  shape.faults = true;
  remake(shape, 8 << 10);
  for (std::uint32_t i = kMetadataZones; i < shape_.zones; ++i) {
    faults_->fail_writes(Lba{pool_->device_lba(ZoneId{i}, 1)}, 1);
  }
  Page& told = put(1, 100);
  EXPECT_TRUE(run());
  EXPECT_EQ(told.answers, 1u);
  EXPECT_EQ(told.status.code(), Code::io_error);
  EXPECT_EQ(owner_.zones_opened, 3u);
}

TEST_F(StreamTest, AZoneThatIsEndedEarlyIsLeftForAnother) {
  EXPECT_FALSE(stream_->can_end_zone()) << "there is none";
  put_now(0, 100);
  const ZoneId ended = zone_of(*pages_[0]);
  const auto end = static_cast<std::uint32_t>(stream_->written_lba(ended));
  device_->forget_events();
  ASSERT_TRUE(stream_->can_end_zone());
  device_->hold(Io::Op::finish);
  stream_->end_zone();
  Page& next = put(1, 100);
  Page& mark = page(2, 1);
  mark.marker = true;
  stream_->append(mark);
  EXPECT_TRUE(run());
  EXPECT_EQ(next.answers, 0u) << "the zone has not been finished yet";
  EXPECT_FALSE(stream_->idle());
  EXPECT_FALSE(stream_->can_end_zone()) << "once is enough";
  EXPECT_EQ(stream_->room_lbas(), 0u);
  EXPECT_EQ(owner_.zones_abandoned, 0u);
  device_->let_go(Io::Op::finish);
  EXPECT_TRUE(run());
  EXPECT_EQ(owner_.zones_abandoned, 1u);
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_TRUE(next.status.ok());
  EXPECT_NE(zone_of(next), ended);
  expect_on_medium(*pages_[0]);
  expect_on_medium(next);
  ASSERT_EQ(cuts_.size(), 1u) << "where its data ends goes to the journal";
  EXPECT_EQ(cuts_[0].zone, ended);
  EXPECT_EQ(cuts_[0].end_lba, end);
  EXPECT_EQ(info(ended).state, ZoneState::full);
  EXPECT_EQ(pool_->allocator.zone(ended).use, ZoneUse::sealed);
  EXPECT_EQ(pool_->tables[ended.value].end_lba, end);
  EXPECT_EQ(batches_of(pool_->tables[ended.value]), std::vector<std::uint32_t>{1});
  // What was in it is durable before anything but the next zone's header is.
  const auto& events = device_->events();
  const auto at = [&](Io::Op op) {
    return std::ranges::find_if(events, [op](const auto& each) { return each.op == op; });
  };
  const auto batch = std::ranges::find_if(events, [&](const TapDevice::Event& each) {
    return each.op == Io::Op::write && each.zone != ended && each.lba != 0;
  });
  EXPECT_LT(at(Io::Op::finish), at(Io::Op::flush));
  EXPECT_LT(at(Io::Op::flush), batch);
  EXPECT_LT(batch, events.end());
}

TEST_F(StreamTest, AZoneIsNotEndedUnderAWriteNorBeforeItHasBegun) {
  device_->hold(Io::Op::flush);
  put(0, 100);
  EXPECT_TRUE(run());
  EXPECT_EQ(owner_.zones_opened, 1u);
  EXPECT_FALSE(stream_->can_end_zone()) << "its header is not durable";
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(run());
  EXPECT_TRUE(stream_->can_end_zone());
  device_->hold(Io::Op::write);
  put(1, 100);
  EXPECT_TRUE(run());
  EXPECT_FALSE(stream_->can_end_zone());
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  EXPECT_TRUE(stream_->can_end_zone());
}

}  // namespace
}  // namespace furrow
