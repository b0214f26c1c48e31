// Establishes what a page store promises, on one thread over mem:, operation by operation.
// (model_test.cc draws operations at random.)
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/engine/rig.h"

namespace furrow::testing::page_store_test {
namespace {

constexpr const char* kSmall = "mem:64MiB?zone_size=2MiB&zone_capacity=1MiB";

std::string text_of(const Key& key) {
  return {reinterpret_cast<const char*>(key.bytes.data()), key.length};
}

VolumeOptions volume(VolumeMode mode) {
  VolumeOptions options;
  options.name = "pages";
  options.mode = mode;
  options.value_bytes_max = 128 << 10;
  return options;
}

class PageStoreTest : public ::testing::TestWithParam<VolumeMode> {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(rig.make(volume(GetParam()))); }
  Rig rig{kSmall};
};

INSTANTIATE_TEST_SUITE_P(Modes, PageStoreTest,
                         ::testing::Values(VolumeMode::cache, VolumeMode::store),
                         [](const auto& mode) {
                           return mode.param == VolumeMode::cache ? "cache" : "store";
                         });

TEST_P(PageStoreTest, KeepsTrueLengths) {
  for (const std::size_t bytes : {1u, 511u, 4096u, 4097u, 65536u, 131072u}) {
    ASSERT_TRUE(rig.put(bytes, 1, bytes).ok());
    const auto page = rig.get(bytes);
    ASSERT_TRUE(page.ok()) << page.status().describe();
    EXPECT_EQ(*page, content(bytes, 1, bytes));
  }
  EXPECT_EQ(rig.get(7).status().code(), Code::not_found);
}

TEST_P(PageStoreTest, RefusesBadSizes) {
  PageOp op;
  std::byte data[1]{};
  op.kind = PageOp::Kind::put;
  op.data = data;
  op.length = 1;
  EXPECT_EQ(rig.run(op).code(), Code::invalid_argument);  // no key
  op.key = Key::from("a key of more than 16 bytes");
  EXPECT_EQ(rig.run(op).code(), Code::invalid_argument);
  op.key = Key::from("k");
  op.length = 0;
  EXPECT_EQ(rig.run(op).code(), Code::invalid_argument);
  op.length = (128 << 10) + 1;
  EXPECT_EQ(rig.run(op).code(), Code::too_large);
}

TEST_P(PageStoreTest, ConditionsDecide) {
  using enum PageOp::Condition;
  EXPECT_EQ(rig.put(1, 1, 100, if_exists).code(), Code::not_found);
  EXPECT_TRUE(rig.put(1, 1, 100, if_absent).ok());
  EXPECT_EQ(rig.put(1, 2, 100, if_absent).code(), Code::exists);
  EXPECT_TRUE(rig.put(1, 3, 200, if_exists).ok());
  EXPECT_EQ(*rig.get(1), content(1, 3, 200));
  EXPECT_TRUE(rig.simple(PageOp::Kind::exist, 1).ok());
  EXPECT_TRUE(rig.simple(PageOp::Kind::remove, 1).ok());
  EXPECT_EQ(rig.simple(PageOp::Kind::exist, 1).code(), Code::not_found);
  EXPECT_EQ(rig.simple(PageOp::Kind::remove, 1).code(), Code::not_found);
  EXPECT_TRUE(rig.put(1, 4, 100, if_absent).ok());
}

TEST_P(PageStoreTest, ConditionalPutsInFlightAreDecidedOnce) {
  std::vector<std::unique_ptr<PageOp>> ops;
  AlignedBuffer page(4096);
  for (int i = 0; i < 50; ++i) {
    ops.push_back(std::make_unique<PageOp>());
    ops.back()->kind = PageOp::Kind::put;
    ops.back()->condition = PageOp::Condition::if_absent;
    ops.back()->key = key_of(5);
    ops.back()->data = page.data();
    ops.back()->length = 10;
    rig.submit(*ops.back());
  }
  rig.wait();
  int stored = 0;
  for (const auto& op : ops) {
    stored += op->status.ok();
    EXPECT_TRUE(op->status.ok() || op->status.code() == Code::exists);
  }
  EXPECT_EQ(stored, 1);
}

TEST_P(PageStoreTest, ShortBufferGetsTheBeginningAndTheTrueLength) {
  ASSERT_TRUE(rig.put(3, 1, 20000).ok());
  PageOp op;
  op.kind = PageOp::Kind::get;
  op.key = key_of(3);
  std::vector<std::byte> few(100);
  op.data = few.data();
  op.capacity = 100;
  ASSERT_TRUE(rig.run(op).ok());
  EXPECT_EQ(op.length, 20000u);
  const auto whole = content(3, 1, 20000);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), whole.begin()));
}

