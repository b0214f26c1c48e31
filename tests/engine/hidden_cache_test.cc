// Establishes what a cache makes of a zone that an opening could not read: what it holds is there
// again when it can be read, pinned pages among it, unless newer pages were evicted meanwhile that
// it may have older versions of; and nothing that is older, or was deleted, ever comes back for
// good. How: reads of a zone fail for one opening.
#include <gtest/gtest.h>

#include "log/metadata_ring.h"
#include "tests/engine/pool_file.h"
#include "tests/engine/rig.h"
#include "zone/fault_device.h"

namespace furrow::testing::hidden_cache_test {
namespace {

constexpr std::size_t kPageBytes = 4000;
constexpr std::uint32_t kFirst = 2;  // data zone
constexpr std::uint64_t kZoneLbas = 64;
constexpr std::uint64_t kPerZone = 50;  // pages, some less than a zone has room for

class HiddenCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::unique_ptr<ZonedDevice> inner =
        open_device("mem:2560KiB?zone_size=256KiB", Access::exclusive).value();
    rig_.device = std::make_unique<FaultDevice>(std::move(inner), FaultOptions{.seed = 1});
    ASSERT_NO_FATAL_FAILURE(make_volume());
  }
  void make_volume() {
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::cache;
    options.value_bytes_max = 16 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
  }
  FaultDevice& faults() { return static_cast<FaultDevice&>(*rig_.device); }
  std::uint64_t written(std::uint32_t zone) { return (*rig_.device->report())[zone].written_lbas; }
  // Other pages, until there is something in that zone; those before it are full.
  void fill_up_to(std::uint32_t zone) {
    while (written(zone) < 2) ASSERT_TRUE(rig_.put(++other_, 1, kPageBytes).ok());
    rig_.settle();
  }
  void fill(std::uint64_t pages) {
    for (std::uint64_t i = 0; i < pages; ++i) ASSERT_TRUE(rig_.put(++other_, 1, kPageBytes).ok());
    rig_.settle();
  }
  void put_pinned(std::uint64_t key, std::uint64_t version) {
    ASSERT_TRUE(rig_.put(key, version, kPageBytes).ok());
    ASSERT_TRUE(rig_.simple(PageOp::Kind::pin, key).ok());
  }
  Status put_as_pinned(std::uint64_t key, std::uint64_t version) {
    AlignedBuffer page(4096);
    const auto bytes = content(key, version, kPageBytes);
    std::memcpy(page.data(), bytes.data(), bytes.size());
    PageOp op;
    op.kind = PageOp::Kind::put;
    op.key = key_of(key);
    op.pinned = true;
    op.data = page.data();
    op.length = kPageBytes;
    op.capacity = 4096;
    return rig_.run(op);
  }
  void reopen_without(std::uint32_t zone, std::uint64_t zones = 1) {
    rig_.close();
    faults().fail_reads(Lba{zone * kZoneLbas}, zones * kZoneLbas);
    rig_.open();
    faults().heal();
  }
  bool absent(std::uint64_t key) { return rig_.get(key).status().code() == Code::not_found; }
  void expect_page(std::uint64_t key, std::uint64_t version) {
    const auto page = rig_.get(key);
    ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
    EXPECT_EQ(*page, content(key, version, kPageBytes));
  }
  // What was put while a zone with an older version could not be read is gone.
  void evict_while_hidden() {
    put_pinned(1, 1);
    fill_up_to(kFirst + 1);
    reopen_without(kFirst);
    ASSERT_TRUE(rig_.put(1, 2, kPageBytes).ok());
    while (!absent(1)) fill(1);
    fill(10);
  }

  Rig rig_{""};
  std::uint64_t other_ = 1'000'000;
};

TEST_F(HiddenCacheTest, TheOldestZoneIsThereAgain) {
  put_pinned(1, 1);
  ASSERT_TRUE(rig_.put(2, 1, kPageBytes).ok());
  fill_up_to(kFirst + 2);
  reopen_without(kFirst);
  EXPECT_TRUE(absent(1));
  fill(5);
  rig_.reopen();
  expect_page(1, 1);
  expect_page(2, 1);
}

// What the zone's end says, when it was the newest; much later it is the oldest.
TEST_F(HiddenCacheTest, AZoneOfWhichALittleCannotBeReadIsEvictedInItsTurn) {
  put_pinned(1, 1);
  ASSERT_TRUE(rig_.put(2, 1, kPageBytes).ok());
  ASSERT_TRUE(rig_.put(3, 1, kPageBytes).ok());
  ASSERT_EQ(written(kFirst), 9u);
  rig_.close();
  faults().fail_reads(Lba{kFirst * kZoneLbas + 7}, 10);
  rig_.open();
  fill_up_to(kFirst + 2);
  rig_.reopen();
  expect_page(1, 1);
  expect_page(2, 1);
  rig_.reopen();
  expect_page(1, 1);
}

