// Establishes that tombstones do not fill a store for the sake of a zone that is seldom written to:
// the oldest zone is ended and collected where there are many, and is not where there are few; that
// what was in it is there, and what was deleted is not, after power cuts at each turn of that; and
// that a zone whose tombstones nobody needs goes without copies. How: pages put and deleted again
// and again in stores of a few small zones.
#include <cstdio>

#include "tests/log/collector_rig.h"

namespace furrow {
namespace {

class TombstonesTest : public CollectorTest {
 protected:
  static constexpr std::uint64_t kSeldom = 1;  // the page that expires, in a zone of its own

  // Three streams: users', collection's, and one for what expires.
  void make_store(std::uint64_t quota, unsigned streams, bool faults = false) {
    Shape shape;
    shape.quota = quota;
    shape.streams = streams;
    shape.faults = faults;
    remake(shape, kStore);
  }
  void put_seldom() {
    const auto late = static_cast<std::uint32_t>(executor_.wall_s() + 100'000);
    ASSERT_TRUE(put(kSeldom, 1, 100, {.flushed = true, .expires_s = late}).ok());
    seldom_ = zone_of(kSeldom);
    ASSERT_EQ(pool_->allocator.zone(seldom_).stream, kShortStream);
  }
  // Another key each time: none of the tombstones says what another one says.
  Status put_and_remove() {
    const std::uint64_t number = next_++;
    const Status stored = put(number, 0, 100);
    return stored.ok() ? remove(number) : stored;
  }
  std::uint64_t tombstones() const {
    std::uint64_t sum = 0;
    for (const ZoneDirectory& table : pool_->tables) sum += table.tombstones;
    return sum;
  }

  ZoneId seldom_;
};

TEST_F(TombstonesTest, DoNotStayForAZoneThatIsSeldomWritten) {
  make_store(6, 3);
  put_seldom();
  std::uint64_t most = 0;
  for (unsigned i = 0; i < 4000; ++i) {
    const Status status = put_and_remove();
    ASSERT_TRUE(status.ok()) << i << ": " << status.describe();
    most = std::max(most, tombstones());
  }
  run();
  std::printf("at most %lu tombstones, %lu zones reset\n", most, resets().size());
  EXPECT_LT(most, 620u) << "three times what is called many";
  EXPECT_TRUE(is_reset(seldom_));
  expect_page(kSeldom, 1, 100);
  reopen();
  EXPECT_EQ(log_->stats().pages, 1u);
  expect_page(kSeldom, 1, 100);
}

// One zone is collection's, one is kept for it: the others are in use all the time.
TEST_F(TombstonesTest, DoNotFillTheSmallestStore) {
  for (const unsigned streams : {1u, 2u}) {
    make_store(3, streams);
    for (unsigned i = 0; i < 3000; ++i) {
      const Status status = put_and_remove();
      ASSERT_TRUE(status.ok()) << i << ": " << status.describe();
    }
    // Emptied at once, with nothing between the deletes that would have made room.
    std::vector<std::uint64_t> numbers;
    for (Status status; status.ok();) {
      numbers.push_back(next_++);
      status = put(numbers.back(), 0, 100);
    }
    numbers.pop_back();
    for (const std::uint64_t number : numbers) ASSERT_TRUE(remove(number).ok()) << number;
    run();
    const Status status = put(next_++, 0, 100);
    EXPECT_TRUE(status.ok()) << status.describe();
  }
}

// Whenever the power goes, at each step of a zone's end.
TEST_F(TombstonesTest, PowerCutsWhileTheOldestZoneIsEnded) {
  for (unsigned cut_after = 0; cut_after < 60; ++cut_after) {
    SCOPED_TRACE(cut_after);
    make_store(5, 3, true);
    put_seldom();
    std::uint64_t first = next_;
    while (device_->count(Io::Op::finish) == 0) {
      ASSERT_LT(next_, first + 2000);
      ASSERT_TRUE(put_and_remove().ok());
    }
    ASSERT_TRUE(put(2, 2, 100, {.flushed = true}).ok());
    Op& removal = prepare(KeyOp::Kind::remove, 2);
    removal.flushed = true;
    log_->submit(removal);
    for (unsigned turn = 0; turn < cut_after; ++turn) executor_.run_once();
    const bool removed = removal.answers != 0;
    power_cut(cut_after % 2 == 0 ? CrashModel::drive : CrashModel::emu);
    expect_page(kSeldom, 1, 100);
    if (removed) expect_absent(2);
    run();
    if (removed) expect_absent(2);
    expect_page(kSeldom, 1, 100);
    for (unsigned i = 0; i < 300; ++i) ASSERT_TRUE(put_and_remove().ok());
    expect_page(kSeldom, 1, 100);
    next_ = first;
  }
}

// Copies of tombstones that are older than any other zone are of no use to anybody: their zone goes
// before one that has a page.
// Nobody can tell whose it is, nor what it holds, until it is readable at another opening.
TEST_F(TombstonesTest, StayForAZoneThatCannotBeReadNow) {
  make_store(7, 2, true);
  ASSERT_TRUE(put(1, 1, 4000, {.group = 5}).ok());
  ASSERT_TRUE(put(2, 1, 4000).ok());
  const ZoneId hidden = zone_of(1);
  ASSERT_EQ(zone_of(2), hidden);
  std::uint64_t number = 3;
  do {
    ASSERT_TRUE(put(number, 1, 4000).ok());
  } while (zone_of(number++) == hidden);
  faults_->fail_reads(Lba{pool_->device_lba(hidden, 0)}, shape_.zone_capacity_lbas);
  reopen(true);
  expect_absent(1);
  EXPECT_EQ(remove(2).code(), Code::not_found);
  ASSERT_TRUE(remove_group(5).ok());
  for (unsigned i = 0; i < 400; ++i) {
    const Status status = put_and_remove();
    ASSERT_TRUE(status.ok()) << i << ": " << status.describe();
  }
  run();
  EXPECT_GT(resets().size(), 3u);
  faults_->heal();
  reopen(true);
  expect_absent(1);
  expect_absent(2);
}

TEST_F(TombstonesTest, AGroupsStaysForAZoneThatCannotBeReadNow) {
  make_store(7, 2, true);
  ASSERT_TRUE(put(1, 1, 4000, {.group = 5}).ok());
  const ZoneId hidden = zone_of(1);
  std::uint64_t number = 2;
  do {
    ASSERT_TRUE(put(number, 1, 4000).ok());
  } while (zone_of(number++) == hidden);
  faults_->fail_reads(Lba{pool_->device_lba(hidden, 0)}, shape_.zone_capacity_lbas);
  reopen(true);
  ASSERT_TRUE(remove_group(5).ok());
  std::uint32_t zone = 0;
  while (pool_->tables[zone].group_tombstones == 0) ++zone;
  const ZoneId deletion{zone};
  while (pool_->allocator.zone(deletion).use == ZoneUse::open) {
    ASSERT_TRUE(put(number++, 1, 4000).ok());
  }
  log_->collect(deletion);
  ASSERT_TRUE(run([&] { return is_reset(deletion); }));
  run();
  faults_->heal();
  reopen(true);
  expect_absent(1);
}

TEST_F(TombstonesTest, ThatNobodyNeedsCostNothing) {
  make_store(6, 2);
  while (pool_->allocator.held(kVolume) < 2) ASSERT_TRUE(put_and_remove().ok());
  const ZoneId first = oldest();
  fill(3);
  const ZoneId second = zone_of(filler_[5]);
  ASSERT_NE(first, second);
  for (const std::uint64_t number : filler_) {
    if (number == filler_[5] || zone_of(number) != second) continue;
    ASSERT_TRUE(remove(number).ok());
  }
  ASSERT_GT(pool_->tables[first.value].tombstones, 20u);
  ASSERT_EQ(pool_->allocator.zone(second).live_lbas, 1u);
  overwrite(50'000, 5, 400, [&] { return !resets().empty(); });
  EXPECT_EQ(resets()[0], first);
}

TEST_F(TombstonesTest, AFewEndNoZone) {
  make_store(6, 3);
  put_seldom();
  for (unsigned i = 0; i < 150; ++i) ASSERT_TRUE(put_and_remove().ok());
  run();
  EXPECT_EQ(device_->count(Io::Op::finish), 0u);
  EXPECT_EQ(pool_->allocator.zone(seldom_).use, ZoneUse::open);
}

}  // namespace
}  // namespace furrow
