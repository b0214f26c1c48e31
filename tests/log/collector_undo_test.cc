// Establishes that a store whose last zone fails while copies are written to it goes on without
// being opened again: the copies count no more, their originals do, and the zone is free. At
// whichever write it fails nothing is lost, now or at the next opening.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class CollectorUndoTest : public PageLogRig {
 protected:
  static Shape four_zones() {
    Shape shape;
    shape.quota = 4;
    shape.zone_size_lbas = 256;
    shape.zone_capacity_lbas = 240;
    shape.segment_lbas = 80;
    return shape;
  }
  // Stores pages until no more fit, and deletes two of three: the next ones fill a zone and more.
  // `grouped`: each has a group of its own, its number.
  void fill(const Shape& shape, bool grouped = false) {
    remake(shape, false);
    versions_.assign(1, 0);
    const auto next = [&] { return versions_.size(); };
    while (put(next(), 1, kBytes, {.group = grouped ? next() : 0}).ok()) versions_.push_back(1);
    for (std::size_t number = 1; number < versions_.size(); ++number) {
      if (number % 3 == 0) continue;
      ASSERT_TRUE(remove(number).ok());
      versions_[number] = 0;
    }
  }
  // A put that waits for a zone, while nothing of the one that is to be freed has been copied yet.
  Op& put_until_one_waits() {
    device_->hold(Io::Op::read);
    for (;;) {
      Op& op = start_put(versions_.size(), 1, kBytes);
      versions_.push_back(1);
      run();
      if (op.answers == 0 || !op.status.ok()) return op;
    }
  }
  // The LBAs, by number, of the pages below `end` that are stored.
  std::map<std::uint64_t, std::uint64_t> places(std::size_t end) {
    std::map<std::uint64_t, std::uint64_t> lbas;
    for (std::size_t number = 1; number < end; ++number) {
      if (versions_[number] != 0) lbas[number] = entry(number).lba;
    }
    return lbas;
  }
  // Collection goes on until so many of these have been copied: which.
  std::vector<std::uint64_t> copy_some(const std::map<std::uint64_t, std::uint64_t>& originals,
                                       std::size_t count) {
    device_->let_go(Io::Op::read);
    std::vector<std::uint64_t> copied;
    EXPECT_TRUE(run([&] {
      copied.clear();
      for (const auto& [number, lba] : originals) {
        if (entry(number).lba != lba) copied.push_back(number);
      }
      return copied.size() >= count;
    }));
    return copied;
  }
  void expect_all() {
    for (std::size_t number = 1; number < versions_.size(); ++number) {
      if (versions_[number] == 0) {
        expect_absent(number);
      } else {
        expect_page(number, versions_[number], kBytes);
      }
    }
  }

  static constexpr std::uint32_t kBytes = 400;
  std::vector<std::uint64_t> versions_;  // by number; 0: deleted
};

TEST_F(CollectorUndoTest, TheLastZoneFailsAtAnyWrite) {
  for (const unsigned streams : {1u, 2u}) {
    for (unsigned writes = 0; writes < 6; ++writes) {
      SCOPED_TRACE(testing::Message() << streams << " streams, fails after " << writes);
      Shape shape = four_zones();
      shape.streams = streams;
      ASSERT_NO_FATAL_FAILURE(fill(shape));
      Op& waiting = put_until_one_waits();
      ASSERT_EQ(waiting.answers, 0u) << waiting.status.describe();
      const std::size_t before = device_->count(Io::Op::write);
      device_->let_go(Io::Op::read);
      ASSERT_TRUE(run([&] { return device_->count(Io::Op::write) >= before + writes; }));
      device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
      EXPECT_TRUE(finish(waiting).ok()) << waiting.status.describe();
      expect_all();
      for (std::size_t number = 2; number < versions_.size(); number += 4) {
        if (versions_[number] == 0) continue;
        EXPECT_TRUE(remove(number).ok());
        versions_[number] = 0;
      }
      reopen();
      expect_all();
    }
  }
}

