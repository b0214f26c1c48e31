// Establishes that the allocator never promises more zones or open slots than there are, gives a
// stream a zone exactly while it is within its quota, and picks the victims its policies say.
#include "alloc/zone_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace furrow {
namespace {

Geometry geometry(std::uint32_t zones, std::uint32_t mor, std::uint32_t mar) {
  Geometry shape;
  shape.zone_count = zones;
  shape.zone_size_lbas = shape.zone_capacity_lbas = 100;
  shape.open_zones_max = mor;
  shape.active_zones_max = mar;
  return shape;
}

TEST(ZoneAllocatorTest, AdmitsWithinZonesAndSlots) {
  ZoneAllocator allocator(geometry(12, 3, 4), 2);
  EXPECT_EQ(allocator.unpromised(), 10u);
  EXPECT_EQ(allocator.admit(1, 11, 1).code(), Code::no_space);
  ASSERT_TRUE(allocator.admit(1, 6, 1).ok());
  EXPECT_EQ(allocator.unpromised(), 4u);
  ASSERT_TRUE(allocator.admit(2, 4, 1).ok());
  EXPECT_FALSE(allocator.try_add_stream(1)) << "MOR 3: metadata and two streams";
  const Status refused = allocator.admit(3, 0, 1);
  EXPECT_EQ(refused.code(), Code::too_many_zones);
  EXPECT_EQ(refused.describe().find("last"), std::string::npos) << refused.describe();
  EXPECT_NE(refused.describe().find("one of each volume"), std::string::npos) << refused.describe();
  allocator.dismiss(2);
  EXPECT_TRUE(allocator.try_add_stream(1));
  const Status too_late = allocator.admit(3, 0, 1);  // as it would have been in another order
  EXPECT_EQ(too_late.code(), Code::too_many_zones);
  EXPECT_NE(too_late.describe().find("make such a one last"), std::string::npos);
  EXPECT_NE(too_late.describe().find("a store takes two"), std::string::npos);
  EXPECT_EQ(allocator.unpromised(), 4u);
}

// Also where the other one leaves more, or does not bind at all.
TEST(ZoneAllocatorTest, EitherLimitBindsByItself) {
  for (const auto& [mor, mar] : {std::pair{3u, 0u}, {0u, 3u}, {3u, 5u}, {5u, 3u}}) {
    ZoneAllocator allocator(geometry(12, mor, mar), 2);
    EXPECT_EQ(allocator.admit(9, 2, 3).code(), Code::too_many_zones) << mor << ' ' << mar;
    ASSERT_TRUE(allocator.admit(1, 2, 1).ok());
    ASSERT_TRUE(allocator.admit(2, 2, 1).ok());
    EXPECT_EQ(allocator.admit(3, 2, 1).code(), Code::too_many_zones) << mor << ' ' << mar;
    EXPECT_FALSE(allocator.try_add_stream(1)) << mor << ' ' << mar;
  }
}

TEST(ZoneAllocatorTest, AQuotaGrowsIntoWhatIsUnpromisedAndGivesItBack) {
  ZoneAllocator allocator(geometry(12, 4, 4), 2);
  ASSERT_TRUE(allocator.admit(1, 3, 1).ok());
  ASSERT_TRUE(allocator.admit(2, 3, 1).ok());
  for (unsigned i = 0; i < 3; ++i) ASSERT_TRUE(allocator.take(1, 0, i, i).ok());
  EXPECT_EQ(allocator.take(1, 0, 3, 3).status().code(), Code::no_space);
  allocator.set_quota(1, 7);
  EXPECT_EQ(allocator.quota(1), 7u);
  EXPECT_EQ(allocator.unpromised(), 0u);
  const ZoneId taken = *allocator.take(1, 0, 3, 3);
  EXPECT_EQ(allocator.admit(3, 1, 1).code(), Code::no_space);
  allocator.release(taken);
  allocator.set_quota(1, 3);
  EXPECT_EQ(allocator.unpromised(), 4u);
  EXPECT_EQ(allocator.take(1, 0, 4, 4).status().code(), Code::no_space);
  EXPECT_TRUE(allocator.admit(3, 4, 1).ok());
}

TEST(ZoneAllocatorTest, NoLimitMeansNoLimit) {
  ZoneAllocator allocator(geometry(200, 0, 0), 2);
  for (std::uint64_t id = 1; id <= 60; ++id) ASSERT_TRUE(allocator.admit(id, 3, 1).ok());
}

TEST(ZoneAllocatorTest, LendsZonesWithAShareOfTheOpenOnes) {
  ZoneAllocator allocator(geometry(12, 5, 7), 2);
  ASSERT_TRUE(allocator.admit(1, 6, 1).ok());
  EXPECT_EQ(allocator.share_left(), (ZoneShare{3, 5}));
  const std::vector<ZoneId> zones{ZoneId{4}, ZoneId{9}};
  const std::vector<ZoneId> many{ZoneId{4}, ZoneId{5}, ZoneId{6}, ZoneId{7}, ZoneId{8}};
  EXPECT_EQ(allocator.lend(2, many, {1, 1}).code(), Code::no_space);
  EXPECT_EQ(allocator.lend(2, zones, {4, 5}).code(), Code::too_many_zones);
  EXPECT_EQ(allocator.lend(2, zones, {3, 6}).code(), Code::too_many_zones);
  EXPECT_EQ(allocator.lend(2, zones, {0, 5}).code(), Code::too_many_zones) << "some it must be";
  const Status none = allocator.lend(2, zones, {3, 6});
  EXPECT_NE(none.describe().find("has two"), std::string::npos) << none.describe();
  ASSERT_TRUE(allocator.lend(2, zones, {2, 5}).ok());
  EXPECT_EQ(allocator.unpromised(), 2u);
  EXPECT_EQ(allocator.count(ZoneUse::lent), 2u);
  EXPECT_FALSE(allocator.try_add_stream(1)) << "no active zone is left";
  for (unsigned i = 0; i < 6; ++i) {
    const ZoneId taken = *allocator.take(1, 0, i, i);
    EXPECT_NE(taken, zones[0]);
    EXPECT_NE(taken, zones[1]);
  }
  allocator.release(zones[0]);
  allocator.retire(zones[1]);
  allocator.dismiss(2);
  EXPECT_EQ(allocator.share_left(), (ZoneShare{3, 5}));
  EXPECT_TRUE(allocator.try_add_stream(1));
  EXPECT_EQ(allocator.unpromised(), 3u);
}

TEST(ZoneAllocatorTest, LentZonesAreNotTakenOffForLostOnes) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  EXPECT_EQ(allocator.share_left(), (ZoneShare{~0u, ~0u}));
  const std::vector<ZoneId> zones{ZoneId{2}, ZoneId{3}, ZoneId{4}, ZoneId{5}, ZoneId{6}};
  ASSERT_TRUE(allocator.lend(1, zones, {0, 0}).ok());
  ASSERT_TRUE(allocator.admit(2, 5, 1).ok());
  allocator.retire(ZoneId{11});
  EXPECT_EQ(allocator.shrink_quotas(), 1u);
  EXPECT_EQ(allocator.quota(1), 5u);
  EXPECT_EQ(allocator.quota(2), 4u);
}

