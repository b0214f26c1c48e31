// Establishes what PageLog makes of damaged headers and pages, and of a device that fails: a page
// whose header is damaged is known as long as anything tells whose it is, and no key is wedged;
// what failed is told, and leaves what was there. How: as page_log_test.
#include "log/page_log.h"
#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

using Kind = KeyOp::Kind;

class PageLogDamageTest : public PageLogRig {
 protected:
  void SetUp() override { make_log({}, false); }
  void damage(ZoneId zone, std::uint64_t lba) { flip_bit(*device_, zone, lba); }
};

TEST_F(PageLogDamageTest, ADamagedBatchHeaderIsNoReasonNotToKnowThePage) {
  ASSERT_TRUE(put(1, 0, 600).ok());
  const ZoneId zone = zone_of(1);
  const std::uint64_t page = pool_->relative_lba(entry(1).lba);
  damage(zone, page - 1);
  EXPECT_EQ(exist(1), Code::ok) << "the page tells by its keyed checksum";
  EXPECT_EQ(apply_op(Kind::diagnose, 1).code(), Code::corrupt);
  EXPECT_EQ(apply_op(Kind::diagnose, 2).code(), Code::not_found);
  damage(zone, page);
  EXPECT_EQ(exist(1), Code::corrupt) << "nobody can tell any more";
  EXPECT_EQ(log_->stats().corrupt_pages, 1u);
  EXPECT_EQ(apply_op(Kind::diagnose, 1).code(), Code::corrupt);
  EXPECT_EQ(log_->stats().corrupt_pages, 1u) << "the reader that asks counts";
  EXPECT_TRUE(put(1, 1, 600).ok()) << "the key is not wedged";
  expect_page(1, 1, 600);
  EXPECT_EQ(log_->stats().pages, 1u);
  damage(zone, pool_->relative_lba(entry(1).lba) - 1);
  damage(zone, pool_->relative_lba(entry(1).lba));
  EXPECT_TRUE(remove(1).ok());
  EXPECT_EQ(log_->stats().pages, 0u);
}

// That of its record which the page itself does not tell is told, or that it is lost.
TEST_F(PageLogDamageTest, AWholeRecordOrNone) {
  const auto expires_s = static_cast<std::uint32_t>(executor_.wall_s() + 100);
  ASSERT_TRUE(put(1, 0, 600, {.pinned = true, .group = 7, .expires_s = expires_s}).ok());
  ASSERT_TRUE(put(2, 0, 600).ok());
  const auto whole_record = [this](std::uint64_t number) -> Op& {
    Op& op = prepare(Kind::exist, number);
    op.whole_record = true;
    log_->submit(op);
    (void)finish(op);
    return op;
  };
  Op& has_all = whole_record(1);
  ASSERT_TRUE(has_all.status.ok());
  EXPECT_EQ(has_all.group, 7u);
  EXPECT_EQ(has_all.expires_s, expires_s);
  EXPECT_TRUE(has_all.pinned);
  Op& has_none = whole_record(2);
  ASSERT_TRUE(has_none.status.ok());
  EXPECT_EQ(has_none.group, 0u);
  EXPECT_EQ(has_none.expires_s, 0u);
  EXPECT_FALSE(has_none.pinned);
  damage(zone_of(1), pool_->relative_lba(entry(1).lba) - 1);
  EXPECT_EQ(whole_record(1).status.code(), Code::corrupt);
  EXPECT_EQ(exist(1), Code::ok);
}

// With a damaged header the key stands in a note: another key's operation takes nothing away.
TEST_F(PageLogDamageTest, ANoteTellsWhosePageItIs) {
  const auto [a, b] = two_of_one_tag();
  ASSERT_TRUE(put(a, 0, 300, {.flushed = true, .group = 7}).ok());
  clock_.now_ns += 20'000'000;
  run();
  ASSERT_EQ(batches(zone_of(a)).back().header.record_count, 0u) << "no note";
  const ZoneId zone = zone_of(a);
  const std::uint64_t page = pool_->relative_lba(entry(a).lba);
  damage(zone, page - 1);
  EXPECT_EQ(remove(b).code(), Code::not_found);
  EXPECT_EQ(exist(b), Code::not_found);
  EXPECT_TRUE(put(b, 1, 400).ok());
  expect_page(a, 0, 300);
  expect_page(b, 1, 400);
  EXPECT_TRUE(remove(b).ok());
  EXPECT_TRUE(apply_op(Kind::pin, a).ok());
  EXPECT_TRUE(entry(a).pinned);
  expect_page(a, 0, 300);
  EXPECT_TRUE(remove_group(7).ok());
  expect_absent(a);
  EXPECT_EQ(log_->stats().pages, 0u);
}

