// Establishes what PageLog promises about single pages: what is put is found, whole and with its
// true length, only once it is on the device, and after a reopening; conditions and the order of
// what changes one key; what `flushed` and flush() wait for; pins; keys that share an index tag;
// what is counted. How: a log on a small device, looked into by lookup() and by reading the page
// that it names. (Its space: page_log_space_test; damage: page_log_damage_test.)
#include "log/page_log.h"

#include <map>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

using Kind = KeyOp::Kind;
using Condition = KeyOp::Condition;

class PageLogTest : public PageLogRig {
 protected:
  void SetUp() override { make_log({}, false); }
};

TEST_F(PageLogTest, PagesOfEverySizeComeBackWithTheirLength) {
  std::map<std::uint64_t, std::uint32_t> sizes;
  for (const std::uint32_t bytes : {1u, 511u, 512u, 513u, 4096u, 8191u, 8192u}) {
    const std::uint64_t number = sizes.size();
    ASSERT_TRUE(put(number, 0, bytes).ok());
    sizes[number] = bytes;
  }
  for (int round = 0; round < 3; ++round) {
    for (const auto& [number, bytes] : sizes) {
      expect_page(number, 0, bytes);
      Op& op = start(Kind::exist, number);
      EXPECT_TRUE(finish(op).ok());
      EXPECT_EQ(op.value_length, bytes);
    }
    expect_absent(99);
    EXPECT_EQ(exist(99), Code::not_found);
    EXPECT_EQ(log_->stats().pages, sizes.size());
    if (round != 2) reopen(round == 0);
  }
}

TEST_F(PageLogTest, AnAbsentKeyCostsNoRead) {
  ASSERT_TRUE(put(1, 0, 100).ok());
  device_->forget_events();
  ASSERT_TRUE(put(2, 0, 100).ok());
  EXPECT_EQ(exist(3), Code::not_found);
  EXPECT_EQ(remove(3).code(), Code::not_found);
  EXPECT_EQ(device_->count(Io::Op::read), 0u);
  EXPECT_EQ(device_->count(Io::Op::write), 1u) << "the put alone";
  ASSERT_TRUE(put(1, 1, 100).ok());
  EXPECT_EQ(device_->count(Io::Op::read), 1u) << "one batch header tells";
  EXPECT_EQ(log_->stats().header_reads, 1u);
}

TEST_F(PageLogTest, APageIsVisibleOnlyOnceItIsOnTheDevice) {
  ASSERT_TRUE(put(1, 0, 600).ok());
  device_->hold(Io::Op::write);
  Op& over = start_put(1, 1, 700);
  Op& fresh = start_put(2, 0, 700);
  run();
  EXPECT_EQ(over.answers + fresh.answers, 0u);
  expect_page(1, 0, 600);
  expect_absent(2);
  EXPECT_FALSE(log_->idle());
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(finish(over).ok());
  EXPECT_TRUE(finish(fresh).ok());
  expect_page(1, 1, 700);
  expect_page(2, 0, 700);
}

TEST_F(PageLogTest, WhatChangesOneKeyGoesInTheOrderGiven) {
  std::vector<Op*> given;
  for (std::uint64_t version = 0; version < 20; ++version) {
    given.push_back(&start_put(1, version, 100 + static_cast<std::uint32_t>(version)));
    if (version == 9) given.push_back(&start(Kind::remove, 1));
    given.push_back(&start_put(2, version, 50));
  }
  for (Op* op : given) EXPECT_TRUE(finish(*op).ok());
  for (std::size_t i = 2; i < given.size(); ++i) {
    if (given[i]->key == given[i - 2]->key) {
      EXPECT_GT(given[i]->answered_as, given[i - 2]->answered_as);
    }
  }
  for (int round = 0; round < 2; ++round) {
    expect_page(1, 19, 119);
    expect_page(2, 19, 50);
    reopen();
  }
}

