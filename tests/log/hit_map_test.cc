// Establishes that HitMap keeps a bit for each granule apart from all others, in pools of any shape
// and with zones of different granules, from any thread; that only pages shorter than a granule
// share one; that a page costs half a byte at most; and that coarse granules take less memory. How:
// against a plain set, and by what the kernel says of this process's memory.
#include "log/hit_map.h"

#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "tests/log/log_rig.h"

namespace furrow {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

Geometry geometry_of(std::uint32_t zones, std::uint64_t zone_lbas) {
  Geometry geometry;
  geometry.zone_count = zones;
  geometry.zone_size_lbas = geometry.zone_capacity_lbas = zone_lbas;
  return geometry;
}

TEST(HitMapTest, ABitForEachGranule) {
  std::mt19937_64 random(test_seed());
  // The last: more than one block of zones, of which the last is not whole.
  for (const auto& [zones, zone_lbas] :
       {std::pair{1u, 1000u}, {7u, 129u}, {100u, 64u}, {19u, 1u << 17}}) {
    HitMap hits(geometry_of(zones, zone_lbas));
    std::vector<std::uint64_t> granules(zones);
    for (std::uint32_t i = 0; i < zones; ++i) {
      granules[i] = std::uint64_t{1} << random() % 6;
      hits.set_granule(ZoneId{i}, granules[i]);
    }
    std::set<std::pair<std::uint64_t, std::uint64_t>> wanted;
    const auto granule_of = [&, lbas = zone_lbas](std::uint64_t lba) {
      return std::pair(lba / lbas, lba % lbas / granules[lba / lbas]);
    };
    const std::uint64_t lbas = std::uint64_t{zones} * zone_lbas;
    for (unsigned i = 0; i < 5000; ++i) {
      const std::uint64_t lba = random() % lbas;
      if (random() % 3 == 0) {
        hits.clear(lba);
        wanted.erase(granule_of(lba));
      } else {
        hits.set(lba);
        wanted.insert(granule_of(lba));
      }
      if (i % 1000 != 0) continue;
      for (std::uint64_t at = 0; at < lbas; at += 1 + lbas / 10'000) {
        ASSERT_EQ(hits.test(at), wanted.contains(granule_of(at))) << zones << " zones, LBA " << at;
      }
    }
  }
}

TEST(HitMapTest, ThreadsLoseNothing) {
  HitMap hits(geometry_of(10, 640));
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&hits, t] {
        for (std::uint64_t lba = t; lba < 6400; lba += 4) hits.set(lba);
      });
    }
  }
  for (std::uint64_t lba = 0; lba < 6400; ++lba) ASSERT_TRUE(hits.test(lba));
}

TEST(HitMapTest, OnlyPagesShorterThanAGranuleShareIt) {
  for (std::uint64_t mean = 1; mean <= 1024; ++mean) {
    const std::uint64_t granule = HitMap::granule_for(mean);
    EXPECT_LE(2 * (granule - 1), mean) << "so what is kept too much is less than half of it";
    EXPECT_LE(mean, 4 * granule) << "half a byte for a page";
    HitMap hits(geometry_of(1, 4096));
    hits.set_granule(ZoneId{0}, granule);
    for (const std::uint64_t first : {1u, 2u, 3u, 5u}) {
      hits.set(first + granule);
      EXPECT_FALSE(hits.test(first))
          << "a page of a granule's length in front of one that was read";
      EXPECT_FALSE(hits.test(first + 2 * granule));
      hits.clear(first + granule);
    }
  }
  EXPECT_EQ(HitMap::granule_for(0), 1u) << "nothing is known yet";
  EXPECT_EQ(HitMap::granule_for(4), 1u) << "16 KiB: as ever";
  EXPECT_EQ(HitMap::granule_for(16), 4u) << "64 KiB";
}

// Of this process, in bytes.
std::uint64_t resident() {
  std::ifstream status("/proc/self/smaps_rollup");
  for (std::string word; status >> word;) {
    if (word != "Anonymous:") continue;
    std::uint64_t kib = 0;
    status >> kib;
    return kib << 10;
  }
  return 0;
}

// Every page of a device of 64 GiB is read: in zones of 1 GiB, of 8 MiB, and a few large ones.
TEST(HitMapTest, CoarseGranulesTakeLessMemory) {
#ifdef FURROW_SANITIZED
  GTEST_SKIP() << "a sanitizer keeps memory about memory";
#endif
  for (const auto& [zones, zone_lbas] :
       {std::pair{64u, 1u << 18}, {8192u, 1u << 11}, {9u, 1u << 21}}) {
    const std::uint64_t lbas = std::uint64_t{zones} * zone_lbas;
    for (const std::uint64_t page_lbas : {1u, 4u, 16u, 256u}) {
      const std::uint64_t before = resident();
      HitMap hits(geometry_of(zones, zone_lbas));
      std::uint64_t said = 0;
      for (std::uint32_t i = 0; i < zones; ++i) {
        hits.set_granule(ZoneId{i}, HitMap::granule_for(page_lbas));
        said += hits.bytes(ZoneId{i});
      }
      for (std::uint64_t lba = 0; lba < lbas; lba += page_lbas) hits.set(lba);
      EXPECT_LE(said * 2, lbas / page_lbas) << "half a byte a page";
      const std::uint64_t taken = resident() - before;
      // Other memory comes and goes, and each block of zones may take a page too much.
      EXPECT_LE(taken, said + said / 8 + kMiB) << zones << " zones, pages of " << page_lbas;
      EXPECT_GE(taken + kMiB, said);
    }
  }
}

}  // namespace
}  // namespace furrow
