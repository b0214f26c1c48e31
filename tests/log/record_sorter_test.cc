// Establishes that RecordSorter sorts the records of one partition by hash and identity, the newest
// version first, a tombstone before the page in whose place it stands; for none, few and many,
// spread evenly or all of one key, of several piles; and that it can be used again. How: against
// std::ranges::sort.
#include "log/record_sorter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/log/test_seed.h"

namespace furrow {
namespace {

class RecordSorterTest : public testing::Test {
 protected:
  static constexpr auto kTombstone = RecoveredRecord::Kind::tombstone;

  RecoveredRecord record(std::uint64_t order) {
    const IndexEntry entry{next_lba_++, static_cast<std::uint32_t>(random_() % 4096) + 1,
                           static_cast<std::uint32_t>(random_()), random_() % 2 == 0,
                           random_() % 2 == 0};
    const auto kind = random_() % 4 == 0 ? kTombstone : RecoveredRecord::Kind::page;
    // Some are of one key, some only look so at first.
    return {{order, random_() % 3}, random_() % 1000, entry, kind, false};
  }
  static auto sort_key(const RecoveredRecord& r) {
    return std::tuple(r.order, std::uint32_t{r.identity}, ~r.sequence, r.kind != kTombstone,
                      r.lba());
  }
  // `hot`: one in so many records is of one of a few keys.
  void expect_sorted(std::size_t count, std::size_t hot) {
    const std::uint64_t partition = random_() << (64 - kPartitionBits);
    std::vector<RecordPile> piles(3);
    std::vector<RecoveredRecord> all;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t rest = i % hot == 0 ? 0 : random_();
      all.push_back(record(partition | rest >> kPartitionBits));
      piles[random_() % 3].add(all.back(), memory_);
    }
    std::ranges::sort(all, {}, sort_key);
    sorter_.clear();
    for (const RecordPile& pile : piles) sorter_.add(pile);
    const auto sorted = sorter_.sort();
    ASSERT_EQ(sorted.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(sort_key(sorted[i]), sort_key(all[i])) << i;
    }
  }

  std::mt19937_64 random_{test_seed()};
  std::uint64_t next_lba_ = 0;
  PieceMemory memory_;
  RecordSorter sorter_;
};

TEST_F(RecordSorterTest, ByHashAndNewestFirst) {
  for (const std::size_t count : {0u, 1u, 2u, 63u, 64u, 65u, 5000u, 100'000u}) {
    expect_sorted(count, 7);
  }
}

TEST_F(RecordSorterTest, AllOfOneHash) {
  for (std::size_t count = 1; count < 40; ++count) expect_sorted(count, 1);
  expect_sorted(1000, 1);
}

TEST_F(RecordSorterTest, AgainWithFewer) {
  expect_sorted(1000, 5);
  expect_sorted(10, 5);
  expect_sorted(0, 5);
  sorter_.clear();
  EXPECT_TRUE(sorter_.sort().empty());
}

}  // namespace
}  // namespace furrow