// The next life of the zone is none that an opening went without.
TEST_F(HiddenCacheTest, AZoneIsWhatItWasWrittenToBeLast) {
  ASSERT_NO_FATAL_FAILURE(evict_while_hidden());
  const auto asides = [this] {
    const Result<MetadataRing> ring = MetadataRing::open(*rig_.device, true);
    EXPECT_TRUE(ring.ok()) << ring.status().describe();
    return std::ranges::count_if(ring->state().trims, &ZoneTrimRecord::aside);
  };
  rig_.reopen();
  ASSERT_EQ(asides(), 1) << "it was evicted";
  for (const bool filled : {true, false}) {
    for (unsigned i = 0; (written(kFirst) == kZoneLbas) == filled; ++i) {
      ASSERT_LT(i, 2000u) << filled;
      fill(1);
    }
  }
  EXPECT_EQ(asides(), 0);
}

// What was put when it was hidden was evicted, so it may be older than that.
TEST_F(HiddenCacheTest, NothingOlderIsServed) {
  ASSERT_NO_FATAL_FAILURE(evict_while_hidden());
  rig_.reopen();
  EXPECT_TRUE(absent(1));
  rig_.reopen();
  EXPECT_TRUE(absent(1));
}

// An older version was written again, as it was pinned, while the newest one was hidden: into a
// zone that stays longer than that one's.
TEST_F(HiddenCacheTest, WhatIsPinnedDoesNotOutliveWhatReplacedIt) {
  put_pinned(1, 1);
  put_pinned(2, 1);
  fill_up_to(kFirst + 1);
  ASSERT_TRUE(rig_.put(1, 2, kPageBytes).ok());
  ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, 2).ok());
  fill_up_to(kFirst + 3);
  reopen_without(kFirst + 1);
  while (written(kFirst) > 1) fill(1);  // evicted
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 1));
  rig_.reopen();
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 2));
  EXPECT_TRUE(absent(2));
  for (int round = 0; round < 20; ++round) {
    fill(20);
    rig_.reopen();
    ASSERT_TRUE(absent(2)) << round;
  }
  EXPECT_TRUE(absent(1)) << "it was not pinned";
}

// Also where the newest version may itself be older than what was evicted meanwhile.
TEST_F(HiddenCacheTest, NorDoesItWhereThatIsNotServed) {
  put_pinned(1, 1);
  put_pinned(2, 1);
  fill_up_to(kFirst + 1);
  put_pinned(1, 2);
  ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, 2).ok());
  fill_up_to(kFirst + 3);
  reopen_without(kFirst + 1);
  fill(400);  // and all are evicted
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 1));
  for (int round = 0; round < 20; ++round) {
    rig_.reopen();
    ASSERT_TRUE(absent(1)) << round;
    ASSERT_TRUE(absent(2)) << round;
    fill(20);
  }
}

// Nor where it is hidden itself when what replaced it goes: nobody knows of it then.
TEST_F(HiddenCacheTest, NorDoesItWhereTheOneIsHiddenAndThenTheOther) {
  put_pinned(1, 1);
  put_pinned(2, 1);
  fill_up_to(kFirst + 1);
  ASSERT_TRUE(rig_.put(1, 2, kPageBytes).ok());
  ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, 2).ok());
  fill_up_to(kFirst + 3);
  reopen_without(kFirst + 1);
  while (written(kFirst) > 1) fill(1);
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 1));
  std::uint32_t newest = kFirst;
  while (written(newest) <= 1 || written(newest) == kZoneLbas) ++newest;
  reopen_without(newest - 1, 2);  // one of which has the copies
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 2));
  while (written(kFirst + 1) > 1) fill(1);
  for (int round = 0; round < 20; ++round) {
    rig_.reopen();
    ASSERT_TRUE(absent(1)) << round;
    ASSERT_TRUE(absent(2)) << round;
    fill(20);
  }
}

