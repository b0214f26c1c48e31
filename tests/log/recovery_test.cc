// Establishes what recover() makes of the zones of a pool: of each key the newest record wins,
// wherever the versions lie, and of its copies the last; tombstones, deleted groups and expiry are
// applied; what is counted with the pages is right; zones that are nobody's, never begun, void,
// damaged, read-only or offline are dealt with, and nothing is touched in a pool that is only read;
// trims are found once and hold; a store's last zone is given back when it holds copies alone;
// several threads find what one finds. How: on images of zones, one fact in each.
#include "log/recovery.h"

#include <map>

#include "log/page_log.h"
#include "tests/log/zone_image.h"

namespace furrow {
namespace {

class RecoveryTest : public LogRig {
 protected:
  void SetUp() override { make({}); }

  // An image of a zone of this pool. `generation` tells which was opened first.
  ZoneImage& zone(std::uint32_t number, std::uint64_t generation, std::uint64_t volume = kVolume,
                  std::uint8_t stream = 0, std::uint64_t opened_sequence = 0) {
    ZoneImage::Shape shape;
    shape.opened_sequence = opened_sequence;
    shape.stamp = {superblock_.pool, ZoneId{number}, generation};
    shape.hash_key = superblock_.hash_key;
    shape.volume = volume;
    shape.stream = stream;
    images_.push_back(std::make_unique<ZoneImage>(shape));
    return *images_.back();
  }
  void write_all() {
    for (const auto& image : images_) image->write_to(*device_);
  }
  RecoveryOptions options() const {
    RecoveryOptions made;
    made.scanners_per_thread = 1;
    made.volumes = {kVolume};
    return made;
  }
  // Recovers into a fresh PoolContext.
  void recover_now(const RecoveryOptions& options) {
    drop_pool();
    make_pool();
    Result<RecoveryResult> found = recover(*device_, *pool_, options);
    ASSERT_TRUE(found.ok()) << found.status().describe();
    result_ = std::make_unique<RecoveryResult>(std::move(*found));
    index_ = std::make_unique<Index>(10'000);
    result_->volumes[kVolume].pages.load_into(*index_);
  }
  void recover_now() { recover_now(options()); }
  RecoveredVolume& volume() { return result_->volumes[kVolume]; }
  // Where the page that counts for a key lies; ~0: nowhere.
  std::uint32_t zone_of(std::uint64_t number) {
    std::array<IndexEntry, 4> entries;
    if (index_->find(hash(key_number(number)).order, 0, entries) != 1) return ~std::uint32_t{0};
    return pool_->geometry.zone_of(Lba{entries[0].lba}).value;
  }
  // The sequence of the record that counts for a key; 0: there is none.
  std::uint64_t found(std::uint64_t number) {
    std::array<IndexEntry, 4> entries;
    const unsigned count = index_->find(hash(key_number(number)).order, 0, entries);
    EXPECT_LE(count, 1u);
    if (count == 0) return 0;
    for (const auto& image : images_) {
      for (const PageRecord& r : image->records()) {
        const ZoneStamp& stamp = image->shape().stamp;
        if (pool_->device_lba(stamp.zone, r.lba) != entries[0].lba) continue;
        if (r.kind != RecordKind::page || r.key != key_number(number)) continue;
        EXPECT_EQ(entries[0].length, r.length);
        EXPECT_EQ(entries[0].checksum, r.checksum);
        return r.sequence;
      }
    }
    ADD_FAILURE() << "page " << number << " is where none was written";
    return 0;
  }
  ZoneUse use(std::uint32_t number) { return pool_->allocator.zone(ZoneId{number}).use; }

  std::vector<std::unique_ptr<ZoneImage>> images_;
  std::unique_ptr<RecoveryResult> result_;
  std::unique_ptr<Index> index_;
};

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
  ASSERT_EQ(volume().expiries.size(), 1u);
  EXPECT_EQ(volume().expiries[0].expires_s, expires);
  EXPECT_EQ(pool_->geometry.zone_of(Lba{volume().expiries[0].lba}), ZoneId{5});
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
  ASSERT_EQ(volume().expiries.size(), 1u);
  EXPECT_EQ(volume().expiries[0].expires_s, now + 100);
  EXPECT_EQ(volume().expiries[0].lba, pool_->device_lba(ZoneId{2}, a.records()[0].lba));
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

// --- zones ---

TEST_F(RecoveryTest, NobodysZonesAreResetAndOthersKept) {
  ZoneImage& deleted = zone(2, 10, 99);  // of a volume that is gone
  deleted.add_batch({deleted.page(1, 11, 600)});
  zone(3, 20);  // a header alone
  ZoneImage& kept = zone(4, 30);
  kept.add_batch({kept.page(2, 31, 600)});
  ZoneImage::Shape shape;  // of another pool: kept, and not used
  shape.stamp = {Uuid{1}, ZoneId{5}, 40};
  ZoneImage foreign(shape);
  foreign.add_batch({foreign.page(3, 41, 600)});
  foreign.write_to(*device_);
  write_all();
  recover_now();
  EXPECT_EQ(info(ZoneId{2}).written_lbas, 0u);
  EXPECT_EQ(use(2), ZoneUse::free);
  EXPECT_EQ(info(ZoneId{3}).written_lbas, 0u);
  EXPECT_EQ(found(2), 31u);
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(pool_->allocator.held(kVolume), 1u);
  EXPECT_EQ(use(5), ZoneUse::free) << "no structure of this pool: as if never begun";
  EXPECT_TRUE(result_->lost.empty());
}

TEST_F(RecoveryTest, AnInspectionTouchesNothing) {
  ZoneImage& deleted = zone(2, 10, 99);
  deleted.add_batch({deleted.page(1, 11, 600)});
  zone(3, 20);
  ZoneImage& old = zone(4, 30);
  old.add_batch({old.page(2, 31, 600)});
  ZoneImage& newest = zone(5, 40);
  newest.add_batch({newest.page(3, 41, 600)});
  newest.damage(newest.written_lbas() - 1);  // torn
  write_all();
  device_->forget_events();
  RecoveryOptions inspect = options();
  inspect.read_only = true;
  recover_now(inspect);
  EXPECT_TRUE(device_->events().empty()) << "but for reads";
  EXPECT_EQ(found(2), 31u);
  EXPECT_EQ(found(3), 0u);
  EXPECT_EQ(result_->new_trims.size(), 2u) << "it says what it would do";
}

// Once it is finished, nothing but the journal says where its data ends.
TEST_F(RecoveryTest, WhereAZoneEndsIsNotedBeforeItIsFinished) {
  ZoneImage& newest = zone(3, 20);
  newest.add_batch({newest.page(2, 21, 600)});
  const std::uint32_t torn = newest.add_batch({newest.page(3, 22, 600)});
  newest.damage(torn + 1);
  write_all();
  RecoveryOptions with = options();
  std::vector<std::uint32_t> ends;
  with.note_trim = [&](const ZoneTrim& trim) {
    EXPECT_EQ(trim.zone, ZoneId{3});
    EXPECT_NE(info(ZoneId{3}).state, ZoneState::full);
    ends.push_back(trim.end_lba);
    return Status();
  };
  recover_now(with);
  EXPECT_EQ(ends, std::vector<std::uint32_t>{torn + 1});
  EXPECT_EQ(info(ZoneId{3}).state, ZoneState::full);
  // Where it cannot be noted the zone stays as it is.
  write_all();
  with.note_trim = [](const ZoneTrim&) { return Status(Code::io_error, Origin::log); };
  drop_pool();
  make_pool();
  EXPECT_EQ(recover(*device_, *pool_, with).status().code(), Code::io_error);
  EXPECT_NE(info(ZoneId{3}).state, ZoneState::full);
}

TEST_F(RecoveryTest, TrimsAreFoundOnceAndHold) {
  ZoneImage& old = zone(2, 10);
  old.add_batch({old.page(1, 11, 600)});
  ZoneImage& newest = zone(3, 20);
  newest.add_batch({newest.page(2, 21, 600)});
  const std::uint32_t torn = newest.add_batch({newest.page(3, 22, 600), newest.page(1, 23, 600)});
  newest.damage(torn + 1);
  write_all();
  recover_now();
  EXPECT_EQ(found(1), 11u) << "the newer version was torn off";
  EXPECT_EQ(found(2), 21u);
  EXPECT_EQ(found(3), 0u);
  std::map<std::uint32_t, std::uint32_t> ends;
  for (const ZoneTrim& trim : result_->new_trims) ends[trim.zone.value] = trim.end_lba;
  EXPECT_EQ(ends, (std::map<std::uint32_t, std::uint32_t>{{2, old.written_lbas()}, {3, torn + 1}}));
  EXPECT_EQ(info(ZoneId{2}).state, ZoneState::full);
  EXPECT_EQ(info(ZoneId{3}).state, ZoneState::full);
  // With the journal's trims nothing new is found, even if what was torn is whole again.
  RecoveryOptions again = options();
  again.trims = result_->new_trims;
  newest.damage(torn + 1);
  newest.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  newest.write_to(*device_);
  recover_now(again);
  EXPECT_TRUE(result_->new_trims.empty());
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 21u);
  EXPECT_EQ(found(3), 0u);
  // They are of one life of the zone.
  for (ZoneTrim& trim : again.trims) ++trim.generation;
  recover_now(again);
  EXPECT_EQ(found(1), 23u);
}

TEST_F(RecoveryTest, AZoneThatIsVoidIsReset) {
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  write_all();
  RecoveryOptions with = options();
  with.trims = {{ZoneId{2}, 10, 0}};
  recover_now(with);
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(info(ZoneId{2}).written_lbas, 0u);
  EXPECT_EQ(use(2), ZoneUse::free);
}

TEST_F(RecoveryTest, ADamagedZoneHeaderIsKnownFromTheRest) {
  ZoneImage& a = zone(2, 10, kVolume, kCollectionStream);
  a.add_batch({a.page(1, 11, 600)});
  a.close_segment();
  a.damage(0);
  ZoneImage& b = zone(3, 20);  // without a summary: the pool has one volume
  b.add_batch({b.page(2, 21, 600)});
  b.damage(0);
  write_all();
  recover_now();
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 21u);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{2}).generation, 10u);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{2}).stream, kCollectionStream);
  EXPECT_EQ(pool_->allocator.zone(ZoneId{2}).opened_sequence, 10u);
  // With two volumes nobody can tell whose the second one is.
  RecoveryOptions two = options();
  two.volumes = {kVolume, 8};
  drop_pool();
  make_pool();
  ASSERT_TRUE(pool_->allocator.admit(8, 2, 1).ok());
  Result<RecoveryResult> recovered = recover(*device_, *pool_, two);
  ASSERT_TRUE(recovered.ok());
  ASSERT_EQ(recovered->lost.size(), 1u);
  EXPECT_EQ(recovered->lost[0].zone, ZoneId{3});
  EXPECT_EQ(use(3), ZoneUse::bad);
  EXPECT_GT(info(ZoneId{3}).written_lbas, 0u) << "it is kept";
  EXPECT_EQ(info(ZoneId{3}).state, ZoneState::full) << "and holds no active zone";
  EXPECT_EQ(use(2), ZoneUse::open);
}

