// Establishes what recover() makes of the records of a pool's zones: of each key the newest record
// wins, wherever the versions lie, and of its copies the last; tombstones, deleted groups and
// expiry are applied; what is counted with the pages is right; several threads find what one finds.
// How: on images of zones, one fact in each.
#include "tests/log/recovery_rig.h"

namespace furrow {
namespace {

TEST_F(RecoveryTest, OfAnEmptyDevice) {
  recover_now();
  EXPECT_EQ(index_->size(), 0u);
  EXPECT_TRUE(result_->new_trims.empty());
  EXPECT_TRUE(result_->lost.empty());
  EXPECT_EQ(pool_->allocator.held(kVolume), 0u);
}

TEST_F(RecoveryTest, TheHighestSequenceWinsWhereverItLies) {
  // In one batch, in two batches, in two zones, before and behind; relocated ones keep theirs.
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600), a.page(1, 12, 600, 1), a.page(2, 13, 600), a.page(3, 14, 600),
               a.page(4, 30, 600)});
  a.add_batch({a.page(2, 15, 600, 1)});
  a.close_segment();
  ZoneImage& b = zone(3, 20);
  b.add_batch({b.page(3, 21, 600, 1), b.page(4, 22, 600, 1), b.page(5, 23, 600)});
  write_all();
  recover_now();
  EXPECT_EQ(found(1), 12u);
  EXPECT_EQ(found(2), 15u);
  EXPECT_EQ(found(3), 21u);
  EXPECT_EQ(found(4), 30u);
  EXPECT_EQ(found(5), 23u);
  EXPECT_EQ(found(6), 0u);
  EXPECT_EQ(volume().pages.size(), 5u);
  EXPECT_EQ(volume().live_bytes, 5u * 600);
  EXPECT_EQ(volume().largest_bytes, 600u);
  EXPECT_EQ(volume().cost_bytes, 5 * PageLog::cost_bytes(*pool_, 600));
  EXPECT_EQ(pool_->allocator.zone(ZoneId{2}).live_lbas, 3u * 2);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{3}).live_lbas, 2u * 2);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{2}).min_sequence, 11u);
  EXPECT_EQ(pool_->allocator.held(kVolume), 2u);
}

// Of a record's sequence, a zone's generation and when it was opened: an opening draws from beyond.
TEST_F(RecoveryTest, TheHighestNumberThatWasDrawnIsTold) {
  ZoneImage& record = zone(2, 10);
  record.add_batch({record.page(1, 90, 600)});
  write_all();
  recover_now(options());
  EXPECT_EQ(result_->highest_sequence, 90u);
  ZoneImage& header = zone(3, 100);
  header.add_batch({header.page(2, 20, 600)});
  write_all();
  recover_now(options());
  EXPECT_EQ(result_->highest_sequence, 100u);
}

// A delete of it is written then, as the clock may be set back.
TEST_F(RecoveryTest, WhatHasExpiredIsLeftOutAndTold) {
  for (const bool expired : {false, true}) {
    const auto when = static_cast<std::uint32_t>(executor_.wall_s()) + (expired ? 0 : 100);
    images_.clear();
    ZoneImage& pages = zone(2, 10);
    pages.add_batch({ZoneImage::expiring(pages.page(1, 11, 600), when), pages.page(2, 12, 600)});
    write_all();
    recover_now();
    EXPECT_EQ(found(1), expired ? 0u : 11u);
    EXPECT_EQ(found(2), 12u);
    EXPECT_EQ(volume().expired, expired);
    ASSERT_TRUE(direct(Io::Op::reset, ZoneId{2}).ok());
  }
}

// A zone was being emptied: what had been moved needs no moving again, and its original may rot.
TEST_F(RecoveryTest, OfCopiesTheOneWrittenLastCounts) {
  const auto expires = static_cast<std::uint32_t>(executor_.wall_s()) + 100;
  ZoneImage& copies = zone(5, 10, kVolume, kCollectionStream);
  ZoneImage& pages = zone(4, 20);
  ZoneImage& again = zone(3, 40, kVolume, kCollectionStream);
  const auto expiring = [&](ZoneImage& image) {
    return ZoneImage::expiring(image.page(2, 22, 600), expires);
  };
  pages.add_batch({pages.page(1, 21, 600), expiring(pages), pages.page(3, 23, 600)});
  pages.add_batch({pages.page(4, 24, 600)});
  pages.close_segment();
  copies.add_batch({copies.page(1, 21, 600), expiring(copies), copies.page(4, 24, 600)});
  copies.close_segment();
  again.add_batch({again.page(1, 21, 600), again.page(4, 25, 600, 1)});
  write_all();
  recover_now();
  EXPECT_EQ(zone_of(1), 3u) << "moved twice";
  EXPECT_EQ(zone_of(2), 5u) << "moved to a zone that was open before the page was written";
  EXPECT_EQ(zone_of(3), 4u);
  EXPECT_EQ(found(4), 25u) << "a newer version";
  EXPECT_EQ(volume().first_expiry_s, expires);
  EXPECT_EQ(pool_->expiry(pool_->device_lba(ZoneId{5}, copies.records()[1].lba)), expires);
  EXPECT_EQ(volume().pages.size(), 4u);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{4}).live_lbas, 2u);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{5}).live_lbas, 2u);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{3}).live_lbas, 2u * 2);
}