TEST(ZoneAllocatorTest, QuotaBindsAndReleaseGivesBack) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 3, 1).ok());
  std::vector<ZoneId> taken;
  for (std::uint64_t i = 0; i < 3; ++i) taken.push_back(*allocator.take(1, 0, i, i));
  EXPECT_EQ(allocator.take(1, 0, 9, 9).status().code(), Code::no_space);
  EXPECT_EQ(allocator.held(1), 3u);
  for (const ZoneId zone : taken) EXPECT_GE(zone.value, 2u) << "metadata zones are not given out";
  allocator.release(taken[1]);
  EXPECT_EQ(allocator.held(1), 2u);
  EXPECT_NE(*allocator.take(1, 0, 9, 9), taken[1]) << "round robin spreads wear";
}

TEST(ZoneAllocatorTest, RetiredZonesStayCounted) {
  ZoneAllocator allocator(geometry(5, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 3, 1).ok());
  const ZoneId zone = *allocator.take(1, 0, 1, 1);
  allocator.retire(zone);
  EXPECT_EQ(allocator.held(1), 1u);
  EXPECT_EQ(allocator.count(ZoneUse::bad), 1u);
  ASSERT_TRUE(allocator.take(1, 0, 2, 2).ok());
  ASSERT_TRUE(allocator.take(1, 0, 3, 3).ok());
  EXPECT_EQ(allocator.take(1, 0, 4, 4).status().code(), Code::no_space);
}

