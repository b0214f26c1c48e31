// Establishes what a pool does about a store that holds all of its quota, or more, as a zone is
// back that an opening could not read, in whose place it took another one: where nothing is
// promised to nobody, a zone comes off a quota that is not in use, so that deletes go on; and who
// asks for what is free until then is told to try again.
#include <gtest/gtest.h>

#include <functional>

#include "tests/engine/rig.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"
#include "zone/zone_state_machine.h"

namespace furrow::testing::beyond_quota_test {
namespace {

constexpr std::uint64_t kZoneBytes = 1 << 20, kZoneLbas = kZoneBytes / 4096;
constexpr std::size_t kPageBytes = 12000;

VolumeOptions store(const char* name, std::uint64_t zones) {
  VolumeOptions options;
  options.name = name;
  options.mode = VolumeMode::store;
  options.quota_bytes = zones * kZoneBytes;
  options.value_bytes_max = 64 << 10;
  return options;
}

class BeyondQuotaTest : public ::testing::Test {
 protected:
  // Of 13 zones for volumes the store has four.
  void SetUp() override {
    auto inner = open_device("mem:15MiB?zone_size=1MiB", Access::exclusive);
    ASSERT_TRUE(inner.ok());
    auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
    faults_ = fault.get();
    rig_.device = std::move(fault);
    ASSERT_NO_FATAL_FAILURE(rig_.make(store("pages", 4)));
  }
  // Pages under new keys until it holds so many zones.
  void fill(std::uint64_t zones) {
    while (rig_.store->usage().zones < zones) ASSERT_TRUE(rig_.put(next_++, 1, kPageBytes).ok());
  }
  // The zones that are written to are full afterwards.
  void reopen() {
    rig_.close();
    auto queue = rig_.device->create_queue(4);
    for (std::uint32_t zone = 2; zone < 15; ++zone) {
      if (!is_active(rig_.device->zone(ZoneId{zone}).state)) continue;
      ASSERT_TRUE(manage_blocking(**queue, Io::Op::finish, ZoneId{zone}).ok());
    }
    ASSERT_NO_FATAL_FAILURE(rig_.open());
  }
  void reopen_without_a_zone() {
    faults_->fail_reads(Lba{2 * kZoneLbas}, kZoneLbas);
    ASSERT_NO_FATAL_FAILURE(reopen());
    ASSERT_EQ(rig_.store->usage().zones, 2u);
  }
  void reopen_with_it() {
    faults_->heal();
    ASSERT_NO_FATAL_FAILURE(reopen());
    ASSERT_EQ(rig_.store->usage().zones, 4u);
  }
  void come_back_dead() {
    ASSERT_NO_FATAL_FAILURE(fill(3));
    ASSERT_NO_FATAL_FAILURE(reopen_without_a_zone());
    next_ = 0;
    ASSERT_NO_FATAL_FAILURE(fill(3));
    ASSERT_NO_FATAL_FAILURE(reopen_with_it());
  }
  void expect_in_a_moment(const std::function<Status()>& ask) {
    Status status = ask();
    EXPECT_EQ(status.code(), Code::busy) << status.describe();
    for (unsigned turns = 0; turns < 1'000'000 && status.code() == Code::busy; ++turns) {
      rig_.loop.run_once();
      status = ask();
    }
    ASSERT_TRUE(status.ok()) << status.describe();
    EXPECT_EQ(other()->usage().quota_zones, 9u);
  }
  // Those that there are are all that the device has.
  void expect_no_larger_quotas() {
    for (const char* name : {"pages", "other"}) {
      const std::uint64_t zones = rig_.pool->find(name)->usage().quota_zones + 1;
      const Status larger =
          rig_.pool->resize_volume(name, {.quota_bytes = zones * kZoneBytes}).status;
      EXPECT_TRUE(larger.code() == Code::no_space || larger.code() == Code::busy)
          << name << ": " << larger.describe();
    }
  }
  PageStore* other() { return rig_.pool->find("other"); }

