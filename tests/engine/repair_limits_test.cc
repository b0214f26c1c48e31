// Establishes that a repair keeps within the device's limits on open and active zones: with two of
// each, which the metadata ring and the volume's newest zone take, a full zone's header is damaged,
// and then the newest one's; the pool is repaired, and all pages are there and can be written.
#include <gtest/gtest.h>

#include "log/metadata_ring.h"
#include "tests/engine/pool_file.h"
#include "zone/blocking.h"

namespace furrow::testing::repair_limits_test {
namespace {

constexpr std::size_t kPageBytes = 20000;
constexpr std::uint64_t kKeys = 120;
constexpr std::uint32_t kRingZones = 2;

class RepairLimitsTest : public ::testing::TestWithParam<VolumeMode>, public PoolFile {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(10 << 20, 1 << 20, 2));
    VolumeOptions options;
    options.name = "pages";
    options.mode = GetParam();
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
    for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(rig_.put(i, 1, kPageBytes).ok());
    close();
  }
  void close() {
    rig_.close();
    rig_.device.reset();
  }
  void repair(std::size_t zones = 1) {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    const auto report = Pool::repair(*rig_.device, rig_.loop);
    ASSERT_TRUE(report.ok()) << report.status().describe();
    EXPECT_EQ(report->done.size(), zones);
    for (const std::string& line : report->failed) ADD_FAILURE() << line;
    rig_.device.reset();
  }
  void expect_all() {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      const auto page = rig_.get(i);
      ASSERT_TRUE(page.ok()) << i << ": " << page.status().describe();
      ASSERT_EQ(*page, content(i, 1, kPageBytes)) << i;
    }
    ASSERT_TRUE(rig_.put(1000, 1, kPageBytes).ok());
    const auto checked = rig_.pool->check({});
    ASSERT_TRUE(checked.ok());
    for (const Finding& finding : checked->damage) ADD_FAILURE() << finding.text;
    close();
  }

  Rig rig_{uri()};
};

INSTANTIATE_TEST_SUITE_P(Modes, RepairLimitsTest,
                         ::testing::Values(VolumeMode::cache, VolumeMode::store),
                         [](const auto& each) {
                           return each.param == VolumeMode::cache ? "cache" : "store";
                         });

TEST_P(RepairLimitsTest, AFullZone) {
  damage(offsets_of("FUZH").front() + 40);
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

// A full zone does not say where its data ends: of the one that makes room the journal does.
TEST_P(RepairLimitsTest, WhereTheZoneEndsThatIsFinishedForIt) {
  damage(offsets_of("FUZH").front() + 40);
  ASSERT_NO_FATAL_FAILURE(rig_.open_device());
  std::vector<ZoneInfo> zones = *rig_.device->report();
  std::erase_if(zones, [](const ZoneInfo& info) { return info.written_lbas == 0; });
  const ZoneInfo newest = zones.back();
  ASSERT_LT(newest.written_lbas, rig_.device->geometry().zone_capacity_lbas);
  rig_.device.reset();
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(rig_.open_device());
  EXPECT_EQ(rig_.device->zone(newest.zone).state, ZoneState::full);
  const Result<MetadataRing> ring = MetadataRing::open(*rig_.device, true);
  ASSERT_TRUE(ring.ok()) << ring.status().describe();
  const auto trim =
      std::ranges::find(ring->state().trims, newest.zone.value, &ZoneTrimRecord::zone);
  ASSERT_NE(trim, ring->state().trims.end());
  EXPECT_EQ(trim->end_lba, newest.written_lbas);
}

// Of zones that the device had finished before they were filled each copy is finished as well, or
// there would be no room for the next one's.
TEST_P(RepairLimitsTest, ZonesThatWereFinishedEarly) {
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    auto queue = rig_.device->create_queue(4);
    for (const ZoneInfo& info : *rig_.device->report()) {
      const bool data = info.zone.value >= kRingZones && info.written_lbas != 0;
      if (!data || info.state == ZoneState::full) continue;
      ASSERT_TRUE(manage_blocking(**queue, Io::Op::finish, info.zone).ok());
    }
    queue->reset();
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    ASSERT_TRUE(rig_.put(i, 1, kPageBytes).ok());
    close();
  }
  const auto headers = offsets_of("FUZH");
  ASSERT_GE(headers.size(), 3u);
  for (std::size_t i = 2; i <= 3; ++i) damage(headers[headers.size() - i] + 40);
  ASSERT_NO_FATAL_FAILURE(repair(2));
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

TEST_P(RepairLimitsTest, TheZoneThatIsWrittenTo) {
  damage(offsets_of("FUZH").back() + 40);
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

}  // namespace
}  // namespace furrow::testing::repair_limits_test