// Else the next volume would be promised a zone that nobody can give it.
TEST(ZoneAllocatorTest, BadZonesOfADismissedOwnerArePromisedToNobody) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 10, 1).ok());
  allocator.retire(*allocator.take(1, 0, 1, 1));
  EXPECT_EQ(allocator.unpromised(), 0u);
  allocator.dismiss(1);
  EXPECT_EQ(allocator.unpromised(), 9u);
  ASSERT_TRUE(allocator.admit(2, 9, 1).ok());
  for (std::uint64_t i = 0; i < 9; ++i) ASSERT_TRUE(allocator.take(2, 0, i, i).ok()) << i;
}

TEST(ZoneAllocatorTest, WhatADismissedOwnerHasActiveStillTakesItsSlot) {
  ZoneAllocator allocator(geometry(12, 5, 7), 2);
  ASSERT_TRUE(allocator.admit(1, 10, 2).ok());
  allocator.dismiss(1, 1);
  EXPECT_EQ(allocator.share_left(), (ZoneShare{3, 5}));
}

TEST(ZoneAllocatorTest, LostZonesComeOffTheLargestQuotas) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 7, 1).ok());
  ASSERT_TRUE(allocator.admit(2, 3, 1).ok());
  EXPECT_EQ(allocator.shrink_quotas(), 0u);
  ZoneAllocator::Zone lost;
  lost.use = ZoneUse::bad;
  allocator.adopt(ZoneId{5}, lost);
  allocator.adopt(ZoneId{6}, lost);
  EXPECT_EQ(allocator.shrink_quotas(), 2u);
  EXPECT_EQ(allocator.quota(1), 5u);
  EXPECT_EQ(allocator.quota(2), 3u);
}

// No volume is left with more zones than its quota.
// Zone 2 was adopted after five others had been taken in its place.
TEST(ZoneAllocatorTest, AZoneThatIsBackMayBeMoreThanTheQuota) {
  for (const std::uint64_t other : {3, 4, 5}) {
    ZoneAllocator allocator(geometry(12, 4, 4), 2);
    ASSERT_TRUE(allocator.admit(1, 5, 1).ok());
    ASSERT_TRUE(allocator.admit(2, other, 1).ok());
    for (std::uint32_t zone = 2; zone < 8; ++zone) {
      allocator.adopt(ZoneId{zone}, {.use = ZoneUse::sealed, .owner = 1, .opened_sequence = zone});
    }
    allocator.take_back(1);
    allocator.allow(1, 7);
    EXPECT_EQ(allocator.held_max(1), other == 3 ? 7u : 6u) << other;
    EXPECT_EQ(allocator.shrink_quotas(), other == 5 ? 1u : 0u);
    EXPECT_GE(allocator.held_max(1), 6u);
    EXPECT_EQ(allocator.quota(1), 5u);
    EXPECT_EQ(allocator.unpromised(), 0u);
  }
}

