// Establishes what recover() makes of what a power cut may have torn and cannot be read, and of
// what stands behind that: nothing that was promised goes, whichever opening can read it, and what
// has counted once goes on counting. How: on images of zones, reads that fail, and are mended.
#include "tests/log/recovery_rig.h"

namespace furrow {
namespace {

// What could not be read of the newest zone may be torn; the next opening verifies it.
TEST_F(RecoveryTest, WhatCannotBeReadOfTheNewestZoneIsVerifiedLater) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600)});
  ZoneImage& newest = zone(3, 20);
  newest.add_batch({newest.page(2, 21, 600)});
  const std::uint32_t torn = newest.add_batch({newest.page(1, 22, 600)});
  newest.damage(torn + 1);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, torn);
  recover_now(with);
  with.trims = result_->new_trims;
  const auto noted = std::ranges::find(with.trims, ZoneId{3}, &ZoneTrim::zone);
  ASSERT_NE(noted, with.trims.end());
  EXPECT_TRUE(noted->aside);
  EXPECT_EQ(noted->end_lba, newest.written_lbas());
  EXPECT_EQ(std::ranges::count(with.trims, ZoneId{3}, &ZoneTrim::zone), 1);
  EXPECT_EQ(use(3), ZoneUse::bad) << "it stays as it is";
  EXPECT_TRUE(volume().hidden);
  EXPECT_EQ(pool_->allocator.min_opened(kVolume, ZoneId{2}), 0u) << "it may have anything";
  EXPECT_EQ(pool_->allocator.min_sequence(kVolume, ZoneId{2}), 0u);
  faults_->heal();
  zone(4, 30).add_batch({newest.page(3, 31, 600)});
  images_.back()->write_to(*device_);
  recover_now(with);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 21u);
  EXPECT_EQ(found(3), 31u);
}

// Also where there is nothing in its place, as that was deleted, or never was: collected later,
// when it can be read, it would pass for a page that has rotted.
TEST_F(RecoveryTest, APageThatMayBeTornOverADeletionStaysAsItIs) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600)});
  old.add_batch({old.tombstone(1, 12)});
  ZoneImage& newest = zone(3, 20);
  const std::uint32_t torn = newest.add_batch({newest.page(1, 21, 600), newest.page(2, 22, 600)});
  newest.damage(torn + 1);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, torn + 1, 4);
  recover_now(with);
  EXPECT_EQ(use(3), ZoneUse::bad);
  EXPECT_EQ(found(1), 21u) << "reading it is an error";
  recover_mended(with);
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(found(2), 22u) << "which is whole";
}

// Nor may what such a page has replaced be collected before that.
TEST_F(RecoveryTest, APageThatMayBeTornTakesNoOthersPlace) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  const auto original = old.page(2, 12, 600);
  old.add_batch({old.page(1, 11, 600), original});
  ZoneImage& newest = zone(3, 20);
  const std::uint32_t first = newest.add_batch({newest.page(1, 21, 600), newest.page(3, 22, 600)});
  ZoneImage& copies = zone(4, 30, kVolume, kCollectionStream);
  const std::uint32_t copy = copies.add_batch({original});
  newest.damage(first + 1);
  copies.damage(copy + 1);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, first + 1, 4);
  fail_reads(4, copy + 1);
  recover_now(with);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(zone_of(2), 2u) << "which is whole";
  EXPECT_EQ(found(3), 22u) << "reading it tells what is wrong";
  EXPECT_TRUE(volume().hidden);
  EXPECT_EQ(use(3), ZoneUse::bad) << "it stays as it is";
  EXPECT_NE(use(4), ZoneUse::bad) << "nothing is older there";
  ASSERT_EQ(result_->lost.size(), 1u);
  for (const std::uint32_t each : {3, 4}) {
    const auto noted = std::ranges::find(result_->new_trims, ZoneId{each}, &ZoneTrim::zone);
    ASSERT_NE(noted, result_->new_trims.end());
    EXPECT_TRUE(noted->aside);
    EXPECT_TRUE(pool_->tables[each].unverified);
  }
  with.trims = result_->new_trims;
  faults_->heal();
  zone(5, 40).add_batch({newest.page(4, 41, 600)});
  zone(6, 50, kVolume, kCollectionStream).add_batch({newest.page(5, 42, 600)});
  for (const std::size_t i : {3, 4}) images_[i]->write_to(*device_);
  recover_now(with);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(zone_of(2), 2u);
  EXPECT_EQ(found(3), 22u);
  EXPECT_EQ(found(5), 42u);
  EXPECT_FALSE(volume().hidden);
  EXPECT_EQ(pool_->tables[3].torn, std::vector<std::uint32_t>{first + 1});
  EXPECT_EQ(pool_->tables[4].torn, std::vector<std::uint32_t>{copy + 1});
}