// What one batch header says stands nowhere else until its segment is closed or a note repeats it.
// Damaged before, below a flush point: while the pool is open nothing is lost but the listing of
// its keys, as the index says where the pages are. After a kill they are gone, and what they
// replaced is there again, whole: nothing tells that it was replaced. Nothing else is lost, no
// wrong page is given, and a survey (`furrowctl pool check`) names the place; the zone takes no
// more.
TEST_F(PageLogDamageTest, ADamagedHeaderThatNothingRepeatsCostsItsBatch) {
  for (const bool noted : {false, true}) {
    remake({}, false);
    for (const std::uint64_t number : {1, 2}) ASSERT_TRUE(put(number, 0, 600).ok());
    for (const std::uint64_t number : {1, 6, 4}) ASSERT_TRUE(put(number, 1, 700).ok());
    for (const std::uint64_t number : {3, 5}) {  // the second one says that the first flush is done
      ASSERT_TRUE(put(number, 0, 600, {.flushed = true}).ok());
    }
    if (noted) clock_.now_ns += 20'000'000;
    if (noted) run();
    const ZoneId zone = zone_of(1);
    const std::uint64_t first = pool_->relative_lba(entry(1).lba) - 1;
    const std::uint64_t second = pool_->relative_lba(entry(4).lba) - 1;
    ASSERT_EQ(batches(zone).back().header.record_count == 0, noted);
    ASSERT_GT(batches(zone).back().header.flushed_lba, second);
    for (const std::uint64_t header : {first, second}) damage(zone, header);

    for (const std::uint64_t number : {1, 4}) {
      expect_page(number, 1, 700);
      EXPECT_EQ(exist(number), Code::ok);
    }
    EXPECT_EQ(list(Key(), 10).size(), noted ? 6u : 4u);
    EXPECT_EQ(log_->stats().corrupt_pages, noted ? 0u : 2u) << "that is counted";

    reopen();
    for (const std::uint64_t number : {2, 3, 5}) expect_page(number, 0, 600);
    expect_page(6, 1, 700);
    if (noted) {
      for (const std::uint64_t number : {1, 4}) expect_page(number, 1, 700);
      continue;
    }
    expect_page(1, 0, 600);
    expect_absent(4);
    EXPECT_EQ(exist(4), Code::not_found);
    EXPECT_EQ(pool_->allocator.zone(zone).use, ZoneUse::sealed);
    const std::vector<SurveyedSegment> segments = survey_zone(zone).segments;
    EXPECT_EQ(segments[0].gaps, (std::vector{first, second}));
    EXPECT_TRUE(put(1, 2, 500).ok());
    EXPECT_TRUE(put(4, 2, 500).ok());
    reopen();
    for (const std::uint64_t number : {1, 4}) expect_page(number, 2, 500);
  }
}

TEST_F(PageLogDamageTest, ADamagedPageIsNotPinned) {
  ASSERT_TRUE(put(1, 0, 600).ok());
  damage(zone_of(1), pool_->relative_lba(entry(1).lba) + 1);
  EXPECT_EQ(apply_op(Kind::pin, 1).code(), Code::corrupt);
  EXPECT_EQ(log_->stats().corrupt_pages, 1u);
}

TEST_F(PageLogDamageTest, AReadThatFailsIsToldAndLeavesTheKeyFree) {
  ASSERT_TRUE(put(1, 0, 600).ok());
  device_->fail(Io::Op::read, {Code::io_error, Origin::zone}, 1000);
  for (const Kind kind : {Kind::exist, Kind::remove, Kind::pin, Kind::diagnose}) {
    EXPECT_EQ(apply_op(kind, 1).code(), Code::io_error);
  }
  EXPECT_EQ(put(1, 1, 600).code(), Code::io_error) << "not known whether it replaces anything";
  device_->fail(Io::Op::read, {}, 0);
  expect_page(1, 0, 600);
  EXPECT_TRUE(put(1, 1, 600).ok());
  EXPECT_TRUE(log_->idle());
}

TEST_F(PageLogDamageTest, AHeaderThatCannotBeReadKeepsNoKeyFromBeingChanged) {
  Shape shape;
  shape.faults = true;
  remake(shape, false);
  for (std::uint64_t n = 0; n < 40; ++n) ASSERT_TRUE(put(n, 0, 600).ok());
  ASSERT_NE(zone_of(0), zone_of(39)) << "its segment has no summary yet";
  for (std::uint64_t n = 0; n < 3; ++n) faults_->fail_reads(Lba{entry(n).lba - 1}, 1);
  Status listed;
  EXPECT_EQ(list({}, 100, &listed).size(), 40u);
  EXPECT_TRUE(listed.ok()) << listed.describe();
  EXPECT_EQ(exist(0), Code::ok);
  EXPECT_TRUE(put(0, 1, 600).ok());
  EXPECT_TRUE(remove(1).ok());
  EXPECT_TRUE(apply_op(Kind::pin, 2).ok());
  expect_page(0, 1, 600);
  expect_absent(1);
  EXPECT_TRUE(entry(2).pinned);
}

TEST_F(PageLogDamageTest, AWriteThatFailsLeavesTheOldPage) {
  ASSERT_TRUE(put(1, 0, 600).ok());
  device_->fail(Io::Op::write, {Code::no_space, Origin::zone});
  EXPECT_EQ(put(1, 1, 600).code(), Code::no_space);
  expect_page(1, 0, 600);
  device_->fail(Io::Op::write, {Code::no_space, Origin::zone});
  EXPECT_EQ(remove(1).code(), Code::no_space);
  expect_page(1, 0, 600);
  EXPECT_TRUE(remove(1).ok());
}

// What was acknowledged is flushed although what is written beside it finds the device full.
TEST_F(PageLogDamageTest, AFlushIsDoneBesideAWriteThatFails) {
  ASSERT_TRUE(put(1, 0, 600).ok());
  const std::uint64_t before = device_->count(Io::Op::flush);
  device_->fail(Io::Op::write, {Code::no_space, Origin::zone});
  Op& refused = start_put(2, 0, 600);
  Flush& flush = start_flush();
  EXPECT_TRUE(run([&] { return flush.answers != 0 && refused.answers != 0; }));
  EXPECT_EQ(refused.status.code(), Code::no_space);
  EXPECT_TRUE(flush.status.ok()) << flush.status.describe();
  EXPECT_EQ(device_->count(Io::Op::flush), before + 1);
}

}  // namespace
}  // namespace furrow
