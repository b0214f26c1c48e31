// Establishes that a store with a stream for pages that expire keeps them apart from the others, so
// that zones of expired pages are set free with little to copy; so with pages of other lifetimes,
// those that have no stream going with others, or getting one when the first page comes; and that
// with several streams to write to a flush covers all, a group's deletion takes what any was given
// before it, and a reopening goes on in all, or without the one that it has not got. How: on a
// PageLog, beside one with a single stream for all.
#include <cstdio>
#include <set>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class LifetimesTest : public PageLogRig {
 protected:
  static constexpr Shape kShape{.zones = 24, .quota = 20, .streams = 3};

  std::uint32_t in_s(std::uint64_t seconds) {
    return static_cast<std::uint32_t>(executor_.wall_s() + seconds);
  }
  // As many pages that expire as others, in turn.
  void fill(std::uint64_t pages, std::uint32_t expires_s) {
    for (std::uint64_t n = 0; n < pages; ++n) {
      ASSERT_TRUE(put(n, 1, 400, {.expires_s = n % 2 == 0 ? expires_s : 0}).ok()) << n;
    }
  }
  // Pages that stay are overwritten in turn once the others have expired. Copied meanwhile: bytes.
  std::uint64_t copied_after_expiry(unsigned streams) {
    drop_pool();
    Shape shape = kShape;
    shape.streams = streams;
    make_log(shape, false);
    constexpr std::uint64_t kPages = 560;
    fill(kPages, in_s(10));
    EXPECT_EQ(log_->stats().relocated_bytes, 0u) << "it was full before anything expired";
    clock_.now_ns += 11'000'000'000;
    for (std::uint64_t n = 0; n < 500; ++n) EXPECT_TRUE(put(10'000 + n % 280, n, 400).ok()) << n;
    for (std::uint64_t n = 0; n < kPages; ++n) {
      n % 2 == 0 ? expect_absent(n) : expect_page(n, 1, 400);
    }
    return log_->stats().relocated_bytes;
  }
  // A write to the stream that the put goes to fails, so its zone is ended.
  void end_zone_of(const Put& how) {
    device_->fail(Io::Op::write, {Code::no_space, Origin::zone});
    ASSERT_EQ(put(20, 1, 400, how).code(), Code::no_space);
    run();
  }
  std::set<std::uint32_t> zones_of(std::uint8_t stream) const {
    std::set<std::uint32_t> zones;
    for (std::uint32_t i = 0; i < shape_.zones; ++i) {
      const ZoneAllocator::Zone& zone = pool_->allocator.zones()[i];
      if (zone.owner == kVolume && zone.stream == stream) zones.insert(i);
    }
    return zones;
  }
};

TEST_F(LifetimesTest, PagesThatExpireLieInZonesOfTheirOwn) {
  make_log(kShape, false);
  fill(300, in_s(100));
  std::set<std::uint32_t> expiring, others;
  for (std::uint64_t n = 0; n < 300; ++n) (n % 2 == 0 ? expiring : others).insert(zone_of(n).value);
  EXPECT_GT(expiring.size(), 1u);
  for (const std::uint32_t zone : expiring) {
    EXPECT_FALSE(others.contains(zone)) << "zone " << zone;
    EXPECT_EQ(pool_->allocator.zone(ZoneId{zone}).stream, kShortStream);
  }
  for (const std::uint32_t zone : others) {
    EXPECT_EQ(pool_->allocator.zone(ZoneId{zone}).stream, kUserStream);
  }
}

TEST_F(LifetimesTest, ZonesOfExpiredPagesCostNoCopies) {
  const std::uint64_t together = copied_after_expiry(2), apart = copied_after_expiry(3);
  std::printf("copied: %lu bytes, %lu where they lie apart\n", together, apart);
  EXPECT_GT(together, 20'000u);
  EXPECT_LT(apart * 4, together);
}

TEST_F(LifetimesTest, AFlushCoversBothStreams) {
  Shape shape = kShape;
  shape.faults = true;
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    drop_pool();
    make_log(shape, false);
    fill(40, in_s(1000));
    Flush& flush = start_flush();
    ASSERT_TRUE(run([&] { return flush.answers != 0; }));
    ASSERT_TRUE(flush.status.ok());
    ASSERT_TRUE(put(50, 1, 400, {.flushed = true, .expires_s = in_s(1000)}).ok());
    power_cut(model);
    for (std::uint64_t n = 0; n < 40; ++n) expect_page(n, 1, 400);
    expect_page(50, 1, 400);
  }
}

// The put draws its sequence before the deletion does, and is on the device after it could be.
TEST_F(LifetimesTest, AGroupsDeletionWaitsForWhatTheOtherStreamWasGiven) {
  make_log(kShape, false);
  ASSERT_TRUE(put(1, 1, 400, {.group = 9}).ok());
  ASSERT_TRUE(put(2, 1, 400, {.group = 9, .expires_s = in_s(1000)}).ok());
  device_->hold(Io::Op::write);
  Op& late = start_put(3, 1, 400, {.group = 9, .expires_s = in_s(1000)});
  run();
  ASSERT_EQ(device_->held(Io::Op::write), 1u);
  Group& removal = start_remove_group(9);
  run();
  if (device_->held(Io::Op::write) == 2) device_->let_one_go(Io::Op::write, 1);
  run();
  EXPECT_EQ(removal.answers, 0u) << "the page would be there, and gone after a restart";
  device_->let_go(Io::Op::write);
  ASSERT_TRUE(run([&] { return removal.answers != 0; }));
  EXPECT_TRUE(removal.status.ok());
  EXPECT_TRUE(finish(late).ok());
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t n = 1; n <= 3; ++n) expect_absent(n);
    EXPECT_EQ(log_->stats().pages, 0u);
    reopen(true);
  }
}