TEST_F(RecoveryTest, AZoneWithoutAnyStructureIsReset) {
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  a.damage(0);
  a.damage(1);
  write_all();
  recover_now();
  EXPECT_EQ(use(2), ZoneUse::free);
  EXPECT_EQ(info(ZoneId{2}).written_lbas, 0u);
}

TEST_F(RecoveryTest, ZonesThatWentBad) {
  Shape shape;
  shape.faults = true;
  make(shape);
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  ZoneImage& b = zone(3, 20);
  b.add_batch({b.page(2, 21, 600)});
  ZoneImage& c = zone(4, 30);
  c.add_batch({c.page(3, 31, 600)});
  write_all();
  faults_->degrade(ZoneId{2}, ZoneState::offline);
  faults_->degrade(ZoneId{3}, ZoneState::read_only);
  recover_now();
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(found(2), 21u) << "readable";
  EXPECT_EQ(found(3), 31u);
  EXPECT_EQ(use(2), ZoneUse::bad);
  ASSERT_GE(result_->lost.size(), 1u);
  EXPECT_EQ(result_->lost[0].zone, ZoneId{2});
  EXPECT_EQ(result_->lost[0].why, "is offline");
}

TEST_F(RecoveryTest, AnUnreadableZoneIsSetAside) {
  Shape shape;
  shape.faults = true;
  make(shape);
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  write_all();
  faults_->fail_reads(Lba{pool_->device_lba(ZoneId{2}, 0)}, shape_.zone_capacity_lbas);
  recover_now();
  EXPECT_EQ(use(2), ZoneUse::bad);
  ASSERT_EQ(result_->lost.size(), 1u);
  EXPECT_GT(info(ZoneId{2}).written_lbas, 0u) << "there may be data";
}

