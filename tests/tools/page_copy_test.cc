// Establishes that a copy of a volume has each page of it with its group, time to live and pin,
// whatever the LBAs and zones of the two devices; that expired pages are not copied; that one that
// is damaged ends the copy, and is named, or is left out where that was asked for; that what the
// target does not take is told with the page; and that disks are copied block by block. How: two
// pools, in memory or in a file of which a page is damaged.
#include "tools/page_copy.h"

#include "engine/embedded_pool.h"
#include "log/block_order.h"
#include "tests/engine/pool_file.h"

namespace furrow::tools {
namespace {

using ::furrow::testing::content;
using ::furrow::testing::key_of;

class PageCopyTest : public ::testing::Test {
 protected:
  void open(const std::string& from, const std::string& to) {
    EmbeddedPool::CreateOptions make;
    make.size_bytes = 1;
    for (auto& [uri, pool] : {std::pair(from, &from_), std::pair(to, &to_)}) {
      auto opened = EmbeddedPool::open(uri, make);
      ASSERT_TRUE(opened.ok()) << opened.status().describe();
      *pool = std::move(*opened);
    }
  }
  static SyncPageStore volume(EmbeddedPool& pool, const VolumeOptions& options) {
    const auto made = pool.create_volume(options);
    EXPECT_TRUE(made.ok()) << made.status().describe();
    return *made;
  }
  static VolumeOptions kv(VolumeMode mode) {
    VolumeOptions options;
    options.name = "pages";
    options.mode = mode;
    return options;
  }
  PageCopy copy(SyncPageStore& from, SyncPageStore& to, PageCopy::Options options = {}) {
    return {{*from_, from.async()}, {*to_, to.async()}, std::move(options)};
  }
  static PageOp whole_record(SyncPageStore& store, const Key& key) {
    PageOp op;
    op.kind = PageOp::Kind::exist;
    op.key = key;
    op.whole_record = true;
    store.run(op);
    return op;
  }