// A power cut that left the deletion, and not the page that has taken another one's place, would
// take both.
TEST_F(LifetimesTest, AGroupsDeletionIsNotDurableBeforeWhatTheOtherStreamWasGiven) {
  make_log(kShape, false);
  ASSERT_TRUE(put(1, 1, 400, {.flushed = true, .group = 9}).ok());
  ASSERT_TRUE(put(1, 2, 400, {.group = 8, .expires_s = in_s(1000)}).ok());
  device_->hold(Io::Op::flush);
  Group& removal = start_remove_group(9);
  run();
  EXPECT_EQ(removal.answers, 0u);
  const auto deletions = [this] {
    unsigned all = 0;
    for (const ZoneDirectory& table : pool_->tables) all += table.group_tombstones;
    return all;
  };
  EXPECT_EQ(deletions(), 0u) << "none is on its way";
  EXPECT_EQ(device_->held(Io::Op::flush), 1u);
  device_->let_go(Io::Op::flush);
  ASSERT_TRUE(run([&] { return removal.answers != 0; }));
  EXPECT_TRUE(removal.status.ok());
  EXPECT_EQ(deletions(), 1u);
  expect_page(1, 2, 400);
  // What is durable is waited for no longer.
  ASSERT_TRUE(put(2, 1, 400, {.group = 7}).ok());
  device_->forget_events();
  ASSERT_TRUE(remove_group(7).ok());
  EXPECT_EQ(device_->count(Io::Op::flush), 0u);
  // Nor is anything deleted where it cannot be made durable.
  ASSERT_TRUE(put(2, 1, 400, {.group = 7}).ok());
  ASSERT_TRUE(put(1, 3, 400, {.expires_s = in_s(1000)}).ok());
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone}, 1);
  EXPECT_EQ(remove_group(7).code(), Code::io_error);
  expect_page(2, 1, 400);
}

