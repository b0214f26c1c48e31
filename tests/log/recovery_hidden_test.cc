// Establishes what recover() does with what it cannot read, and what a later opening makes of it
// when it can be read again: it is kept, and nothing that is older counts in its place. How: on
// images of zones, reads that fail, and trims that say what an opening went without.
#include "tests/log/recovery_rig.h"

namespace furrow {
namespace {

TEST_F(RecoveryTest, AnUnreadableZoneIsSetAside) {
  remake_with_faults();
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  write_all();
  faults_->fail_reads(Lba{pool_->device_lba(ZoneId{2}, 0)}, shape_.zone_capacity_lbas);
  std::vector<ZoneTrim> noted;
  RecoveryOptions with = options();
  with.trims = {{ZoneId{2}, 9, 20, true}};
  with.note_trim = [&](const ZoneTrim& trim) {
    EXPECT_NE(info(ZoneId{2}).state, ZoneState::full);
    noted.push_back(trim);
    return Status();
  };
  recover_now(with);
  EXPECT_EQ(use(2), ZoneUse::bad);
  ASSERT_EQ(result_->lost.size(), 1u);
  EXPECT_GT(info(ZoneId{2}).written_lbas, 0u) << "there may be data";
  EXPECT_EQ(pool_->allocator.min_opened(kVolume, ZoneId{3}), 0u) << "of any volume, and as old";
  EXPECT_EQ(pool_->allocator.min_sequence(kVolume, ZoneId{3}), 0u);
  EXPECT_TRUE(volume().hidden);
  ASSERT_EQ(noted.size(), 1u);
  EXPECT_TRUE(noted[0].aside && noted[0].durable);
  EXPECT_EQ(noted[0].generation, 9u) << "what was known of it stays";
  EXPECT_EQ(noted[0].end_lba, 20u);
}

// Nothing of volumes that are made while it is so.
TEST_F(RecoveryTest, AnUnreadableZoneHoldsNothingOfLaterVolumes) {
  constexpr std::uint64_t kNext = kVolume + 2;
  remake_with_faults();
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  write_all();
  RecoveryOptions with = options();
  with.note_trim = [&](const ZoneTrim& trim) {
    with.trims = {trim};
    return Status();
  };
  for (std::uint64_t next = kNext; next < kNext + 3; ++next) {
    with.next_volume_id = next;
    if (next == kNext + 1) with.volumes.push_back(kNext);
    drop_pool();
    make_pool();
    ASSERT_TRUE(pool_->allocator.admit(kNext, 2, 1).ok());
    faults_->fail_reads(Lba{pool_->device_lba(ZoneId{2}, 0)}, shape_.zone_capacity_lbas);
    Result<RecoveryResult> result = recover(*device_, *pool_, RecoveryOptions(with));
    ASSERT_TRUE(result.ok());
    EXPECT_TRUE(result->volumes[kVolume].hidden);
    EXPECT_FALSE(result->volumes[kNext].hidden) << next;
    EXPECT_EQ(pool_->allocator.min_opened(kVolume, ZoneId{3}), 0u);
    EXPECT_NE(pool_->allocator.min_opened(kNext, ZoneId{3}), 0u) << next;
    ASSERT_EQ(with.trims.size(), 1u);
    EXPECT_TRUE(with.trims[0].aside);
    EXPECT_EQ(with.trims[0].generation, kNext);
  }
  faults_->heal();
  with.volumes = {kVolume};
  recover_now(with);
  EXPECT_EQ(found(1), 11u);
}

// It was the newest of its stream when the power was cut, and is not any more.
TEST_F(RecoveryTest, AZoneThatAnOpeningWentWithoutIsVerified) {
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600)});
  ZoneImage& aside = zone(3, 20);
  aside.add_batch({aside.page(2, 21, 600)});
  const std::uint32_t torn = aside.add_batch({aside.page(1, 22, 600)});
  ZoneImage& newest = zone(4, 30);
  newest.add_batch({newest.page(3, 31, 600)});
  RecoveryOptions with = options();
  with.trims = {{ZoneId{3}, 0, 96, false, true}};
  for (const bool is_torn : {true, false}) {
    aside.damage(torn + 1);  // and mends it
    write_all();
    recover_now(with);
    EXPECT_EQ(found(1), is_torn ? 11u : 22u);
    EXPECT_EQ(found(2), 21u);
    EXPECT_EQ(found(3), 31u);
    const auto trim = std::ranges::find(result_->new_trims, ZoneId{3}, &ZoneTrim::zone);
    ASSERT_NE(trim, result_->new_trims.end()) << "that it is verified is noted";
    EXPECT_EQ(trim->end_lba, is_torn ? torn + 1 : aside.written_lbas());
    EXPECT_FALSE(trim->aside);
  }
}