TEST_F(RecoveryTest, EachStreamsNewestZoneIsGoneOnWith) {
  for (const std::uint8_t stream : {kUserStream, kCollectionStream}) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t number = 2 + stream * 2u + i;
      ZoneImage& image = zone(number, 10 * number, kVolume, stream);
      image.add_batch({image.page(number, 10 * number + 1, 600)});
    }
  }
  write_all();
  recover_now();
  ASSERT_EQ(volume().resumes.size(), 2u);
  EXPECT_EQ(volume().resumes.at(kUserStream).zone, ZoneId{3});
  EXPECT_EQ(volume().resumes.at(kCollectionStream).zone, ZoneId{5});
  EXPECT_EQ(use(3), ZoneUse::open);
  EXPECT_EQ(use(2), ZoneUse::sealed);
  EXPECT_EQ(info(ZoneId{2}).state, ZoneState::full);
  EXPECT_EQ(device_->count(Io::Op::finish), 2u);
}

TEST_F(RecoveryTest, WhatWasFoundIsDurableWhenItReturns) {
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  write_all();
  device_->forget_events();
  recover_now();
  EXPECT_EQ(device_->count(Io::Op::flush), 1u);
  drop_pool();
  make_pool();
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone});
  EXPECT_EQ(recover(*device_, *pool_, options()).status().code(), Code::io_error);
}