// Meanwhile an original rots: its copy is what is left, so the failed zone stays, and says so; what
// the others have is served, from whichever place.
TEST_F(CollectorUndoTest, AnOriginalThatHasRottedSinceLeavesTheCopy) {
  Shape shape = four_zones();
  shape.streams = 1;
  ASSERT_NO_FATAL_FAILURE(fill(shape));
  Op& waiting = put_until_one_waits();
  ASSERT_EQ(waiting.answers, 0u) << waiting.status.describe();
  auto originals = places(versions_.size() - 1);
  const std::vector<std::uint64_t> some = copy_some(originals, 1);
  ASSERT_FALSE(some.empty());
  const std::uint64_t copied = some.back();
  const std::uint64_t copy = entry(copied).lba;
  const Lba original{originals[copied]};
  flip_bit(*device_, pool_->geometry.zone_of(original), pool_->relative_lba(original.value));
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  EXPECT_EQ(finish(waiting).code(), Code::no_space);
  versions_.back() = 0;
  for (unsigned round = 0; round < 3; ++round) {  // it is tried again later, to the same end
    clock_.now_ns += 20'000'000'000;
    EXPECT_EQ(remove(copied).code(), Code::no_space);
    EXPECT_EQ(entry(copied).lba, copy);
    expect_all();
  }
  EXPECT_EQ(log_->stats().corrupt_pages, 0u);
  reopen();
  expect_all();
}

// One that cannot be read just now keeps the failed zone until it can be.
TEST_F(CollectorUndoTest, AnOriginalThatCannotBeReadIsTriedAgain) {
  Shape shape = four_zones();
  shape.streams = 1;
  shape.faults = true;
  ASSERT_NO_FATAL_FAILURE(fill(shape));
  Op& waiting = put_until_one_waits();
  ASSERT_EQ(waiting.answers, 0u) << waiting.status.describe();
  auto originals = places(versions_.size() - 1);
  const std::vector<std::uint64_t> some = copy_some(originals, 1);
  ASSERT_FALSE(some.empty());
  const std::uint64_t copied = some.back();
  faults_->fail_reads(Lba{originals[copied]}, 1);
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  EXPECT_EQ(finish(waiting).code(), Code::no_space);
  versions_.back() = 0;
  clock_.now_ns += 20'000'000'000;
  EXPECT_EQ(remove(copied).code(), Code::no_space);
  expect_all();
  faults_->heal();
  clock_.now_ns += 20'000'000'000;
  const Status removed = remove(copied);
  EXPECT_TRUE(removed.ok()) << removed.describe();
  versions_[copied] = 0;
  for (int round = 0; round < 2; ++round) {
    expect_all();
    reopen();
  }
}

// One that had rotted before loses nothing by it: its copy is as damaged.
TEST_F(CollectorUndoTest, AnOriginalThatHadRottedBeforeDoesNotKeepTheCopy) {
  Shape shape = four_zones();
  shape.streams = 1;
  ASSERT_NO_FATAL_FAILURE(fill(shape));
  auto originals = places(versions_.size());
  for (const auto& [number, lba] : originals) {
    if (number % 6 != 0) continue;
    flip_bit(*device_, pool_->geometry.zone_of(Lba{lba}), pool_->relative_lba(lba));
  }
  Op& waiting = put_until_one_waits();
  ASSERT_EQ(waiting.answers, 0u) << waiting.status.describe();
  device_->let_go(Io::Op::read);
  const auto copied = [&](std::uint64_t number) { return entry(number).lba != originals[number]; };
  ASSERT_TRUE(run([&] {
    return std::ranges::any_of(originals, [&](const auto& each) { return copied(each.first); });
  }));
  const bool damaged_too = std::ranges::any_of(
      originals, [&](const auto& each) { return each.first % 6 == 0 && copied(each.first); });
  ASSERT_TRUE(damaged_too);
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  EXPECT_TRUE(finish(waiting).ok()) << waiting.status.describe();
  for (int round = 0; round < 2; ++round) {
    for (const auto& [number, lba] : originals) {
      EXPECT_EQ(exist(number), Code::ok);
      if (number % 6 == 0) {
        EXPECT_FALSE(get(number));
      } else {
        expect_page(number, 1, kBytes);
      }
    }
    reopen();
  }
}

