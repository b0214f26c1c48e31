// Establishes that a disk of which something may be missing is not served as if zeroes had been
// written there: not while a zone cannot be read, and not when one is lost, until that is given up.
#include <gtest/gtest.h>

#include "tests/engine/block/disk.h"
#include "zone/fault_device.h"

namespace furrow::testing::block_missing_test {
namespace {

constexpr std::uint64_t kBlocks = 150;
constexpr ZoneId kZone{2};  // the first data zone

class BlockMissingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    disk_.rig.device = std::make_unique<FaultDevice>(
        open_device("mem:4MiB?zone_size=256KiB", Access::exclusive).value(), FaultOptions{});
  }
  void fill() {
    VolumeOptions options = block_options(1 << 20, 4096);
    options.quota_bytes = 2560 << 10;  // ten of fourteen zones
    ASSERT_NO_FATAL_FAILURE(disk_.make(options));
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      auto data = content(i, 1, kBlockPageBytes);
      ASSERT_TRUE(disk_.run(BlockOp::Kind::write, i, 1, data.data()).ok());
    }
  }
  FaultDevice& faults() { return static_cast<FaultDevice&>(*disk_.rig.device); }
  Status run(BlockOp::Kind kind, std::uint64_t block) {
    std::vector<std::byte> data(kBlockPageBytes);
    return disk_.run(kind, block, 1, data.data());
  }
  void expect_refused() {
    using enum BlockOp::Kind;
    for (const BlockOp::Kind kind : {read, write, discard, write_zeroes, compare}) {
      for (const std::uint64_t block : {std::uint64_t{0}, kBlocks - 1, kBlocks + 5}) {
        const Status status = run(kind, block);
        EXPECT_EQ(status.code(), Code::io_error) << block << ": " << status.describe();
      }
    }
    EXPECT_TRUE(disk_.run(flush, 0, 0).ok());
    EXPECT_TRUE(disk_.rig.store->usage().incomplete);
  }
  unsigned whole_blocks() {
    unsigned whole = 0;
    for (std::uint64_t i = 0; i < kBlocks; ++i) {
      whole += disk_.read(i, 1) == content(i, 1, kBlockPageBytes) ? 1 : 0;
    }
    return whole;
  }

  Disk disk_{""};
};

TEST_F(BlockMissingTest, AZoneThatCannotBeReadForAWhile) {
  ASSERT_NO_FATAL_FAILURE(fill());
  faults().fail_reads(faults().geometry().zone_start(kZone), 64);
  disk_.reopen();
  expect_refused();
  faults().heal();
  disk_.reopen();
  EXPECT_EQ(whole_blocks(), kBlocks);
}

TEST_F(BlockMissingTest, AZoneThatIsLost) {
  ASSERT_NO_FATAL_FAILURE(fill());
  faults().degrade(kZone, ZoneState::offline);
  disk_.reopen();
  expect_refused();
  const auto report = disk_.rig.pool->check({});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(zones_to_give_up(*report), std::vector<std::uint32_t>{kZone.value});
  disk_.rig.open_options.give_up = {kZone.value};
  disk_.reopen();
  EXPECT_TRUE(disk_.rig.pool->given_up().at(0).status.ok());
  disk_.rig.open_options.give_up.clear();
  for (int opening = 0; opening < 2; ++opening) {
    EXPECT_FALSE(disk_.rig.store->usage().incomplete);
    EXPECT_GT(whole_blocks(), kBlocks / 2);
    EXPECT_LT(whole_blocks(), kBlocks);
    EXPECT_TRUE(run(BlockOp::Kind::write, 1).ok());
    disk_.reopen();
  }
}

// What was in it is gone anyway.
TEST_F(BlockMissingTest, AZoneThatWasLostOfAVolumeThatIsDeleted) {
  ASSERT_NO_FATAL_FAILURE(fill());
  Pool& pool = *disk_.rig.pool;
  VolumeOptions options;
  options.name = "pages";
  options.mode = VolumeMode::store;
  options.value_bytes_max = 4096;
  const auto pages = pool.create_volume(options);
  ASSERT_TRUE(pages.ok()) << pages.status().describe();
  PageStore* const disk = std::exchange(disk_.rig.store, *pages);
  ASSERT_TRUE(disk_.rig.put(1, 1, 4000).ok());
  disk_.rig.store = disk;
  const auto zones = pool.zones();
  const auto its = std::ranges::find(zones, (*pages)->info().id, &PoolZone::volume);
  ASSERT_NE(its, zones.end());
  faults().degrade(ZoneId{static_cast<std::uint32_t>(its - zones.begin())}, ZoneState::offline);
  ASSERT_TRUE(pool.delete_volume("pages").ok());
  disk_.reopen();
  ASSERT_FALSE(disk_.rig.store->usage().incomplete);
  EXPECT_EQ(whole_blocks(), kBlocks);
}

// Whatever was in it is not missing of a disk that was made since.
TEST_F(BlockMissingTest, AZoneThatWasLostBeforeTheDiskWasMade) {
  Rig& rig = disk_.rig;
  VolumeOptions options;
  options.name = "pages";
  options.mode = VolumeMode::store;
  options.value_bytes_max = 4096;
  options.quota_bytes = 768 << 10;
  ASSERT_NO_FATAL_FAILURE(disk_.make(options));
  ASSERT_TRUE(rig.put(1, 1, 4000).ok());
  faults().degrade(kZone, ZoneState::offline);
  disk_.reopen();
  EXPECT_TRUE(rig.pool->find("pages")->usage().incomplete);
  options = block_options(1 << 20, 4096);
  options.quota_bytes = 2 << 20;
  const auto disk = rig.pool->create_volume(options);
  ASSERT_TRUE(disk.ok()) << disk.status().describe();
  rig.store = *disk;
  for (int opening = 0; opening < 3; ++opening) {
    ASSERT_FALSE(rig.store->usage().incomplete) << opening;
    auto data = content(1, 1, kBlockPageBytes);
    EXPECT_TRUE(disk_.run(BlockOp::Kind::write, 1, 1, data.data()).ok());
    EXPECT_EQ(disk_.read(1, 1), data);
    EXPECT_TRUE(rig.pool->find("pages")->usage().incomplete);
    disk_.reopen();
    rig.store = rig.pool->find("disk");
  }
  // With those that it may have been of, nothing of it is missed.
  ASSERT_TRUE(rig.pool->delete_volume("pages").ok());
  disk_.reopen();
  EXPECT_FALSE(rig.store->usage().incomplete);
  EXPECT_EQ(rig.pool->opening_damage(), std::vector<std::string>{"zone 2 is offline"});
}

// Nothing of the pool is missing.
TEST_F(BlockMissingTest, ZonesThatWereLostBefore) {
  faults().degrade(kZone, ZoneState::offline);
  ASSERT_NO_FATAL_FAILURE(fill());
  disk_.reopen();
  EXPECT_EQ(whole_blocks(), kBlocks);
}

}  // namespace
}  // namespace furrow::testing::block_missing_test
