// Establishes that removing a group takes exactly its pages: wherever they lie (sealed zones, the
// open one, several batches, between other groups' pages), those stored before and not those stored
// after; that it lasts over a reopening though a page's record is still there; that it searches for
// the group only where it must; that `flushed` waits for a flush, of a delete as well that comes
// while collection has let go of the page; and that a batch header that cannot be read is told and
// costs no other page. How: on a PageLog, with a plain map of what should be there.
#include "log/group_removal.h"

#include <map>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class GroupRemovalTest : public PageLogRig {
 protected:
  void SetUp() override { make_log({}, false); }
  void put_in(std::uint64_t number, std::uint64_t group, std::uint32_t bytes = 700) {
    ASSERT_TRUE(put(number, group, bytes, {.group = group}).ok());
    groups_of_[number] = {group, bytes};
  }
  void forget_group(std::uint64_t group) {
    std::erase_if(groups_of_, [&](const auto& each) { return each.second.first == group; });
  }
  void expect_as_told(std::uint64_t numbers) {
    for (std::uint64_t n = 0; n < numbers; ++n) {
      const auto found = groups_of_.find(n);
      if (found == groups_of_.end()) {
        expect_absent(n);
      } else {
        expect_page(n, found->second.first, found->second.second);
      }
    }
    EXPECT_EQ(log_->stats().pages, groups_of_.size());
  }
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> groups_of_;
};

TEST_F(GroupRemovalTest, TakesItsPagesAndNoOthers) {
  // Runs of one, of several in a batch, over batches, segments and zones, interleaved.
  std::uint64_t n = 0;
  for (; n < 120; ++n) put_in(n, n < 40 ? 1 + n % 2 : n < 80 ? 3 : n % 4, 400);
  for (std::uint64_t i = 0; i < 20; ++i, ++n) {
    start_put(n, 1, 400, {.group = 1});
    groups_of_[n] = {1, 400};
  }
  // A batch of several groups.
  for (std::uint64_t i = 0; i < 16; ++i, ++n) {
    start_put(n, i % 5, 400, {.group = i % 5});
    groups_of_[n] = {i % 5, 400};
  }
  run();
  expect_as_told(n);
  for (const std::uint64_t group : {3, 1, 2}) {
    ASSERT_TRUE(remove_group(group).ok());
    forget_group(group);
    expect_as_told(n);
  }
  for (int round = 0; round < 2; ++round) {
    reopen(round == 0);
    expect_as_told(n);
  }
}

TEST_F(GroupRemovalTest, OfAGroupWithoutPagesIsFine) {
  ASSERT_TRUE(remove_group(5).ok());
  put_in(1, 4);
  ASSERT_TRUE(remove_group(5).ok());
  ASSERT_TRUE(remove_group(4).ok());
  ASSERT_TRUE(remove_group(4).ok()) << "twice";
  forget_group(4);
  expect_as_told(3);
  put_in(2, 4);
  expect_as_told(3);
  reopen();
  expect_as_told(3);
}

// In a full volume there may be no room for anything.
TEST_F(GroupRemovalTest, OfAGroupWithoutPagesWritesNothing) {
  put_in(1, 4);
  put_in(2, 6);
  put_in(2, 4);  // of group 6 there is a record, dead
  const auto written = [&] { return log_->stats().device_bytes_written.load(); };
  for (unsigned round = 0; round < 2; ++round) {
    const std::uint64_t before = written();
    ASSERT_TRUE(remove_group(5).ok());
    ASSERT_TRUE(remove_group(5, true).ok());
    EXPECT_EQ(written(), before);
    reopen();
  }
  const std::uint64_t before = written();
  ASSERT_TRUE(remove_group(6).ok());
  EXPECT_GT(written(), before) << "what is left of page 2 could come back";
  expect_as_told(4);
}

// The runs of all groups are as many as a volume has files: where a page of the group is known, and
// in the index, none of them is looked at. (Here there are none to be found.)
TEST_F(GroupRemovalTest, OfAGroupWithAKnownPageSearchesNothing) {
  put_in(1, 4);
  put_in(2, 6);
  const KnownPage known = {key_number(1), entry(1).length, entry(1).checksum};
  KnownPage replaced = known;
  replaced.checksum ^= 1;
  pool_->tables[zone_of(1).value].groups.clear();
  for (const KnownPage& page : {replaced, known}) {
    Group op;
    op.group = 4;
    op.own_keys = true;
    op.known = {&page, 1};
    op.on_done = [](RemoveGroupOp& done) { ++static_cast<Group&>(done).answers; };
    const std::uint64_t before = log_->stats().device_bytes_written;
    log_->remove_group(op);
    ASSERT_TRUE(run([&] { return op.answers == 1; }));
    EXPECT_TRUE(op.status.ok());
    EXPECT_EQ(log_->stats().device_bytes_written != before, page.checksum == known.checksum)
        << "what is not in the index says nothing";
  }
  forget_group(4);
  expect_as_told(3);
  reopen();
  expect_as_told(3);
}