// What counted behind such a page goes on counting when it turns out to be torn: it was served, and
// what it had taken the place of may be gone by then.
TEST_F(RecoveryTest, WhatCountedBehindATornPageStays) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600)});
  zone(5, 15).add_batch({old.page(2, 16, 600), old.page(3, 17, 600)});
  ZoneImage& newest = zone(3, 20);
  const std::uint32_t torn =
      newest.add_batch({newest.page(2, 21, 600), newest.page(1, 22, 600)}) + 1;
  newest.add_batch({newest.tombstone(3, 23)});
  newest.damage(torn);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, torn);
  recover_now(with);
  EXPECT_EQ(found(1), 22u);
  EXPECT_EQ(found(2), 16u);
  EXPECT_EQ(found(3), 0u);
  ASSERT_EQ(pool_->allocator.zone(ZoneId{2}).live_lbas, 0u);
  ASSERT_TRUE(direct(Io::Op::reset, ZoneId{2}).ok());
  faults_->heal();
  zone(4, 30).add_batch({newest.page(4, 31, 600)});
  images_.back()->write_to(*device_);
  for (unsigned opening = 0; opening < 3; ++opening) {
    with.trims = result_->new_trims;
    recover_now(with);
    EXPECT_EQ(found(1), 22u);
    EXPECT_EQ(found(2), 16u);
    EXPECT_EQ(found(3), 0u);
    EXPECT_EQ(found(4), 31u);
    EXPECT_FALSE(volume().hidden);
    EXPECT_NE(use(3), ZoneUse::bad);
    EXPECT_EQ(pool_->tables[3].torn, std::vector<std::uint32_t>{torn});
    EXPECT_TRUE(pool_->tables[3].unverified) << "the journal must not say that it is durable";
    const auto trim = std::ranges::find(result_->new_trims, ZoneId{3}, &ZoneTrim::zone);
    ASSERT_NE(trim, result_->new_trims.end());
    EXPECT_TRUE(trim->aside) << "the next one is to void the torn page as well";
  }
}

// Of copies, too: the torn one's original is there, others' may be gone.
TEST_F(RecoveryTest, ACopyBehindATornPageStays) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  const auto first = old.page(1, 11, 600), second = old.page(2, 12, 600);
  old.add_batch({first});
  zone(5, 15).add_batch({second});
  zone(3, 20).add_batch({old.page(3, 21, 600)});
  ZoneImage& copies = zone(4, 30, kVolume, kCollectionStream);
  const std::uint32_t torn = copies.add_batch({first, second}) + 1;
  copies.damage(torn);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(4, torn);
  recover_now(with);
  EXPECT_EQ(zone_of(1), 2u);
  EXPECT_EQ(zone_of(2), 4u);
  ASSERT_TRUE(direct(Io::Op::reset, ZoneId{5}).ok());
  recover_mended(with);
  EXPECT_EQ(zone_of(1), 2u);
  EXPECT_EQ(zone_of(2), 4u);
  EXPECT_EQ(found(2), 12u);
}

