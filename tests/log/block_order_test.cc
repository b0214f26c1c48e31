// Establishes that BlockOrder is a permutation of the blocks of a volume, of any size, that depends
// on the pool's secret and the volume, spreads neighbours, and leaves the checksum of a page as it
// is; and that it is one of more blocks than the volume has, so that none moves when it grows.
#include "log/block_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace furrow {
namespace {

constexpr std::array<std::uint8_t, 16> kSecret{1, 2, 3, 4, 5, 6, 7, 8};

TEST(BlockOrderTest, IsAPermutation) {
  for (const std::uint64_t blocks : {1ull, 2ull, 3ull, 256ull, 1000ull, 65536ull, 100'001ull}) {
    const BlockOrder order(kSecret, 7, blocks);
    std::set<std::uint64_t> seen;
    for (std::uint64_t block = 0; block < blocks; ++block) {
      const std::uint64_t at = order.order(block);
      EXPECT_EQ(at << order.bits(), 0u) << "it is in the first bits alone";
      EXPECT_TRUE(seen.insert(at).second) << block << " of " << blocks;
    }
  }
}

TEST(BlockOrderTest, SpreadsNeighboursAndOthers) {
  constexpr std::uint64_t kBlocks = 1ull << 28;
  const BlockOrder order(kSecret, 7, kBlocks), other(kSecret, 8, kBlocks);
  for (const std::uint64_t step : {1ull, 2ull, 256ull, 4096ull, 65536ull}) {
    std::vector<unsigned> parts(256);
    unsigned same = 0;
    for (std::uint64_t i = 0; i < 4096; ++i) {
      const std::uint64_t at = order.order(i * step);
      ++parts[at >> 56];
      same += at == other.order(i * step);
    }
    for (const unsigned part : parts) EXPECT_LT(part, 60u) << "16 on average; step " << step;
    EXPECT_LT(same, 4u);
  }
}

TEST(BlockOrderTest, ChecksumsAreThoseOfTheKeysHash) {
  const BlockOrder order(kSecret, 7, 1 << 20);
  const std::vector<std::byte> page(4096, std::byte{5});
  for (std::uint64_t block = 0; block < 1000; ++block) {
    const Key key = block_key(block * 997);
    const KeyHash hash = key_hash(kSecret, 7, key);
    EXPECT_EQ(page_checksum(page, order.hash(key, hash)), page_checksum(page, hash));
    EXPECT_EQ(block_of(key), block * 997);
  }
}

TEST(BlockOrderTest, WhatIsABlock) {
  BlockOrder order(kSecret, 7, 100);
  EXPECT_TRUE(order.is_block(block_key(99)));
  EXPECT_FALSE(order.is_block(block_key(100)));
  EXPECT_FALSE(order.is_block(Key::from("seven b")));
  EXPECT_FALSE(order.is_block(Key{}));
  const std::uint64_t before = order.order(99);
  order.grow(100'000);
  EXPECT_TRUE(order.is_block(block_key(99'999)));
  EXPECT_FALSE(order.is_block(block_key(100'000)));
  EXPECT_EQ(order.order(99), before) << "nothing moves";
}

TEST(BlockOrderTest, LeavesRoomToGrow) {
  for (const std::uint64_t blocks : {1u, 256u, 65536u, 65537u, 1u << 28, 1u << 31}) {
    const BlockOrder order(kSecret, 7, blocks);
    EXPECT_GE(order.blocks_max(), std::min(2 * blocks, std::uint64_t{1} << 32)) << blocks;
    EXPECT_GE(order.blocks_max(), 1u << 22) << "which costs nothing";
    EXPECT_EQ(order.blocks_max(), std::uint64_t{1} << order.bits());
  }
}

}  // namespace
}  // namespace furrow