// Those opened after it are gone, and the journal says that it was durable: a page that is not
// whole is damage, and costs nothing else.
TEST_F(RecoveryTest, AZoneKnownToBeDurableIsNotVerified) {
  ZoneImage& a = zone(2, 10);
  const std::uint32_t first = a.add_batch({a.page(1, 11, 600), a.page(2, 12, 600)});
  const std::uint32_t end = a.add_batch({a.page(3, 13, 600)});
  a.damage(first + 1);
  write_all();
  RecoveryOptions with = options();
  with.read_only = true;
  recover_now(with);
  EXPECT_EQ(found(2), 0u) << "it may have been torn";
  with.trims = {{ZoneId{2}, 10, end, true}};
  recover_now(with);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 12u);
  EXPECT_EQ(found(3), 0u) << "behind its end";
  EXPECT_TRUE(volume().resumes.empty()) << "nothing more is written to it";
  // Of another life of the zone it says nothing.
  with.trims = {{ZoneId{2}, 9, end, true}};
  recover_now(with);
  EXPECT_EQ(found(2), 0u);
}

// A repair wrote zone 2 anew as zone 4, and was cut off before or after the journal said that this
// is durable.
TEST_F(RecoveryTest, AZoneThatWasWrittenAnewIsResetOnceItsSuccessorIsDurable) {
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  ZoneImage& b = zone(3, 20);
  b.add_batch({b.page(2, 21, 600)});
  ZoneImage& again = zone(4, 30, kVolume, kUserStream, 10);
  const std::uint32_t end = again.add_batch({again.page(1, 11, 600)}) + again.written_lbas();
  write_all();
  recover_now();
  EXPECT_EQ(use(2), ZoneUse::sealed);
  EXPECT_EQ(use(4), ZoneUse::sealed);
  RecoveryOptions with = options();
  with.trims = {{ZoneId{4}, 30, end, true}};
  recover_now(with);
  EXPECT_EQ(use(2), ZoneUse::free);
  EXPECT_EQ(info(ZoneId{2}).written_lbas, 0u);
  EXPECT_EQ(use(4), ZoneUse::sealed);
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 21u);
}

// --- a store's last zone ---

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

TEST_F(RecoverySpareTest, NothingIsNotedWhereTheOneBeforeItIsOfAnotherStream) {
  fill();
  last_->add_batch({last_->page(2, 21, 600)});
  write_all();
  RecoveryOptions with = of_a_store();
  with.note_trim = [](const ZoneTrim&) { return Status(Code::io_error, Origin::log); };
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

TEST_F(RecoverySpareTest, ATombstoneInThePlaceOfAnExpiredPageIsACopy) {
  const auto past = static_cast<std::uint32_t>(executor_.wall_s() - 1);
  fill();
  ZoneImage& first = *images_[0];
  first = ZoneImage(first.shape());
  first.add_batch({ZoneImage::expiring(first.page(2, 21, 600), past), first.page(2, 20, 600)});
  first.close_segment();
  first.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  last_->add_batch({ZoneImage::tombstone(2, 21)});
  write_all();
  recover_now(of_a_store());
  EXPECT_TRUE(given_back());
  EXPECT_EQ(found(2), 0u);
}

// --- threads ---

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