// It is taken off what is promised to nobody, and given back.
TEST(ZoneAllocatorTest, WhatMayBeHeldBeyondTheQuota) {
  ZoneAllocator allocator(geometry(14, 4, 4), 2);
  ASSERT_TRUE(allocator.admit(1, 4, 1).ok());
  for (std::uint32_t zone = 2; zone < 8; ++zone) {
    allocator.adopt(ZoneId{zone}, {.use = ZoneUse::sealed, .owner = 1, .opened_sequence = zone});
  }
  allocator.take_back(1);
  EXPECT_EQ(allocator.take(1, 0, 1, 100).status().code(), Code::no_space);
  allocator.allow(1, 7);
  allocator.allow(1, 5);
  EXPECT_EQ(allocator.held_max(1), 7u);
  EXPECT_EQ(allocator.unpromised(), 5u);
  EXPECT_EQ(allocator.quota_max(1), 12u);
  ASSERT_TRUE(allocator.take(1, 0, 1, 100).ok());
  allocator.allow_no_more(1, 0);
  EXPECT_EQ(allocator.held_max(1), 7u) << "all of that is held";
  for (std::uint32_t zone = 2; zone < 6; ++zone) allocator.release(ZoneId{zone});
  allocator.allow_no_more(1, 9);
  EXPECT_EQ(allocator.held_max(1), 7u) << "nor more than before";
  allocator.allow_no_more(1, 6);
  EXPECT_EQ(allocator.held_max(1), 6u);
  allocator.allow_no_more(1, 0);
  EXPECT_EQ(allocator.held_max(1), 4u) << "its quota";
  EXPECT_EQ(allocator.unpromised(), 8u);
  allocator.allow(1, 9);
  allocator.set_quota(1, 12);
  EXPECT_EQ(allocator.unpromised(), 0u);
  allocator.set_quota(1, 4);
  EXPECT_EQ(allocator.held_max(1), 4u);
}

// Else its pages would have no zone to be copied to.
TEST(ZoneAllocatorTest, ALargerQuotaTakesNothingOfWhatMayBeHeld) {
  ZoneAllocator allocator(geometry(14, 4, 4), 2);
  ASSERT_TRUE(allocator.admit(1, 4, 1).ok());
  for (std::uint32_t zone = 2; zone < 8; ++zone) {
    allocator.adopt(ZoneId{zone}, {.use = ZoneUse::sealed, .owner = 1, .opened_sequence = zone});
  }
  allocator.take_back(1);
  allocator.allow(1, 7);
  allocator.set_quota(1, 5);
  EXPECT_EQ(allocator.held_max(1), 7u);
  EXPECT_TRUE(allocator.take(1, 0, 1, 100).ok());
  allocator.set_quota(1, 9);
  EXPECT_EQ(allocator.held_max(1), 9u);
}

// Which is the same when the other one does not hold it any more, until that has another quota.
TEST(ZoneAllocatorTest, WhatCameOffAQuotaIsPromisedToNobodyElse) {
  ZoneAllocator allocator(geometry(14, 4, 4), 2);
  for (const std::uint64_t owner : {1, 2}) ASSERT_TRUE(allocator.admit(owner, 6, 1).ok());
  allocator.allow_from(2, 1);
  EXPECT_EQ(allocator.held_max(1), 7u);
  EXPECT_EQ(allocator.quota(2), 5u);
  EXPECT_EQ(allocator.held_max(2), 5u);
  for (unsigned i = 0; i < 2; ++i, allocator.allow_no_more(1, 0)) {
    EXPECT_EQ(allocator.unpromised(), 0u);
    EXPECT_EQ(allocator.quota_max(1), 6u);
    EXPECT_LE(allocator.quota_max(2), 6u);
  }
  EXPECT_EQ(allocator.held_max(1), 6u);
  allocator.set_quota(2, 4);
  EXPECT_EQ(allocator.unpromised(), 2u);
  EXPECT_EQ(allocator.quota_max(1), 8u);
}