// There is no such page where each group has its own keys. What the user's stream has comes first
// all the same, where that has no zone for the deletion; and the deletion before what comes later,
// which the user's stream may have a zone for.
TEST_F(LifetimesTest, AGroupsDeletionWithKeysOfItsOwnWaitsForTheUsersStreamAlone) {
  make_log(kShape, false);
  const auto flushes_for = [this](std::uint64_t group) {
    device_->forget_events();
    Group& removal = start_remove_group(group, false, true);
    EXPECT_TRUE(run([&] { return removal.answers != 0; }));
    EXPECT_TRUE(removal.status.ok());
    return device_->count(Io::Op::flush);
  };
  for (std::uint64_t n = 1; n < 4; ++n) ASSERT_TRUE(put(n, 1, 400, {.group = n}).ok());
  ASSERT_TRUE(put(10, 1, 400, {.expires_s = in_s(1000)}).ok());
  EXPECT_EQ(flushes_for(1), 0u);
  expect_page(10, 1, 400);
  end_zone_of({});
  EXPECT_EQ(flushes_for(2), 2u);
  EXPECT_EQ(flushes_for(3), 1u);
  ASSERT_TRUE(put(4, 1, 400, {.group = 4}).ok());
  EXPECT_EQ(flushes_for(4), 0u);
}

// The user's zone is begun before the deletion is on the device; what is put there later may be
// kept by a power cut.
TEST_F(LifetimesTest, AGroupsDeletionWithKeysOfItsOwnIsNotLostWhereWhatComesLaterIsNot) {
  Shape shape = kShape;
  shape.faults = true;
  for (unsigned round = 0; round < 16; ++round) {
    drop_pool();
    make_log(shape, false);
    ASSERT_TRUE(put(1, 1, 400, {.flushed = true, .group = 1}).ok());
    ASSERT_TRUE(put(10, 1, 400, {.expires_s = in_s(1000)}).ok());
    end_zone_of({});
    device_->hold(Io::Op::flush);
    Group& removal = start_remove_group(1, false, true);
    run();
    ASSERT_EQ(device_->held(Io::Op::flush), 1u) << "of what comes first";
    Op& first = start_put(30, 1, 400);
    run();
    device_->let_one_go(Io::Op::flush, 0);
    run();
    ASSERT_EQ(device_->held(Io::Op::flush), 1u) << "of the header";
    device_->let_go(Io::Op::flush);
    EXPECT_TRUE(finish(first).ok());
    ASSERT_TRUE(run([&] { return removal.answers != 0; }));
    ASSERT_TRUE(removal.status.ok());
    ASSERT_EQ(pool_->allocator.zone(zone_of(30)).stream, kUserStream);
    // What is kept of a zone depends on how much there is.
    for (unsigned n = 0; n < round; ++n) ASSERT_TRUE(put(40 + n, 1, 400).ok());
    power_cut(round % 2 == 0 ? CrashModel::drive : CrashModel::emu);
    EXPECT_FALSE(get(1)) << round;
  }
}

// A lifetime gets no other zone for a deletion alone.
TEST_F(LifetimesTest, AGroupsDeletionGoesElsewhereWhereItsZoneHasEndedMeanwhile) {
  make_log(kShape, false);
  ASSERT_TRUE(put(1, 1, 400, {.group = 1}).ok());
  ASSERT_TRUE(put(10, 1, 400, {.expires_s = in_s(1000)}).ok());
  end_zone_of({});
  const std::set<std::uint32_t> before = zones_of(kShortStream);
  device_->hold(Io::Op::flush);
  Group& removal = start_remove_group(1, false, true);
  run();
  ASSERT_EQ(device_->held(Io::Op::flush), 1u);
  end_zone_of({.expires_s = in_s(1000)});
  device_->let_go(Io::Op::flush);
  ASSERT_TRUE(run([&] { return removal.answers != 0; }));
  EXPECT_TRUE(removal.status.ok()) << removal.status.describe();
  EXPECT_EQ(zones_of(kShortStream), before);
  expect_absent(1);
}