// As one that was emptied and could not be reset, which fails altogether by and by.
TEST_F(RecoveryTest, AZoneThatHeldNothingIsNotMissed) {
  remake_with_faults();
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  ZoneImage& b = zone(3, 20);
  b.add_batch({b.page(2, 21, 600)});
  write_all();
  faults_->fail_reads(Lba{pool_->device_lba(ZoneId{2}, 0)}, shape_.zone_capacity_lbas);
  RecoveryOptions with = options();
  with.trims = {{ZoneId{2}, 10, 0}};
  faults_->degrade(ZoneId{2}, ZoneState::read_only);
  recover_now(with);
  EXPECT_EQ(use(2), ZoneUse::bad);
  EXPECT_EQ(found(2), 21u);
  EXPECT_FALSE(volume().hidden);
  EXPECT_NE(pool_->allocator.min_opened(kVolume, ZoneId{3}), 0u) << "no deletions for its sake";
}

// What was evicted since may have been newer than what it holds, but not while an older zone stays.
TEST_F(RecoveryTest, ACachesOldestZoneIsEvictedWhereAnOpeningWentWithoutIt) {
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  ZoneImage& b = zone(3, 20);
  b.add_batch({b.page(2, 21, 600)});
  ZoneImage& c = zone(4, 30);
  c.add_batch({c.page(3, 31, 600)});
  RecoveryOptions with = options();
  with.caches = {kVolume};
  with.trims = {{ZoneId{3}, 0, 96, false, true}};
  write_all();
  recover_now(with);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 21u);
  with.trims.push_back({ZoneId{2}, 0, 96, false, true});
  write_all();
  recover_now(with);
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(found(2), 0u);
  EXPECT_EQ(found(3), 31u);
  EXPECT_NE(info(ZoneId{2}).written_lbas, 0u) << "it may hide what is older";
  EXPECT_TRUE(volume().hidden) << "another opening may find otherwise";
  with.trims.push_back({ZoneId{4}, 0, 96, false, true});
  recover_now(with);
  for (const std::uint64_t number : {1, 2, 3}) EXPECT_EQ(found(number), 0u);
  EXPECT_EQ(use(4), ZoneUse::sealed) << "nothing is written to it any more";
  const auto noted = std::ranges::find(result_->new_trims, ZoneId{4}, &ZoneTrim::zone);
  ASSERT_NE(noted, result_->new_trims.end());
  EXPECT_TRUE(noted->aside);
}

// Nothing can have been evicted since where all that it had is there: it was young.
TEST_F(RecoveryTest, ACacheOfWhichAnOpeningCouldReadNothingIsThereAgain) {
  Shape shape;
  shape.faults = true;
  make(shape);
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  ZoneImage& b = zone(3, 20);
  b.set_previous(10);
  b.add_batch({b.page(2, 21, 600)});
  ZoneImage& other = zone(4, 30, kVolume + 1);
  other.add_batch({other.page(3, 31, 600)});
  RecoveryOptions with = options();
  with.caches = {kVolume};
  with.next_volume_id = kVolume + 1;
  with.volumes = {kVolume, kVolume + 1};
  const auto recovered = [&](bool unreadable = false) {
    write_all();
    const Lba others{pool_->device_lba(ZoneId{4}, 0)};
    if (unreadable) faults_->fail_reads(others, shape_.zone_capacity_lbas);
    drop_pool();
    make_pool();
    EXPECT_TRUE(pool_->allocator.admit(kVolume + 1, 1, 1).ok());
    Result<RecoveryResult> result = recover(*device_, *pool_, with);
    EXPECT_TRUE(result.ok());
    return result->volumes[kVolume].pages.size();
  };
  with.trims = {{ZoneId{2}, 0, 96, false, true}, {ZoneId{3}, 0, 96, false, true}};
  EXPECT_EQ(recovered(), 2u);
  b.set_previous(9);
  EXPECT_EQ(recovered(), 1u) << "something was between them, and the second one is the last";
  b.set_previous(10);
  with.trims.push_back({ZoneId{3}, 20, 0});  // it was evicted itself, and not reset
  EXPECT_EQ(recovered(), 0u);
  with.trims.pop_back();
  EXPECT_EQ(recovered(true), 0u) << "that may be the one that is left";
  shape.quota = 6;
  make(shape);
  EXPECT_EQ(recovered(), 2u);
  with.trims.push_back({ZoneId{4}, 0, 96, false, true});
  EXPECT_EQ(recovered(), 0u) << "it had less than its quota, as another's zone was not there";
  with.trims.pop_back();
  shape.quota = 5;
  make(shape);
  EXPECT_EQ(recovered(), 0u) << "with so small a quota none may be left";
}

