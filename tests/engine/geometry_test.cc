// Establishes that zones of awkward shapes work from end to end: a capacity that segments do not
// divide (the last segment is shorter), 512-byte LBAs, a capacity below the zone's size. Each pool
// is filled beyond its size, so that every kind of segment is closed, collected and recovered.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/rig.h"

namespace furrow::testing::geometry_test {
namespace {

struct Shape {
  const char* name;
  const char* uri;
  std::size_t bytes;         // of a page
  std::uint64_t keys, puts;  // so many puts over so many keys
};

class GeometryTest : public ::testing::TestWithParam<Shape> {};

TEST(GeometryLimitTest, MoreLbasThanAnIndexEntryHoldsAreRefused) {
  Geometry geometry;
  geometry.lba_bytes = 4096;
  geometry.zone_capacity_lbas = 1 << 20;
  geometry.zone_size_lbas = std::uint64_t{1} << 32;
  geometry.zone_count = 256;
  EXPECT_TRUE(Pool::suits(geometry).ok());
  geometry.zone_count = 257;
  EXPECT_EQ(Pool::suits(geometry).code(), Code::invalid_argument);
}

TEST(GeometryLimitTest, TheRingAndAVolumeNeedAnOpenZoneEach) {
  Geometry geometry;
  geometry.zone_count = 16;
  geometry.zone_size_lbas = geometry.zone_capacity_lbas = 1024;
  for (const std::uint32_t zones : {0u, 2u}) {  // 0: no limit
    geometry.open_zones_max = geometry.active_zones_max = zones;
    EXPECT_TRUE(Pool::suits(geometry).ok()) << zones;
  }
  geometry.open_zones_max = 1;
  EXPECT_EQ(Pool::suits(geometry).code(), Code::too_many_zones);
  geometry.open_zones_max = geometry.active_zones_max = 1;
  EXPECT_EQ(Pool::suits(geometry).code(), Code::too_many_zones);
  geometry.open_zones_max = 0;
  EXPECT_EQ(Pool::suits(geometry).code(), Code::too_many_zones);
}

TEST_P(GeometryTest, FillsCollectsAndRecovers) {
  const Shape& shape = GetParam();
  Rig rig(shape.uri);
  VolumeOptions options;
  options.name = "pages";
  options.mode = VolumeMode::store;
  options.value_bytes_max = 1 << 20;
  ASSERT_NO_FATAL_FAILURE(rig.make(options));
  for (std::uint64_t i = 0; i < shape.puts; ++i) {
    const Status status = rig.put(i % shape.keys, i / shape.keys, shape.bytes);
    ASSERT_TRUE(status.ok()) << i << ": " << status.describe();
  }
  EXPECT_GT(rig.store->stats().zones_reset, 0u) << "nothing was collected";
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t key = 0; key < shape.keys; ++key) {
      const std::uint64_t version = (shape.puts - 1 - key) / shape.keys;
      const auto page = rig.get(key, 1 << 20);
      ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
      ASSERT_EQ(*page, content(key, version, shape.bytes)) << key;
    }
    const auto found = rig.pool->check({});
    ASSERT_TRUE(found.ok());
    EXPECT_TRUE(found->clean()) << found->damage.front().text;
    ASSERT_NO_FATAL_FAILURE(rig.reopen());
  }
}

// A store may be filled evenly, and its pages die evenly: collection needs one zone that it gains
// room with, so the average zone of a full store must be one. Counted here from FORMAT.md's sizes:
// copies are batches of 64 records or 1 MiB (two of which together hold more than that), a record
// takes 48 bytes in a batch and as many in the summary.
TEST(StoreRoomTest, TheAverageZoneOfAFullStoreGains) {
  for (const std::uint64_t lba : {512, 4096}) {
    for (const std::uint64_t zone_mib : {1, 4, 16, 64}) {
      for (const std::uint64_t page : {4096, 16384, 65536}) {
        SCOPED_TRACE(fmt::format("LBAs of {}, zones of {} MiB, pages of {}", lba, zone_mib, page));
        Rig rig(fmt::format("mem:{}MiB?zone_size={}MiB&lba={}", 12 * zone_mib, zone_mib, lba));
        VolumeOptions options;
        options.name = "pages";
        options.mode = VolumeMode::store;
        options.value_bytes_max = static_cast<std::uint32_t>(page);
        ASSERT_NO_FATAL_FAILURE(rig.make(options));
        const VolumeUsage usage = rig.store->usage();
        ASSERT_EQ(usage.pages, 0u);
        const double zones = static_cast<double>(usage.quota_zones) - 2;
        const double pages = static_cast<double>(usage.free_bytes) / zones /
                             static_cast<double>(page + 2 * 48 + (80 + lba) / 64);
        const double data = pages * static_cast<double>(page);
        const double batches = pages / 64 + 2 * data / (1 << 20) + 2;
        const double copied = data + batches * static_cast<double>(lba + 80) + pages * 2 * 48;
        const double zone = static_cast<double>(zone_mib << 20);
        const double room = zone - 4 * static_cast<double>(lba) - static_cast<double>(page);
        EXPECT_LE(copied, room - room / 128);
        EXPECT_GE(copied, room * 0.98) << "and no more is kept back than that takes";
      }
    }
  }
}

// 65 MiB and 4 KiB are 16641 LBAs: two segments of 8321 and 8320.
INSTANTIATE_TEST_SUITE_P(
    Shapes, GeometryTest,
    ::testing::Values(
        Shape{"odd_last_segment", "mem:768MiB?zone_size=128MiB&zone_capacity=68161536", 900000, 60,
              400},
        Shape{"lba_512", "mem:32MiB?zone_size=4MiB&zone_capacity=3145728&lba=512", 30001, 100, 900},
        Shape{"odd_capacity", "mem:32MiB?zone_size=4MiB&zone_capacity=3149824", 30001, 100, 900}),
    [](const auto& shape) { return std::string(shape.param.name); });

}  // namespace
}  // namespace furrow::testing::geometry_test