// A flush is answered when what either stream was given before it is on the device.
TEST_F(LifetimesTest, AFlushWaitsForBothStreams) {
  make_log(kShape, false);
  fill(4, in_s(1000));
  for (const std::uint32_t late : {in_s(1000), 0u}) {
    device_->hold(Io::Op::write);
    Op& first = start_put(10, 1, 400, {.expires_s = late});
    run();
    Flush& flush = start_flush();
    run();
    EXPECT_EQ(flush.answers, 0u) << late;
    device_->let_go(Io::Op::write);
    ASSERT_TRUE(run([&] { return flush.answers != 0; }));
    EXPECT_TRUE(finish(first).ok());
    EXPECT_TRUE(flush.status.ok());
  }
}

constexpr std::array kLifetimes = {Lifetime::medium_term, Lifetime::short_term, Lifetime::long_term,
                                   Lifetime::extreme};
constexpr std::array<std::uint8_t, 4> kStreamsOfLifetimes = {kUserStream, kShortStream, kLongStream,
                                                             kExtremeStream};

// Pages of each lifetime in turn.
class EachLifetimeTest : public LifetimesTest {
 protected:
  Shape with_streams(unsigned streams) const {
    Shape shape = kShape;
    shape.streams = streams;
    shape.open_zones = 6;
    return shape;
  }
  Put of(std::uint64_t number) const { return {.lifetime = kLifetimes[number % 4]}; }
  void fill_each(std::uint64_t pages) {
    for (std::uint64_t n = 0; n < pages; ++n) ASSERT_TRUE(put(n, 1, 400, of(n)).ok()) << n;
  }
  std::uint8_t stream_of(std::uint64_t number) {
    return pool_->allocator.zone(zone_of(number)).stream;
  }
};

TEST_F(EachLifetimeTest, HasZonesOfItsOwn) {
  make_log(with_streams(5), false);
  fill_each(300);
  for (std::uint64_t n = 0; n < 300; ++n) {
    ASSERT_EQ(stream_of(n), kStreamsOfLifetimes[n % 4]) << n;
  }
  ASSERT_TRUE(put(2, 2, 400, {.expires_s = in_s(1000), .lifetime = Lifetime::long_term}).ok());
  EXPECT_EQ(stream_of(2), kShortStream) << "it expires, whatever was said";
}

TEST_F(EachLifetimeTest, GoesWithAnotherWhereItHasNone) {
  constexpr std::array<std::array<std::uint8_t, 4>, 4> kByStreams = {{
      {kUserStream, kUserStream, kUserStream, kUserStream},
      {kUserStream, kUserStream, kUserStream, kUserStream},
      {kUserStream, kShortStream, kUserStream, kUserStream},
      {kUserStream, kShortStream, kLongStream, kLongStream},
  }};
  for (unsigned streams = 1; streams <= 4; ++streams) {
    SCOPED_TRACE(streams);
    drop_pool();
    make_log(with_streams(streams), false);
    fill_each(8);
    for (std::uint64_t n = 0; n < 8; ++n) {
      EXPECT_EQ(stream_of(n), kByStreams[streams - 1][n % 4]) << n;
    }
  }
}

// So nothing is kept for lifetimes that no page has.
TEST_F(EachLifetimeTest, GetsAStreamWithItsFirstPage) {
  std::vector<std::pair<unsigned, bool>> asked;
  options_.grant_stream = [&](std::uint8_t stream, bool room) {
    asked.emplace_back(stream, room);
    return room && stream != kExtremeStream;
  };
  make_log(with_streams(2), false);
  const std::uint64_t usable = log_->stats().usable_bytes;
  ASSERT_TRUE(put(0, 1, 400, of(0)).ok());
  EXPECT_TRUE(asked.empty());
  EXPECT_EQ(log_->stats().usable_bytes, usable);
  ASSERT_TRUE(put(1, 1, 400, of(1)).ok());
  const std::uint64_t a_zone = usable - log_->stats().usable_bytes;
  EXPECT_GT(a_zone, pool_->geometry.zone_capacity_bytes() / 3);
  EXPECT_LE(a_zone, pool_->geometry.zone_capacity_bytes());
  fill_each(40);
  EXPECT_NEAR(static_cast<double>(usable - log_->stats().usable_bytes),
              2 * static_cast<double>(a_zone), 200);
  EXPECT_EQ(std::ranges::count(asked, std::pair(unsigned{kShortStream}, true)), 1);
  EXPECT_EQ(std::ranges::count(asked, std::pair(unsigned{kLongStream}, true)), 1);
  EXPECT_GT(std::ranges::count(asked, std::pair(unsigned{kExtremeStream}, true)), 5);
  for (std::uint64_t n = 4; n < 40; ++n) {
    EXPECT_EQ(stream_of(n), n % 4 == 3 ? kLongStream : kStreamsOfLifetimes[n % 4]) << n;
  }
}