// A file that was synced often has a batch for each sync.
TEST_F(GroupRemovalTest, SeveralHeadersAreReadAtATime) {
  for (std::uint64_t n = 0; n < 30; ++n) put_in(n, 4);
  device_->hold(Io::Op::read);
  Group& removal = start_remove_group(4);
  run();
  EXPECT_EQ(removal.answers, 0u);
  EXPECT_EQ(device_->held(Io::Op::read), 8u);
  device_->let_go(Io::Op::read);
  ASSERT_TRUE(run([&] { return removal.answers == 1; }));
  EXPECT_TRUE(removal.status.ok());
  forget_group(4);
  expect_as_told(30);
  reopen();
  expect_as_told(30);
}

// It was evicted, and the device has refused the reset of its zone.
TEST_F(GroupRemovalTest, InACacheAnEvictedPageDoesNotComeBack) {
  drop_pool();
  make_log({}, true);
  put_in(1, 4);
  const ZoneId zone = zone_of(1);
  device_->fail(Io::Op::reset, {Code::io_error, Origin::zone});
  for (std::uint64_t n = 100; pool_->tables[zone.value].end_lba != 0; ++n) {
    ASSERT_LT(n, 5000u);
    ASSERT_TRUE(put(n, 0, 4000).ok());
  }
  run();
  ASSERT_NE(pool_->allocator.zone(zone).use, ZoneUse::free);
  expect_absent(1);
  ASSERT_TRUE(remove_group(4).ok());
  reopen();
  expect_absent(1);
}

TEST_F(GroupRemovalTest, APageOnItsWayIsOfAKnownGroup) {
  device_->hold(Io::Op::write);
  for (std::uint64_t n = 0; n < 600; ++n) start_put(n, 9, 700, {.group = n < 590 ? 8u : 9u});
  run();
  Group& removal = start_remove_group(9);
  device_->let_go(Io::Op::write);
  ASSERT_TRUE(run([&] { return removal.answers == 1; }));
  run();
  expect_absent(595);
  expect_page(3, 9, 700);
}

TEST_F(GroupRemovalTest, PagesThatAreStoredAfterItStay) {
  for (std::uint64_t n = 0; n < 5; ++n) put_in(n, 9);
  device_->hold(Io::Op::write);
  Op& before = start_put(10, 9, 700, {.group = 9});
  run();
  Group& removal = start_remove_group(9);
  Op& after = start_put(11, 9, 700, {.group = 9});
  Op& again = start_put(0, 9, 700, {.group = 9});
  run();
  EXPECT_EQ(removal.answers, 0u) << "its tombstone is not on the device";
  device_->let_go(Io::Op::write);
  for (Op* op : {&before, &after, &again}) EXPECT_TRUE(finish(*op).ok());
  ASSERT_TRUE(run([&] { return removal.answers == 1; }));
  EXPECT_TRUE(removal.status.ok());
  groups_of_ = {{11, {9, 700}}, {0, {9, 700}}};
  expect_as_told(20);
  reopen();
  expect_as_told(20);
}

// The pin would write the page again, with a sequence that outlives the removal.
TEST_F(GroupRemovalTest, APinThatIsOnItsWayFindsNothing) {
  put_in(1, 9);
  device_->hold(Io::Op::read);
  Op& pin = start(KeyOp::Kind::pin, 1);
  for (unsigned headers = 0; headers < 2; ++headers) {  // the page's header, twice
    run();
    device_->let_one_go(Io::Op::read, 0);
  }
  run();
  ASSERT_EQ(device_->held(Io::Op::read), 1u) << "the pin reads the page";
  Group& removal = start_remove_group(9);
  run();
  device_->let_one_go(Io::Op::read, 0);
  EXPECT_EQ(finish(pin).code(), Code::not_found);
  device_->let_go(Io::Op::read);
  ASSERT_TRUE(run([&] { return removal.answers == 1; }));
  forget_group(9);
  expect_as_told(3);
  reopen();
  expect_as_told(3);
}