// One that collection wrote for a page that was damaged or had expired, and of all its copies.
TEST_F(RecoveryTest, ATombstoneInAPagesPlaceHidesItWhereverItLies) {
  for (const std::uint32_t tombstones : {2u, 6u}) {
    SCOPED_TRACE(tombstones);
    images_.clear();
    ZoneImage& a = zone(4, 10);
    a.add_batch({a.page(1, 11, 600), a.page(2, 12, 600)});
    a.close_segment();
    ZoneImage& b = zone(tombstones, 20, kVolume, kCollectionStream);
    b.add_batch({ZoneImage::tombstone(1, 11)});
    ZoneImage& c = zone(5, 30);
    c.add_batch({c.page(1, 11, 600)});
    make({});
    write_all();
    recover_now();
    EXPECT_EQ(found(1), 0u);
    EXPECT_EQ(found(2), 12u);
  }
}

TEST_F(RecoveryTest, TombstonesDeleteWhatIsOlderAlone) {
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600), a.page(2, 12, 600), ZoneImage::tombstone(3, 40)});
  a.close_segment();
  ZoneImage& b = zone(3, 20);
  b.add_batch({ZoneImage::tombstone(1, 21), ZoneImage::tombstone(2, 5), b.page(3, 22, 600),
               ZoneImage::tombstone(9, 23)});
  write_all();
  recover_now();
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(found(2), 12u);
  EXPECT_EQ(found(3), 0u);
  EXPECT_EQ(volume().pages.size(), 1u);
}

TEST_F(RecoveryTest, DeletedGroups) {
  ZoneImage& a = zone(2, 10);
  const auto in = [](ZoneImage::Item item, std::uint64_t group) {
    return ZoneImage::in_group(std::move(item), group);
  };
  a.add_batch({in(a.page(1, 11, 600), 5), in(a.page(2, 12, 600), 6), a.page(3, 13, 600),
               ZoneImage::group_tombstone(5, 8), in(a.page(4, 14, 600), 5)});
  a.close_segment();
  ZoneImage& b = zone(3, 20);
  b.add_batch({ZoneImage::group_tombstone(5, 30), in(b.page(5, 31, 600), 5),
               in(b.page(4, 32, 600), 5), in(b.page(6, 29, 600), 5), b.page(1, 10, 600),
               in(b.page(3, 9, 600), 5)});
  write_all();
  recover_now();
  EXPECT_EQ(found(1), 0u) << "its older version, of no group, does not come back";
  EXPECT_EQ(found(2), 12u);
  EXPECT_EQ(found(3), 13u) << "it left the group";
  EXPECT_EQ(found(4), 32u) << "stored again afterwards";
  EXPECT_EQ(found(5), 31u);
  EXPECT_EQ(found(6), 0u);
}

TEST_F(RecoveryTest, ExpiredPagesDoNotComeBackAndHideOlderOnes) {
  const auto now = static_cast<std::uint32_t>(executor_.wall_s());
  ZoneImage& a = zone(2, 10);
  a.add_batch({ZoneImage::expiring(a.page(1, 11, 600), now + 100),
               ZoneImage::expiring(a.page(2, 12, 600), now), a.page(3, 13, 600)});
  a.add_batch({ZoneImage::expiring(a.page(3, 14, 600), now - 1)});
  write_all();
  recover_now();
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 0u);
  EXPECT_EQ(found(3), 0u);
  EXPECT_EQ(volume().first_expiry_s, now + 100) << "of those that are left";
  EXPECT_EQ(pool_->expiry(pool_->device_lba(ZoneId{2}, a.records()[0].lba)), now + 100);
}

TEST_F(RecoveryTest, PinnedPagesAreCounted) {
  ZoneImage& a = zone(2, 10);
  ZoneImage::Item pinned = a.page(1, 11, 1500);
  pinned.record.pinned = true;
  a.add_batch({pinned, a.page(2, 12, 600)});
  write_all();
  recover_now();
  EXPECT_EQ(volume().pinned_lbas, 3u);
  EXPECT_EQ(volume().largest_bytes, 1500u);
}

TEST_F(RecoveryTest, ThreadsFindWhatOneFinds) {
  std::mt19937_64 random(test_seed());
  std::uint64_t sequence = 100;
  for (std::uint32_t number = 2; number < 8; ++number) {
    ZoneImage& image = zone(number, number);
    for (unsigned batch = 0; batch < 12; ++batch) {
      std::vector<ZoneImage::Item> items;
      for (unsigned i = 0; i < 3; ++i) {
        const std::uint64_t key = random() % 60;
        const std::uint64_t of = random() % 4 == 0 ? random() % sequence + 1 : ++sequence;
        items.push_back(random() % 6 == 0 ? ZoneImage::tombstone(key, of)
                                          : image.page(key, of, 100, of));
      }
      image.add_batch(items);
      if (batch % 4 == 3) image.close_segment();
    }
  }
  write_all();
  recover_now();
  std::vector<std::uint64_t> alone;
  for (std::uint64_t key = 0; key < 60; ++key) alone.push_back(found(key));
  const std::uint64_t cost = volume().cost_bytes, pages = volume().pages.size();
  EXPECT_GT(pages, 20u);
  for (const unsigned threads : {2u, 3u, 8u}) {
    RecoveryOptions parallel = options();
    parallel.threads = threads;
    parallel.scanners_per_thread = 3;
    recover_now(parallel);
    for (std::uint64_t key = 0; key < 60; ++key) EXPECT_EQ(found(key), alone[key]) << key;
    EXPECT_EQ(volume().cost_bytes, cost);
    EXPECT_EQ(volume().pages.size(), pages);
  }
}

}  // namespace
}  // namespace furrow