TEST_F(EachLifetimeTest, GetsNoneInAStoreThatIsNearlyFull) {
  bool room_at_last = true;
  options_.grant_stream = [&](std::uint8_t, bool room) { return room_at_last = room; };
  make_log(with_streams(2), false);
  const std::uint64_t usable = log_->stats().usable_bytes;
  std::uint64_t n = 0;
  for (; log_->stats().cost_bytes < usable / 5 * 4; ++n) ASSERT_TRUE(put(n, 1, 400).ok()) << n;
  ASSERT_TRUE(put(n, 1, 400, {.lifetime = Lifetime::long_term}).ok());
  EXPECT_FALSE(room_at_last);
  EXPECT_EQ(stream_of(n), kUserStream);
  EXPECT_EQ(log_->stats().usable_bytes, usable);
}

// What lifetimes have kept apart goes together before a page is refused for it, and apart again
// when there is room.
TEST_F(EachLifetimeTest, TakesNoRoomInAStoreThatIsFull) {
  const auto fill_up = [this](unsigned streams) {
    drop_pool();
    make_log(with_streams(streams), false);
    std::uint64_t pages = 0;
    while (put(pages, 1, 400, of(pages)).ok()) ++pages;
    return pages;
  };
  const std::uint64_t together = fill_up(2), apart = fill_up(5);
  EXPECT_NEAR(static_cast<double>(apart), static_cast<double>(together), 4);
  for (std::uint64_t n = 0; n < apart; ++n) expect_page(n, 1, 400);
  // As long as it is full, overwrites go on, and collection with them.
  for (std::uint64_t n = 0; n < 2 * apart; ++n) {
    ASSERT_TRUE(put(n * 7 % apart, 2, 400, of(n)).ok()) << n;
  }
  for (std::uint64_t n = 0; n < apart; ++n) {
    ASSERT_TRUE(n % 10 == 0 || remove(n).ok());
  }
  for (std::uint64_t n = apart; n < apart + 40; ++n) {
    ASSERT_TRUE(put(n, 1, 400, of(n)).ok());
    EXPECT_EQ(stream_of(n), kStreamsOfLifetimes[n % 4]) << n;
  }
  reopen(true);
  for (std::uint64_t n = 0; n < apart; n += 10) expect_page(n, 2, 400);
  for (std::uint64_t n = apart; n < apart + 40; ++n) expect_page(n, 1, 400);
}

// What is said to be usable is what it is with as many streams as may have a zone.
TEST_F(EachLifetimeTest, WhatItTakesIsNotSaidToBeUsable) {
  make_log(with_streams(3), false);
  ASSERT_TRUE(put(0, 1, 400, of(1)).ok());
  end_zone_of(of(1));
  const std::uint64_t apart = log_->stats().usable_bytes;
  ASSERT_EQ(log_->users_streams(), 2u);
  for (std::uint64_t n = 1; log_->users_streams() == 2; ++n) {
    ASSERT_EQ(log_->stats().usable_bytes, apart);
    ASSERT_TRUE(put(n, 1, 400).ok());
  }
  EXPECT_GT(log_->stats().usable_bytes, apart);
}