// As the journal says, whatever else it has to say of the zone.
TEST_F(RecoveryTest, WhatACacheHasEvictedStaysSo) {
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  ZoneImage& b = zone(3, 20);
  b.add_batch({b.page(2, 21, 600)});
  RecoveryOptions with = options();
  with.caches = {kVolume};
  for (const bool durable : {false, true}) {
    with.trims = {{ZoneId{2}, 10, 96, durable, true}};
    write_all();
    recover_now(with);
    EXPECT_EQ(found(1), 0u);
    EXPECT_EQ(found(2), 21u);
    const auto noted = std::ranges::find(result_->new_trims, ZoneId{2}, &ZoneTrim::zone);
    EXPECT_TRUE(noted == result_->new_trims.end() || noted->aside) << durable;
    EXPECT_TRUE(pool_->tables[2].evicted && !pool_->tables[3].evicted) << "for what is noted later";
  }
}

TEST_F(RecoveryTest, AnEarlierLifeDoesNotPassForAZoneWithoutItsHeader) {
  ZoneImage& before = zone(2, 10);
  before.add_batch({before.page(1, 11, 600)});
  before.damage(0);
  before.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  write_all();
  recover_now();
  EXPECT_EQ(found(1), 11u) << "nothing says that it is over";
  RecoveryOptions with = options();
  with.trims = {{ZoneId{2}, 20, 1}};
  write_all();
  recover_now(with);
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(result_->lost.size(), 1u);
}

// What an earlier life has left in the place of a first batch that was torn tells nothing of what
// is behind it: the header does, when it can be read. Until then the zone stays.
TEST_F(RecoveryTest, NorWhereItsHeaderCannotBeReadForOnce) {
  remake_with_faults();
  ZoneImage& old = zone(3, 5);
  old.add_batch({old.page(1, 6, 600)});
  ZoneImage& before = zone(2, 10);
  before.add_batch({before.page(2, 11, 600), before.page(5, 12, 5000)});
  ZoneImage& newest = zone(2, 20);
  newest.add_batch({newest.page(3, 21, 600)});
  const std::uint32_t torn = newest.add_batch({newest.page(1, 22, 600)});
  newest.damage(torn + 1);
  std::ranges::copy(before.lba(1), newest.lba(1).begin());
  std::erase_if(images_, [&](const auto& image) { return image.get() == &before; });
  RecoveryOptions with = options_of_store();
  const Lba header{pool_->device_lba(ZoneId{2}, 0)};
  for (const bool sealed : {false, true}) {
    with.trims.clear();
    if (sealed) {  // by an opening that had gone without it altogether
      newest.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
      with.trims = {{ZoneId{2}, 0, 96, false, true}};
    }
    write_all();
    faults_->fail_reads(header, 1);
    recover_now(with);
    EXPECT_EQ(use(2), ZoneUse::bad) << "it stays as it is";
    EXPECT_TRUE(volume().hidden);
    EXPECT_EQ(zone_of(5), ~std::uint32_t{0}) << "which is not whole there";
    EXPECT_TRUE(pool_->tables[2].unverified);
    EXPECT_EQ(pool_->allocator.min_opened(kVolume, ZoneId{3}), 0u) << "it may have anything";
    ASSERT_EQ(result_->lost.size(), 1u);
    EXPECT_EQ(result_->lost[0].missing, RecoveryResult::Lost::Missing::some) << "can be given up";
    const auto noted = std::ranges::find(result_->new_trims, ZoneId{2}, &ZoneTrim::zone);
    ASSERT_NE(noted, result_->new_trims.end());
    EXPECT_TRUE(noted->aside);
    with.trims = result_->new_trims;
    faults_->heal();
    ZoneImage& later = zone(4, 30);
    later.add_batch({later.page(4, 31, 600)});
    later.write_to(*device_);
    recover_now(with);
    EXPECT_EQ(found(1), 6u) << "what replaced it was torn";
    EXPECT_EQ(found(2), 0u);
    EXPECT_EQ(found(3), 0u);
    EXPECT_EQ(found(4), 31u);
    EXPECT_FALSE(volume().hidden);
    images_.pop_back();
  }
}

// Nor behind what cannot be read of one that an opening went without, which has it finished.
TEST_F(RecoveryTest, NorBehindWhatCannotBeRead) {
  remake_with_faults();
  ZoneImage& before = zone(2, 10);
  before.add_batch({before.page(1, 11, 600)});
  const std::uint32_t left = before.add_batch({before.page(2, 12, 600)});
  ZoneImage& newest = zone(2, 20);
  newest.add_batch({newest.page(3, 21, 600)});
  ASSERT_EQ(newest.written_lbas(), left);
  for (std::uint32_t at = left; at < before.written_lbas(); ++at) {
    std::ranges::copy(before.lba(at), newest.lba(at).begin());
  }
  newest.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  std::erase_if(images_, [&](const auto& image) { return image.get() == &before; });
  write_all();
  RecoveryOptions with = options_of_store();
  with.trims = {{ZoneId{2}, 0, 96, false, true}};
  fail_reads(2, 0, 2);
  recover_now(with);
  EXPECT_EQ(zone_of(2), ~std::uint32_t{0}) << "it was deleted with that life of the zone";
  EXPECT_EQ(use(2), ZoneUse::bad);
  ASSERT_EQ(result_->lost.size(), 1u);
  EXPECT_EQ(result_->lost[0].missing, RecoveryResult::Lost::Missing::all);
}