  std::unique_ptr<EmbeddedPool> from_, to_;
};

std::uint32_t length_of(std::uint64_t i) {
  return i % 50 == 0 ? 900'000 + static_cast<std::uint32_t>(i)
                     : 1 + static_cast<std::uint32_t>(i * 7919 % 30'000);
}

PutOptions options_of(std::uint64_t i) {
  PutOptions options;
  if (i % 3 == 1) options.group = 1 + i % 7;
  if (i % 4 == 1) options.ttl_s = 5000;
  options.pinned = i % 5 == 2;
  return options;
}

TEST_F(PageCopyTest, EachPageWithAllThatItHas) {
  ASSERT_NO_FATAL_FAILURE(
      open("mem:64MiB?zone_size=4MiB&lba=4096", "mem:96MiB?zone_size=8MiB&lba=512"));
  SyncPageStore from = volume(*from_, kv(VolumeMode::cache)),
                to = volume(*to_, kv(VolumeMode::store));
  constexpr std::uint64_t kPages = 600;
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < kPages; ++i) {
    ASSERT_TRUE(from.put(key_of(i), content(i, 1, length_of(i)), options_of(i)).ok()) << i;
    bytes += length_of(i);
  }
  ASSERT_TRUE(from.put(key_of(kPages), content(1, 1, 10), {.ttl_s = 1}).ok());
  while (from.exist(key_of(kPages)).ok())
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::uint64_t told = 0;
  PageCopy copied =
      copy(from, to, {.on_lost = {}, .on_progress = [&](std::uint64_t pages) { told = pages; }});
  const Status done = copied.run();
  ASSERT_TRUE(done.ok()) << done.describe();
  EXPECT_EQ(copied.pages(), kPages);
  EXPECT_EQ(told, kPages);
  EXPECT_EQ(copied.bytes(), bytes);
  EXPECT_EQ(copied.lost(), 0u);
  for (std::uint64_t i = 0; i < kPages; ++i) {
    const auto page = to.get(key_of(i));
    ASSERT_TRUE(page.ok()) << i << ": " << page.status().describe();
    ASSERT_EQ(*page, content(i, 1, length_of(i))) << i;
    const PageOp facts = whole_record(to, key_of(i));
    const PutOptions expected = options_of(i);
    EXPECT_EQ(facts.group, expected.group) << i;
    EXPECT_EQ(facts.pinned, expected.pinned) << i;
    EXPECT_LE(facts.ttl_s, expected.ttl_s) << i;
    EXPECT_GE(facts.ttl_s + 600, expected.ttl_s) << i;
    EXPECT_EQ(facts.ttl_s == 0, expected.ttl_s == 0) << i;
    EXPECT_EQ(facts.length, length_of(i));
  }
  EXPECT_EQ(to.exist(key_of(kPages)).code(), Code::not_found);
  ASSERT_TRUE(to.remove_group(3).ok());
  for (std::uint64_t i = 0; i < kPages; ++i) {
    EXPECT_EQ(to.exist(key_of(i)).ok(), options_of(i).group != 3) << i;
  }
}

TEST_F(PageCopyTest, OfNothing) {
  ASSERT_NO_FATAL_FAILURE(open("mem:32MiB?zone_size=2MiB", "mem:32MiB?zone_size=2MiB"));
  SyncPageStore from = volume(*from_, kv(VolumeMode::store)),
                to = volume(*to_, kv(VolumeMode::store));
  PageCopy copied = copy(from, to);
  EXPECT_TRUE(copied.run().ok());
  EXPECT_EQ(copied.pages(), 0u);
}

TEST_F(PageCopyTest, WhatTheTargetDoesNotTake) {
  ASSERT_NO_FATAL_FAILURE(open("mem:32MiB?zone_size=2MiB", "mem:16MiB?zone_size=2MiB"));
  SyncPageStore from = volume(*from_, kv(VolumeMode::store)),
                to = volume(*to_, kv(VolumeMode::store));
  std::uint64_t stored = 0;
  while (stored < 200 && from.put(key_of(stored), content(stored, 1, 100'000)).ok()) ++stored;
  ASSERT_EQ(stored, 200u);
  PageCopy copied = copy(from, to);
  EXPECT_EQ(copied.run().code(), Code::no_space);
  EXPECT_NE(copied.failed_at().length, 0u);
  EXPECT_GT(copied.pages(), 20u);
  EXPECT_LT(copied.pages(), 200u);
}

TEST_F(PageCopyTest, ADiskBlockByBlock) {
  ASSERT_NO_FATAL_FAILURE(open("mem:32MiB?zone_size=2MiB", "mem:64MiB?zone_size=4MiB"));
  VolumeOptions options;
  options.name = "disk";
  options.kind = VolumeKind::block;
  options.mode = VolumeMode::store;
  options.value_bytes_max = kBlockPageBytes;
  options.block_bytes = std::uint64_t{1} << 34;
  options.block_lba_bytes = 512;
  SyncPageStore from = volume(*from_, options), to = volume(*to_, options);
  std::vector<std::uint64_t> blocks;
  for (std::uint64_t i = 0; i < 900; ++i) blocks.push_back(i * 2654435761u % (1u << 22));
  for (const std::uint64_t block : blocks) {
    ASSERT_TRUE(from.put(block_key(block), content(block, 1, kBlockPageBytes)).ok()) << block;
  }
  PageCopy copied = copy(from, to);
  const Status done = copied.run();
  ASSERT_TRUE(done.ok()) << done.describe();
  EXPECT_EQ(copied.pages(), blocks.size());
  for (const std::uint64_t block : blocks) {
    const auto page = to.get(block_key(block));
    ASSERT_TRUE(page.ok()) << page.status().describe();
    EXPECT_EQ(*page, content(block, 1, kBlockPageBytes)) << block;
  }
}

class DamagedCopyTest : public PageCopyTest, public ::furrow::testing::PoolFile {};

TEST_F(DamagedCopyTest, EndsThereOrLeavesThePageOut) {
  ASSERT_NO_FATAL_FAILURE(make_device(64 << 20, 4 << 20));
  ASSERT_NO_FATAL_FAILURE(open(uri(), "mem:64MiB?zone_size=4MiB"));
  {
    SyncPageStore from = volume(*from_, kv(VolumeMode::store));
    for (std::uint64_t i = 0; i < 500; ++i) {
      ASSERT_TRUE(from.put(key_of(i), content(i, 1, 20'000)).ok());
    }
    ASSERT_TRUE(from.flush().ok());
  }
  from_.reset();
  const auto page = content(77, 1, 20'000);
  const std::vector<std::size_t> at = places(read_file(), text_of(page));
  ASSERT_EQ(at.size(), 1u);
  damage(at[0] + 9000);
  auto opened = EmbeddedPool::open_to_read(uri());
  ASSERT_TRUE(opened.ok()) << opened.status().describe();
  from_ = std::move(*opened);
  SyncPageStore from = *from_->store("pages"), to = volume(*to_, kv(VolumeMode::store));
  PageCopy strict = copy(from, to);
  EXPECT_EQ(strict.run().code(), Code::corrupt);
  EXPECT_EQ(strict.failed_at(), key_of(77));
  std::vector<Key> lost;
  const auto note = [&lost](const Key& key, const Status& why) {
    lost.push_back(key);
    EXPECT_EQ(why.code(), Code::corrupt);
  };
  PageCopy rescue = copy(from, to, {.on_lost = note, .on_progress = {}});
  EXPECT_TRUE(rescue.run().ok());
  EXPECT_EQ(lost, std::vector<Key>{key_of(77)});
  EXPECT_EQ(rescue.lost(), 1u);
  EXPECT_EQ(rescue.pages(), 499u);
  EXPECT_EQ(to.exist(key_of(77)).code(), Code::not_found);
  EXPECT_EQ(*to.get(key_of(78)), content(78, 1, 20'000));
}

}  // namespace
}  // namespace furrow::tools
