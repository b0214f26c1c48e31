// Establishes that a disk's block that has rotted is an error to its readers, and to who changes a
// part of it, also when its zone was collected: zeroes would be a lie. It is whole again when it is
// written or discarded as a whole. How: bits are flipped in the file of a closed pool.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/block/disk.h"
#include "tests/engine/pool_file.h"

namespace furrow::testing::block_damage_test {
namespace {

constexpr std::uint64_t kLbas = kBlockPageBytes / 512;  // of a block
constexpr std::uint64_t kRotten = 7, kDiscarded = 9, kWhole = 8;

class BlockDamageTest : public ::testing::Test, public PoolFile {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(16 << 20, 1 << 20));
    ASSERT_NO_FATAL_FAILURE(disk_.make(block_options(4 << 20, 512)));
  }
  void write(std::uint64_t block, std::uint64_t version) {
    auto data = content(block, version, kBlockPageBytes);
    ASSERT_TRUE(disk_.run(BlockOp::Kind::write, block * kLbas, kLbas, data.data()).ok());
  }
  Status read(std::uint64_t lba, std::uint64_t lbas) {
    AlignedBuffer data(lbas * 512);
    return disk_.run(BlockOp::Kind::read, lba, lbas, data.data());
  }
  void rot(std::uint64_t block) {
    const auto bytes = content(block, 1, kBlockPageBytes);
    const auto found = places(read_file(), text_of(bytes));
    ASSERT_EQ(found.size(), 1u);
    damage(found[0] + 1000);
  }

  Disk disk_{uri()};
};

TEST_F(BlockDamageTest, IsToldAlsoWhenItsZoneWasCollected) {
  for (std::uint64_t block = 0; block < 100; ++block) ASSERT_NO_FATAL_FAILURE(write(block, 1));
  disk_.blocks.reset();
  disk_.rig.close();
  disk_.rig.device.reset();
  ASSERT_NO_FATAL_FAILURE(rot(kRotten));
  ASSERT_NO_FATAL_FAILURE(rot(kDiscarded));
  disk_.rig.open_device();
  ASSERT_NO_FATAL_FAILURE(disk_.rig.open());
  disk_.connect();
  // All but the first blocks, in no order, until their zone has been collected, and on.
  std::mt19937_64 random(7);
  std::uint64_t collected = 0;  // zones, when they first were
  const auto stats = [this] { return disk_.rig.store->stats(); };
  for (std::uint64_t i = 0; collected == 0 || stats().zones_reset < 3 * collected; ++i) {
    ASSERT_LT(i, 100'000u) << "it is never collected";
    ASSERT_NO_FATAL_FAILURE(write(10 + random() % 1000, 2 + i));
    if (collected == 0 && stats().corrupt_pages != 0) collected = stats().zones_reset + 1;
  }
  EXPECT_EQ(stats().corrupt_pages, 2u) << "each is counted once";
  for (int opening = 0; opening < 2; ++opening) {
    EXPECT_EQ(read(kRotten * kLbas, kLbas).code(), Code::corrupt);
    EXPECT_EQ(read(kRotten * kLbas + 3, 1).code(), Code::corrupt) << "a part that did not rot";
    EXPECT_EQ(read((kRotten - 1) * kLbas, 2 * kLbas).code(), Code::corrupt);
    EXPECT_TRUE(equal(disk_.read(kWhole * kLbas, kLbas), content(kWhole, 1, kBlockPageBytes)));
    std::vector<std::byte> part(512);
    EXPECT_EQ(disk_.run(BlockOp::Kind::write, kRotten * kLbas, 1, part.data()).code(),
              Code::corrupt);
    EXPECT_EQ(disk_.run(BlockOp::Kind::discard, kRotten * kLbas, 1).code(), Code::corrupt);
    disk_.reopen();
  }
  ASSERT_NO_FATAL_FAILURE(write(kRotten, 3));
  EXPECT_TRUE(equal(disk_.read(kRotten * kLbas, kLbas), content(kRotten, 3, kBlockPageBytes)));
  ASSERT_TRUE(disk_.run(BlockOp::Kind::discard, kDiscarded * kLbas, kLbas).ok());
  EXPECT_TRUE(
      equal(disk_.read(kDiscarded * kLbas, kLbas), std::vector<std::byte>(kBlockPageBytes)));
}

}  // namespace
}  // namespace furrow::testing::block_damage_test