// .. or will be, once its quota is smaller.
TEST_F(EachLifetimeTest, GetsNoneInAStoreThatShrinks) {
  std::vector<bool> rooms;
  options_.grant_stream = [&](std::uint8_t, bool room) {
    rooms.push_back(room);
    return false;
  };
  make_log(with_streams(2), false);
  const std::uint64_t usable = log_->stats().usable_bytes;
  std::uint64_t n = 0;
  for (; log_->stats().cost_bytes < usable / 2; ++n) ASSERT_TRUE(put(n, 1, 400).ok()) << n;
  ASSERT_TRUE(put(++n, 1, 400, {.lifetime = Lifetime::long_term}).ok());
  log_->shrink(log_->quota_min());
  ASSERT_TRUE(log_->shrinking());
  ASSERT_TRUE(put(++n, 1, 400, {.lifetime = Lifetime::long_term}).ok());
  EXPECT_EQ(rooms, (std::vector<bool>{true, false}));
}

// What any stream was given before it is on the device when a flush is answered, or a group
// deleted.
TEST_F(EachLifetimeTest, IsWaitedForByFlushesAndDeletionsOfGroups) {
  make_log(with_streams(5), false);
  fill_each(8);
  for (const Lifetime late : kLifetimes) {
    for (const bool flushes : {true, false}) {
      SCOPED_TRACE(static_cast<int>(late) * 2 + flushes);
      clock_.now_ns += 20'000'000;  // so that all notes are written
      run();
      device_->hold(Io::Op::write);
      Op& put_late = start_put(10, 1, 400, {.group = 9, .lifetime = late});
      run();
      ASSERT_EQ(device_->held(Io::Op::write), 1u);
      Flush* const flush = flushes ? &start_flush() : nullptr;
      Group* const removal = flushes ? nullptr : &start_remove_group(9);
      run();
      // The deletion's own write may be another one's neighbour.
      if (device_->held(Io::Op::write) == 2) device_->let_one_go(Io::Op::write, 1);
      run();
      EXPECT_EQ(flushes ? flush->answers : removal->answers, 0u);
      device_->let_go(Io::Op::write);
      ASSERT_TRUE(run([&] { return (flushes ? flush->answers : removal->answers) != 0; }));
      EXPECT_TRUE((flushes ? flush->status : removal->status).ok());
      EXPECT_TRUE(finish(put_late).ok());
    }
    expect_absent(10);
  }
  reopen(true);
  expect_absent(10);
  for (std::uint64_t n = 0; n < 8; ++n) expect_page(n, 1, 400);
}

// Overwrites of all lifetimes, until each zone has been collected more than once; then the power is
// cut.
TEST_F(EachLifetimeTest, SurvivesCollectionAndAPowerCut) {
  Shape shape = with_streams(5);
  shape.faults = true;
  make_log(shape, false);
  constexpr std::uint64_t kPages = 400;
  for (std::uint64_t version = 1; version <= 6; ++version) {
    for (std::uint64_t n = 0; n < kPages; ++n) {
      const std::uint64_t number = n * 7 % kPages;
      ASSERT_TRUE(put(number, version, 400, of(number + version / 3)).ok()) << number;
    }
  }
  EXPECT_GT(log_->stats().zones_reset, shape.zones);
  Flush& flush = start_flush();
  ASSERT_TRUE(run([&] { return flush.answers != 0; }));
  power_cut(CrashModel::drive);
  for (std::uint64_t n = 0; n < kPages; ++n) expect_page(n, 6, 400);
}

// With as many zones as its quota lets users take, all of them of pages that expire, and none being
// set free.
class NoUserZoneTest : public LifetimesTest {
 protected:
  static constexpr std::uint64_t kKeys = 59;

  void SetUp() override {
    make_log({.streams = 3}, false);
    device_->hold(Io::Op::reset);
    for (std::uint64_t n = 0; pool_->allocator.held(kVolume) < shape_.quota - 1; ++n) {
      // Some are stored once, so that every zone has something to copy.
      const std::uint64_t key = n % 3 == 1 ? 1000 + n : n % kKeys;
      ASSERT_TRUE(put(key, 1, 400, {.group = 1 + key % 2, .expires_s = in_s(1000)}).ok());
    }
    run();
    for (std::uint32_t i = 0; i < shape_.zones; ++i) {
      const ZoneAllocator::Zone& zone = pool_->allocator.zones()[i];
      ASSERT_FALSE(zone.owner == kVolume && zone.stream == kUserStream) << "it has a zone";
    }
  }
};