TEST_F(PageLogTest, ConditionsAreDecidedOnce) {
  EXPECT_EQ(put(1, 0, 100, {.condition = Condition::if_exists}).code(), Code::not_found);
  // Of several that want to be first, one is.
  std::vector<Op*> racers;
  for (std::uint64_t v = 0; v < 5; ++v) {
    racers.push_back(&start_put(1, v, 100, {.condition = Condition::if_absent}));
  }
  unsigned won = 0;
  for (Op* op : racers) {
    if (finish(*op).ok())
      ++won;
    else
      EXPECT_EQ(op->status.code(), Code::exists);
  }
  EXPECT_EQ(won, 1u);
  expect_page(1, 0, 100);
  EXPECT_TRUE(put(1, 7, 100, {.condition = Condition::if_exists}).ok());
  expect_page(1, 7, 100);
  EXPECT_TRUE(remove(1).ok());
  EXPECT_EQ(remove(1).code(), Code::not_found);
  EXPECT_TRUE(put(1, 8, 100, {.condition = Condition::if_absent}).ok());
  // One that has expired is absent.
  const auto soon = static_cast<std::uint32_t>(executor_.wall_s() + 10);
  EXPECT_TRUE(put(2, 0, 100, {.expires_s = soon}).ok());
  EXPECT_EQ(put(2, 1, 100, {.condition = Condition::if_absent}).code(), Code::exists);
  clock_.now_ns += 10'000'000'000;
  EXPECT_EQ(put(2, 1, 100, {.condition = Condition::if_exists}).code(), Code::not_found);
  EXPECT_EQ(exist(2), Code::not_found);
  EXPECT_TRUE(put(2, 2, 100, {.condition = Condition::if_absent}).ok());
  expect_page(2, 2, 100);
  clock_.now_ns += 100'000'000'000;
  expect_page(2, 2, 100);
}

TEST_F(PageLogTest, RemovedStaysRemovedAfterReopening) {
  for (std::uint64_t n = 0; n < 20; ++n) ASSERT_TRUE(put(n, 0, 300).ok());
  for (std::uint64_t n = 0; n < 20; n += 2) ASSERT_TRUE(remove(n).ok());
  ASSERT_TRUE(put(4, 1, 300).ok());
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t n = 0; n < 20; ++n) {
      if (n == 4)
        expect_page(n, 1, 300);
      else if (n % 2 == 0)
        expect_absent(n);
      else
        expect_page(n, 0, 300);
    }
    EXPECT_EQ(log_->stats().pages, 11u);
    EXPECT_EQ(log_->stats().live_bytes, 11u * 300);
    reopen();
  }
}

// An opening whose clock was ahead left it out; it is on the medium, and has not expired.
TEST_F(PageLogTest, WhatAClockAheadLeftOutStaysRemoved) {
  for (const bool cache : {false, true}) {
    remake({}, cache);
    const auto soon = static_cast<std::uint32_t>(executor_.wall_s() + 1);
    ASSERT_TRUE(put(1, 0, 700, {.expires_s = soon}).ok());
    clock_.now_ns += 2'000'000'000;
    reopen();
    clock_.now_ns -= 2'000'000'000;
    EXPECT_EQ(remove(1).code(), Code::not_found);
    reopen();
    EXPECT_EQ(exist(1), Code::not_found) << cache;
  }
}

// What removed it may not be durable yet.
TEST_F(PageLogTest, ADurableDeleteOfWhatIsGoneWaitsForAFlush) {
  ASSERT_TRUE(put(1, 0, 700, {.flushed = true}).ok());
  ASSERT_TRUE(remove(1).ok());
  device_->hold(Io::Op::flush);
  Op& again = prepare(KeyOp::Kind::remove, 1);
  again.flushed = true;
  log_->submit(again);
  run();
  EXPECT_EQ(again.answers, 0u);
  device_->let_go(Io::Op::flush);
  EXPECT_EQ(finish(again).code(), Code::not_found);
}