TEST_P(PageStoreTest, GroupGoesAsOne) {
  for (std::uint64_t i = 0; i < 40; ++i) {
    PageOp op;
    op.kind = PageOp::Kind::put;
    op.key = key_of(i);
    op.group = i % 2 + 7;
    auto page = content(i, 1, 5000);
    op.data = page.data();
    op.length = 5000;
    ASSERT_TRUE(rig.run(op).ok());
  }
  PageOp removal;
  removal.kind = PageOp::Kind::remove_group;
  removal.group = 7;
  ASSERT_TRUE(rig.run(removal).ok());
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(rig.get(i).ok(), i % 2 == 1) << i;
    }
    ASSERT_NO_FATAL_FAILURE(rig.reopen());  // and stays gone
  }
}

// Pins and puts on their way while their group is deleted: what was stored before is gone, whatever
// the order in which the device answers, and none of it counts as damage.
TEST_P(PageStoreTest, GroupGoesWhileItsPagesAreInUse) {
  constexpr std::uint64_t kPages = 24;
  for (unsigned turns = 0; turns < 24; ++turns) {
    std::vector<PageOp> puts(kPages), pins(kPages);
    std::vector<std::vector<std::byte>> pages;
    for (std::uint64_t i = 0; i < kPages; ++i) {
      pages.push_back(content(i, turns, 5000));
      puts[i].kind = PageOp::Kind::put;
      puts[i].key = pins[i].key = key_of(i);
      puts[i].group = 7 + turns;
      puts[i].data = pages[i].data();
      puts[i].length = 5000;
      pins[i].kind = PageOp::Kind::pin;
    }
    // The second half is still being written when the group goes.
    for (std::uint64_t i = 0; i < kPages / 2; ++i) ASSERT_TRUE(rig.run(puts[i]).ok());
    for (std::uint64_t i = kPages / 2; i < kPages; ++i) rig.submit(puts[i]);
    for (std::uint64_t i = 0; i < kPages / 2; ++i) rig.submit(pins[i]);
    for (unsigned turn = 0; turn < turns; ++turn) rig.loop.run_once();
    PageOp removal;
    removal.kind = PageOp::Kind::remove_group;
    removal.group = 7 + turns;
    rig.submit(removal);
    rig.wait();
    ASSERT_TRUE(removal.status.ok()) << removal.status.describe();
    for (const PageOp& pin : pins) {
      EXPECT_TRUE(pin.status.ok() || pin.status.code() == Code::not_found) << pin.status.describe();
    }
    for (std::uint64_t i = 0; i < kPages / 2; ++i) {
      EXPECT_EQ(rig.get(i).status().code(), Code::not_found) << i << " after " << turns;
    }
    ASSERT_TRUE(rig.run(removal).ok());
    EXPECT_EQ(rig.store->usage().pages, 0u);
  }
  EXPECT_EQ(rig.store->stats().corrupt_pages, 0u);
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.store->usage().pages, 0u);
}

Status put_for(Rig& rig, std::uint64_t number, std::uint64_t version, std::uint32_t ttl_s) {
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.key = key_of(number);
  auto page = content(number, version, 20000);
  op.data = page.data();
  op.length = 20000;
  op.ttl_s = ttl_s;
  return rig.run(op);
}

TEST_P(PageStoreTest, ExpiredPagesAreAbsent) {
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.key = key_of(1);
  auto page = content(1, 1, 100);
  op.data = page.data();
  op.length = 100;
  op.ttl_s = 1;
  ASSERT_TRUE(rig.run(op).ok());
  op.key = key_of(2);
  op.ttl_s = 3600;
  ASSERT_TRUE(rig.run(op).ok());
  EXPECT_TRUE(rig.get(1).ok());
  rig.loop.advance_s(1);
  EXPECT_EQ(rig.get(1).status().code(), Code::not_found);
  EXPECT_EQ(rig.simple(PageOp::Kind::exist, 1).code(), Code::not_found);
  EXPECT_TRUE(rig.get(2).ok());
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.get(1).status().code(), Code::not_found);
  EXPECT_TRUE(rig.get(2).ok());
  EXPECT_TRUE(rig.put(1, 2, 100, PageOp::Condition::if_absent).ok());
}