// Deletes, of keys and of groups, go where there is room.
TEST_F(NoUserZoneTest, DeletesTakeTheStreamThatHasOne) {
  Op& gone = start(KeyOp::Kind::remove, 0);
  Group& removal = start_remove_group(2);
  run();
  ASSERT_EQ(gone.answers, 1u) << "it waits for a zone";
  EXPECT_TRUE(gone.status.ok());
  ASSERT_EQ(removal.answers, 1u) << "it waits for a zone";
  EXPECT_TRUE(removal.status.ok()) << removal.status.describe();
  device_->let_go(Io::Op::reset);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t n = 0; n < kKeys; ++n) {
      n == 0 || n % 2 == 1 ? expect_absent(n) : expect_page(n, 1, 400);
    }
    reopen(true);
  }
}

// What is left of the zones is kept for copies then.
TEST_F(NoUserZoneTest, NothingIsNotedAtTheQuota) {
  const auto noted = [this](std::uint64_t number) {
    EXPECT_TRUE(put(number, 1, 400, {.flushed = true, .expires_s = in_s(1000)}).ok());
    clock_.now_ns += 20'000'000;
    run();
    return batches(zone_of(number)).back().header.record_count == 0;
  };
  ASSERT_EQ(pool_->allocator.held(kVolume), shape_.quota);
  for (std::uint64_t n = 500; n < 505; ++n) EXPECT_FALSE(noted(n)) << n;
  device_->let_go(Io::Op::reset);
  run();
  ASSERT_LT(pool_->allocator.held(kVolume), shape_.quota);
  bool any = false;
  for (std::uint64_t n = 510; n < 520; ++n) any |= noted(n);
  EXPECT_TRUE(any);
}

// And wait for what the other stream was given before.
TEST_F(NoUserZoneTest, AGroupsDeletionWaitsForWhatTheUsersStreamWasGiven) {
  Op& waits = start_put(500, 1, 400, {.group = 2});  // for a zone
  run();
  ASSERT_EQ(waits.answers, 0u);
  Group& removal = start_remove_group(2);
  run();
  EXPECT_EQ(removal.answers, 0u) << "the page would be there, and gone after a restart";
  device_->let_go(Io::Op::reset);
  ASSERT_TRUE(run([&] { return removal.answers != 0; }));
  EXPECT_TRUE(removal.status.ok());
  EXPECT_TRUE(finish(waits).ok());
  for (int round = 0; round < 2; ++round) {
    expect_absent(500);
    for (std::uint64_t n = 0; n < kKeys; ++n) {
      n % 2 == 1 ? expect_absent(n) : expect_page(n, 1, 400);
    }
    reopen(true);
  }
}

TEST_F(LifetimesTest, GoesOnInBothZonesOrWithoutTheOneThatItHasNotGot) {
  make_log(kShape, false);
  fill(20, in_s(1000));
  const ZoneId expiring = zone_of(0), other = zone_of(1);
  reopen(true);
  ASSERT_TRUE(put(20, 1, 400, {.expires_s = in_s(1000)}).ok());
  ASSERT_TRUE(put(21, 1, 400).ok());
  EXPECT_EQ(zone_of(20), expiring);
  EXPECT_EQ(zone_of(21), other);
  options_.streams.reset(kShortStream);
  reopen(true);
  EXPECT_EQ(pool_->allocator.zone(expiring).use, ZoneUse::sealed);
  ASSERT_TRUE(put(22, 1, 400, {.expires_s = in_s(1000)}).ok());
  EXPECT_EQ(zone_of(22), other);
  for (std::uint64_t n = 0; n < 23; ++n) expect_page(n, 1, 400);
}

}  // namespace
}  // namespace furrow
