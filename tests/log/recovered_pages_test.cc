// Establishes that what recovery does with many records at once equals what is done with one:
// key_hashes() against key_hash() for keys of each length, alike and mixed; RecordSorter against
// std::ranges::sort on random records, among them many versions of one key and expiries, which come
// right behind their page; and RecoveredPages loaded by several threads: each is found once, and
// can be erased.
#include "log/recovered_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "log/key_hashes.h"
#include "log/record_sorter.h"
#include "tests/log/test_seed.h"

namespace furrow {
namespace {

class RecoveredPagesTest : public testing::Test {
 protected:
  Key key(std::size_t length) {
    std::array<std::byte, Key::kBytesMax> bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return Key::from(std::span(bytes).first(length));
  }
  RecoveredRecord record(std::uint64_t order) {
    const IndexEntry entry{next_lba_++, static_cast<std::uint32_t>(random_() % 4096) + 1,
                           static_cast<std::uint32_t>(random_()), random_() % 2 == 0,
                           random_() % 2 == 0};
    // Some are of one key, some only look so at first.
    return {{order, random_() % 3}, random_() % 1000, entry, RecoveredRecord::Kind::page, false};
  }
  static auto sort_key(const RecoveredRecord& r) {
    return std::tuple(r.order, std::uint32_t{r.identity}, ~r.sequence, r.lba(), r.kind == kExpiry);
  }
  static constexpr auto kExpiry = RecoveredRecord::Kind::expiry;

  std::mt19937_64 random_{test_seed()};
  std::uint64_t next_lba_ = 0;
  PieceMemory memory_;
};

TEST_F(RecoveredPagesTest, HashesOfManyKeysAreThoseOfEach) {
  const std::array<std::uint8_t, 16> secret{9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 250};
  for (std::size_t length = 0; length <= Key::kBytesMax + 1; ++length) {
    const bool mixed = length > Key::kBytesMax;
    std::vector<PageRecord> records(8 * 6 + 5);
    for (PageRecord& one : records) one.key = key(mixed ? random_() % 17 : length);
    if (mixed) std::fill_n(records.begin() + 16, 8, records[16]);  // eights of one length between
    std::vector<KeyHash> hashes(records.size());
    const std::uint64_t volume = random_();
    key_hashes(secret, volume, records, hashes);
    for (std::size_t i = 0; i < records.size(); ++i) {
      ASSERT_EQ(hashes[i], key_hash(secret, volume, records[i].key)) << length << ", key " << i;
    }
  }
}

TEST_F(RecoveredPagesTest, SortsByHashAndNewestFirst) {
  for (const std::size_t count : {0u, 1u, 2u, 63u, 64u, 65u, 5000u, 100'000u}) {
    const std::uint64_t partition = random_() << (64 - kPartitionBits);
    std::vector<RecordPile> piles(3);
    std::vector<RecoveredRecord> all;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t hot = i % 7 == 0 ? 0 : random_();  // a seventh is of a few keys
      all.push_back(record(partition | hot >> kPartitionBits));
      RecordPile& pile = piles[random_() % 3];
      pile.add(all.back(), memory_);
      if (random_() % 2 == 0) continue;
      RecoveredRecord expiry = all.back();
      expiry.kind = kExpiry;
      all.push_back(expiry);
      pile.add(expiry, memory_);
    }
    std::ranges::sort(all, {}, sort_key);
    RecordSorter sorter;
    for (const RecordPile& pile : piles) sorter.add(pile);
    const auto sorted = sorter.sort();
    ASSERT_EQ(sorted.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(sort_key(sorted[i]), sort_key(all[i])) << i;
    }
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