// Nor what was deleted by something in its own zone that could not be read when that one's turn
// came: it stays for the next opening, where that page is not there, and those that are pinned are.
TEST_F(HiddenCacheTest, WhatIsPinnedDoesNotOutliveADeletionThatWasNotRead) {
  put_pinned(1, 1);
  put_pinned(2, 1);
  ASSERT_EQ(written(kFirst), 9u);
  ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, 1).ok());
  ASSERT_TRUE(rig_.put(3, 1, kPageBytes).ok());
  fill_up_to(kFirst + 2);
  rig_.close();
  faults().fail_reads(Lba{kFirst * kZoneLbas + 9}, kZoneLbas - 9);
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 1));
  fill(600);  // all others are evicted
  EXPECT_EQ(rig_.pool->info().zones_bad, 1u) << "it stays";
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 1));
  faults().heal();
  for (int round = 0; round < 10; ++round) {
    rig_.reopen();
    ASSERT_TRUE(absent(1)) << round;
    ASSERT_NO_FATAL_FAILURE(expect_page(2, 1));
    ASSERT_TRUE(absent(3)) << "as it was evicted";
    fill(60);
    ASSERT_EQ(rig_.pool->info().zones_bad, 0u);
  }
}

// Where it can be read at its turn it goes, and the deletion stays.
TEST_F(HiddenCacheTest, NorADeletionThatWasReadLater) {
  put_pinned(1, 1);
  ASSERT_EQ(written(kFirst), 5u);
  ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, 1).ok());
  fill_up_to(kFirst + 2);
  rig_.close();
  faults().fail_reads(Lba{kFirst * kZoneLbas + 5}, kZoneLbas - 5);
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  faults().heal();
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 1));
  while (written(kFirst) == kZoneLbas) fill(1);
  for (int round = 0; round < 10; ++round) {
    rig_.reopen();
    ASSERT_TRUE(absent(1)) << round;
    fill(60);
  }
}

// A cache that has no zone to spare for it lets go of it.
TEST_F(HiddenCacheTest, AZoneDoesNotStayInASmallCache) {
  ASSERT_TRUE(rig_.pool->resize_volume("pages", {.quota_bytes = 3 * kZoneLbas * 4096}).status.ok());
  put_pinned(1, 1);
  fill(5);
  rig_.close();
  faults().fail_reads(Lba{kFirst * kZoneLbas + 5}, kZoneLbas - 5);
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  fill(200);
  EXPECT_EQ(rig_.pool->info().zones_bad, 0u);
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 1));
}

// Nor where the cache is to be as small as that.
TEST_F(HiddenCacheTest, NorInOneThatIsToBeSmall) {
  put_pinned(1, 1);
  fill(5);
  rig_.close();
  faults().fail_reads(Lba{kFirst * kZoneLbas + 5}, kZoneLbas - 5);
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  fill(2 * kPerZone);
  ASSERT_EQ(rig_.pool->info().zones_bad, 0u) << "its turn has not come";
  Status resized;
  do {
    rig_.turns(1);
    resized = rig_.pool->resize_volume("pages", {.quota_bytes = 3 * kZoneLbas * 4096}).status;
  } while (resized.code() == Code::busy);
  EXPECT_TRUE(resized.ok()) << resized.describe();
  EXPECT_EQ(rig_.pool->info().zones_bad, 0u);
  fill(200);
  ASSERT_NO_FATAL_FAILURE(expect_page(1, 1));
}

// It would be the newest from then on.
TEST_F(HiddenCacheTest, AnOlderVersionIsNotPinned) {
  ASSERT_TRUE(rig_.put(1, 1, kPageBytes).ok());
  put_pinned(2, 1);
  fill_up_to(kFirst + 1);
  ASSERT_TRUE(rig_.put(1, 2, kPageBytes).ok());
  ASSERT_TRUE(rig_.put(2, 2, kPageBytes).ok());
  fill_up_to(kFirst + 2);
  reopen_without(kFirst + 1);
  expect_page(1, 1);
  EXPECT_EQ(rig_.simple(PageOp::Kind::pin, 1).code(), Code::io_error);
  EXPECT_EQ(rig_.simple(PageOp::Kind::unpin, 2).code(), Code::io_error);
  EXPECT_TRUE(rig_.simple(PageOp::Kind::pin, 2).ok()) << "it is";
  rig_.reopen();
  expect_page(1, 2);
  expect_page(2, 2);
  EXPECT_TRUE(rig_.simple(PageOp::Kind::pin, 1).ok());
}

// Nor where the one was stored right before the other.
TEST_F(HiddenCacheTest, NorDoesItWhereNothingWasStoredBetweenThem) {
  std::uint64_t version = 0;
  while (written(kFirst + 1) < 2) ASSERT_TRUE(put_as_pinned(1, ++version).ok());
  fill_up_to(kFirst + 3);
  reopen_without(kFirst + 1);
  fill(400);  // and all are evicted
  ASSERT_NO_FATAL_FAILURE(expect_page(1, version - 1));
  for (int round = 0; round < 20; ++round) {
    rig_.reopen();
    ASSERT_TRUE(absent(1)) << round;
    fill(20);
  }
}

