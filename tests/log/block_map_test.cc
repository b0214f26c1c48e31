// Establishes that BlockMap knows each MiB of a volume of any size, finds the next below an end
// that was noted, or is being emptied, which one at a time does, grows, forgets those that were
// emptied and no others, and loses none that one thread notes while another empties their
// neighbours. How: against a plain set; threads on one word.
#include "log/block_map.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "tests/log/test_seed.h"

namespace furrow {
namespace {

constexpr std::uint64_t kPart = BlockMap::kPartBlocks;

void empty(BlockMap& map, std::uint64_t part) {
  ASSERT_TRUE(map.begin_emptying(part));
  map.end_emptying(part);
}

TEST(BlockMapTest, FindsWhatWasNoted) {
  std::mt19937_64 random(test_seed());
  for (const std::uint64_t blocks :
       {std::uint64_t{1}, kPart, kPart + 1, 64 * kPart, 64 * kPart + 1, 1000 * kPart - 1}) {
    BlockMap map(blocks, blocks);
    const std::uint64_t parts = (blocks + kPart - 1) / kPart;
    std::set<std::uint64_t> wanted;
    for (unsigned i = 0; i < 400; ++i) {
      const std::uint64_t block = random() % blocks;
      if (random() % 3 != 0) {
        map.note(block);
        wanted.insert(block / kPart);
      } else {
        empty(map, block / kPart);
        wanted.erase(block / kPart);
      }
      const std::uint64_t from = random() % parts, end = random() % (parts + 2);
      const auto next = wanted.lower_bound(from);
      const std::uint64_t last = std::min(end, parts);
      const std::uint64_t expected = next != wanted.end() && *next < last ? *next : last;
      EXPECT_EQ(map.next(from, end), expected)
          << blocks << " blocks, from " << from << " to " << end;
    }
  }
}

TEST(BlockMapTest, IsAsLargeAsTheVolumeAndTakesNothingBehindIt) {
  EXPECT_EQ(BlockMap(std::uint64_t{1} << 28, std::uint64_t{1} << 32).bytes(),
            (std::uint64_t{1} << 28) / kPart / 4);
  BlockMap map(3 * kPart, 200 * kPart);
  map.note(64 * kPart);  // of a damaged record, say
  EXPECT_EQ(map.next(0, 1000), 3u);
  map.note(2 * kPart);
  map.grow(100 * kPart);
  EXPECT_EQ(map.next(0, 1000), 2u) << "what was noted stays";
  EXPECT_EQ(map.next(3, 1000), 100u) << "nothing is there";
  map.note(100 * kPart - 1);
  EXPECT_EQ(map.next(3, 1000), 99u);
}

TEST(BlockMapTest, APartThatIsBeingEmptiedIsNotPassedOver) {
  BlockMap map(200 * kPart, 200 * kPart);
  map.note(70 * kPart);
  ASSERT_TRUE(map.begin_emptying(70));
  EXPECT_FALSE(map.begin_emptying(70));
  EXPECT_EQ(map.next(0, 200), 70u);
  EXPECT_EQ(map.next(71, 200), 200u);
  map.end_emptying(70);
  EXPECT_EQ(map.next(0, 200), 200u);
  ASSERT_TRUE(map.begin_emptying(70));
  map.note(70 * kPart);  // written meanwhile, or could not be removed
  map.end_emptying(70);
  EXPECT_EQ(map.next(0, 200), 70u);
}

TEST(BlockMapTest, NeighboursAreApart) {
  BlockMap map(64 * kPart, 64 * kPart);
  std::jthread clears([&map](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (std::uint64_t part = 1; part < 64; part += 2) empty(map, part);
    }
  });
  for (unsigned round = 0; round < 2000; ++round) {
    const std::uint64_t part = round % 32 * 2;
    map.note(part * kPart + 7);
    ASSERT_EQ(map.next(part, part + 1), part);
    empty(map, part);
    ASSERT_EQ(map.next(part, part + 1), part + 1);
  }
}

}  // namespace
}  // namespace furrow