TEST(ZoneAllocatorTest, NothingIsOwedToAVolumeThatIsDeleted) {
  ZoneAllocator allocator(geometry(14, 4, 4), 2);
  for (const std::uint64_t owner : {1, 2}) ASSERT_TRUE(allocator.admit(owner, 6, 1).ok());
  allocator.allow_from(2, 1);
  allocator.allow_no_more(1, 0);
  ASSERT_EQ(allocator.unpromised(), 0u);
  EXPECT_TRUE(allocator.vacate(2).empty());
  EXPECT_EQ(allocator.unpromised(), 6u) << "before it is dismissed, too";
}

// They are counted as they change, not when it is asked: here against all zones looked at.
TEST(ZoneAllocatorTest, WhatIsPromisedIsNeverMoreThanWhatIsUsable) {
  constexpr std::uint32_t kZones = 40;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    ZoneAllocator allocator(geometry(kZones, 0, 0), 2);
    std::set<std::uint64_t> owners;
    std::uint64_t next_owner = 1;
    const auto any_zone = [&] {
      return ZoneId{2 + static_cast<std::uint32_t>(random() % (kZones - 2))};
    };
    const auto returned = [&](ZoneId zone) {
      random() % 4 == 0 ? allocator.retire(zone) : allocator.release(zone);
    };
    for (unsigned step = 0; step < 2000; ++step) {
      const ZoneId zone = any_zone();
      const ZoneUse use = allocator.zone(zone).use;
      const std::uint64_t owner = allocator.zone(zone).owner;
      switch (random() % 8) {
        case 0:
          if (allocator.admit(next_owner, 3 + random() % 8, 1).ok()) owners.insert(next_owner++);
          break;
        case 1:
          if (use != ZoneUse::free) break;
          if (allocator.lend(next_owner, std::vector{zone}, {1, 1}).ok())
            owners.insert(next_owner++);
          break;
        case 2:
        case 3:
          for (const std::uint64_t taker : owners) {
            if (allocator.quota(taker) > 1) (void)allocator.take(taker, 0, step, step);
          }
          break;
        case 4:
          if (use == ZoneUse::open) allocator.set_use(zone, ZoneUse::sealed);
          if (use == ZoneUse::sealed) allocator.set_use(zone, ZoneUse::resetting);
          if (use == ZoneUse::resetting) returned(zone);
          break;
        case 5:
          if (use == ZoneUse::bad) allocator.make_void(zone);
          break;
        case 6: {
          if (use == ZoneUse::free || owner == 0) break;
          for (const ZoneId its : allocator.vacate(owner)) {
            if (random() % 2 == 0) returned(its);
          }
          allocator.dismiss(owner);
          owners.erase(owner);
          break;
        }
        case 7:
          if (random() % 16 == 0 && use == ZoneUse::free) allocator.retire(zone);
          break;
      }
      std::uint64_t usable = 0, promised = 0;
      for (const ZoneAllocator::Zone& each : allocator.zones()) {
        const bool lost = each.use == ZoneUse::bad || each.use == ZoneUse::resetting;
        if (each.use != ZoneUse::metadata && (!lost || each.owner != 0)) ++usable;
      }
      for (const std::uint64_t each : owners) promised += allocator.quota(each);
      ASSERT_EQ(allocator.unpromised() + promised, usable + allocator.missing())
          << "seed " << seed << ", step " << step;
    }
  }
}