// But for a group's deletion: it may have come after a page that took an older one out of the
// group, and then would delete that one in its place.
TEST_F(RecoveryTest, NoGroupsDeletionBehindATornPageStays) {
  constexpr std::uint64_t kGroup = 9;
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({ZoneImage::in_group(old.page(1, 11, 600), kGroup),
                 ZoneImage::in_group(old.page(3, 12, 600), kGroup)});
  ZoneImage& newest = zone(3, 20);
  newest.add_batch({ZoneImage::group_tombstone(kGroup + 1, 20)});
  const std::uint32_t torn = newest.add_batch({newest.page(1, 21, 600)}) + 1;
  newest.add_batch({ZoneImage::group_tombstone(kGroup, 22), newest.page(2, 23, 600)});
  newest.damage(torn);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, torn);
  recover_now(with);
  EXPECT_EQ(found(1), 11u) << "as long as nobody knows whether it is torn";
  EXPECT_EQ(found(3), 0u) << "no torn page takes it out of the group";
  recover_mended(with);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 23u);
  EXPECT_EQ(found(3), 12u);
  EXPECT_EQ(pool_->tables[3].group_tombstones, 1u) << "the one before it counts";
}

// Where it was in the group as well, the deletion is of all that there was of the key, torn or not.
TEST_F(RecoveryTest, AGroupsDeletionBehindAPageOfItThatMayBeTornTakesOlderOnes) {
  constexpr std::uint64_t kGroup = 9;
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({ZoneImage::in_group(old.page(1, 11, 600), kGroup),
                 ZoneImage::in_group(old.page(2, 12, 600), kGroup),
                 ZoneImage::in_group(old.page(3, 13, 600), kGroup)});
  ZoneImage& newest = zone(3, 20);
  const std::uint32_t unread =
      newest.add_batch({ZoneImage::in_group(newest.page(1, 21, 600), kGroup)}) + 1;
  newest.add_batch({ZoneImage::group_tombstone(kGroup, 22)});
  const std::uint32_t later = newest.add_batch({newest.page(2, 23, 600)}) + 1;
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, unread);
  fail_reads(3, later);
  recover_now(with);
  EXPECT_EQ(found(1), 0u) << "as all of the group";
  EXPECT_EQ(found(2), 23u) << "reading it is an error";
  EXPECT_EQ(found(3), 0u);
  EXPECT_EQ(use(3), ZoneUse::bad);
  recover_mended(with);
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(found(2), 23u);
  EXPECT_EQ(found(3), 0u);
}

// A batch header names keys that nobody knows then, and may have taken any out of any group.
TEST_F(RecoveryTest, NoGroupsDeletionBehindAHeaderThatMayBeTornCounts) {
  constexpr std::uint64_t kGroup = 9;
  for (const bool is_torn : {true, false}) {
    SCOPED_TRACE(is_torn ? "torn" : "whole");
    remake_with_faults();
    ZoneImage& old = zone(2, 10);
    old.add_batch({ZoneImage::in_group(old.page(1, 11, 600), kGroup),
                   ZoneImage::in_group(old.page(3, 12, 600), kGroup)});
    ZoneImage& newest = zone(3, 20);
    newest.add_batch({newest.page(4, 20, 600)});
    const std::uint32_t unread = newest.add_batch({newest.page(1, 21, 600)});
    newest.add_batch({ZoneImage::group_tombstone(kGroup, 22), newest.page(2, 23, 600)});
    if (is_torn) newest.damage(unread);
    write_all();
    RecoveryOptions with = options_of_store();
    fail_reads(3, unread);
    recover_now(with);
    EXPECT_EQ(found(1), 11u) << "as long as nobody knows whether it is torn";
    EXPECT_EQ(found(3), 12u);
    EXPECT_EQ(found(2), 23u);
    EXPECT_EQ(use(3), ZoneUse::bad) << "the deletion stays";
    if (pool_->allocator.zone(ZoneId{2}).live_lbas == 0) {  // as collection does
      ASSERT_TRUE(direct(Io::Op::reset, ZoneId{2}).ok());
    }
    recover_mended(with);
    EXPECT_EQ(found(1), is_torn ? 11u : 21u);
    EXPECT_EQ(found(3), is_torn ? 12u : 0u);
    EXPECT_EQ(found(2), 23u);
  }
}

