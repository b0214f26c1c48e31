// Establishes what recover() does with the zones of a pool: those that are nobody's, never begun,
// void, damaged, read-only or offline are dealt with, and nothing is touched in a pool that is only
// read; trims are found once, noted in their order, and hold; of each stream the zones that a power
// cut may have torn are verified, and no others. How: on images of zones, one fact in each.
#include "tests/log/recovery_rig.h"
#include "zone/blocking.h"

namespace furrow {
namespace {

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

// A copy of a page that was damaged already is no torn one.
TEST_F(RecoveryTest, WhatWasCopiedAsDamagedEndsNothing) {
  for (const bool said : {true, false}) {
    ZoneImage& newest = zone(2, 20, kVolume, kCollectionStream);
    newest.add_batch({newest.page(1, 21, 600)});
    ZoneImage::Item damaged = newest.page(2, 22, 600);
    damaged.record.damaged = said;
    const std::uint32_t batch = newest.add_batch({damaged});
    newest.damage(batch + 1);
    newest.add_batch({newest.page(3, 23, 600)});
    write_all();
    recover_now();
    EXPECT_EQ(found(1), 21u);
    EXPECT_EQ(found(2), said ? 22u : 0u);
    EXPECT_EQ(found(3), said ? 23u : 0u);
    EXPECT_EQ(volume().damaged, said);
    images_.clear();
    make({});
  }
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

// .. and where that fails, and it is offline at the next opening, nothing is missing.
TEST_F(RecoveryTest, AZoneThatCannotBeResetIsVoid) {
  remake_with_faults();
  ZoneImage& deleted = zone(2, 10, 99);  // of a volume that is gone
  deleted.add_batch({deleted.page(1, 11, 600)});
  write_all();
  RecoveryOptions with = options();
  with.note_trim = [&](const ZoneTrim& trim) {
    with.trims.push_back(trim);
    return Status();
  };
  faults_->degrade(ZoneId{2}, ZoneState::read_only);
  recover_now(with);
  EXPECT_EQ(use(2), ZoneUse::bad);
  EXPECT_EQ(with.trims.size(), 1u);
  faults_->degrade(ZoneId{2}, ZoneState::offline);
  recover_now(with);
  EXPECT_EQ(use(2), ZoneUse::bad);
  EXPECT_FALSE(volume().lost);
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
  // With two volumes nobody can tell whose the second one is; nor where there was another one, of
  // which it may be left.
  RecoveryOptions two = options(), one_left = options();
  two.volumes = {kVolume, 8};
  one_left.had_others = true;
  for (const RecoveryOptions& each : {two, one_left}) {
    drop_pool();
    make_pool();
    ASSERT_TRUE(pool_->allocator.admit(8, 2, 1).ok());
    Result<RecoveryResult> recovered = recover(*device_, *pool_, each);
    ASSERT_TRUE(recovered.ok());
    ASSERT_EQ(recovered->lost.size(), 1u);
    EXPECT_EQ(recovered->lost[0].zone, ZoneId{3});
    EXPECT_EQ(use(3), ZoneUse::bad);
    EXPECT_GT(info(ZoneId{3}).written_lbas, 0u) << "it is kept";
    EXPECT_EQ(info(ZoneId{3}).state, ZoneState::full) << "and holds no active zone";
    EXPECT_EQ(use(2), ZoneUse::open);
  }
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

// As one that an emulated device sealed when it did not take its header, as the disk was full, and
// that a kill has left so. However large it is.
TEST_F(RecoveryTest, AZoneThatWasFinishedBeforeAnythingWasWrittenIsReset) {
  Shape shape;
  shape.zones = 4;
  shape.zone_size_lbas = shape.zone_capacity_lbas = 20'000;
  shape.segment_lbas = 5'000;
  shape.quota = 2;
  make(shape);
  ASSERT_TRUE(manage_blocking(*queue_, Io::Op::finish, ZoneId{2}).ok());
  recover_now();
  EXPECT_TRUE(result_->lost.empty());
  EXPECT_FALSE(volume().hidden);
  EXPECT_EQ(use(2), ZoneUse::free);
  EXPECT_EQ(info(ZoneId{2}).state, ZoneState::empty);
}

// But not where something stands in the place of a structure, however far back.
TEST_F(RecoveryTest, AFullZoneOfWhichOneLbaIsLeftIsKept) {
  Shape shape;
  shape.zones = 4;
  shape.zone_size_lbas = shape.zone_capacity_lbas = 40'000;
  shape.segment_lbas = 20'000;
  shape.quota = 2;
  for (const std::uint64_t left : {0, 1, 19'999, 20'000, 39'999}) {
    make(shape);
    std::vector<std::byte> bytes(shape.zone_capacity_lbas * pool_->geometry.lba_bytes);
    bytes[left * pool_->geometry.lba_bytes] = std::byte{1};
    rewrite_zone(*device_, ZoneId{2}, bytes, shape.zone_capacity_lbas, true);
    recover_now();
    EXPECT_EQ(use(2), ZoneUse::bad) << left;
    EXPECT_EQ(info(ZoneId{2}).state, ZoneState::full) << left;
    EXPECT_EQ(result_->lost.size(), 1u) << left;
  }
}

TEST_F(RecoveryTest, ZonesThatWentBad) {
  remake_with_faults();
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
  EXPECT_TRUE(result_->lost[0].why.starts_with("is offline; what it may have held"));
  EXPECT_TRUE(volume().lost);
  EXPECT_FALSE(volume().hidden) << "it never comes back";
  // The journal says that it held nothing.
  RecoveryOptions with = options();
  with.trims = {{ZoneId{2}, 10, 0}};
  recover_now(with);
  EXPECT_EQ(result_->lost[0].why, "is offline");
  EXPECT_FALSE(volume().lost);
  EXPECT_EQ(found(2), 21u);
}

// Of pages 1 and 2, in batches of their own, this one (1 or 2) is not whole: torn, or rotten.
void add_damaged(ZoneImage& image, std::uint64_t number) {
  for (const std::uint64_t each : {1, 2}) {
    const std::uint32_t batch = image.add_batch({image.page(each, 10 + each, 600)});
    if (each == number) image.damage(batch + 1);
  }
}

// The next zone's header is written before this one is flushed.
TEST_F(RecoveryTest, TheZoneBeforeAReadOnlyOneIsVerifiedToo) {
  remake_with_faults();
  add_damaged(zone(2, 10), 2);
  zone(3, 20);
  write_all();
  faults_->degrade(ZoneId{3}, ZoneState::read_only);
  recover_now();
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 0u) << "it was torn";
  ASSERT_EQ(result_->new_trims.size(), 1u);
  EXPECT_EQ(result_->new_trims[0].zone, ZoneId{2});
  EXPECT_EQ(use(2), ZoneUse::sealed) << "another was opened behind it";
  EXPECT_EQ(info(ZoneId{2}).state, ZoneState::full);
}

// As a drive's zone is whose first write failed, having moved the pointer.
TEST_F(RecoveryTest, TheZoneBeforeAFinishedHeaderIsVerifiedToo) {
  ZoneImage& before = zone(2, 10);
  before.add_batch({before.page(1, 11, 600), before.page(2, 12, 600)});
  const std::uint32_t torn = before.add_batch({before.page(2, 13, 600, 1)});
  before.damage(torn + 1);
  zone(3, 20);
  write_all();
  Result<std::unique_ptr<IoQueue>> queue = device_->create_queue(1);
  ASSERT_TRUE(queue.ok());
  ASSERT_TRUE(manage_blocking(**queue, Io::Op::finish, ZoneId{3}).ok());
  recover_now();
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(found(2), 12u) << "the later one was torn";
}

// Whatever its first batch is now, it was written behind a header that was durable.
TEST_F(RecoveryTest, TheZoneBeforeATrimmedOneIsDurable) {
  add_damaged(zone(2, 10), 1);
  ZoneImage& torn = zone(3, 20);
  torn.add_batch({torn.page(3, 21, 600)});
  torn.damage(1);
  torn.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  write_all();
  RecoveryOptions with = options();
  with.trims = {{ZoneId{3}, 20, 1}};
  recover_now(with);
  EXPECT_EQ(found(1), 11u) << "it is damage";
  EXPECT_EQ(found(2), 12u);
}

// A trim of the header alone says that the zone before it was verified: it must not be there first.
TEST_F(RecoveryTest, TrimsAreNotedAsTheZonesWereOpened) {
  add_damaged(zone(5, 10), 2);
  ZoneImage& failed = zone(3, 20);
  failed.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  write_all();
  device_->forget_events();
  RecoveryOptions with = options();
  std::vector<std::uint32_t> noted;
  with.note_trim = [&](const ZoneTrim& trim) {
    EXPECT_EQ(device_->count(Io::Op::flush), 1u) << "what was found whole is durable before";
    noted.push_back(trim.zone.value);
    return Status();
  };
  recover_now(with);
  EXPECT_EQ(noted, (std::vector<std::uint32_t>{5, 3}));
  EXPECT_EQ(found(2), 0u) << "it was torn";
}

// A batch further on is as good: the first one may be what is damaged.
TEST_F(RecoveryTest, AnyBatchTellsThatTheZoneBeforeIsDurable) {
  add_damaged(zone(2, 10), 1);
  ZoneImage& last = zone(3, 20);
  last.add_batch({last.page(3, 21, 600)});
  last.add_batch({last.page(4, 22, 600)});
  last.damage(1);
  last.set_written(static_cast<std::uint32_t>(shape_.zone_capacity_lbas));
  write_all();
  recover_now();
  EXPECT_EQ(found(1), 11u) << "it is damage";
}

// Nothing follows a header before the zone before it is durable.
TEST_F(RecoveryTest, TheZoneBeforeAReadOnlyOneWithABatchIsDurable) {
  remake_with_faults();
  add_damaged(zone(2, 10), 1);
  ZoneImage& last = zone(3, 20);
  last.add_batch({last.page(3, 21, 600)});
  write_all();
  faults_->degrade(ZoneId{3}, ZoneState::read_only);
  recover_now();
  EXPECT_EQ(found(1), 11u) << "it is damage";
  EXPECT_EQ(found(2), 12u);
  EXPECT_EQ(found(3), 21u);
}

TEST_F(RecoveryTest, AZoneThatIsFollowedIsNotGoneOnWith) {
  remake_with_faults();
  ZoneImage& before = zone(2, 10);
  before.add_batch({before.page(1, 11, 600)});
  zone(3, 20);
  write_all();
  faults_->degrade(ZoneId{3}, ZoneState::read_only);
  recover_now();
  EXPECT_EQ(found(1), 11u);
  EXPECT_EQ(use(2), ZoneUse::sealed);
  EXPECT_EQ(info(ZoneId{2}).state, ZoneState::full);
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

// .. nor does it count again where the device did not reset it, when its successor is gone, and the
// deletions of what it holds with it.
TEST_F(RecoveryTest, AZoneThatWasWrittenAnewIsVoidWhereItIsNotReset) {
  ZoneImage& a = zone(2, 10);
  a.add_batch({a.page(1, 11, 600)});
  ZoneImage& again = zone(4, 30, kVolume, kUserStream, 10);
  const std::uint32_t end = again.add_batch({again.page(1, 11, 600)}) + again.written_lbas();
  write_all();
  RecoveryOptions with = options();
  with.trims = {{ZoneId{4}, 30, end, true}};
  std::vector<ZoneTrim> noted;
  with.note_trim = [&](const ZoneTrim& trim) {
    noted.push_back(trim);
    return Status();
  };
  device_->fail(Io::Op::reset, {Code::zone_state, Origin::zone});
  recover_now(with);
  EXPECT_EQ(use(2), ZoneUse::bad);
  EXPECT_EQ(zone_of(1), 4u);
  ASSERT_TRUE(manage_blocking(*queue_, Io::Op::reset, ZoneId{4}).ok());  // collected
  with.trims = noted;
  recover_now(with);
  EXPECT_EQ(found(1), 0u);
  EXPECT_EQ(use(2), ZoneUse::free);
}

}  // namespace
}  // namespace furrow
