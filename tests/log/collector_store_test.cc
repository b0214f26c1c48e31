// Establishes how Collector makes free zones of a store: nothing live is lost, the zone with the
// least to copy goes, copies keep their sequence and share batches, and what is stored meanwhile
// wins. How: on a PageLog, by what the device is asked for (TapDevice) and what is found
// afterwards, also after reopenings and power cuts. (Deletions: collector_deletions_test.)
#include <map>

#include "tests/log/collector_rig.h"

namespace furrow {
namespace {

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

// A power cut could leave the copy of a deletion, and not the page that was written before it.
TEST_F(CollectorTest, NothingIsCopiedFromAZoneBeforeItIsDurable) {
  make_log({}, kStore);
  fill(4);
  unsigned watched = 0;
  for (std::uint64_t n = 0; watched < 3; ++n) {
    ASSERT_LT(n, 5000u);
    const std::uint64_t copied = log_->stats().relocated_bytes;
    std::optional<ZoneId> filled;  // by the put before
    if (n != 0) filled = ZoneId{zone_of(1000 + (n - 1) % 10)};
    device_->hold(Io::Op::flush);
    Op& op = start_put(1000 + n % 10, n, 1000);
    run();
    if (filled && pool_->allocator.zone(*filled).use == ZoneUse::draining) {
      ++watched;
      EXPECT_EQ(log_->stats().relocated_bytes, copied);
    }
    device_->let_go(Io::Op::flush);
    ASSERT_TRUE(finish(op).ok());
  }
}

// .. nor where the flush that was to make it so has failed.
TEST_F(CollectorTest, NothingIsCopiedFromAZoneWhoseFlushHasFailed) {
  constexpr Status kFails{Code::io_error, Origin::zone};
  make_log({}, kStore);
  fill(2);
  log_->collect(zone_of(filler_.front()));  // so that collection has a zone
  run();
  for (std::uint64_t n = 0; n < 4; ++n) ASSERT_TRUE(put(n, 0, 1000).ok());
  const ZoneId zone = zone_of(0);
  churn(400, [&] { return pool_->allocator.zone(zone).use == ZoneUse::sealed; });
  device_->hold(Io::Op::flush);
  const std::uint64_t held = pool_->allocator.held(kVolume);
  while (pool_->allocator.held(kVolume) == held) {
    start_put(next_++, 0, 400);
    run();
  }
  const std::uint64_t copied = log_->stats().relocated_bytes;
  log_->collect(zone);
  run();
  device_->fail_one(Io::Op::flush, 0, kFails);  // behind the last summary
  run();
  ASSERT_EQ(device_->held(Io::Op::flush), 1u);
  device_->fail_one(Io::Op::flush, 0, kFails);
  run();
  clock_.now_ns += 2'000'000'000;
  log_->collect(zone);
  run();
  EXPECT_EQ(log_->stats().relocated_bytes, copied);
  EXPECT_EQ(zone_of(0), zone);
  device_->let_go(Io::Op::flush);
  run();
  clock_.now_ns += 2'000'000'000;
  log_->collect(zone);
  run();
  EXPECT_TRUE(is_reset(zone));
  for (std::uint64_t n = 0; n < 4; ++n) expect_page(n, 0, 1000);
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

// Its key was locked before collection came to the key's page, and it is kept from being written
// only afterwards.
TEST_F(CollectorTest, CopiesOvertakeAPutThatAShrinkingStoreKeepsWaiting) {
  remake({}, kStore);
  fill(4);
  const std::uint64_t number = filler_.front();
  const ZoneId first = zone_of(number);
  filler_.erase(filler_.begin());
  thin_out(first);
  device_->hold(Io::Op::read);
  Op& late = start_put(number, 1, 400);
  run();
  ASSERT_EQ(device_->held(Io::Op::read), 1u) << "the header of its page";
  log_->shrink(4);
  for (run(); device_->held(Io::Op::read) > 1; run()) device_->let_one_go(Io::Op::read, 1);
  ASSERT_EQ(pool_->allocator.zone(first).use, ZoneUse::draining);
  device_->let_go(Io::Op::read);
  EXPECT_TRUE(run([&] { return late.answers == 1; }));
  EXPECT_TRUE(late.status.ok()) << late.status.describe();
  EXPECT_TRUE(is_reset(first));
  expect_page(number, 1, 400);
}

// Zones that hold less than they say, with nothing dead in them: they can be emptied into each
// other for ever. What waits meanwhile has room in the quota as it is.
TEST_F(CollectorTest, AStoreThatCannotShrinkGoesOn) {
  constexpr std::uint64_t kHoldsLbas = 40;
  Shape shape;
  shape.zones = 14;
  shape.quota = 8;
  shape.faults = true;
  remake(shape, kStore);
  const auto make_short = [&] {
    faults_->heal();
    for (std::uint32_t i = kMetadataZones; i < shape_.zones; ++i) {
      faults_->fail_writes(Lba{pool_->device_lba(ZoneId{i}, kHoldsLbas)},
                           shape_.zone_capacity_lbas - kHoldsLbas);
    }
  };
  std::size_t seen = 0;
  const auto answered = [&](const Op& op) {  // a reset makes a zone whole
    if (resets().size() != seen) make_short();
    seen = resets().size();
    return op.answers != 0;
  };
  make_short();
  const auto put_one = [&] {
    Op& op = start_put(next_++, 0, 2000);
    EXPECT_TRUE(run([&] { return answered(op); }));
    EXPECT_TRUE(op.status.ok()) << op.status.describe();
  };
  while (pool_->allocator.held(kVolume) < 6) put_one();
  while (log_->written_lba(zone_of(next_ - 1)) + 5 <= kHoldsLbas) put_one();
  run();
  Op& late = start_put(next_++, 0, 2000);
  const std::size_t writes = device_->count(Io::Op::write);
  ASSERT_TRUE(run([&] { return device_->count(Io::Op::write) != writes; }));
  log_->shrink(log_->quota_min());  // before it is told that there is no room for it
  EXPECT_TRUE(run([&] { return answered(late); }));
  EXPECT_TRUE(late.status.ok()) << late.status.describe();
  EXPECT_FALSE(log_->shrinking());
  EXPECT_EQ(log_->take_shrinking_failure().code(), Code::no_space);
  EXPECT_GT(resets().size(), 100u);
}

// Scrub had to read a page twice. Before it has its turn at the key the page's zone is reset, and
// the key's newest page stands at the same LBA.
TEST_F(CollectorTest, ALaterPageAtTheSamePlaceIsNotRewritten) {
  constexpr std::uint64_t kKey = 1, kVersionsMax = 500;
  const auto begin = [&] {
    remake({}, kStore);
    ASSERT_TRUE(put(kKey, 0, 400).ok());
  };
  ASSERT_NO_FATAL_FAILURE(begin());
  const std::uint64_t lba = entry(kKey).lba;
  std::uint64_t newest = 0;
  std::vector<Op*> all{nullptr};
  for (std::uint64_t v = 1; v < kVersionsMax; ++v) all.push_back(&start_put(kKey, v, 400));
  run();
  while (++newest < kVersionsMax && all[newest]->write.lba != lba) {
  }
  ASSERT_LT(newest, kVersionsMax);
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_EQ(entry(kKey).lba, lba);
  Op& rewrite = prepare(KeyOp::Kind::rewrite, kKey);
  give_page(rewrite, page_bytes(kKey, 0, 400));
  rewrite.rewritten_lba = lba;
  rewrite.rewritten_generation = generation(zone_of(kKey));
  rewrite.old_sequence = pool_->next_sequence - 1;
  for (std::uint64_t v = 1; v <= newest; ++v) start_put(kKey, v, 400);
  log_->submit(rewrite);
  EXPECT_EQ(finish(rewrite).code(), Code::not_found);
  EXPECT_EQ(entry(kKey).lba, lba);
  expect_page(kKey, newest, 400);
}

}  // namespace
}  // namespace furrow