// Whether they were read from a segment's summary or from batch headers.
TEST_P(PageStoreTest, ExpiriesAreKnownAfterARestart) {
  constexpr std::uint64_t kPages = 200;
  for (std::uint64_t i = 0; i < kPages; ++i) {
    ASSERT_TRUE(put_for(rig, i, 1, i % 2 == 0 ? 3600 : 1).ok());
  }
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  rig.loop.advance_s(2);
  for (std::uint64_t i = 0; i < kPages; ++i) EXPECT_EQ(rig.get(i).ok(), i % 2 == 0) << i;
}

TEST_P(PageStoreTest, ListsEveryKeyOnceInAnOrderThatResumes) {
  std::set<std::string> stored;
  for (std::uint64_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(rig.put(i, 1, 10).ok());
    const Key key = key_of(i);
    stored.insert(text_of(key));
  }
  std::vector<Key> all;
  for (Key after;;) {
    const auto some = rig.list(after, 7);
    ASSERT_TRUE(some.ok()) << some.status().describe();
    all.insert(all.end(), some->begin(), some->end());
    if (some->size() < 7) break;
    after = some->back();
  }
  EXPECT_EQ(all.size(), 300u);
  std::set<std::string> listed;
  for (const Key& key : all) listed.insert(text_of(key));
  EXPECT_EQ(listed, stored);
}

// A pinned page outlives the cache's turning over, also across a restart; an unpinned one does not.
TEST(CacheTest, PinnedAndHitPagesStay) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::cache)));
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(rig.put(i, 1, 5000).ok());
  ASSERT_TRUE(rig.simple(PageOp::Kind::pin, 0).ok());
  ASSERT_TRUE(rig.simple(PageOp::Kind::pin, 1).ok());
  EXPECT_EQ(rig.simple(PageOp::Kind::pin, 99).code(), Code::not_found);
  ASSERT_TRUE(rig.simple(PageOp::Kind::unpin, 1).ok());
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  for (std::uint64_t i = 100; i < 1500; ++i) {
    ASSERT_TRUE(rig.put(i, 1, 30000).ok());
    ASSERT_TRUE(rig.get(2).ok()) << "read all the time, so written again at each eviction";
  }
  EXPECT_GT(rig.store->stats().evicted_zones, 20u);
  EXPECT_EQ(*rig.get(0), content(0, 1, 5000));
  EXPECT_EQ(rig.get(1).status().code(), Code::not_found);
  EXPECT_EQ(rig.get(3).status().code(), Code::not_found);
  const VolumeUsage usage = rig.store->usage();
  EXPECT_LE(usage.zones, usage.quota_zones);
}

// At the bound of what may be pinned, what takes the place of a pinned page still may.
TEST(CacheTest, APinnedPageCanBeReplacedAtTheLimit) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::cache)));
  const auto put_pinned = [&rig](std::uint64_t key, std::uint64_t version) {
    auto page = content(key, version, 30000);
    PageOp op;
    op.kind = PageOp::Kind::put;
    op.key = key_of(key);
    op.pinned = true;
    op.data = page.data();
    op.length = op.capacity = 30000;
    return rig.run(op);
  };
  std::uint64_t pinned = 0;
  Status status;
  while (pinned < 1000 && (status = put_pinned(pinned, 1)).ok()) ++pinned;
  EXPECT_EQ(status.code(), Code::no_space) << pinned;
  EXPECT_GT(pinned, 100u);
  for (std::uint64_t key = 0; key < pinned; key += 10) {
    ASSERT_TRUE(put_pinned(key, 2).ok()) << key;
    EXPECT_EQ(*rig.get(key), content(key, 2, 30000));
  }
  EXPECT_EQ(put_pinned(5000, 1).code(), Code::no_space);
}