// It may have been told that the one which is there had failed.
TEST_F(PageLogTest, WhoKnowsAnOlderVersionChangesTheOneThatIsThere) {
  ASSERT_TRUE(put(1, 0, 700).ok());
  const KnownPage older{key_number(1), 700, entry(1).checksum};
  ASSERT_TRUE(put(1, 1, 700).ok());
  Op& op = prepare(KeyOp::Kind::put, 1);
  give_page(op, page_bytes(1, 2, 700));
  op.known = &older;
  log_->submit(op);
  ASSERT_TRUE(finish(op).ok());
  EXPECT_EQ(log_->stats().pages, 1u);
  expect_page(1, 2, 700);
  Op& removal = prepare(KeyOp::Kind::remove, 1);
  removal.known = &older;
  log_->submit(removal);
  EXPECT_TRUE(finish(removal).ok());
  expect_absent(1);
  reopen();
  expect_absent(1);
}

// However many records share a batch, and whether they are from before an opening or not: then
// their sequences are far apart, too.
TEST_F(PageLogTest, SegmentsOfPagesThatExpireHaveRoomForTheirSummaries) {
  remake({}, true);
  const auto later = static_cast<std::uint32_t>(executor_.wall_s() + 1000);
  std::uint64_t next = 0;
  const auto put_pages = [&](unsigned pages, unsigned together, std::uint32_t expires_s) {
    for (unsigned i = 0; i < pages; i += together) {
      for (unsigned each = 0; each < together; ++each) {
        start_put(next++, 0, 400, {.expires_s = expires_s});
      }
      EXPECT_TRUE(run());
    }
  };
  for (unsigned together = 1; together <= 24; ++together) {
    put_pages(100 + together, together, later);
    reopen();
    pool_->next_sequence += std::uint64_t{1} << 40;
    put_pages(40, 1, 0);
  }
  for (unsigned before = 1; before <= 24; ++before) {
    put_pages(before, before, 0);
    pool_->next_sequence += std::uint64_t{1} << 40;
    put_pages(60, 1 + before % 8, later);
  }
  for (const auto& op : ops_) EXPECT_TRUE(op->status.ok()) << op->status.describe();
}

// It may be readable again.
TEST_F(PageLogTest, WhatACacheLetGoOfStaysRemoved) {
  remake({}, true);
  ASSERT_TRUE(put(1, 0, 700).ok());
  log_->let_go(log_->hash(key_number(1)), entry(1));
  EXPECT_EQ(exist(1), Code::not_found);
  EXPECT_EQ(remove(1).code(), Code::not_found);
  reopen();
  EXPECT_EQ(exist(1), Code::not_found);
}

TEST_F(PageLogTest, FlushedIsAnsweredBehindAFlushThatFollowsTheWrite) {
  ASSERT_TRUE(put(0, 0, 100).ok());
  device_->forget_events();
  device_->hold(Io::Op::flush);
  Op& plain = start_put(1, 0, 100);
  EXPECT_TRUE(finish(plain).ok()) << "`none` waits for no flush";
  EXPECT_EQ(device_->count(Io::Op::flush), 0u);
  device_->hold(Io::Op::write);
  Op& flushed = start_put(2, 0, 100, {.flushed = true});
  run();
  EXPECT_EQ(device_->count(Io::Op::flush), 0u) << "the write is not answered yet";
  device_->let_go(Io::Op::write);
  run();
  EXPECT_GE(device_->count(Io::Op::flush), 1u);
  EXPECT_EQ(flushed.answers, 0u);
  expect_page(2, 0, 100);
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(finish(flushed).ok());
  Op& removal = prepare(Kind::remove, 2);
  removal.flushed = true;
  device_->hold(Io::Op::flush);
  log_->submit(removal);
  run();
  EXPECT_EQ(removal.answers, 0u);
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(finish(removal).ok());
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone}, 2);
  EXPECT_EQ(put(3, 0, 100, {.flushed = true}).code(), Code::io_error);
}

