// Establishes that a repair keeps within the device's limits on open and active zones: with two of
// each, which the metadata ring and the volume's newest zone take, a full zone's header is damaged,
// and then the newest one's; the pool is repaired, and all pages are there and can be written.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/engine/rig.h"

namespace furrow::testing {
namespace {

constexpr std::size_t kLba = 4096, kDataAt = 1 << 20, kPageBytes = 20000;
constexpr std::uint64_t kKeys = 120;

class RepairLimitsTest : public ::testing::TestWithParam<VolumeMode> {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(directory_);
    DeviceShape shape;
    shape.size_bytes = 10 << 20;
    shape.zone_size_bytes = 1 << 20;
    shape.open_zones_max = shape.active_zones_max = 2;
    ASSERT_TRUE(create_device(uri(), shape).ok());
    VolumeOptions options;
    options.name = "pages";
    options.mode = GetParam();
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
    for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(rig_.put(i, 1, kPageBytes).ok());
    close();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path() const { return (directory_ / "pool.img").string(); }
  std::string uri() const { return "emu:" + path(); }
  void close() {
    rig_.close();
    rig_.device.reset();
  }
  std::vector<std::size_t> zone_headers() const {
    std::ifstream stream(path(), std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(stream), {}};
    std::vector<std::size_t> found;
    for (std::size_t lba = kDataAt; lba + kLba <= file.size(); lba += kLba) {
      if (file.compare(lba, 4, "FUZH") == 0) found.push_back(lba);
    }
    return found;
  }
  void damage(std::size_t offset) {
    std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
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

  const std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("furrow-limits-" + std::to_string(getpid()));
  Rig rig_{uri()};
};

INSTANTIATE_TEST_SUITE_P(Modes, RepairLimitsTest,
                         ::testing::Values(VolumeMode::cache, VolumeMode::store),
                         [](const auto& each) {
                           return each.param == VolumeMode::cache ? "cache" : "store";
                         });

TEST_P(RepairLimitsTest, AFullZone) {
  damage(zone_headers().front() + 40);
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

TEST_P(RepairLimitsTest, TheZoneThatIsWrittenTo) {
  damage(zone_headers().back() + 40);
  ASSERT_NO_FATAL_FAILURE(repair());
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

}  // namespace
}  // namespace furrow::testing