// When nearly everything that is evicted is hot, its copies must always find room: many puts and
// gets at once, so that the writer fills its zone while the eviction goes on.
TEST(CacheTest, EvictionOfHotZonesNeverWaitsForItself) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::cache)));
  constexpr std::size_t kAtOnce = 100;
  std::vector<std::unique_ptr<PageOp>> ops;
  std::vector<AlignedBuffer> pages;
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    ops.push_back(std::make_unique<PageOp>());
    pages.emplace_back(16384);
  }
  for (std::uint64_t round = 0; round < 60; ++round) {
    for (const PageOp::Kind kind : {PageOp::Kind::put, PageOp::Kind::get}) {
      for (std::size_t i = 0; i < kAtOnce; ++i) {
        ops[i]->kind = kind;
        ops[i]->key = key_of(round * kAtOnce + i);
        ops[i]->data = pages[i].data();
        ops[i]->length = ops[i]->capacity = 16384;
        rig.submit(*ops[i]);
      }
      const std::uint64_t until = rig.loop.now_ns() + 60'000'000'000;
      while (!rig.idle()) {
        rig.loop.run_once();
        ASSERT_LT(rig.loop.now_ns(), until) << "stuck in round " << round;
      }
    }
  }
  EXPECT_GT(rig.store->stats().relocated_bytes, 1u << 20);
  EXPECT_GT(rig.store->stats().evicted_zones, 50u);
}

TEST(CacheTest, PinsHaveALimit) {
  Rig rig("mem:8MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::cache)));
  PageOp op;
  op.kind = PageOp::Kind::put;
  op.pinned = true;
  std::vector<std::byte> page(100000);
  op.data = page.data();
  op.length = 100000;
  Status status;
  std::uint64_t stored = 0;
  for (; stored < 200; ++stored) {
    op.key = key_of(stored);
    status = rig.run(op);
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), Code::no_space) << status.describe();
  EXPECT_GT(stored, 15u);
  EXPECT_TRUE(rig.put(1000, 1, 100000).ok()) << "the rest of the cache goes on";
}

// Full is a clear error; reads, deletes and recovery still work, and deleting makes room.
TEST(StoreTest, FullIsAnErrorAndDeletingMakesRoom) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::store)));
  std::uint64_t stored = 0;
  Status status;
  for (; stored < 2000; ++stored) {
    status = rig.put(stored, 1, 20000);
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), Code::no_space) << status.describe();
  // 14 zones, two held back, most of the rest used.
  EXPECT_GT(stored * 20480, 10u << 20);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < stored; ++i) ASSERT_TRUE(rig.get(i).ok()) << i;
    ASSERT_NO_FATAL_FAILURE(rig.reopen());
  }
  EXPECT_EQ(rig.put(5000, 1, 20000).code(), Code::no_space) << "also after a restart";
  for (std::uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(rig.simple(PageOp::Kind::remove, i).ok());
  for (std::uint64_t i = 0; i < 45; ++i) ASSERT_TRUE(rig.put(6000 + i, 1, 20000).ok()) << i;
  // Overwriting at the brim, for several times the volume's size.
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::uint64_t key = 50 + i % (stored - 50);
    ASSERT_TRUE(rig.put(key, 2 + i, 20000).ok()) << i;
  }
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_FALSE(rig.get(i).ok()) << "deleted stays deleted";
}

TEST(StoreTest, ExpiredPagesMakeRoom) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::store)));
  std::uint64_t stored = 0;
  Status status;
  for (; stored < 2000; ++stored) {
    status = put_for(rig, stored, 1, stored % 2 == 0 ? 2 : 3600);
    if (!status.ok()) break;
  }
  ASSERT_EQ(status.code(), Code::no_space) << status.describe();
  rig.loop.advance_s(3);
  for (std::uint64_t i = 0; i < stored / 2; ++i) {
    ASSERT_TRUE(rig.put(10000 + i, 1, 20000).ok()) << i << " of " << stored;
  }
  for (std::uint64_t i = 1; i < stored; i += 2) EXPECT_TRUE(rig.get(i).ok()) << i;
  for (std::uint64_t i = 0; i < 100 && status.code() == Code::no_space; ++i) {
    status = rig.put(20000 + i, 1, 20000);
  }
  EXPECT_EQ(rig.put(30000, 1, 60000).code(), Code::no_space) << "nothing more has expired";
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  for (std::uint64_t i = 0; i < stored; ++i) EXPECT_EQ(rig.get(i).ok(), i % 2 == 1) << i;
}

