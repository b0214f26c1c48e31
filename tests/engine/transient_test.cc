// Establishes that a device that cannot read for a while costs no zone: what collection could not
// read it tries again when it can be read, and collects other zones meanwhile; and an opening reads
// again what it could not read at once.
#include <gtest/gtest.h>

#include "tests/engine/rig.h"
#include "zone/fault_device.h"

namespace furrow::testing::transient_test {
namespace {

constexpr std::size_t kPageBytes = 20000;
constexpr std::uint64_t kFirstZone = 2, kZoneLbas = 256;  // of the data zones

class TransientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    wrap(open_device("mem:10MiB?zone_size=1MiB", Access::exclusive).value(), 0);
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::store;
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
  }
  void wrap(std::unique_ptr<ZonedDevice> inner, double read_error) {
    FaultOptions options;
    options.seed = 7;
    options.read_error = read_error;
    auto fault = std::make_unique<FaultDevice>(std::move(inner), options);
    fault_ = fault.get();
    rig_.device = std::move(fault);
  }
  ZoneInfo first_zone() { return (*rig_.device->report())[kFirstZone]; }

  Rig rig_{""};
  FaultDevice* fault_ = nullptr;
};

TEST_F(TransientTest, AZoneThatCouldNotBeReadIsCollectedLater) {
  constexpr std::uint64_t kKeys = 180;
  for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(rig_.put(i, 1, kPageBytes).ok());
  // Most of the first zone's pages are overwritten, so that it is the best to collect.
  std::uint64_t version = 2;
  for (std::uint64_t i = 5; i < 40; ++i) ASSERT_TRUE(rig_.put(i, version, kPageBytes).ok());
  ASSERT_EQ(first_zone().state, ZoneState::full);
  fault_->fail_reads(Lba{kFirstZone * kZoneLbas}, kZoneLbas);
  for (int round = 0; round < 12; ++round) {
    ++version;
    for (std::uint64_t i = 5; i < 40; ++i) {
      ASSERT_TRUE(rig_.put(i, version, kPageBytes).ok()) << "other zones can be collected";
    }
  }
  ASSERT_EQ(rig_.pool->info().zones_bad, 0u);
  ASSERT_EQ(first_zone().state, ZoneState::full) << "its pages could not be moved";
  EXPECT_EQ(rig_.get(2).status().code(), Code::io_error);
  fault_->heal();
  EXPECT_TRUE(rig_.get(2).ok());
  // When a probe is due. (The clock is a real one.)
  bool collected = false;
  for (int round = 0; round < 100'000 && !collected; ++round) {
    ASSERT_TRUE(rig_.put(5 + static_cast<std::uint64_t>(round) % 35, ++version, kPageBytes).ok());
    collected = first_zone().state != ZoneState::full;
  }
  EXPECT_TRUE(collected);
  for (std::uint64_t i = 0; i < 5; ++i) {
    const auto page = rig_.get(i);
    ASSERT_TRUE(page.ok()) << i;
    EXPECT_EQ(*page, content(i, 1, kPageBytes));
  }
}

TEST_F(TransientTest, AnOpeningReadsAgain) {
  constexpr std::uint64_t kKeys = 120;
  for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(rig_.put(i, 1, kPageBytes).ok());
  rig_.close();
  std::unique_ptr<ZonedDevice> inner = fault_->take_inner();
  wrap(std::move(inner), 0.15);
  // The metadata ring has its own rules: an LBA that cannot be read is damage to it.
  ASSERT_NO_FATAL_FAILURE(rig_.open());
  EXPECT_EQ(rig_.pool->info().zones_bad, 0u);
  EXPECT_EQ(rig_.pool->info().recovered_pages, kKeys);
}

}  // namespace
}  // namespace furrow::testing::transient_test
