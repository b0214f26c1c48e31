// Establishes that a repair keeps within the device's limits on open and active zones: with two of
// each, which the metadata ring and the volume's newest zone take, a full zone's header is damaged,
// and then the newest one's; the pool is repaired, and all pages are there and can be written.
#include <gtest/gtest.h>

#include "tests/engine/pool_file.h"

namespace furrow::testing::repair_limits_test {
namespace {

constexpr std::size_t kPageBytes = 20000;
constexpr std::uint64_t kKeys = 120;

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
  void repair() {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    const auto report = Pool::repair(*rig_.device, rig_.loop);
    ASSERT_TRUE(report.ok()) << report.status().describe();
    EXPECT_EQ(report->done.size(), 1u);
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

TEST_P(RepairLimitsTest, TheZoneThatIsWrittenTo) {
  damage(offsets_of("FUZH").back() + 40);
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

}  // namespace
}  // namespace furrow::testing::repair_limits_test