// A cache serves nothing that was deleted, and what is given up is lost, not torn.
TEST_F(RecoveryTest, AGroupsDeletionBehindAHeaderThatCannotBeReadCountsElsewhere) {
  constexpr std::uint64_t kGroup = 9;
  for (const std::string what : {"store", "flushed", "filled", "before", "cache", "given up"}) {
    SCOPED_TRACE(what);
    remake_with_faults();
    zone(2, 10).add_batch({ZoneImage::in_group(images_[0]->page(3, 12, 600), kGroup)});
    ZoneImage& newest = zone(3, 20);
    newest.add_batch({newest.page(4, 20, 600)});
    if (what == "before") newest.add_batch({ZoneImage::group_tombstone(kGroup, 22)});
    const std::uint32_t unread = newest.add_batch({newest.page(1, 21, 600)});
    if (what == "filled") {  // a segment that ends with what cannot be read, and with no summary
      newest.close_segment();
      newest.damage(newest.written_lbas() - 1);
    }
    const bool flushed = what == "flushed" || what == "filled";
    newest.add_batch({ZoneImage::group_tombstone(what == "before" ? kGroup + 1 : kGroup, 23)},
                     flushed ? newest.written_lbas() : unread);
    write_all();
    RecoveryOptions with = what == "cache" ? options() : options_of_store();
    if (what == "cache") with.caches = {kVolume};
    if (what == "given up") with.give_up = {ZoneId{3}};
    fail_reads(3, unread);
    recover_now(with);
    EXPECT_EQ(found(3), what == "store" ? 12u : 0u);
  }
}

// A batch header among them may be torn likewise, which is no damage.
TEST_F(RecoveryTest, WhatCountedBehindATornHeaderStays) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600)});
  ZoneImage& newest = zone(3, 20);
  newest.add_batch({newest.page(5, 20, 600)});
  const std::uint32_t torn = newest.add_batch({newest.page(2, 21, 600)});
  newest.add_batch({newest.page(1, 22, 600)});
  newest.damage(torn);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, torn);
  recover_now(with);
  EXPECT_EQ(found(1), 22u);
  EXPECT_EQ(use(3), ZoneUse::bad) << "nobody knows what it names";
  recover_mended(with);
  EXPECT_EQ(found(1), 22u);
  EXPECT_EQ(found(2), 0u);
  EXPECT_EQ(found(5), 20u);
  EXPECT_NE(use(3), ZoneUse::bad);
  EXPECT_TRUE(result_->gaps.empty());
  EXPECT_TRUE(result_->lost.empty());
}

// An error may be of a moment.
TEST_F(RecoveryTest, APageThatCannotBeReadAtOnceIsReadAgain) {
  constexpr std::uint32_t kFarBytes = 20000;  // from the batch header, and what is read with that
  Shape shape;
  shape.segment_lbas = 96;
  shape.faults = true;
  make(shape);
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600)});
  ZoneImage& newest = zone(3, 20);
  newest.add_batch({newest.page(2, 21, kFarBytes), newest.page(1, 22, 600)});
  write_all();
  RecoveryOptions with = options_of_store();
  const Lba page{pool_->device_lba(ZoneId{3}, newest.written_lbas() - 1)};
  for (unsigned i = 0; i < 4; ++i) faults_->fail_read_once(page);
  recover_now(with);
  EXPECT_EQ(found(1), 22u);
  EXPECT_EQ(found(2), 21u);
  EXPECT_FALSE(volume().hidden);
}

