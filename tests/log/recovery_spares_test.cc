// Establishes that recover() gives a store's last zone back when it holds copies alone, and only
// then. How: on images of zones, one fact in each.
#include "tests/log/recovery_rig.h"

namespace furrow {
namespace {

class RecoverySpareTest : public RecoveryTest {
 protected:
  // Zones 2 to 6 of a store with a quota of 6, one page each, and the last one.
  void fill(std::uint8_t last_stream = kCollectionStream) {
    for (std::uint32_t i = 2; i < 7; ++i) {
      ZoneImage& image = zone(i, 10 * i);
      image.add_batch({image.page(i, 10 * i + 1, 600), ZoneImage::tombstone(100 + i, 10 * i + 2)});
      image.close_segment();
      image.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
    }
    last_ = &zone(7, 90, kVolume, last_stream);
  }
  // With a quota of 7, and on a device that fails where it is told to; zone 8 is not filled.
  void fill_beside_another_zone() {
    drop_pool();
    Shape shape;
    shape.zones = 9;
    shape.quota = 7;
    shape.faults = true;
    make(shape);
    fill();
  }
  RecoveryOptions of_a_store() const {
    RecoveryOptions made = options();
    made.stores = {kVolume};
    return made;
  }
  bool given_back() { return use(7) == ZoneUse::free && info(ZoneId{7}).written_lbas == 0; }
  ZoneImage* last_ = nullptr;
};

TEST_F(RecoverySpareTest, CopiesAloneAreGivenBack) {
  fill();
  last_->add_batch({last_->page(2, 21, 600), last_->page(3, 31, 600), ZoneImage::tombstone(102, 22),
                    last_->page(4, 40, 600),
                    ZoneImage::tombstone(777, 91)});  // of a key that is nowhere else
  write_all();
  recover_now(of_a_store());
  EXPECT_TRUE(given_back());
  for (std::uint32_t i = 2; i < 7; ++i) EXPECT_EQ(found(i), 10u * i + 1);
  EXPECT_EQ(pool_->allocator.held(kVolume), shape_.quota - 1);
  EXPECT_TRUE(volume().resumes.empty());
  for (const ZoneTrim& trim : result_->new_trims) EXPECT_NE(trim.zone, ZoneId{7});
  // Twice it is the same.
  recover_now(of_a_store());
  for (std::uint32_t i = 2; i < 7; ++i) EXPECT_EQ(found(i), 10u * i + 1);
}

// Where zones are back, in whose place it took others, it may hold more than its quota. A zone of
// copies goes all the same.
TEST_F(RecoverySpareTest, BeyondTheQuotaCopiesAloneAreGivenBack) {
  drop_pool();
  Shape shape;
  shape.zones = 9;
  shape.quota = 4;
  shape.others_quota = 3;
  make(shape);
  fill();
  last_->add_batch({last_->page(2, 21, 600)});
  write_all();
  recover_now(of_a_store());
  EXPECT_TRUE(given_back());
  EXPECT_EQ(pool_->allocator.held(kVolume), 5u);
  EXPECT_EQ(pool_->allocator.quota(kVolume), 4u);
  EXPECT_EQ(pool_->allocator.held_max(kVolume), 5u);
  EXPECT_EQ(pool_->allocator.shrink_quotas(), 1u) << "another one's quota, for what is held";
}

// A zone of the quota is lost: nobody is promised it any more, and with what is left the last zone
// is the one that collection needs.
TEST_F(RecoverySpareTest, AZoneThatIsOfflineLeavesAQuotaThatIsReached) {
  fill_beside_another_zone();
  last_->add_batch({last_->page(2, 21, 600)});
  write_all();
  faults_->degrade(ZoneId{8}, ZoneState::offline);
  recover_now(of_a_store());
  EXPECT_TRUE(given_back());
  EXPECT_EQ(pool_->allocator.shrink_quotas(), 1u);
  EXPECT_EQ(pool_->allocator.held(kVolume) + 1, pool_->allocator.quota(kVolume));
}

// Whose zone it is that cannot be read just now nobody can tell: what was deleted may be in it.
TEST_F(RecoverySpareTest, WhatWasDeletedMayBeInAZoneThatIsLostForAWhile) {
  fill_beside_another_zone();
  ZoneImage& away = zone(8, 80);
  away.add_batch({away.page(777, 81, 600)});
  away.close_segment();
  away.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  last_->add_batch({last_->page(2, 21, 600), ZoneImage::tombstone(777, 91)});
  write_all();
  faults_->fail_reads(Lba{pool_->device_lba(ZoneId{8}, 0)}, shape_.zone_capacity_lbas);
  recover_now(of_a_store());
  EXPECT_EQ(use(8), ZoneUse::bad);
  EXPECT_FALSE(given_back());
  faults_->heal();
  recover_now(of_a_store());
  EXPECT_EQ(use(8), ZoneUse::sealed);
  EXPECT_EQ(found(777), 0u) << "it was deleted";
}

// What cannot be read of it just now may be a newer version of a page.
TEST_F(RecoverySpareTest, OneThatCannotBeReadAsAWholeStays) {
  for (const bool cache : {false, true}) {
    SCOPED_TRACE(cache);
    images_.clear();
    fill_beside_another_zone();
    faults_->degrade(ZoneId{8}, ZoneState::offline);
    const std::uint32_t batch = last_->add_batch({last_->page(2, 91, 600)});
    write_all();
    RecoveryOptions with = cache ? options() : of_a_store();
    if (cache) with.caches = {kVolume};
    faults_->fail_reads(Lba{pool_->device_lba(ZoneId{7}, batch)}, 1);
    recover_now(with);
    EXPECT_FALSE(given_back());
    EXPECT_GT(info(ZoneId{7}).written_lbas, 0u);
    faults_->heal();
    with.trims = result_->new_trims;
    recover_now(with);
    EXPECT_EQ(found(2), 91u);
  }
}

// Were the originals to count again, each opening would have the same copies made once more, until
// the last zone has no room for them.
TEST_F(RecoverySpareTest, OfOneThatStaysAllCopiesCountThatAreWhole) {
  for (const bool rotted : {false, true}) {
    SCOPED_TRACE(rotted ? "an original has rotted" : "a page stands there alone");
    images_.clear();
    fill();
    if (rotted) images_[0]->damage(images_[0]->records().front().lba);
    last_->add_batch({last_->page(2, 21, 600), last_->page(3, 31, 600), last_->page(4, 41, 600)});
    last_->add_batch({rotted ? last_->page(5, 51, 600) : last_->page(50, 91, 600)},
                     last_->written_lbas());  // the first one is durable, not torn
    last_->damage(last_->records()[2].lba);
    write_all();
    recover_now(of_a_store());
    EXPECT_FALSE(given_back());
    EXPECT_EQ(zone_of(2), 7u);
    EXPECT_EQ(zone_of(3), 7u);
    EXPECT_EQ(zone_of(4), 4u) << "its copy has rotted";
    EXPECT_EQ(pool_->allocator.zone(ZoneId{3}).live_lbas, 0u);
    EXPECT_EQ(pool_->allocator.zone(ZoneId{7}).live_lbas, 3 * pool_->page_lbas(600));
  }
}

// Where something before a copy may be torn, the next opening may find that it is. What counted
// behind it goes on counting, as what the copies were made of may be gone by then.
TEST_F(RecoverySpareTest, BehindAPageThatMayBeTornCopiesCount) {
  fill_beside_another_zone();
  faults_->degrade(ZoneId{8}, ZoneState::offline);
  last_->add_batch({last_->page(2, 21, 600), last_->page(3, 31, 600), last_->page(50, 91, 600)});
  const std::uint32_t torn = last_->records().front().lba;
  last_->damage(torn);
  write_all();
  RecoveryOptions with = of_a_store();
  faults_->fail_reads(Lba{pool_->device_lba(ZoneId{7}, torn)}, 1);
  recover_now(with);
  EXPECT_FALSE(given_back());
  EXPECT_EQ(zone_of(2), 2u);
  EXPECT_EQ(zone_of(3), 7u);
  EXPECT_EQ(zone_of(50), 7u);
  for (std::uint32_t i = 2; i < 7; ++i) {  // as collection does
    if (pool_->allocator.zone(ZoneId{i}).live_lbas != 0) continue;
    ASSERT_TRUE(direct(Io::Op::reset, ZoneId{i}).ok());
  }
  with.trims = result_->new_trims;
  faults_->heal();
  recover_now(with);
  EXPECT_EQ(found(2), 21u);
  EXPECT_EQ(found(3), 31u);
  EXPECT_EQ(found(50), 91u);
}

// Its time is found by where it is.
TEST_F(RecoverySpareTest, ACopyWhoseOriginalHasRottedExpiresAsThatDid) {
  const auto late = static_cast<std::uint32_t>(executor_.wall_s() + 1000);
  fill();
  ZoneImage& first = *images_[0];
  first = ZoneImage(first.shape());
  const std::uint32_t batch = first.add_batch({ZoneImage::expiring(first.page(2, 21, 600), late)});
  first.close_segment();
  first.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  first.damage(batch + 1);
  last_->add_batch({ZoneImage::expiring(last_->page(2, 21, 600), late)});
  write_all();
  recover_now(of_a_store());
  EXPECT_FALSE(given_back());
  EXPECT_EQ(volume().first_expiry_s, late);
  EXPECT_EQ(zone_of(2), 7u);
  EXPECT_EQ(pool_->expiry(pool_->device_lba(ZoneId{7}, last_->records().back().lba)), late);
}

// Of a cache that was cut off in writing a group's tombstone again, as a page that it deletes lies
// in a later zone: the copy goes with the last zone, and the tombstone must be copied once more.
TEST_F(RecoverySpareTest, ACopiedGroupTombstoneIsNowhereElse) {
  for (std::uint32_t i = 2; i < 7; ++i) {
    ZoneImage& image = zone(i, 10 * i);
    if (i == 2) image.add_batch({ZoneImage::group_tombstone(5, 25)});
    if (i == 3) image.add_batch({ZoneImage::in_group(image.page(1, 11, 600), 5)});
    image.add_batch({image.page(i, 10 * i + 1, 600)});
    image.close_segment();
    image.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  }
  last_ = &zone(7, 90, kVolume, kUserStream);
  last_->add_batch({ZoneImage::group_tombstone(5, 25)});
  write_all();
  RecoveryOptions of_a_cache = options();
  of_a_cache.caches = {kVolume};
  recover_now(of_a_cache);
  EXPECT_TRUE(given_back());
  EXPECT_FALSE(found(1));
  ASSERT_EQ(volume().outlived.size(), 1u);
  EXPECT_EQ(volume().outlived[0].group, 5u);
  EXPECT_EQ(volume().outlived[0].opened_sequence, 30u);
}

// Zone 6 was durable before the last zone was opened, and is its stream's newest without it.
TEST_F(RecoverySpareTest, ThatTheOneBeforeItIsDurableIsNotedFirst) {
  fill(kUserStream);
  last_->add_batch({last_->page(2, 21, 600)});
  write_all();
  RecoveryOptions with = of_a_store();
  with.note_trim = [](const ZoneTrim&) { return Status(Code::io_error, Origin::log); };
  drop_pool();
  make_pool();
  EXPECT_EQ(recover(*device_, *pool_, with).status().code(), Code::io_error);
  EXPECT_GT(info(ZoneId{7}).written_lbas, 0u);
  std::vector<ZoneTrim> noted;
  with.note_trim = [&](const ZoneTrim& trim) {
    EXPECT_GT(info(ZoneId{7}).written_lbas, 0u) << "before the reset";
    noted.push_back(trim);
    return Status();
  };
  recover_now(with);
  EXPECT_TRUE(given_back());
  ASSERT_EQ(noted.size(), 1u);
  EXPECT_EQ(noted[0].zone, ZoneId{6});
  EXPECT_EQ(noted[0].generation, 60u);
  EXPECT_EQ(noted[0].end_lba, shape_.zone_capacity_lbas);
  EXPECT_TRUE(noted[0].durable);
}

// What it has may be torn, and is to be verified when it can be read.
TEST_F(RecoverySpareTest, NothingIsNotedWhereTheOneBeforeItCouldNotBeVerified) {
  drop_pool();
  Shape shape;
  shape.zones = 8;  // none to spare
  shape.faults = true;
  make(shape);
  fill(kUserStream);
  last_->add_batch({last_->page(2, 21, 600)});
  write_all();
  faults_->fail_reads(Lba{pool_->device_lba(ZoneId{6}, 2)}, 1);
  RecoveryOptions with = of_a_store();
  with.trims = {{ZoneId{6}, 60, 96, false, true}};
  std::vector<ZoneTrim> noted;
  with.note_trim = [&](const ZoneTrim& trim) {
    noted.push_back(trim);
    return Status();
  };
  recover_now(with);
  EXPECT_TRUE(given_back());
  ASSERT_EQ(noted.size(), 1u);
  EXPECT_TRUE(noted[0].zone == ZoneId{6} && noted[0].aside && !noted[0].durable);
}

TEST_F(RecoverySpareTest, NothingIsNotedWhereTheOneBeforeItIsOfAnotherStream) {
  fill();
  last_->add_batch({last_->page(2, 21, 600)});
  write_all();
  RecoveryOptions with = of_a_store();
  with.note_trim = [](const ZoneTrim& trim) {
    EXPECT_FALSE(trim.durable) << "zone " << trim.zone.value;
    return Status();
  };
  recover_now(with);
  EXPECT_TRUE(given_back());
}

TEST_F(RecoverySpareTest, WhatStandsThereAloneKeepsIt) {
  using Make = std::vector<ZoneImage::Item> (*)(const ZoneImage&);
  const Make kinds[] = {
      [](const ZoneImage& z) { return std::vector{z.page(50, 91, 600)}; },        // a new page
      [](const ZoneImage& z) { return std::vector{z.page(2, 91, 600, 1)}; },      // a newer version
      [](const ZoneImage&) { return std::vector{ZoneImage::tombstone(2, 91)}; },  // a delete
      [](const ZoneImage&) { return std::vector{ZoneImage::group_tombstone(9, 91)}; },
  };
  for (const Make& make_items : kinds) {
    images_.clear();
    fill();
    last_->add_batch(make_items(*last_));
    write_all();
    recover_now(of_a_store());
    EXPECT_FALSE(given_back());
    EXPECT_GT(info(ZoneId{7}).written_lbas, 0u);
    EXPECT_EQ(pool_->allocator.held(kVolume), shape_.quota);
  }
}

TEST_F(RecoverySpareTest, BelowItsQuotaAndInACacheNothingIsGivenBack) {
  fill();
  last_->add_batch({last_->page(2, 21, 600)});
  write_all();
  recover_now();
  EXPECT_FALSE(given_back()) << "it collects by evicting";
  RecoveryOptions inspect = of_a_store();
  inspect.read_only = true;
  recover_now(inspect);
  EXPECT_FALSE(given_back());
  ASSERT_TRUE(direct(Io::Op::reset, ZoneId{6}).ok());
  recover_now(of_a_store());
  EXPECT_FALSE(given_back());
}

// By the clock as it is, or as it was: set back since, it leaves the page itself again.
TEST_F(RecoverySpareTest, ATombstoneInThePlaceOfAnExpiredPageIsACopy) {
  for (const bool set_back : {false, true}) {
    const std::uint64_t now_s = executor_.wall_s();
    const auto expires = static_cast<std::uint32_t>(set_back ? now_s + 1000 : now_s - 1);
    images_.clear();
    fill();
    ZoneImage& first = *images_[0];
    first = ZoneImage(first.shape());
    first.add_batch({ZoneImage::expiring(first.page(2, 21, 600), expires), first.page(2, 20, 600)});
    first.close_segment();
    first.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
    last_->add_batch({ZoneImage::tombstone(2, 21)});
    write_all();
    recover_now(of_a_store());
    EXPECT_TRUE(given_back());
    EXPECT_EQ(found(2), set_back ? 21u : 0u);
  }
}

// It is applied as well, by this opening and not only by the next one.
TEST_F(RecoverySpareTest, AGroupsDeletionThatStandsThereAloneCounts) {
  fill();
  ZoneImage& first = *images_[0];
  first = ZoneImage(first.shape());
  first.add_batch({ZoneImage::in_group(first.page(50, 21, 600), 9), first.page(51, 22, 600)});
  last_->add_batch({ZoneImage::group_tombstone(9, 91)});
  write_all();
  recover_now(of_a_store());
  EXPECT_FALSE(given_back());
  EXPECT_EQ(found(50), 0u);
  EXPECT_EQ(found(51), 22u);
}

}  // namespace
}  // namespace furrow