// What was stored since is the newest.
TEST_F(HiddenCacheTest, ThatWhichIsStoredAnewIs) {
  ASSERT_TRUE(rig_.put(1, 1, kPageBytes).ok());
  fill_up_to(kFirst + 1);
  fill_up_to(kFirst + 2);
  reopen_without(kFirst + 1);
  ASSERT_TRUE(rig_.put(1, 2, kPageBytes).ok());
  EXPECT_TRUE(rig_.simple(PageOp::Kind::pin, 1).ok());
  rig_.reopen();
  expect_page(1, 2);
}

// What is hidden may be so for good. Deletions that are left for its sake, and at each opening for
// that of those, do not take the cache's place in the end.
TEST(HiddenCacheDeletionsTest, TakeAPartOfTheCacheAtMost) {
  constexpr std::uint64_t kZone = kFirst * 256, kPages = 150, kBytes = 300;
  constexpr int kRounds = 32, kLast = 10;
  Rig rig{""};
  rig.device = std::make_unique<FaultDevice>(
      open_device("mem:1280KiB?zone_size=128KiB&lba=512", Access::exclusive).value(),
      FaultOptions{.seed = 1});
  auto& faults = static_cast<FaultDevice&>(*rig.device);
  VolumeOptions options;
  options.name = "pages";
  options.mode = VolumeMode::cache;
  options.value_bytes_max = 4 << 10;
  ASSERT_NO_FATAL_FAILURE(rig.make(options));
  std::uint64_t key = 0, written = 0;
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(rig.put(++key, 1, kBytes).ok());
  for (int round = 0; round < kRounds; ++round) {
    rig.close();
    faults.fail_reads(Lba{kZone}, 256);
    ASSERT_NO_FATAL_FAILURE(rig.open());
    faults.heal();
    for (std::uint64_t i = 0; i < kPages; ++i) ASSERT_TRUE(rig.put(++key, 1, kBytes).ok());
    rig.settle();
    if (round >= kRounds - kLast) written += rig.store->stats().device_bytes_written;
  }
  const std::uint64_t pages = kLast * kPages * 1024;  // and a batch header each
  EXPECT_GT(written, pages / 100 * 105) << "some are";
  EXPECT_LT(written, pages / 100 * 170);
}

// Nor what is written anew by a repair.
class RepairedCacheTest : public PoolFile, public HiddenCacheTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(2560 << 10, 256 << 10));
    open_file();
    ASSERT_NO_FATAL_FAILURE(make_volume());
  }
  void open_file() {
    rig_.device = std::make_unique<FaultDevice>(open_device(uri(), Access::exclusive).value(),
                                                FaultOptions{.seed = 1});
  }
  // A batch header, which the summary repeats.
  void rot(std::uint32_t zone) {
    const std::size_t begin = kDataAt + zone * kZoneLbas * kLba;
    const std::vector<std::size_t> headers = offsets_of("FUBH");
    const auto first = std::ranges::lower_bound(headers, begin);
    ASSERT_TRUE(first != headers.end() && *first < begin + kZoneLbas * kLba);
    damage(*first + 100);
  }
};

TEST_F(RepairedCacheTest, NothingOlderIsServed) {
  put_pinned(1, 1);
  ASSERT_TRUE(rig_.simple(PageOp::Kind::flush, 0).ok());
  fill_up_to(kFirst + 1);
  reopen_without(kFirst);
  ASSERT_TRUE(rig_.put(1, 2, kPageBytes).ok());
  while (!absent(1)) fill(1);
  fill(400);  // nor is a deletion left for its sake
  rig_.close();
  rig_.device.reset();
  ASSERT_NO_FATAL_FAILURE(rot(kFirst));
  auto device = open_device(uri(), Access::exclusive).value();
  const auto repaired = Pool::repair(*device, rig_.loop);
  ASSERT_TRUE(repaired.ok()) << repaired.status().describe();
  for (const std::string& line : repaired->failed) ADD_FAILURE() << line;
  EXPECT_EQ(repaired->done.size(), 1u);
  device.reset();
  open_file();
  rig_.open();
  EXPECT_TRUE(absent(1));
  rig_.reopen();
  EXPECT_TRUE(absent(1));
}

}  // namespace
}  // namespace furrow::testing::hidden_cache_test