// Of several that cannot be read any may be the last one that is whole.
TEST_F(RecoveryTest, AllThatMayBeTornOfAPageStays) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600)});
  ZoneImage& brief = zone(3, 20, kVolume, 2);
  const std::uint32_t first = brief.add_batch({brief.page(1, 21, 600), brief.page(2, 22, 600)});
  ZoneImage& newest = zone(4, 30);
  const std::uint32_t second = newest.add_batch({newest.page(1, 31, 600)});
  ZoneImage& other = zone(5, 40, kVolume, 3);
  const std::uint32_t third = other.add_batch({other.page(2, 41, 600)});
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, first + 1, 4);
  fail_reads(4, second + 1);
  fail_reads(5, third + 1);
  recover_now(with);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 41u) << "no version is whole";
  for (const std::uint32_t each : {3, 4, 5}) EXPECT_EQ(use(each), ZoneUse::bad) << each;
  EXPECT_TRUE(volume().hidden);
}

// Of copies of a page, too, of which one may be torn.
TEST_F(RecoveryTest, AllCopiesThatMayBeTornStay) {
  remake_with_faults();
  ZoneImage& newest = zone(3, 20);
  const auto page = newest.page(1, 21, 600);
  const std::uint32_t first = newest.add_batch({page, newest.page(2, 22, 600)});
  ZoneImage& copies = zone(4, 30, kVolume, kCollectionStream);
  const std::uint32_t second = copies.add_batch({page});
  copies.damage(second + 1);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, first + 1);
  fail_reads(4, second + 1);
  recover_now(with);
  EXPECT_EQ(found(1), 21u);
  for (const std::uint32_t each : {3, 4}) EXPECT_EQ(use(each), ZoneUse::bad) << each;
  recover_mended(with);
  EXPECT_EQ(found(1), 21u);
  EXPECT_EQ(zone_of(1), 3u);
}

// Nothing is missing then.
TEST_F(RecoveryTest, WhatCannotBeReadBehindTheNewestZonesEndIsNothing) {
  for (const bool closed : {false, true}) {
    remake_with_faults();
    ZoneImage& newest = zone(2, 10);
    newest.add_batch({newest.page(1, 11, 600)});
    const std::uint32_t torn = newest.add_batch({newest.page(2, 12, 600)});
    const std::uint32_t behind = newest.add_batch({newest.page(3, 13, 600)});
    if (closed) newest.close_segment();
    newest.damage(torn + 1);
    write_all();
    fail_reads(2, behind);
    RecoveryOptions with = options_of_store();
    recover_now(with);
    EXPECT_EQ(found(1), 11u);
    EXPECT_EQ(found(2), 0u);
    EXPECT_FALSE(volume().hidden);
    EXPECT_TRUE(result_->lost.empty());
    EXPECT_EQ(use(2), ZoneUse::sealed);
    ASSERT_EQ(result_->new_trims.size(), 1u);
    EXPECT_EQ(result_->new_trims[0].end_lba, torn + 1);
    EXPECT_FALSE(result_->new_trims[0].aside);
  }
}

// The power may have torn it. A store keeps its zone, as nobody can tell; a cache does not.
TEST_F(RecoveryTest, APageThatCannotBeReadAtTheEndOfACache) {
  for (const bool cache : {false, true}) {
    SCOPED_TRACE(cache ? "cache" : "store");
    remake_with_faults();
    ZoneImage& newest = zone(3, 20);
    const std::uint32_t batch =
        newest.add_batch({newest.page(2, 21, 600), newest.page(3, 22, 600)});
    write_all();
    RecoveryOptions with = options();
    (cache ? with.caches : with.stores) = {kVolume};
    fail_reads(3, batch + 1);
    recover_now(with);
    EXPECT_EQ(volume().hidden, !cache);
    EXPECT_EQ(use(3) == ZoneUse::bad, !cache);
    EXPECT_EQ(found(3), 22u);
  }
}

