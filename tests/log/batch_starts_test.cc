// Establishes that BatchStarts finds, lists and forgets what was added, whether it has been
// compacted, between additions as well, or not; for none, one, as many as fit a block and one more
// or less, dense and sparse ones, and the ends of what a u32 can say; and how few bytes it takes.
// How: random sequences beside a sorted vector.
#include "log/batch_starts.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/log/test_seed.h"
#include "tests/rounds.h"

namespace furrow {
namespace {

class BatchStartsTest : public testing::Test {
 protected:
  void add(std::uint32_t lba) {
    starts_.push_back(lba);
    wanted_.push_back(lba);
  }
  // As many as fit, at most `count`, each 1 to 2 * mean - 1 behind the one before.
  void add_some(std::size_t count, std::uint64_t mean) {
    std::uint64_t lba = wanted_.empty() ? random_() % mean : next(mean);
    for (; count != 0 && lba <= UINT32_MAX; --count, lba = next(mean)) {
      add(static_cast<std::uint32_t>(lba));
    }
  }
  void truncate(std::uint32_t lba) {
    starts_.truncate(lba);
    wanted_.erase(std::ranges::lower_bound(wanted_, lba), wanted_.end());
  }
  std::vector<std::uint32_t> between(std::uint64_t from, std::uint64_t to) const {
    std::vector<std::uint32_t> found;
    starts_.for_each(from, to, [&](std::uint32_t lba) { found.push_back(lba); });
    return found;
  }
  void expect_last_before(std::uint64_t lba) const {
    const auto at = std::ranges::lower_bound(wanted_, lba);
    const auto found = starts_.last_before(lba);
    ASSERT_EQ(found.has_value(), at != wanted_.begin()) << lba;
    if (found) {
      ASSERT_EQ(*found, *(at - 1)) << lba;
    }
  }
  void expect_range(std::uint64_t from, std::uint64_t to) const {
    const auto begin = std::ranges::lower_bound(wanted_, from);
    const auto end = std::ranges::lower_bound(wanted_, std::max(from, to));
    ASSERT_EQ(between(from, to), std::vector<std::uint32_t>(begin, end)) << from << ' ' << to;
  }
  std::uint64_t near_one() {
    const std::uint64_t lba = wanted_.empty() ? random_() : wanted_[random_() % wanted_.size()];
    return static_cast<std::uint32_t>(lba + random_() % 3 - 1);
  }
  void expect_same() {
    ASSERT_EQ(starts_.size(), wanted_.size());
    ASSERT_EQ(starts_.empty(), wanted_.empty());
    ASSERT_EQ(between(0, std::uint64_t{1} << 32), wanted_);
    for (const std::uint64_t lba : {0ull, 1ull, 0xffff'ffffull, 1ull << 32}) {
      ASSERT_NO_FATAL_FAILURE(expect_last_before(lba));
      ASSERT_NO_FATAL_FAILURE(expect_range(0, lba));
      ASSERT_NO_FATAL_FAILURE(expect_range(lba, 1ull << 32));
    }
    for (unsigned i = 0; i < 20; ++i) {
      ASSERT_NO_FATAL_FAILURE(expect_last_before(near_one()));
      ASSERT_NO_FATAL_FAILURE(expect_range(near_one(), near_one()));
    }
  }

  std::mt19937_64 random_{test_seed()};
  BatchStarts starts_;
  std::vector<std::uint32_t> wanted_;

 private:
  std::uint64_t next(std::uint64_t mean) {
    return wanted_.back() + std::uint64_t{1} + random_() % (2 * mean - 1);
  }
};

TEST_F(BatchStartsTest, OfNone) {
  expect_same();
  EXPECT_EQ(starts_.bytes(), 0u);
  starts_.compact();
  starts_.truncate(0);
  expect_same();
  EXPECT_EQ(starts_.bytes(), 0u);
}

TEST_F(BatchStartsTest, EachNumberOfThem) {
  for (const std::uint64_t mean : {1ull, 2ull, 9ull, 1000ull}) {
    starts_ = BatchStarts();
    wanted_.clear();
    for (unsigned count = 1; count < 300; ++count) {
      add_some(1, mean);
      ASSERT_NO_FATAL_FAILURE(expect_same()) << count;
      const BatchStarts open = starts_;
      starts_.compact();
      ASSERT_NO_FATAL_FAILURE(expect_same()) << count;
      starts_ = open;
    }
  }
}

TEST_F(BatchStartsTest, TheEndsOfWhatCanBeSaid) {
  for (const bool dense : {false, true}) {
    for (const unsigned count : {1u, 2u, 127u, 128u, 129u, 200u}) {
      starts_ = BatchStarts();
      wanted_.clear();
      for (unsigned i = 0; i < count; ++i) add(dense ? i : i * 7);
      for (unsigned i = count; i != 0; --i) add(dense ? UINT32_MAX + 1 - i : UINT32_MAX - i * 9);
      ASSERT_NO_FATAL_FAILURE(expect_same()) << count;
      starts_.compact();
      ASSERT_NO_FATAL_FAILURE(expect_same()) << count;
    }
  }
}

TEST_F(BatchStartsTest, WhateverIsDoneInWhateverOrder) {
  for (std::uint64_t round = 0; round < rounds(300, 30); ++round) {
    starts_ = BatchStarts();
    wanted_.clear();
    for (unsigned step = 0; step < 12; ++step) {
      switch (random_() % 4) {
        case 0:
          starts_.compact();
          break;
        case 1:
          truncate(static_cast<std::uint32_t>(near_one()));
          break;
        default:  // once in a while two that are far apart, in one block
          add_some(random_() % 300, std::uint64_t{1} << random_() % 27);
      }
      ASSERT_NO_FATAL_FAILURE(expect_same()) << round << ' ' << step;
    }
  }
}

// 2 bits and so many as the mean distance has; and what a block, and the last one of them, wastes.
TEST_F(BatchStartsTest, TakeFewBytes) {
  for (unsigned shift = 0; shift < 16; ++shift) {
    for (const bool even : {true, false}) {
      starts_ = BatchStarts();
      wanted_.clear();
      const std::uint32_t mean = 1u << shift;
      for (std::uint32_t i = 0; even && i < 20'000; ++i) add(i * mean);
      if (!even) add_some(20'000, mean);
      const std::uint64_t bits = 20'000 * (2 + std::uint64_t{shift});
      EXPECT_LE(starts_.bytes(), 3 * bits / 8 + 1024) << "while it grows";
      starts_.compact();
      EXPECT_LE(starts_.bytes(), (bits + 20'000 * 6 / 4) / 8 + 32) << mean;
      expect_same();
    }
  }
}

}  // namespace
}  // namespace furrow