// A group's deletion passes by the locks of keys: what it takes away while the original is being
// read stays away, be it that it has looked for it at the original's place before.
TEST_F(CollectorUndoTest, AGroupThatIsDeletedMeanwhileStaysSo) {
  for (const bool restored_first : {false, true}) {
    SCOPED_TRACE(restored_first);
    Shape shape = four_zones();
    remake(shape, false);
    // Each page has a group of its own. Nothing is collected before the third zone is opened.
    std::uint64_t last = 0;
    const auto put_next = [&] {
      ++last;
      return put(last, 1, kBytes, {.group = last});
    };
    const auto room = [&] {
      return pool_->geometry.zone_capacity_lbas - log_->written_lba(zone_of(last));
    };
    do {
      ASSERT_TRUE(put_next().ok());
      const bool stays = last % 3 == 0 || remove(last).ok();
      ASSERT_TRUE(stays);
    } while (last % 3 != 0 || pool_->allocator.held(kVolume) < 2 || room() > 30);
    const std::uint64_t removed_to = last;
    device_->hold(Io::Op::read);
    while (device_->held(Io::Op::read) == 0) ASSERT_TRUE(put_next().ok());
    std::map<std::uint64_t, std::uint64_t> originals;
    for (std::uint64_t number = 3; number < last; number += 3)
      originals[number] = entry(number).lba;
    const auto originals_read = [&](std::uint64_t lba) {
      return std::ranges::count_if(device_->events(true), [&](const TapDevice::Event& each) {
        const bool its =
            each.zone == pool_->geometry.zone_of(Lba{lba}) && each.lba == pool_->relative_lba(lba);
        return each.op == Io::Op::read && !each.answered && its;
      });
    };
    const auto copied = [&]() -> std::uint64_t {
      for (const auto& [number, lba] : originals) {
        if (entry(number).lba != lba) return number;
      }
      return 0;
    };
    device_->set_short_of_room(true);  // so that collection makes haste
    while (copied() == 0) {
      ASSERT_NE(device_->held(Io::Op::read), 0u);
      device_->let_one_go(Io::Op::read, 0);
      run();
    }
    device_->set_short_of_room(false);
    ASSERT_EQ(device_->held(Io::Op::read), 1u) << "of collection, which goes on";
    const std::uint64_t deleted = copied();
    Group& group = start_remove_group(deleted);
    run();
    ASSERT_EQ(device_->held(Io::Op::read), 3u) << "headers of the original and of the copy";
    Op* waiting = nullptr;
    do {
      waiting = &start_put(++last, 1, kBytes);
      run();
    } while (waiting->answers != 0 && waiting->status.ok());
    ASSERT_EQ(waiting->answers, 0u) << waiting->status.describe();
    device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
    device_->let_one_go(Io::Op::read, 0);
    run();
    while (originals_read(originals[deleted]) < 2) {
      ASSERT_GT(device_->held(Io::Op::read), 2u);
      device_->let_one_go(Io::Op::read, 2);
      run();
    }
    EXPECT_NE(entry(deleted).lba, originals[deleted]);
    device_->let_one_go(Io::Op::read, 0);
    run();
    for (std::size_t left = device_->held(Io::Op::read); restored_first && left > 1; --left) {
      device_->let_one_go(Io::Op::read, 1);
      run();
    }
    ASSERT_EQ(group.answers, 0u);
    device_->let_one_go(Io::Op::read, 0);
    run();
    ASSERT_EQ(group.answers, 1u);
    EXPECT_TRUE(group.status.ok()) << group.status.describe();
    device_->let_go(Io::Op::read);
    EXPECT_TRUE(finish(*waiting).ok()) << waiting->status.describe();
    for (int round = 0; round < 2; ++round) {
      for (std::uint64_t number = 1; number <= last; ++number) {
        const bool there = number % 3 == 0 || number > removed_to;
        if (number == deleted || !there) {
          expect_absent(number);
        } else {
          expect_page(number, 1, kBytes);
        }
      }
      reopen();
    }
  }
}

