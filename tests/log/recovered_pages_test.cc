// Establishes that RecoveredPages loaded by several threads are in the index once each, and can be
// erased; that a RecordPile gives back what was added, in its order, at each number of pieces, and
// takes another's room. How: random records against a plain vector.
#include "log/recovered_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/log/test_seed.h"

namespace furrow {
namespace {

class RecoveredPagesTest : public testing::Test {
 protected:
  RecoveredRecord record(std::uint64_t order) {
    const IndexEntry entry{next_lba_++, static_cast<std::uint32_t>(random_() % 4096) + 1,
                           static_cast<std::uint32_t>(random_()), random_() % 2 == 0,
                           random_() % 2 == 0};
    // Some are of one key, some only look so at first.
    return {{order, random_() % 3}, random_() % 1000, entry, RecoveredRecord::Kind::page, false};
  }
  static auto sort_key(const RecoveredRecord& r) {
    return std::tuple(r.order, std::uint32_t{r.identity}, ~r.sequence, r.lba());
  }
  static constexpr auto kTombstone = RecoveredRecord::Kind::tombstone;

  std::mt19937_64 random_{test_seed()};
  std::uint64_t next_lba_ = 0;
  PieceMemory memory_;
};

TEST_F(RecoveredPagesTest, ARecordKeepsWhatItIsMadeOf) {
  for (const IndexEntry& entry :
       {IndexEntry{0, 1, 0, false, false},
        IndexEntry{(std::uint64_t{1} << 40) - 1, 4u << 20, 0xffffffff, true, true}}) {
    const RecoveredRecord made({~std::uint64_t{0}, 5}, 9, entry, kTombstone, true);
    EXPECT_EQ(made.entry(), entry);
    EXPECT_EQ(made.lba(), entry.lba);
    EXPECT_EQ(made.sequence, 9u);
    EXPECT_TRUE(made.kind == kTombstone && made.grouped);
  }
  const IndexEntry entry;
  const auto made = [&](std::uint64_t order, std::uint64_t identity) {
    return RecoveredRecord({order, identity}, 1, entry, kTombstone, false);
  };
  EXPECT_TRUE(made(1, 2).same_key(made(1, 2)));
  EXPECT_FALSE(made(1, 2).same_key(made(1, 3)));
  EXPECT_FALSE(made(1, 2).same_key(made(2, 2)));
}

TEST_F(RecoveredPagesTest, PilesKeepTheirOrder) {
  for (const std::size_t count : {0u, 1u, 31u, 32u, 33u, 64u, 10'000u}) {
    RecordPile pile, room;
    for (std::size_t i = 0; i < count; ++i) pile.add(record(i), memory_);
    EXPECT_EQ(pile.size(), count);
    std::uint64_t next = 0;
    pile.for_each([&](const RecoveredRecord& one) { EXPECT_EQ(one.order, next++); });
    EXPECT_EQ(next, count);
    // Its pieces become another's, which then has room for as many.
    room.add(record(7), memory_);
    room.clear_and_take(pile);
    EXPECT_EQ(room.size() + pile.size(), 0u);
    for (std::size_t i = 0; i < count; ++i) room.add_in_place(record(count - i));
    next = count;
    room.for_each([&](const RecoveredRecord& one) { EXPECT_EQ(one.order, next--); });
    EXPECT_EQ(next, 0u);
    pile.for_each([](const RecoveredRecord&) { FAIL() << "it is empty"; });
  }
}

TEST_F(RecoveredPagesTest, ThreadsLoadEveryPageOnce) {
  for (const std::size_t count : {0u, 1u, 1000u, 60'000u}) {
    std::vector<RecoveredRecord> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(record(random_()));
    std::ranges::sort(all, {}, sort_key);
    // Buckets larger than a partition, and smaller ones.
    for (const std::uint64_t entries_max : {100'000u, 10'000'000u}) {
      auto partitions = std::make_unique<RecordPartitions>();
      for (const RecoveredRecord& one : all) {
        (*partitions)[one.order >> (64 - kPartitionBits)].add(one, memory_);
      }
      const RecoveredPages pages(std::move(partitions), 3);
      ASSERT_EQ(pages.size(), count);
      Index index(entries_max);
      pages.load_into(index);
      EXPECT_EQ(index.size(), count);
      for (const RecoveredRecord& one : all) {
        std::array<IndexEntry, 16> found;
        const unsigned candidates = std::min(index.find(one.order, 0, found), 16u);
        ASSERT_EQ(std::count(found.begin(), found.begin() + candidates, one.entry()), 1);
      }
      for (const RecoveredRecord& one : all) ASSERT_TRUE(index.erase(one.order, one.lba()));
      EXPECT_EQ(index.size(), 0u);
    }
  }
}

}  // namespace
}  // namespace furrow