// One that has its summary, or of which the journal knows, is no guess.
TEST_F(RecoveryTest, AZoneIsKnownWithoutAHeaderThatCannotBeRead) {
  remake_with_faults();
  ZoneImage& filled = zone(2, 10);
  for (int segment = 0; segment < 3; ++segment) {
    filled.add_batch({filled.page(1 + segment, 11 + segment, 600)});
    filled.close_segment();
  }
  ZoneImage& finished = zone(3, 20);
  finished.add_batch({finished.page(4, 21, 600)});
  const std::uint32_t end = finished.written_lbas();
  finished.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  write_all();
  RecoveryOptions with = options_of_store();
  with.trims = {{ZoneId{3}, 20, end}};
  for (const std::uint32_t each : {2, 3}) {
    fail_reads(each, 0);
  }
  recover_now(with);
  for (const std::uint64_t number : {1, 2, 3, 4}) EXPECT_NE(found(number), 0u);
  EXPECT_EQ(use(2), ZoneUse::sealed);
  EXPECT_EQ(use(3), ZoneUse::sealed);
  EXPECT_FALSE(volume().hidden);
  EXPECT_TRUE(result_->lost.empty());
}

// As where a key's newest record could not be read when an older one was collected. Of a store's
// zone the lowest one counts; of a cache each does. Nothing else that is older there is one: a
// deletion, a copy of what is newest itself, and what was there before the newest was written.
TEST_F(RecoveryTest, AnOlderVersionInALaterZoneIsKnown) {
  ZoneImage& first = zone(2, 10);
  ZoneImage& later = zone(3, 200, kVolume, kCollectionStream);
  ZoneImage& newest = zone(4, 300);
  std::vector<ZoneImage::Item> pages, older;
  for (std::uint64_t n = 1; n < 7; ++n) {
    pages.push_back(first.page(n, 50 + n, 600));
    older.push_back(later.page(n, 20 + n, 600));
  }
  pages.push_back(first.page(9, 59, 600));
  older.push_back(ZoneImage::tombstone(9, 11));
  pages.push_back(first.page(10, 12, 600));
  older.push_back(later.page(10, 12, 600));
  older.push_back(later.page(11, 13, 600));
  pages.push_back(ZoneImage::tombstone(12, 40));  // it may have the sequence of what it deletes
  older.push_back(later.page(12, 40, 600));
  first.add_batch(pages);
  later.add_batch(older);
  newest.add_batch({newest.page(11, 301, 600)});
  write_all();
  recover_now(options_of_store());
  EXPECT_EQ(found(1), 51u);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{2}).oldest(), 10u);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{3}).oldest(), 21u);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{4}).oldest(), 300u);
  EXPECT_TRUE(volume().outlived.empty());
  recover_now();
  EXPECT_EQ(pool_->allocator.zone(ZoneId{3}).oldest(), 200u);
  EXPECT_EQ(volume().outlived.size(), 7u);
  for (const Outlived& each : volume().outlived) EXPECT_EQ(each.opened_sequence, 200u);
}

// Its first batch was torn by a power cut, and the journal says that nothing counts behind the
// header: that one alone may go.
TEST_F(RecoveryTest, TheHeaderOfAZoneInWhichNothingCounts) {
  for (const bool dead : {false, true}) {
    SCOPED_TRACE(dead ? "cannot be read" : "is damaged");
    remake_with_faults();
    ZoneImage& old = zone(2, 10);
    old.add_batch({old.page(1, 11, 600)});
    ZoneImage& newest = zone(3, 20);
    newest.damage(newest.add_batch({newest.page(2, 21, 600)}));
    write_all();
    RecoveryOptions with = options_of_store();
    recover_now(with);
    with.trims = result_->new_trims;
    ASSERT_EQ(info(ZoneId{3}).state, ZoneState::full);
    const Lba header{pool_->device_lba(ZoneId{3}, 0)};
    dead ? faults_->fail_reads(header, 1) : flip_bit(*device_, ZoneId{3}, 0);
    recover_now(with);
    EXPECT_NE(use(3), ZoneUse::bad);
    EXPECT_FALSE(volume().hidden);
    EXPECT_EQ(found(1), 11u);
  }
}

}  // namespace
}  // namespace furrow