// One that waits for room is not done yet. Where it is refused in the end, its page is there.
TEST_F(CollectorUndoTest, AGroupWhoseDeletionIsRefusedStays) {
  Shape shape = four_zones();
  shape.streams = 1;
  shape.faults = true;
  ASSERT_NO_FATAL_FAILURE(fill(shape, true));
  Op& waiting = put_until_one_waits();
  ASSERT_EQ(waiting.answers, 0u) << waiting.status.describe();
  auto originals = places(versions_.size() - 1);
  const std::vector<std::uint64_t> copied = copy_some(originals, 2);
  ASSERT_GE(copied.size(), 2u);
  Group& group = start_remove_group(copied.front());
  faults_->fail_reads(Lba{originals[copied.back()]}, 1);  // so that nothing is set free
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  EXPECT_EQ(finish(waiting).code(), Code::no_space);
  versions_.back() = 0;
  run();
  ASSERT_EQ(group.answers, 1u);
  EXPECT_EQ(group.status.code(), Code::no_space) << group.status.describe();
  EXPECT_EQ(entry(copied.front()).lba, originals[copied.front()]);
  faults_->heal();
  expect_all();
  reopen();
  expect_all();
}

// .. and that zone cannot be reset either, for good: with no zone to write to, the store is read
// alone, until its quota is larger.
TEST_F(CollectorUndoTest, ALostLastZoneTakesALargerQuota) {
  for (const bool opened_again : {false, true}) {
    SCOPED_TRACE(opened_again);
    Shape shape = four_zones();
    shape.streams = 1;
    ASSERT_NO_FATAL_FAILURE(fill(shape));
    Op& waiting = put_until_one_waits();
    ASSERT_EQ(waiting.answers, 0u) << waiting.status.describe();
    const std::size_t before = device_->count(Io::Op::write);
    device_->let_go(Io::Op::read);
    ASSERT_TRUE(run([&] { return device_->count(Io::Op::write) >= before + 3; }));
    device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
    device_->fail(Io::Op::reset, {Code::zone_state, Origin::zone});
    EXPECT_EQ(finish(waiting).code(), Code::no_space);
    versions_.back() = 0;
    for (unsigned round = 0; round < 3; ++round) {
      clock_.now_ns += 20'000'000'000;
      EXPECT_EQ(put(versions_.size(), 1, kBytes).code(), Code::no_space);
      EXPECT_EQ(remove(3).code(), Code::no_space);
      expect_all();
    }
    ASSERT_EQ(pool_->allocator.bad(kVolume), 1u);
    pool_->allocator.set_quota(kVolume, shape.quota + 1);
    log_->resized();
    shape_.quota = shape.quota + 1;
    if (opened_again) reopen();
    for (std::size_t number = 2; number < versions_.size(); number += 4) {
      if (versions_[number] == 0) continue;
      const Status removed = remove(number);
      EXPECT_TRUE(removed.ok()) << removed.describe();
      versions_[number] = 0;
    }
    for (unsigned more = 0; more < 100; ++more) {
      const Status stored = put(versions_.size(), 1, kBytes);
      ASSERT_TRUE(stored.ok()) << stored.describe();
      versions_.push_back(1);
      ASSERT_TRUE(remove(versions_.size() - 1).ok());
      versions_.back() = 0;
    }
    expect_all();
    reopen();
    expect_all();
  }
}