// A version that has expired and whose zone is gone still hides the one before it.
TEST(StoreTest, AnExpiredVersionDoesNotUncoverAnOlderOne) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::store)));
  // The older version lies among pages that stay. The newer one is the only page of its zone that
  // is not overwritten, and of every later zone two or three stay: so its zone is collected.
  for (std::uint64_t i = 0; i < 120; ++i) ASSERT_TRUE(rig.put(i, 1, 20000).ok());
  for (std::uint64_t i = 0; i < 60; ++i) ASSERT_TRUE(rig.put(1000 + i % 8, i, 20000).ok());
  ASSERT_TRUE(put_for(rig, 10, 2, 1).ok());
  for (std::uint64_t i = 0; i < 60; ++i) ASSERT_TRUE(rig.put(1000 + i % 8, i, 20000).ok());
  rig.loop.advance_s(2);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::uint64_t key = i % 20 == 0 ? 2000 + i : 1000 + i % 8;
    ASSERT_TRUE(rig.put(key, 1, 20000).ok()) << i;
  }
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 120; ++i) {
      EXPECT_EQ(rig.get(i).status().code(), i == 10 ? Code::not_found : Code::ok) << i;
    }
    ASSERT_NO_FATAL_FAILURE(rig.reopen());
  }
}

// Puts that wait for a zone hold their keys, and the zone that is to be freed has those keys' older
// versions: collection must not wait for them.
TEST(StoreTest, ConcurrentOverwritesOfAFullStoreGoOn) {
  Rig rig("mem:16MiB?zone_size=1MiB");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::store)));
  std::uint64_t stored = 0;
  while (rig.put(stored, 1, 20000).ok()) ++stored;
  ASSERT_GT(stored, 300u);
  constexpr std::size_t kDepth = 48;
  std::array<PageOp, kDepth> ops;
  std::vector<std::vector<std::byte>> pages(kDepth);
  std::map<std::uint64_t, std::uint64_t> versions;
  std::mt19937_64 random(7);
  for (std::uint64_t round = 2; round < 200; ++round) {
    for (std::size_t i = 0; i < kDepth; ++i) {
      const std::uint64_t key = (random() % (stored / kDepth)) * kDepth + i;
      PageOp& op = ops[i];
      op = PageOp();
      op.kind = PageOp::Kind::put;
      op.key = key_of(key);
      pages[i] = content(key, round, 20000);
      op.data = pages[i].data();
      op.length = 20000;
      rig.submit(op);
      versions[key] = round;
    }
    for (std::uint64_t turns = 0; !rig.idle() && turns < 2'000'000; ++turns) rig.loop.run_once();
    ASSERT_TRUE(rig.idle()) << "round " << round << " does not end";
    for (const PageOp& op : ops) ASSERT_TRUE(op.status.ok()) << op.status.describe();
  }
  for (const auto& [key, version] : versions)
    EXPECT_EQ(*rig.get(key), content(key, version, 20000));
}

// Tombstones are needed for as long as a zone is older than they are, and cold zones never get
// collected for what is dead in them. Without zones going in turn they fill the volume.
TEST(StoreTest, TombstonesDoNotFillTheVolume) {
  Rig rig("mem:16MiB?zone_size=1MiB&lba=512");
  ASSERT_NO_FATAL_FAILURE(rig.make(volume(VolumeMode::store)));
  constexpr std::uint64_t kCold = 200, kCycles = 200'000;
  for (std::uint64_t i = 0; i < kCold; ++i) ASSERT_TRUE(rig.put(i, 1, 20000).ok());
  for (std::uint64_t i = 0; i < kCycles; ++i) {
    ASSERT_TRUE(rig.put(kCold + i, 1, 100).ok()) << i;
    ASSERT_TRUE(rig.simple(PageOp::Kind::remove, kCold + i).ok()) << i;
  }
  for (std::uint64_t i = 0; i < kCold; ++i) ASSERT_EQ(*rig.get(i), content(i, 1, 20000));
  // Each cycle writes two batches of two LBAs by itself.
  const auto stats = rig.store->stats();
  EXPECT_LT(stats.device_bytes_written, 4 * kCycles * 4 * 512);
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.store->usage().pages, kCold);
}

}  // namespace
}  // namespace furrow::testing::page_store_test
