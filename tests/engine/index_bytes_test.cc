// Establishes that VolumeStats::index_bytes is the DRAM that a volume's pages take, all of it and
// no more: the sum of its parts, 15 bytes a page beside what any volume costs, and that it grows
// and shrinks with the pages. How: many pages of one LBA in memory, put 64 at a time.
#include <gtest/gtest.h>

#include "engine/pool_impl.h"
#include "tests/engine/rig.h"
#include "tests/rounds.h"

namespace furrow::testing::index_bytes_test {
namespace {

constexpr std::uint64_t kPages = rounds(100'000, 20'000);
constexpr std::uint32_t kPageBytes = 512;
// What the index of any volume may take beside its entries: its directory, and of each size of
// chunks a part of a page of memory that is not used.
constexpr std::uint64_t kFixedBytes = 224 << 10;

// Of these parts, how many more were not used when there were no entries. (Which sizes there are
// changes with the pool's secret. The tables beside the index shrink when a zone is full.)
constexpr std::uint64_t kUnusedBytes = 16 << 10;

class IndexBytesTest : public ::testing::Test {
 protected:
  void make(VolumeMode mode) {
    VolumeOptions options;
    options.name = "pages";
    options.mode = mode;
    options.value_bytes_max = 4096;
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
  }
  // The keys from `first` on, 64 at a time.
  void run(PageOp::Kind kind, std::uint64_t first, std::uint64_t count, std::uint32_t ttl_s = 0,
           bool different = false) {
    std::vector<PageOp> ops(64);
    for (std::uint64_t done = 0; done < count; done += ops.size()) {
      const std::size_t now = std::min<std::uint64_t>(ops.size(), count - done);
      for (std::size_t i = 0; i < now; ++i) {
        ops[i].kind = kind;
        ops[i].key = key_of(first + done + i);
        ops[i].data = page_.data();
        ops[i].length = ops[i].capacity = kPageBytes;
        ops[i].ttl_s = different ? ttl_s + static_cast<std::uint32_t>(i) : ttl_s;
        rig_.submit(ops[i]);
      }
      rig_.wait();
      for (std::size_t i = 0; i < now; ++i) ASSERT_TRUE(ops[i].status.ok());
    }
  }
  std::uint64_t bytes() const { return rig_.store->stats().index_bytes; }
  // Of the zones that the volume holds.
  std::uint64_t table_bytes(bool hits) const {
    const PoolContext& pool = static_cast<PoolImpl*>(rig_.pool.get())->context();
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < pool.geometry.zone_count; ++i) {
      if (pool.allocator.zones()[i].owner != rig_.store->info().id) continue;
      sum += pool.tables[i].bytes() + pool.expiries.bytes(ZoneId{i});
      if (hits) sum += pool.hits.bytes(ZoneId{i});
    }
    return sum;
  }
  std::uint64_t expiry_bytes() const {
    const PoolContext& pool = static_cast<PoolImpl*>(rig_.pool.get())->context();
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < pool.geometry.zone_count; ++i) sum += pool.expiries.bytes({i});
    return sum;
  }
  // It is as of when a zone was opened last: since then the open zones' tables have grown, and
  // those of zones that are full have given back what they did not need.
  void expect_sum(std::uint64_t its_table_bytes, std::uint64_t grown = 2048) const {
    const std::uint64_t sum = log().index_bytes() + its_table_bytes;
    EXPECT_LE(bytes(), sum + 2048);
    EXPECT_GE(bytes() + grown, sum);
  }
  PageLog& log() const { return static_cast<PageStoreImpl*>(rig_.store)->log(); }

  Rig rig_{"mem:128MiB?zone_size=1MiB&lba=512"};
  AlignedBuffer page_{4096};
};

TEST_F(IndexBytesTest, GrowsAndShrinksWithThePages) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store));
  std::uint64_t before = bytes();
  EXPECT_LE(before, kFixedBytes);
  const std::uint64_t empty = log().index_bytes();
  for (std::uint64_t pages = 0; pages < kPages;) {
    ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, pages, kPages / 10));
    pages += kPages / 10;
    EXPECT_EQ(rig_.store->usage().pages, pages);
    EXPECT_GT(log().index_bytes() + kUnusedBytes, empty + 10 * pages) << pages;
    EXPECT_LE(bytes(), kFixedBytes + 15 * pages);
    expect_sum(table_bytes(false));
    before = bytes();
  }
  ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, 0, kPages));
  EXPECT_LE(bytes(), before + before / 20) << "the same pages again";
  for (std::uint64_t left = kPages; left != 0;) {
    left -= kPages / 10;
    ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::remove, left, kPages / 10));
    EXPECT_LE(bytes(), kFixedBytes + 17 * left);  // buckets that are to be merged yet
    expect_sum(table_bytes(false));
  }
}

// What it is beside the pages of a store: the hit bits of a cache, and when pages expire.
TEST_F(IndexBytesTest, HitBitsCount) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::cache));
  ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, 0, kPages / 4));
  EXPECT_GT(table_bytes(true), table_bytes(false));
  expect_sum(table_bytes(true));
}

TEST_F(IndexBytesTest, PagesOfOneTimeToLiveCostNoMoreThanOthers) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store));
  ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, 0, kPages / 4));
  const std::uint64_t before = bytes();
  ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, 0, kPages / 4, 3600));
  EXPECT_GT(expiry_bytes(), 0u);
  EXPECT_LE(expiry_bytes(), kPages / 4) << "zones of 2048 pages: 320 bytes each";
  EXPECT_LE(bytes(), before + before / 20 + kPages / 4);
  expect_sum(table_bytes(false));
}

TEST_F(IndexBytesTest, AnExpiryOfItsOwnCostsEightBytes) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store));
  for (std::uint64_t key = 0; key < kPages / 4; key += 64) {
    ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, key, 64, 3600, true));
  }
  EXPECT_GE(expiry_bytes(), 8 * (kPages / 4));
  EXPECT_LE(expiry_bytes(), 9 * (kPages / 4));
  expect_sum(table_bytes(false), 20 << 10);  // a zone of 2048 pages
  // They go with their zones.
  ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, 0, kPages / 4));
  ASSERT_NO_FATAL_FAILURE(run(PageOp::Kind::put, 0, kPages / 4));
  EXPECT_LE(expiry_bytes(), 9 * (kPages / 4));
}

}  // namespace
}  // namespace furrow::testing::index_bytes_test