// So would what scrub writes again, as it had to read it twice.
TEST_F(GroupRemovalTest, ARewriteThatComesMeanwhileFindsNothing) {
  put_in(1, 9);
  const std::uint64_t sequence = pool_->next_sequence - 1;
  device_->hold(Io::Op::read);
  Group& removal = start_remove_group(9);
  run();
  ASSERT_EQ(device_->held(Io::Op::read), 1u) << "the removal reads the page's header";
  Op& rewrite = prepare(KeyOp::Kind::rewrite, 1);
  give_page(rewrite, page_bytes(1, 9, 700));
  rewrite.group = 9;
  rewrite.rewritten_lba = entry(1).lba;
  rewrite.rewritten_generation = generation(zone_of(1));
  rewrite.old_sequence = sequence;
  log_->submit(rewrite);
  EXPECT_EQ(finish(rewrite).code(), Code::not_found);
  device_->let_go(Io::Op::read);
  ASSERT_TRUE(run([&] { return removal.answers == 1; }));
  forget_group(9);
  expect_as_told(3);
  reopen();
  expect_as_told(3);
}

TEST_F(GroupRemovalTest, APageThatLeftTheGroupStays) {
  put_in(1, 9);
  put_in(2, 9);
  put_in(1, 0);  // overwritten without a group
  put_in(2, 8);  // and in another one
  put_in(3, 9);
  ASSERT_TRUE(remove_group(9).ok());
  forget_group(9);
  expect_as_told(5);
  reopen();
  expect_as_told(5);
}

TEST_F(GroupRemovalTest, FlushedWaitsForAFlush) {
  put_in(1, 9);
  device_->hold(Io::Op::flush);
  device_->forget_events();
  Group& plain = start_remove_group(8);
  ASSERT_TRUE(run([&] { return plain.answers == 1; }));
  Group& flushed = start_remove_group(9, true);
  run();
  EXPECT_EQ(flushed.answers, 0u);
  expect_absent(1);
  EXPECT_GE(device_->count(Io::Op::flush), 1u);
  device_->let_go(Io::Op::flush);
  ASSERT_TRUE(run([&] { return flushed.answers == 1; }));
  EXPECT_TRUE(flushed.status.ok());
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone}, 3);
  EXPECT_EQ(remove_group(9, true).code(), Code::io_error);
}

TEST_F(GroupRemovalTest, FlushedSurvivesAPowerCut) {
  drop_pool();
  Shape shape;
  shape.faults = true;
  make_log(shape, false);
  for (std::uint64_t n = 0; n < 10; ++n) put_in(n, 1 + n % 2);
  ASSERT_TRUE(remove_group(1, true).ok());
  forget_group(1);
  power_cut();
  expect_as_told(10);
}

TEST_F(GroupRemovalTest, AHeaderThatCannotBeReadIsToldAndCostsNoOtherPage) {
  drop_pool();
  Shape shape;
  shape.faults = true;
  make_log(shape, false);
  for (std::uint64_t n = 0; n < 3; ++n) {
    put_in(n, 9);
    put_in(n + 10, 8);
  }
  faults_->fail_reads(Lba{entry(1).lba - 1}, 1);
  EXPECT_EQ(remove_group(9).code(), Code::io_error);
  unsigned left = 0;
  for (std::uint64_t n = 0; n < 3; ++n) left += get(n) ? 1 : 0;
  EXPECT_EQ(left, 1u) << "the one that the header which failed tells of";
  faults_->heal();
  ASSERT_TRUE(remove_group(9).ok()) << "asked for again";
  forget_group(9);
  expect_as_told(15);
}

// For as long as that goes on.
TEST_F(GroupRemovalTest, OneThatFailedHalfwayTakesNothingThatCameAfterIt) {
  drop_pool();
  Shape shape;
  shape.faults = true;
  make_log(shape, false);
  put_in(1, 9);
  faults_->fail_reads(Lba{entry(1).lba - 1}, 1);
  ASSERT_EQ(remove_group(9).code(), Code::io_error);
  put_in(2, 9);
  EXPECT_TRUE(apply_op(KeyOp::Kind::pin, 2).ok());
  expect_page(2, 9, 700);
}

TEST_F(GroupRemovalTest, AHeaderThatANoteRepeatsIsAsGoodAsWhole) {
  for (std::uint64_t n = 0; n < 6; ++n) put_in(n, 8 + n % 2);
  ASSERT_TRUE(put(50, 8, 700, {.flushed = true, .group = 8}).ok());
  groups_of_[50] = {8, 700};
  clock_.now_ns += 20'000'000;
  run();
  const ZoneId zone = zone_of(0);
  ASSERT_EQ(batches(zone).back().header.record_count, 0u) << "no note";
  for (const std::uint64_t n : {1, 3}) {
    flip_bit(*device_, zone, pool_->relative_lba(entry(n).lba) - 1);
  }
  ASSERT_TRUE(remove_group(9).ok());
  forget_group(9);
  expect_as_told(51);
}