// A flush takes back what may otherwise take the page along.
TEST_F(PageLogTest, WhatIsStoredWhileTheJournalIsInDoubtIsAnsweredBehindAFlush) {
  ASSERT_TRUE(put(1, 0, 100, {.group = 3}).ok());
  Status settled(Code::io_error, Origin::log);
  pool_->flusher.ask_before([&] {
    pool_->unsettled = !settled.ok();
    return settled;
  });
  pool_->unsettled = true;
  EXPECT_EQ(put(2, 0, 100).code(), Code::io_error);
  EXPECT_EQ(remove(1).code(), Code::io_error);
  EXPECT_EQ(remove_group(3).code(), Code::io_error);
  settled = Status();
  EXPECT_TRUE(put(3, 0, 100).ok());
  EXPECT_FALSE(pool_->unsettled);
}

TEST_F(PageLogTest, AFlushCoversWhatWasGivenBefore) {
  ASSERT_TRUE(put(0, 0, 100).ok());
  device_->forget_events();
  device_->hold(Io::Op::write);
  Op& before = start_put(1, 0, 100);
  run();
  Flush& flush = start_flush();
  run();
  EXPECT_EQ(device_->count(Io::Op::flush), 0u) << "the put's write is not answered yet";
  device_->let_go(Io::Op::write);
  ASSERT_TRUE(finish(before).ok());
  ASSERT_TRUE(run([&] { return flush.answers == 1; }));
  EXPECT_TRUE(flush.status.ok());
  EXPECT_GE(device_->count(Io::Op::flush), 1u);
  clock_.now_ns += 20'000'000;
  run();
  const BatchHeader last = batches(zone_of(1)).back().header;
  EXPECT_EQ(last.record_count, 0u) << "a note";
  EXPECT_EQ(last.flushed_lba, last.lba) << "all before it is durable";
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone}, 2);
  Flush& failed = start_flush();
  ASSERT_TRUE(run([&] { return failed.answers == 1; }));
  EXPECT_EQ(failed.status.code(), Code::io_error);
}

TEST_F(PageLogTest, FlushedSurvivesAPowerCut) {
  Shape shape;
  shape.faults = true;
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    remake(shape, false);
    for (std::uint64_t n = 0; n < 10; ++n) {
      ASSERT_TRUE(put(n, 0, 900, {.flushed = n % 3 == 0}).ok());
    }
    Flush& flush = start_flush();
    ASSERT_TRUE(run([&] { return flush.answers == 1; }));
    ASSERT_TRUE(put(3, 1, 900, {.flushed = true}).ok());
    ASSERT_TRUE(put(20, 0, 900).ok());
    power_cut(model);
    for (std::uint64_t n = 0; n < 10; ++n) expect_page(n, n == 3 ? 1 : 0, 900);
    if (get(20)) expect_page(20, 0, 900);  // may be there, but then whole
    ASSERT_TRUE(put(21, 0, 900).ok());
  }
}

TEST_F(PageLogTest, PinsLastAndKeepGroupAndExpiry) {
  const auto later = static_cast<std::uint32_t>(executor_.wall_s() + 100);
  ASSERT_TRUE(put(1, 0, 700, {.group = 5, .expires_s = later}).ok());
  EXPECT_FALSE(entry(1).pinned);
  EXPECT_EQ(apply_op(Kind::pin, 2).code(), Code::not_found);
  EXPECT_EQ(apply_op(Kind::unpin, 2).code(), Code::not_found);
  ASSERT_TRUE(apply_op(Kind::pin, 1).ok());
  EXPECT_TRUE(entry(1).pinned);
  device_->forget_events();
  ASSERT_TRUE(apply_op(Kind::pin, 1).ok());
  EXPECT_EQ(device_->count(Io::Op::write), 0u) << "it is pinned already";
  reopen();
  EXPECT_TRUE(entry(1).pinned);
  EXPECT_EQ(log_->expiry(entry(1)), later);
  expect_page(1, 0, 700);
  ASSERT_TRUE(apply_op(Kind::unpin, 1).ok());
  EXPECT_FALSE(entry(1).pinned);
  EXPECT_EQ(log_->expiry(entry(1)), later);
  ASSERT_TRUE(remove_group(5).ok());
  expect_absent(1);
}

