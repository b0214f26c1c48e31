// Establishes that ExpiryRuns finds when a page expires, in zones of any size and with any number
// of runs; that pages of one expiry share a run and others cost 8 bytes each; that a zone that is
// dropped gives its memory back and begins anew; that readers in threads find each page's expiry
// while runs are appended, and come to no harm where a zone is dropped under them. How: random runs
// against a map, and expiries that say where their page is.
#include "log/expiry_runs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/log/test_seed.h"
#include "tests/rounds.h"

namespace furrow {
namespace {

class ExpiryRunsTest : public ::testing::Test {
 protected:
  static Geometry geometry_of(std::uint32_t zones, std::uint64_t zone_lbas) {
    Geometry geometry;
    geometry.zone_count = zones;
    geometry.zone_size_lbas = geometry.zone_capacity_lbas = zone_lbas;
    return geometry;
  }

  std::mt19937_64 random_{test_seed()};
};

TEST_F(ExpiryRunsTest, FindsWhatAMapDoes) {
  constexpr std::uint32_t kZones = 5, kZoneLbas = 20'000;
  ExpiryRuns runs(geometry_of(kZones, kZoneLbas));
  std::vector<std::map<std::uint32_t, std::uint32_t>> all(kZones);  // expiry by page
  for (unsigned round = 0; round < 300; ++round) {
    const ZoneId zone{static_cast<std::uint32_t>(random_() % kZones)};
    auto& its = all[zone.value];
    if (random_() % 8 == 0) {
      runs.drop(zone);
      its.clear();
      EXPECT_EQ(runs.bytes(zone), 0u);
    }
    const std::uint32_t kinds = random_() % 2 == 0 ? 2 : 1'000'000;
    std::uint32_t lba = its.empty() ? 0 : its.rbegin()->first + 1;
    for (std::uint64_t more = random_() % 3000; more != 0 && lba < kZoneLbas; --more) {
      its[lba] = static_cast<std::uint32_t>(1 + random_() % kinds);
      runs.add(zone, lba, its[lba]);
      lba += 1 + static_cast<std::uint32_t>(random_() % 3);
    }
    for (std::uint32_t other = 0; other < kZones; ++other) {
      if (all[other].empty()) {
        EXPECT_EQ(runs.find(ZoneId{other}, 7), 0u);
      }
      for (const auto& [page, expires_s] : all[other]) {
        if (other != zone.value && random_() % 16 != 0) continue;
        ASSERT_EQ(runs.find(ZoneId{other}, page), expires_s) << "zone " << other << ' ' << page;
      }
    }
  }
}

// One whose zone is full of pages that all expire at other times.
TEST_F(ExpiryRunsTest, AWholeZoneOfDifferentOnes) {
  for (const std::uint32_t lbas : {1u, 31u, 32u, 33u, 255u, 256u, 257u, 100'000u}) {
    ExpiryRuns runs(geometry_of(3, lbas));
    for (std::uint32_t lba = 0; lba < lbas; ++lba) runs.add(ZoneId{1}, lba, lba + 1);
    for (std::uint32_t lba = 0; lba < lbas; ++lba) {
      ASSERT_EQ(runs.find(ZoneId{1}, lba), lba + 1) << lbas;
    }
    EXPECT_EQ(runs.find(ZoneId{0}, 0), 0u);
    EXPECT_EQ(runs.find(ZoneId{2}, 0), 0u);
    EXPECT_GE(runs.bytes(ZoneId{1}), std::uint64_t{lbas} * 8);
    EXPECT_LE(runs.bytes(ZoneId{1}), std::uint64_t{lbas} * 33 / 4 + 320);
  }
}

// The address space is for all, and chunks are taken of it by many.
TEST_F(ExpiryRunsTest, AllZonesFullOfDifferentOnes) {
  constexpr std::uint32_t kZones = 41, kLbas = 3200;  // 4100 chunks
  ExpiryRuns runs(geometry_of(kZones, kLbas));
  for (std::uint32_t zone = 0; zone < kZones; ++zone) {
    for (std::uint32_t lba = 0; lba < kLbas; ++lba) runs.add(ZoneId{zone}, lba, zone + lba + 1);
  }
  for (std::uint32_t zone = 0; zone < kZones; ++zone) {
    for (std::uint32_t lba = 0; lba < kLbas; ++lba) {
      ASSERT_EQ(runs.find(ZoneId{zone}, lba), zone + lba + 1);
    }
  }
}

TEST_F(ExpiryRunsTest, PagesOfOneExpiryShareARun) {
  ExpiryRuns runs(geometry_of(2, 1 << 16));
  for (std::uint32_t lba = 0; lba < 1 << 16; ++lba) runs.add(ZoneId{0}, lba, 7 + (lba >> 12));
  EXPECT_EQ(runs.bytes(ZoneId{0}), 320u);
  EXPECT_EQ(runs.find(ZoneId{0}, (5 << 12) - 1), 11u);
  EXPECT_EQ(runs.find(ZoneId{0}, 5 << 12), 12u);
  // What does not come in its order is left out.
  runs.add(ZoneId{0}, 9, 99);
  EXPECT_EQ(runs.find(ZoneId{0}, 9), 7u);
  EXPECT_EQ(runs.find(ZoneId{0}, (1 << 16) - 1), 22u) << "nor does it hide what did";
}

// What is free at the end is not the process's any more: else all zones' lives would be counted.
TEST_F(ExpiryRunsTest, DroppedZonesGiveTheirChunksToOthers) {
  constexpr std::uint32_t kZones = 64, kLbas = 1024;
  ExpiryRuns runs(geometry_of(kZones, kLbas));
  for (std::uint32_t life = 1; life < 50; ++life) {
    for (std::uint32_t i = 0; i < kZones; ++i) {
      const ZoneId zone{static_cast<std::uint32_t>(random_() % kZones)};
      runs.drop(zone);
      for (std::uint32_t lba = 0; lba < kLbas; ++lba) {
        runs.add(zone, lba, life * 100'000 + zone.value * 1200 + lba);
      }
      for (std::uint32_t lba = 0; lba < kLbas; lba += 17) {
        ASSERT_EQ(runs.find(zone, lba), life * 100'000 + zone.value * 1200 + lba);
      }
    }
  }
  for (std::uint32_t i = 0; i < kZones; ++i) runs.drop(ZoneId{i});
  runs.add(ZoneId{3}, 5, 6);
  EXPECT_EQ(runs.find(ZoneId{3}, 5), 6u);
  EXPECT_EQ(runs.find(ZoneId{3}, 4), 0u);
}

// Pages are told of as an index does it: by a number that is published when their run is there.
TEST_F(ExpiryRunsTest, ReadersWhileRunsAreAppended) {
  constexpr std::uint32_t kZones = 2;
  constexpr auto kLbas = static_cast<std::uint32_t>(rounds(200'000, 20'000));
  const auto expires_s = [](std::uint32_t zone, std::uint32_t lba) {
    return 1 + lba / (zone == 0 ? 1 : 100);
  };
  for (unsigned life = 0; life < 10; ++life) {
    ExpiryRuns runs(geometry_of(kZones, kLbas));
    std::atomic<std::uint32_t> there[kZones] = {0, 0};
    std::atomic<std::uint64_t> wrong{0};
    std::atomic<unsigned> reading{0};
    std::atomic<bool> done{false};
    const auto read = [&](std::uint64_t seed) {
      std::mt19937_64 random(seed);
      for (++reading; !done.load();) {
        const auto zone = static_cast<std::uint32_t>(random() % 8 == 0 ? 1 : 0);
        const std::uint32_t known = there[zone].load(std::memory_order_acquire);
        if (known == 0) continue;
        // Mostly the last one: beside it others come.
        const auto back = random() % 8 != 0 ? 0 : static_cast<std::uint32_t>(random() % known);
        const std::uint32_t lba = known - 1 - back;
        if (runs.find(ZoneId{zone}, lba) != expires_s(zone, lba)) ++wrong;
      }
    };
    const auto write = [&](std::uint32_t zone) {
      while (reading.load() == 0) std::this_thread::yield();
      for (std::uint32_t lba = 0; lba < kLbas; ++lba) {
        runs.add(ZoneId{zone}, lba, expires_s(zone, lba));
        there[zone].store(lba + 1, std::memory_order_release);
      }
    };
    std::thread readers[] = {std::thread(read, random_()), std::thread(read, random_())};
    std::thread writers[] = {std::thread(write, 0), std::thread(write, 1)};
    for (std::thread& thread : writers) thread.join();
    while (reading.load() < 2) std::this_thread::yield();
    done = true;
    for (std::thread& thread : readers) thread.join();
    ASSERT_EQ(wrong.load(), 0u);
  }
}

// As of a volume that is deleted while its pages are being read.
TEST_F(ExpiryRunsTest, ReadersOfAZoneThatIsDropped) {
  constexpr std::uint32_t kLbas = 4000;
  ExpiryRuns runs(geometry_of(2, kLbas));
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> found{0};
  std::thread reader([&, seed = random_()] {
    std::mt19937_64 random(seed);
    while (!done.load()) {
      found += runs.find(ZoneId{0}, static_cast<std::uint32_t>(random() % kLbas)) != 0 ? 1 : 0;
    }
  });
  for (unsigned life = 0; life < rounds(300, 30) || found.load() == 0; ++life) {
    for (std::uint32_t lba = 0; lba < kLbas; ++lba) runs.add(ZoneId{0}, lba, lba + life + 1);
    runs.add(ZoneId{1}, life, life + 1);  // takes what may have been the other's
    runs.drop(ZoneId{0});
  }
  done = true;
  reader.join();
}

}  // namespace
}  // namespace furrow