TEST(ZoneAllocatorTest, OfZonesThatMayBeAnybodysAnythingMayBeOlder) {
  ZoneAllocator allocator(geometry(12, 4, 4), 2);
  ASSERT_TRUE(allocator.admit(1, 5, 1).ok());
  allocator.adopt(ZoneId{2}, {.use = ZoneUse::sealed, .owner = 1, .opened_sequence = 20});
  allocator.adopt(ZoneId{3}, {.use = ZoneUse::sealed, .owner = 1, .opened_sequence = 30});
  EXPECT_EQ(allocator.min_opened(1, ZoneId{2}), 30u);
  allocator.note_stray(ZoneId{3}, 12);
  EXPECT_EQ(allocator.min_opened(1, ZoneId{2}), 12u);
  allocator.adopt(ZoneId{4}, {.use = ZoneUse::bad, .anyones = 1});
  EXPECT_EQ(allocator.min_opened(1, ZoneId{2}), 12u) << "of volumes before it";
  allocator.adopt(ZoneId{5}, {.use = ZoneUse::bad, .anyones = 2});
  EXPECT_EQ(allocator.min_opened(1, ZoneId{2}), 0u);
  EXPECT_EQ(allocator.min_sequence(1, ZoneId{2}), 0u);
}

TEST(ZoneAllocatorTest, QuotasShrinkWhereTheyAreNotInUse) {
  ZoneAllocator allocator(geometry(10, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 5, 1).ok());
  ASSERT_TRUE(allocator.admit(2, 3, 1).ok());
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(allocator.take(1, 0, i, i).ok());
  ZoneAllocator::Zone lost;
  lost.use = ZoneUse::bad;
  allocator.adopt(ZoneId{9}, lost);
  EXPECT_EQ(allocator.shrink_quotas(), 1u);
  EXPECT_EQ(allocator.quota(1), 5u);
  EXPECT_EQ(allocator.quota(2), 2u);
}

// What is beyond it goes first.
TEST(ZoneAllocatorTest, AQuotaStaysWhereMoreThanItMayBeHeld) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 3, 1).ok());
  ASSERT_TRUE(allocator.admit(2, 2, 1).ok());
  allocator.allow(1, 8);
  ASSERT_EQ(allocator.unpromised(), 0u);
  allocator.retire(ZoneId{9});
  EXPECT_EQ(allocator.shrink_quotas(), 1u);
  EXPECT_EQ(allocator.held_max(1), 7u);
  EXPECT_EQ(allocator.quota(1), 3u);
  EXPECT_EQ(allocator.quota(2), 2u);
}

// A volume that was made meanwhile would have it, and the other not what it was promised.
TEST(ZoneAllocatorTest, AZoneThatIsBackIsPromisedToNobodyButWhomItWasTakenFrom) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 7, 1).ok());
  ASSERT_TRUE(allocator.admit(2, 3, 1).ok());
  allocator.retire(ZoneId{5});
  EXPECT_EQ(allocator.shrink_quotas(), 1u);
  ASSERT_EQ(allocator.quota(1), 6u);
  allocator.release(ZoneId{5});
  EXPECT_EQ(allocator.unpromised(), 0u);
  EXPECT_EQ(allocator.quota_max(2), 3u);
  allocator.set_quota(1, 5);  // which is another one
  EXPECT_EQ(allocator.unpromised(), 2u);
}

TEST(ZoneAllocatorTest, VictimsByPolicy) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 5, 1).ok());
  const ZoneId oldest = *allocator.take(1, 0, 10, 10);
  const ZoneId emptiest = *allocator.take(1, 0, 20, 20);
  const ZoneId open = *allocator.take(1, 0, 30, 30);
  allocator.add_live(oldest, 90, 11);
  allocator.add_live(emptiest, 10, 21);
  allocator.set_use(oldest, ZoneUse::sealed);
  allocator.set_use(emptiest, ZoneUse::sealed);
  EXPECT_EQ(allocator.victim(1, VictimPolicy::fifo), oldest);
  EXPECT_EQ(allocator.victim(1, VictimPolicy::greedy), emptiest);
  EXPECT_EQ(allocator.victim(1, VictimPolicy::cost_benefit), emptiest);
  allocator.remove_live(oldest, 89);
  EXPECT_EQ(allocator.victim(1, VictimPolicy::cost_benefit), oldest);
  EXPECT_EQ(allocator.victim(2, VictimPolicy::fifo), std::nullopt);
  EXPECT_EQ(allocator.min_sequence(1, oldest), 21u);
  EXPECT_EQ(allocator.min_sequence(1, open), 11u);
}