TEST_F(PageLogTest, PinnedPagesTakeAtMostHalfOfACache) {
  remake({}, true);
  const std::uint64_t limit = shape_.quota * shape_.zone_capacity_lbas / 2;
  std::uint64_t lbas = 0;
  for (std::uint64_t n = 0;; ++n) {
    const Status status = put(n, 0, 4000, {.pinned = true});
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::no_space);
      break;
    }
    lbas += 8;
    ASSERT_LE(lbas, limit);
  }
  EXPECT_GE(lbas, limit / 4) << "what surely fits another zone, and half a page is lost a segment";
  EXPECT_TRUE(put(1000, 0, 4000).ok()) << "what is not pinned goes on";
  EXPECT_EQ(apply_op(Kind::pin, 1000).code(), Code::no_space);
  EXPECT_TRUE(put(1, 0, 4000, {.pinned = true}).ok()) << "in the place of one that is pinned";
  ASSERT_TRUE(apply_op(Kind::unpin, 0).ok());
  EXPECT_TRUE(apply_op(Kind::pin, 1000).ok());
  for (std::uint64_t n = 1; n < lbas / 8; ++n) expect_page(n, 0, 4000);
}

// Three of these are all that a zone takes, though its capacity is twice that.
TEST_F(PageLogTest, PinnedPagesOnTheirWayCountAsWell) {
  remake({}, true);
  device_->hold(Io::Op::write);
  const std::uint64_t limit = shape_.quota * shape_.zone_capacity_lbas / 2;
  for (std::uint64_t n = 0; n < 2 * limit / 8; ++n) start_put(n, 0, 4000, {.pinned = true});
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  const auto taken = std::ranges::count_if(ops_, [](const auto& op) { return op->status.ok(); });
  EXPECT_LE(static_cast<std::uint64_t>(taken) * 8, limit);
}

TEST_F(PageLogTest, PinnedPagesThatFitBadlyLeaveRoomToo) {
  remake({}, true);
  std::uint64_t pinned = 0;
  while (put(pinned, 0, 8 << 10, {.pinned = true}).ok()) {
    ++pinned;
    ASSERT_LT(pinned, shape_.quota * 3);
  }
  EXPECT_EQ(ops_.back()->status.code(), Code::no_space);
  EXPECT_GE(pinned, shape_.quota / 2) << "a sixth of what could be there";
  for (std::uint64_t n = 0; n < 100; ++n) ASSERT_TRUE(put(1000 + n, 0, 8 << 10).ok());
  for (std::uint64_t n = 0; n < pinned; ++n) expect_page(n, 0, 8 << 10);
}

TEST_F(PageLogTest, KeysThatShareATagAreToldApart) {
  const auto [a, b] = two_of_one_tag();
  ASSERT_TRUE(put(a, 0, 300).ok());
  std::array<IndexEntry, 2> found;
  ASSERT_EQ(log_->lookup(log_->hash(key_number(b)), found), 1u) << "a candidate, and another key";
  EXPECT_EQ(exist(b), Code::not_found);
  EXPECT_EQ(remove(b).code(), Code::not_found);
  EXPECT_EQ(apply_op(Kind::pin, b).code(), Code::not_found);
  EXPECT_EQ(put(b, 0, 300, {.condition = Condition::if_exists}).code(), Code::not_found);
  EXPECT_TRUE(put(b, 1, 400, {.condition = Condition::if_absent}).ok());
  expect_page(a, 0, 300);
  expect_page(b, 1, 400);
  EXPECT_TRUE(put(a, 2, 500).ok());
  expect_page(b, 1, 400);
  EXPECT_TRUE(remove(a).ok());
  expect_absent(a);
  expect_page(b, 1, 400);
  EXPECT_EQ(log_->stats().pages, 1u);
}