TEST_F(GroupRemovalTest, AWriteThatFailsRemovesNothing) {
  put_in(1, 9);
  device_->fail(Io::Op::write, {Code::no_space, Origin::zone});
  EXPECT_EQ(remove_group(9).code(), Code::no_space);
  expect_as_told(3);
  EXPECT_TRUE(run([&] { return log_->idle(); }));
}

TEST_F(GroupRemovalTest, ItLastsWhileCollectionMovesWhatIsThere) {
  Shape shape;
  shape.streams = 1;
  drop_pool();
  make_log(shape, false);
  std::mt19937_64 random(test_seed());
  for (std::uint64_t round = 0; round < 40; ++round) {
    for (std::uint64_t i = 0; i < 12; ++i) put_in(random() % 30, 1 + random() % 4, 600);
    const std::uint64_t group = 1 + random() % 4;
    ASSERT_TRUE(remove_group(group).ok());
    forget_group(group);
    expect_as_told(30);
    if (round % 8 != 7) continue;
    reopen();
    expect_as_told(30);
  }
  EXPECT_GT(device_->count(Io::Op::reset), 3u) << "zones were collected";
}

// Collection has let go of a page as its group is being deleted, which nothing on the medium says
// yet: a flushed delete of it is not answered before something does.
class HalfRemovedTest : public GroupRemovalTest {
 protected:
  // Returns a deletion of that page's group. Writes are held.
  Group& let_go_of(std::uint64_t number) {
    Shape shape;
    shape.streams = 1;
    shape.faults = true;
    drop_pool();
    make_log(shape, false);
    put_in(number, 9);
    const ZoneId zone = zone_of(number);
    for (std::uint64_t n = 100; pool_->allocator.zone(zone).use == ZoneUse::open; ++n) {
      EXPECT_TRUE(put(n, 0, 4000).ok());
    }
    EXPECT_TRUE(run([&] { return log_->idle(); }));
    device_->hold(Io::Op::write);
    log_->collect(zone);
    EXPECT_TRUE(run([&] { return device_->held(Io::Op::write) == 1; })) << "the copy";
    Group& removal = start_remove_group(9);
    run();
    device_->let_one_go(Io::Op::write, 0);
    std::array<IndexEntry, 1> found;
    const KeyHash hash = log_->hash(key_number(number));
    EXPECT_TRUE(run([&] { return log_->lookup(hash, found) == 0; }));
    return removal;
  }
  Op& start_flushed_remove(std::uint64_t number) {
    Op& remove = prepare(KeyOp::Kind::remove, number);
    remove.flushed = true;
    log_->submit(remove);
    run();
    return remove;
  }
};

TEST_F(HalfRemovedTest, ADeleteOfWhatItIsAboutToTakeIsDurable) {
  Group& removal = let_go_of(1);
  Op& remove = start_flushed_remove(1);
  EXPECT_EQ(remove.answers, 0u);
  device_->let_go(Io::Op::write);
  EXPECT_EQ(finish(remove).code(), Code::not_found);
  EXPECT_TRUE(run([&] { return removal.answers == 1; }));
}

// Nor does anything say so after a deletion that could not be written.
TEST_F(HalfRemovedTest, ADeleteOfWhatItHasNotTakenIsDurable) {
  Group& removal = let_go_of(1);
  device_->fail(Io::Op::write, {Code::io_error, Origin::zone}, 10'000);
  device_->let_go(Io::Op::write);
  ASSERT_TRUE(run([&] { return removal.answers == 1; }));
  ASSERT_FALSE(removal.status.ok());
  device_->fail(Io::Op::write, {}, 0);
  EXPECT_EQ(finish(start_flushed_remove(1)).code(), Code::not_found);
  ASSERT_NO_FATAL_FAILURE(power_cut());
  expect_absent(1);
}

// Nobody knows of a zone that cannot be read whether it has pages of the group: when it can be read
// again they are not back.
TEST_F(GroupRemovalTest, WhatCannotBeReadMeanwhileIsRemovedToo) {
  Shape shape;
  shape.faults = true;
  remake(shape, false);
  ASSERT_TRUE(put(1, 0, 700, {.group = 9}).ok());
  const ZoneId zone = zone_of(1);
  for (std::uint64_t n = 100; zone_of(1) == zone && pool_->allocator.held(kVolume) < 2; ++n) {
    ASSERT_TRUE(put(n, 0, 700).ok());
  }
  faults_->fail_reads(Lba{pool_->device_lba(zone, 0)}, shape.zone_capacity_lbas);
  reopen(true);
  expect_absent(1);
  ASSERT_TRUE(remove_group(9).ok());
  faults_->heal();
  reopen(true);
  expect_absent(1);
}

}  // namespace
}  // namespace furrow