TEST(ZoneAllocatorTest, FreeZonesGoRoundOverOpenings) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 8, 1).ok());
  const auto adopt = [&](std::uint32_t zone, std::uint64_t opened) {
    allocator.adopt(ZoneId{zone}, {ZoneUse::sealed, 0, 1, opened, opened});
  };
  adopt(3, 20);
  adopt(7, 40);
  adopt(8, 30);
  adopt(10, 10);
  allocator.adopt(ZoneId{11}, {.use = ZoneUse::bad});
  std::vector<std::uint32_t> taken;
  for (std::uint64_t i = 50; i < 54; ++i) taken.push_back(allocator.take(1, 0, i, i)->value);
  EXPECT_EQ(taken, (std::vector<std::uint32_t>{9, 2, 4, 5}));
}

// They lie next to each other, and many openings are between them and now.
TEST(ZoneAllocatorTest, TheOldestIsFoundHoweverLongAgoItWasOpened) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 5, 1).ok());
  const auto adopt = [&](std::uint32_t zone, std::uint64_t opened) {
    allocator.adopt(ZoneId{zone}, {ZoneUse::sealed, 0, 1, opened, opened});
  };
  adopt(2, (std::uint64_t{1} << 40) + 9);
  adopt(3, (std::uint64_t{1} << 40) + 1);
  adopt(4, std::uint64_t{1} << 58);
  EXPECT_EQ(allocator.victim(1, VictimPolicy::fifo), ZoneId{3});
}

// Cold zones, which lose little more, against hot ones, whose pages die soon anyway.
TEST(ZoneAllocatorTest, CostBenefitWeighsAgeWhereGreedyDoesNot) {
  using enum VictimPolicy;
  ZoneAllocator allocator(geometry(14, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 10, 1).ok());
  std::vector<ZoneId> zones;
  for (std::uint64_t i = 0; i < 8; ++i) {
    zones.push_back(*allocator.take(1, 0, 10 + i, 10 + i));
    allocator.set_use(zones.back(), ZoneUse::sealed);
    allocator.add_live(zones.back(), i == 0 ? 70 : 60 + i % 2, 100);
  }
  EXPECT_EQ(allocator.victim(1, greedy), zones[2]) << "60, and the first of them";
  EXPECT_EQ(allocator.victim(1, cost_benefit), zones[1])
      << "(1 - .61) * 7 / 1.61 is more than (1 - .7) * 8 / 1.7, and than any younger one's";
  allocator.remove_live(zones[0], 10);
  EXPECT_EQ(allocator.victim(1, greedy), zones[0]);
  EXPECT_EQ(allocator.victim(1, cost_benefit), zones[0]);
  allocator.remove_live(zones[7], 55);
  EXPECT_EQ(allocator.victim(1, greedy), zones[7]);
  EXPECT_EQ(allocator.victim(1, cost_benefit), zones[0]);
  allocator.remove_live(zones[6], 40);
  EXPECT_EQ(allocator.victim(1, cost_benefit), zones[0]) << "it is younger";
  // Its age is its place, however far sequences lie apart.
  allocator.release(zones[0]);
  const ZoneId reopened = *allocator.take(1, 0, std::uint64_t{2} << 40, std::uint64_t{2} << 40);
  allocator.set_use(reopened, ZoneUse::sealed);
  allocator.add_live(reopened, 1, 100);
  allocator.add_live(zones[6], 40, 100);
  EXPECT_EQ(allocator.victim(1, greedy), reopened);
  EXPECT_EQ(allocator.victim(1, cost_benefit), zones[1]);
}