TEST_F(PageLogTest, CountsWhatItHolds) {
  EXPECT_EQ(PageLog::cost_bytes(*pool_, 1), PageLog::cost_bytes(*pool_, 512));
  EXPECT_EQ(PageLog::cost_bytes(*pool_, 513), PageLog::cost_bytes(*pool_, 512) + 512);
  EXPECT_GT(PageLog::cost_bytes(*pool_, 512), 512u);
  ASSERT_TRUE(put(1, 0, 600).ok());
  ASSERT_TRUE(put(2, 0, 100).ok());
  ASSERT_TRUE(put(2, 1, 200).ok());
  EXPECT_EQ(log_->stats().puts, 3u);
  EXPECT_EQ(log_->stats().put_bytes, 900u);
  EXPECT_EQ(log_->stats().pages, 2u);
  EXPECT_EQ(log_->stats().live_bytes, 800u);
  EXPECT_EQ(log_->stats().zones, 1u);
  EXPECT_EQ(pool_->allocator.zone(zone_of(1)).live_lbas, 3u);
  EXPECT_EQ(log_->stats().device_bytes_written, info(zone_of(1)).written_lbas * kLbaBytes);
  ASSERT_TRUE(remove(1).ok());
  EXPECT_EQ(log_->stats().pages, 1u);
  EXPECT_EQ(log_->stats().live_bytes, 200u);
  EXPECT_EQ(pool_->allocator.zone(zone_of(2)).live_lbas, 1u);
}

TEST_F(PageLogTest, ClearTakesEverythingOut) {
  for (std::uint64_t n = 0; n < 50; ++n) ASSERT_TRUE(put(n, 0, 100).ok());
  ASSERT_TRUE(log_->idle());
  log_->clear();
  for (std::uint64_t n = 0; n < 50; ++n) expect_absent(n);
  EXPECT_EQ(log_->stats().pages, 0u);
  EXPECT_EQ(log_->stats().live_bytes, 0u);
}

TEST_F(PageLogTest, StopsAndStartsBackgroundWork) {
  remake({}, true);
  log_->stop_background();
  std::vector<Op*> given;
  for (std::uint64_t n = 0; n < 200; ++n) given.push_back(&start_put(n, 0, 4000));
  run();
  EXPECT_EQ(log_->stats().evicted_zones, 0u);
  EXPECT_EQ(given.back()->answers, 0u) << "no zone is freed";
  log_->start_background();
  for (Op* op : given) EXPECT_TRUE(finish(*op).ok());
  EXPECT_GT(log_->stats().evicted_zones, 0u);
}

// What the stream wants to know of it, and what each of a batch's puts asks for, is one flush.
TEST_F(PageLogTest, ADurablePutOrABatchOfThemCostsOneFlush) {
  ASSERT_TRUE(put(1, 1, 400).ok());  // a zone is open
  std::size_t flushes = device_->count(Io::Op::flush);
  ASSERT_TRUE(put(2, 1, 400, {.flushed = true}).ok());
  run();
  EXPECT_EQ(device_->count(Io::Op::flush) - flushes, 1u);
  flushes = device_->count(Io::Op::flush);
  for (std::uint64_t n = 3; n < 8; ++n) start_put(n, 1, 400, {.flushed = true});
  run();
  EXPECT_EQ(device_->count(Io::Op::flush) - flushes, 1u);
}

// What completes while a flush runs is made durable by the next one, and noted as well.
TEST_F(PageLogTest, ANoteCoversWhatTheLastFlushMadeDurable) {
  ASSERT_TRUE(put(1, 1, 400).ok());
  device_->hold(Io::Op::flush);
  Op& first = start_put(2, 1, 400, {.flushed = true});
  run();
  Op& second = start_put(3, 1, 400, {.flushed = true});
  run();
  Op& third = start_put(4, 1, 400, {.flushed = true});
  run();
  device_->let_go(Io::Op::flush);
  for (Op* op : {&first, &second, &third}) ASSERT_TRUE(finish(*op).ok());
  clock_.now_ns += 20'000'000;
  run();
  const std::vector<SurveyedBatch> all = batches(zone_of(4));
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().header.record_count, 0u);
  EXPECT_EQ(all.back().header.flushed_lba, all.back().header.lba) << "all before it is durable";
}

}  // namespace
}  // namespace furrow
