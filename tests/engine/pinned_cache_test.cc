// Establishes that a cache that has as many pinned pages as it takes goes on: whatever their size,
// stored many at once or mixed with others, none is ever evicted, all other pages are taken, and
// what is pinned can be unpinned. How: its quota is written several times over, in batches of as
// many records as one has.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/rig.h"

namespace furrow::testing::pinned_cache_test {
namespace {

struct PinnedCase {
  const char* name;
  const char* device;
  std::size_t page_bytes_min, page_bytes_max;
  unsigned pinned_percent;
};

class PinnedCacheTest : public ::testing::TestWithParam<PinnedCase> {
 protected:
  static constexpr std::uint64_t kAtOnce = 255, kOthers = 1'000'000'000;

  void SetUp() override {
    VolumeOptions options;
    options.name = "pages";
    options.mode = VolumeMode::cache;
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    largest_bytes_ = rig_.device->geometry().zone_capacity_bytes() / 2;
    options.value_bytes_max = static_cast<std::uint32_t>(largest_bytes_);
    ASSERT_NO_FATAL_FAILURE(rig_.make(options));
    const std::size_t lba_bytes = rig_.device->geometry().lba_bytes;
    const std::size_t capacity =
        (GetParam().page_bytes_max + lba_bytes - 1) / lba_bytes * lba_bytes;
    for (std::uint64_t i = 0; i < kAtOnce; ++i) buffers_.emplace_back(capacity);
  }
  std::size_t bytes_of(std::uint64_t key) const {
    const std::size_t range = GetParam().page_bytes_max - GetParam().page_bytes_min + 1;
    return GetParam().page_bytes_min + key * 7919 % range;
  }
  void submit_put(PageOp& op, AlignedBuffer& buffer, std::uint64_t key, bool pinned) {
    const auto bytes = content(key, version_, bytes_of(key));
    std::memcpy(buffer.data(), bytes.data(), bytes.size());
    op.kind = PageOp::Kind::put;
    op.key = key_of(key);
    op.pinned = pinned;
    op.data = buffer.data();
    op.length = static_cast<std::uint32_t>(bytes.size());
    op.capacity = static_cast<std::uint32_t>(buffer.size());
    rig_.submit(op);
  }
  // Of keys from `first` on; those that are not refused for want of room are counted.
  std::uint64_t put_many(std::uint64_t first, unsigned pinned_percent) {
    std::vector<PageOp> ops(kAtOnce);
    for (std::uint64_t i = 0; i < kAtOnce; ++i) {
      const bool pinned = random_() % 100 < pinned_percent;
      submit_put(ops[i], buffers_[i], first + i + (pinned ? 0 : kOthers), pinned);
    }
    rig_.wait();
    std::uint64_t stored = 0;
    for (std::uint64_t i = 0; i < kAtOnce; ++i) {
      const Status& status = ops[i].status;
      EXPECT_TRUE(status.ok() || status.code() == Code::no_space) << status.describe();
      stored += status.ok() ? 1 : 0;
      if (status.ok() && ops[i].pinned) pinned_.push_back(first + i);
    }
    return stored;
  }
  void expect_pinned() {
    for (const std::uint64_t key : pinned_) {
      const auto page = rig_.get(key, buffers_[0].size());
      ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
      ASSERT_EQ(*page, content(key, version_, bytes_of(key))) << key;
    }
  }
  // All that is pinned, many at once.
  void overwrite_pinned() {
    ++version_;
    for (std::size_t at = 0; at < pinned_.size(); at += kAtOnce) {
      std::vector<PageOp> ops(std::min<std::size_t>(kAtOnce, pinned_.size() - at));
      for (std::size_t i = 0; i < ops.size(); ++i) {
        submit_put(ops[i], buffers_[i], pinned_[at + i], true);
      }
      rig_.wait();
      for (const PageOp& op : ops) ASSERT_TRUE(op.status.ok()) << op.status.describe();
    }
  }

  Rig rig_{GetParam().device};
  std::mt19937_64 random_{7};
  std::vector<AlignedBuffer> buffers_;
  std::vector<std::uint64_t> pinned_;
  std::uint64_t largest_bytes_ = 0;  // of a page that the volume takes
  std::uint64_t version_ = 1;        // of all pages, as they were stored last
};

TEST_P(PinnedCacheTest, GoesOnWhenNoMoreCanBePinned) {
  std::uint64_t next = 0;
  while (put_many(next, GetParam().pinned_percent) == kAtOnce) next += kAtOnce;
  ASSERT_FALSE(pinned_.empty());
  const VolumeUsage usage = rig_.store->usage();
  const std::uint64_t quota_bytes =
      usage.quota_zones * rig_.device->geometry().zone_capacity_bytes();
  std::uint64_t bytes = 0;
  for (const std::uint64_t key : pinned_) bytes += bytes_of(key);
  for (std::uint64_t written = 0; written < 2 * quota_bytes;) {
    next += kAtOnce;
    ASSERT_EQ(put_many(next, 0), kAtOnce) << written << " bytes after " << bytes << " were pinned";
    for (std::uint64_t i = 0; i < kAtOnce; ++i) written += bytes_of(kOthers + next + i);
  }
  ASSERT_NO_FATAL_FAILURE(expect_pinned());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_NO_FATAL_FAILURE(expect_pinned());
  for (const std::uint64_t key : pinned_) {
    const Status status = rig_.simple(PageOp::Kind::unpin, key);
    ASSERT_TRUE(status.ok()) << status.describe();
  }
}

// Also when pages became so large since that fewer could be pinned now.
TEST_P(PinnedCacheTest, WhatIsPinnedCanBeOverwritten) {
  std::uint64_t next = 0;
  while (put_many(next, GetParam().pinned_percent) == kAtOnce) next += kAtOnce;
  ASSERT_NO_FATAL_FAILURE(overwrite_pinned()) << "at the limit";
  ASSERT_TRUE(rig_.put(kOthers, 1, largest_bytes_).ok());
  EXPECT_EQ(put_many(next + kAtOnce, 100), 0u);
  for (unsigned round = 0; round < 6; ++round) ASSERT_NO_FATAL_FAILURE(overwrite_pinned()) << round;
  ASSERT_TRUE(rig_.put(kOthers, 1, largest_bytes_).ok()) << "for the next opening to find";
  ASSERT_NO_FATAL_FAILURE(expect_pinned());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  ASSERT_NO_FATAL_FAILURE(overwrite_pinned()) << "after an opening";
  ASSERT_NO_FATAL_FAILURE(expect_pinned());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PinnedCacheTest,
    ::testing::Values(PinnedCase{"one_lba", "mem:24MiB?zone_size=1MiB", 4096, 4096, 100},
                      PinnedCase{"small_lbas", "mem:24MiB?zone_size=1MiB&lba=512", 100, 100, 100},
                      PinnedCase{"mixed", "mem:24MiB?zone_size=1MiB", 1, 20000, 100},
                      PinnedCase{"large", "mem:24MiB?zone_size=1MiB", 300'000, 300'000, 100},
                      PinnedCase{"among_others", "mem:24MiB?zone_size=1MiB", 4096, 4096, 60},
                      PinnedCase{"few_zones", "mem:7MiB?zone_size=1MiB", 4096, 4096, 100},
                      PinnedCase{"small_zones", "mem:4MiB?zone_size=256KiB", 1, 8192, 100},
                      PinnedCase{"smallest_zones", "mem:3MiB?zone_size=128KiB", 4096, 4096, 100}),
    [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace furrow::testing::pinned_cache_test