// Of a segment with a summary the headers tell it, of which the last may not be whole.
TEST_F(RecoveryTest, WhatRotsBeforeTheFlushPointOfAClosedSegmentEndsNothing) {
  for (const bool last_is_torn : {false, true}) {
    images_.clear();
    ZoneImage& newest = zone(3, 20);
    const std::uint32_t rotten = newest.add_batch({newest.page(1, 21, 600)}) + 1;
    newest.add_batch({newest.page(2, 22, 600)}, newest.written_lbas());
    const std::uint32_t last = newest.add_batch({newest.page(3, 23, 600)}, newest.written_lbas());
    newest.close_segment();
    newest.damage(rotten);
    if (last_is_torn) newest.damage(last);
    write_all();
    recover_now();
    EXPECT_EQ(found(1), 21u) << "reading it tells that it is damaged";
    EXPECT_EQ(found(2), 22u);
    EXPECT_EQ(found(3), last_is_torn ? 0u : 23u);
  }
}

// A header that a summary names may be torn as well where it cannot be read. What was served goes
// on counting, for as many openings as there are: what it has replaced may be gone.
TEST_F(RecoveryTest, WhatASummaryNamesStaysThoughAHeaderCouldNotBeRead) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600), old.page(2, 12, 600), old.page(3, 13, 600)});
  ZoneImage& newest = zone(3, 20);
  newest.add_batch({newest.page(3, 21, 600)});
  const std::uint32_t torn = newest.add_batch({newest.tombstone(1, 22)});
  newest.add_batch({newest.page(2, 23, 600)});
  newest.close_segment();
  newest.damage(torn);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, torn);
  recover_now(with);
  for (unsigned opening = 0; opening < 3; ++opening) {
    EXPECT_EQ(found(1), 0u) << opening;
    EXPECT_EQ(found(2), 23u) << opening;
    EXPECT_EQ(found(3), 21u) << opening;
    EXPECT_FALSE(volume().hidden);
    recover_mended(with);
  }
}

// Each by itself, of a zone that was counted.
TEST_F(RecoveryTest, EachTornPageOfAZoneThatWasCountedIsVoid) {
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600), old.page(2, 12, 600)});
  ZoneImage& newest = zone(3, 20);
  const std::uint32_t torn =
      newest.add_batch({newest.page(1, 21, 600), newest.page(2, 22, 600)}) + 1;
  const std::uint32_t header = newest.add_batch({newest.page(4, 23, 600)});
  newest.add_batch({newest.page(3, 24, 600)});
  const std::uint32_t other = newest.add_batch({newest.page(5, 25, 600)});
  newest.add_batch({newest.page(6, 26, 600)});
  for (const std::uint32_t each : {torn, torn + 2, header, other}) newest.damage(each);
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, torn, 4);
  fail_reads(3, header);
  fail_reads(3, other);
  recover_now(with);
  recover_mended(with);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 12u);
  EXPECT_EQ(found(3), 24u);
  EXPECT_EQ(found(6), 26u);
  EXPECT_TRUE(result_->gaps.empty()) << "which are no damage";
}

// A deletion before what may be torn counts whatever comes behind that.
TEST_F(RecoveryTest, AGroupsDeletionBeforeAPageThatMayBeTornTakesOlderOnes) {
  constexpr std::uint64_t kGroup = 9;
  remake_with_faults();
  ZoneImage& old = zone(2, 10);
  old.add_batch({ZoneImage::in_group(old.page(1, 11, 600), kGroup)});
  ZoneImage& newest = zone(3, 20);
  newest.add_batch({ZoneImage::group_tombstone(kGroup, 20)});
  const std::uint32_t unread = newest.add_batch({newest.page(1, 21, 600)}) + 1;
  newest.add_batch({ZoneImage::group_tombstone(kGroup, 22)});
  write_all();
  RecoveryOptions with = options_of_store();
  fail_reads(3, unread);
  recover_now(with);
  EXPECT_EQ(found(1), 21u) << "reading it is an error; the one before was deleted";
}

}  // namespace
}  // namespace furrow