  Rig rig_{""};
  FaultDevice* faults_ = nullptr;
  std::uint64_t next_ = 0;
};

TEST_F(BeyondQuotaTest, WithNothingUnpromisedItTakesDeletes) {
  ASSERT_TRUE(rig_.pool->create_volume(store("other", 9)).ok());
  ASSERT_NO_FATAL_FAILURE(fill(3));
  ASSERT_NO_FATAL_FAILURE(reopen_without_a_zone());
  ASSERT_NO_FATAL_FAILURE(fill(3));
  ASSERT_NO_FATAL_FAILURE(reopen_with_it());
  EXPECT_EQ(rig_.pool->info().zones_unpromised, 0u);
  expect_no_larger_quotas();
  for (std::uint64_t key = 0; key < next_; ++key) {
    const Status removed = rig_.simple(PageOp::Kind::remove, key);
    ASSERT_TRUE(removed.ok()) << key << ": " << removed.describe();
  }
  EXPECT_TRUE(rig_.put(1, 2, kPageBytes).ok());
  EXPECT_LT(rig_.store->usage().zones, 4u);
  // The other one has its quota again with the next opening, and nobody else a part of it before.
  EXPECT_EQ(rig_.pool->info().zones_unpromised, 0u);
  expect_no_larger_quotas();
  EXPECT_EQ(other()->usage().quota_zones, 9u);
  ASSERT_NO_FATAL_FAILURE(reopen());
  EXPECT_EQ(rig_.pool->info().zones_unpromised, 0u);
}

// It holds more than its quota, so that there is less for the other one, whose quota is in the
// journal as it was.
TEST_F(BeyondQuotaTest, WhatIsBeyondItsQuotaIsNotItsForGood) {
  ASSERT_TRUE(rig_.pool->create_volume(store("other", 9)).ok());
  ASSERT_NO_FATAL_FAILURE(fill(3));
  faults_->fail_reads(Lba{2 * kZoneLbas}, 2 * kZoneLbas);
  ASSERT_NO_FATAL_FAILURE(reopen());
  ASSERT_EQ(rig_.store->usage().zones, 1u);
  ASSERT_NO_FATAL_FAILURE(fill(3));
  faults_->heal();
  ASSERT_NO_FATAL_FAILURE(reopen());
  ASSERT_EQ(rig_.store->usage().zones, 5u);
  expect_no_larger_quotas();
  ASSERT_NO_FATAL_FAILURE(reopen());
}

// It is full: with less, no zone would be sure to gain anything by its collection.
TEST_F(BeyondQuotaTest, WhatAnotherVolumeNeedsIsNotTaken) {
  ASSERT_TRUE(rig_.pool->create_volume(store("other", 6)).ok());
  ASSERT_TRUE(rig_.pool->create_volume(store("idle", 3)).ok());
  ASSERT_NO_FATAL_FAILURE(fill(2));
  PageStore* const pages = std::exchange(rig_.store, other());
  std::uint64_t keys = 0;
  while (rig_.put(keys, 3, kPageBytes).ok()) ++keys;
  rig_.store = pages;
  ASSERT_NO_FATAL_FAILURE(fill(3));
  ASSERT_NO_FATAL_FAILURE(reopen_without_a_zone());
  ASSERT_NO_FATAL_FAILURE(fill(3));
  ASSERT_NO_FATAL_FAILURE(reopen_with_it());
  EXPECT_EQ(rig_.simple(PageOp::Kind::remove, 0).code(), Code::no_space);
  rig_.store = other();
  for (std::uint64_t key = 0; key < keys; ++key) {
    const Status stored = rig_.put(key, 4, kPageBytes);
    ASSERT_TRUE(stored.ok()) << key << ": " << stored.describe();
  }
}

// Its pages were written again, so that nothing lives in the zone that is back.
TEST_F(BeyondQuotaTest, ANewVolumeWaitsForWhatIsFreeInAMoment) {
  ASSERT_NO_FATAL_FAILURE(come_back_dead());
  EXPECT_EQ(rig_.pool->info().zones_unpromised, 8u);
  expect_in_a_moment([&] { return rig_.pool->create_volume(store("other", 9)).status(); });
}

TEST_F(BeyondQuotaTest, ALargerQuotaWaitsForWhatIsFreeInAMoment) {
  ASSERT_TRUE(rig_.pool->create_volume(store("other", 3)).ok());
  ASSERT_NO_FATAL_FAILURE(come_back_dead());
  EXPECT_EQ(rig_.pool->info().zones_unpromised, 5u);
  expect_in_a_moment(
      [&] { return rig_.pool->resize_volume("other", {.quota_bytes = 9 * kZoneBytes}).status; });
}

}  // namespace
}  // namespace furrow::testing::beyond_quota_test