// The zone before it has some of these copies, too, beside those of other zones: it stays.
TEST_F(CollectorUndoTest, TheLastZoneFailsWithTheRestOfTheCopies) {
  Shape shape;
  shape.quota = 4;
  shape.zone_size_lbas = 512;
  shape.zone_capacity_lbas = 480;
  shape.segment_lbas = 160;
  ASSERT_NO_FATAL_FAILURE(fill(shape));
  for (bool in_two = false; !in_two;) {
    Op& waiting = put_until_one_waits();
    ASSERT_EQ(waiting.answers, 0u) << waiting.status.describe();
    const auto originals = places(versions_.size() - 1);
    const bool at_quota = pool_->allocator.held(kVolume) == shape.quota;
    device_->let_go(Io::Op::read);
    ASSERT_TRUE(run([&] {
      std::set<std::uint32_t> zones;
      for (const auto& [number, lba] : originals) {
        if (entry(number).lba != lba) zones.insert(zone_of(number).value);
      }
      in_two = !at_quota && zones.size() == 2;
      return waiting.answers != 0 || in_two;
    }));
    if (in_two) device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
    EXPECT_TRUE(finish(waiting).ok()) << waiting.status.describe();
    expect_all();
  }
  reopen();
  expect_all();
}

// The failed zone has a deletion from a zone that was emptied before, too, and could not be reset:
// that stands nowhere else any more.
TEST_F(CollectorUndoTest, ADeletionFromAnEarlierZoneKeepsTheFailedOne) {
  Shape shape;
  shape.quota = 5;
  shape.zone_size_lbas = 256;
  shape.zone_capacity_lbas = 240;
  shape.segment_lbas = 80;
  remake(shape, false);
  constexpr std::uint64_t kDead = 5000, kDeadKeys = 10;  // overwritten all the time
  std::uint64_t last = 100, version = 0;
  const auto held = [this] { return pool_->allocator.held(kVolume); };
  const auto overwrite = [&] {
    ++version;
    return put(kDead + version % kDeadKeys, version, kBytes);
  };
  for (const std::uint64_t number : {1, 2}) ASSERT_TRUE(put(number, 1, kBytes).ok());
  while (held() < 2) ASSERT_TRUE(put(++last, 1, kBytes).ok());
  ASSERT_TRUE(remove(last).ok());
  ASSERT_TRUE(remove(1).ok());
  while (held() < 3) ASSERT_TRUE(overwrite().ok());
  ASSERT_TRUE(remove(2).ok());
  const auto room = [&] {
    const std::uint64_t newest = kDead + version % kDeadKeys;
    return shape.zone_capacity_lbas - log_->written_lba(zone_of(newest));
  };
  while (room() > 40) ASSERT_TRUE(overwrite().ok());
  ASSERT_TRUE(put(3, 1, kBytes).ok());
  const IndexEntry page = entry(3);
  while (room() > 10) ASSERT_TRUE(overwrite().ok());
  device_->hold(Io::Op::read);
  Op* waiting = nullptr;
  do {
    waiting = &start_put(++last, 1, kBytes);
    run();
  } while (waiting->answers != 0 && waiting->status.ok());
  ASSERT_EQ(waiting->answers, 0u) << waiting->status.describe();
  const auto read_until = [&](const std::function<bool()>& done) {
    for (unsigned i = 0; !done(); ++i) {
      ASSERT_LT(i, 100u);
      ASSERT_NE(device_->held(Io::Op::read), 0u);
      device_->let_one_go(Io::Op::read, 0);
      run();
    }
  };
  device_->fail(Io::Op::reset, {Code::zone_state, Origin::zone});
  ASSERT_NO_FATAL_FAILURE(read_until([&] { return pool_->allocator.bad(kVolume) == 1; }));
  ASSERT_EQ(held(), shape.quota);
  ASSERT_NO_FATAL_FAILURE(read_until([&] {
    return std::ranges::any_of(device_->events(true), [&](const TapDevice::Event& each) {
      return each.op == Io::Op::read && each.zone == pool_->geometry.zone_of(Lba{page.lba}) &&
             each.lba == pool_->relative_lba(page.lba);
    });
  }));
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone});
  device_->let_go(Io::Op::read);
  EXPECT_EQ(finish(*waiting).code(), Code::no_space);
  for (int round = 0; round < 2; ++round) {
    for (const std::uint64_t number : {1, 2}) EXPECT_EQ(exist(number), Code::not_found);
    expect_page(3, 1, kBytes);
    reopen();
  }
}

}  // namespace
}  // namespace furrow