TEST(ZoneAllocatorTest, AVoidZoneIsNotOlderThanAnything) {
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 5, 1).ok());
  const ZoneId lost = *allocator.take(1, 0, 10, 10);
  const ZoneId other = *allocator.take(1, 0, 20, 20);
  const ZoneId newest = *allocator.take(1, 0, 30, 30);
  allocator.note_sequence(lost, 11);
  allocator.note_sequence(other, 15);
  allocator.retire(lost);
  EXPECT_EQ(allocator.min_opened(1, newest), 10u) << "it may come back";
  EXPECT_EQ(allocator.min_sequence(1, newest), 11u);
  allocator.make_void(lost);
  EXPECT_EQ(allocator.min_opened(1, newest), 20u);
  EXPECT_EQ(allocator.min_sequence(1, newest), 15u);
  EXPECT_EQ(allocator.zone(lost).generation, 10u) << "by which the journal knows it";
}

// Else a volume at its quota may have lost the zone that it would empty another one into.
TEST(ZoneAllocatorTest, AZoneThatNobodyWasPromisedStandsInForAVoidOne) {
  for (const std::uint32_t spare : {0u, 1u}) {
    ZoneAllocator allocator(geometry(7 + spare, 0, 0), 2);
    ASSERT_TRUE(allocator.admit(1, 5, 1).ok());
    const ZoneId lost = *allocator.take(1, 0, 10, 10);
    for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(allocator.take(1, 0, 20 + i, 20).ok());
    allocator.note_sequence(ZoneId{3}, 21);
    allocator.note_sequence(lost, 11);
    allocator.note_stray(lost, 12);
    allocator.retire(lost);
    EXPECT_EQ(allocator.held(1), 5u) << "what it holds may count again";
    allocator.make_void(lost);
    EXPECT_EQ(allocator.held(1), 5 - spare);
    EXPECT_EQ(allocator.min_opened(1, ZoneId{6}), 20u) << "nothing in it counts";
    EXPECT_EQ(allocator.min_sequence(1, ZoneId{6}), 21u) << "nor does a record";
    EXPECT_EQ(allocator.zone(*allocator.opened_last(1, ZoneId{6})).opened_sequence, 20u);
    EXPECT_EQ(allocator.unpromised(), 0u);
    EXPECT_EQ(allocator.take(1, 0, 30, 30).ok(), spare == 1);
    EXPECT_EQ(allocator.count(ZoneUse::bad), 1u);
    allocator.dismiss(1);
    EXPECT_EQ(allocator.unpromised(), 4 + spare);
  }
}

TEST(ZoneAllocatorTest, VictimsByAnotherMeasure) {
  using enum VictimPolicy;
  ZoneAllocator allocator(geometry(12, 0, 0), 2);
  ASSERT_TRUE(allocator.admit(1, 5, 1).ok());
  std::vector<ZoneId> zones;
  for (std::uint64_t i = 0; i < 3; ++i) {
    zones.push_back(*allocator.take(1, 0, 10 + i, 10 + i));
    allocator.set_use(zones.back(), ZoneUse::sealed);
  }
  const auto measure = [&](ZoneId zone) -> std::optional<std::uint64_t> {
    if (zone == zones[0]) return std::nullopt;
    return zone == zones[1] ? 150 : 99;  // more than a zone has
  };
  for (const VictimPolicy policy : {greedy, cost_benefit}) {
    EXPECT_EQ(allocator.victim(1, policy, measure), zones[2]);
  }
  EXPECT_EQ(allocator.victim(1, fifo, measure), zones[1]);
  const auto none = [](ZoneId) { return std::optional<std::uint64_t>(); };
  EXPECT_EQ(allocator.victim(1, greedy, none), std::nullopt);
}

}  // namespace
}  // namespace furrow
