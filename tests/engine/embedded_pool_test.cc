// Establishes what programs without an event loop rely on: EmbeddedPool makes a device, a pool and
// a volume where nothing is and opens what is there, says why it cannot, and closes in order;
// SyncPageStore's calls do what the operations do, from any number of threads, also many at once.
// How: mem: and a file; two threads with keys of their own.
#include "engine/embedded_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/log/tap_device.h"
#include "tests/zone/no_threads.h"
#include "zone/event_loop.h"

namespace furrow {
namespace {

std::vector<std::byte> bytes_of(std::size_t count, unsigned fill) {
  return std::vector<std::byte>(count, static_cast<std::byte>(fill));
}

EmbeddedPool::CreateOptions small() {
  EmbeddedPool::CreateOptions make;
  make.size_bytes = 64 << 20;
  make.volume.name = "pages";
  make.volume.mode = VolumeMode::store;
  return make;
}

class EmbeddedPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = EmbeddedPool::open("mem:32MiB?zone_size=2MiB", small());
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    pool_ = std::move(*opened);
    auto store = pool_->store("pages");
    ASSERT_TRUE(store.ok()) << store.status().describe();
    store_.emplace(*store);
  }
  std::unique_ptr<EmbeddedPool> pool_;
  std::optional<SyncPageStore> store_;
};

TEST(EmbeddedPoolThreads, WithoutOneItIsNotOpened) {
  const test::NoThreads none;
  const auto refused = EmbeddedPool::open("mem:32MiB?zone_size=2MiB", small());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().sys_errno(), EAGAIN) << refused.status().describe();
}

TEST(EmbeddedPoolThreads, RecoveryNeedsNone) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "furrow-no-threads-").string() +
      std::to_string(getpid());
  {
    auto pool = EmbeddedPool::open("emu:" + path, small());
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    ASSERT_TRUE((*pool)->store("pages")->put(Key::from("k"), bytes_of(5000, 1)).ok());
  }
  const test::NoThreads none;
  EventLoop loop;
  const auto device = open_device("emu:" + path + "?reclaim=never", Access::exclusive);
  ASSERT_TRUE(device.ok()) << device.status().describe();
  auto pool = Pool::open(**device, loop, {});
  ASSERT_TRUE(pool.ok()) << pool.status().describe();
  EXPECT_EQ((*pool)->find("pages")->usage().pages, 1u);
  while (!(*pool)->quiesce()) loop.run_once();
  std::filesystem::remove(path);
}

TEST_F(EmbeddedPoolTest, CallsDoWhatTheOperationsDo) {
  const Key key = Key::from("k");
  EXPECT_EQ(store_->get(key).status().code(), Code::not_found);
  EXPECT_TRUE(store_->put(key, bytes_of(5000, 1)).ok());
  EXPECT_EQ(*store_->get(key), bytes_of(5000, 1));
  EXPECT_TRUE(store_->exist(key).ok());
  PutOptions only_new;
  only_new.condition = PageOp::Condition::if_absent;
  EXPECT_EQ(store_->put(key, bytes_of(1, 2), only_new).code(), Code::exists);
  EXPECT_TRUE(store_->pin(key).ok());
  EXPECT_TRUE(store_->unpin(key).ok());
  EXPECT_TRUE(store_->flush().ok());
  EXPECT_TRUE(store_->remove(key, Durability::flushed).ok());
  EXPECT_EQ(store_->exist(key).code(), Code::not_found);
  EXPECT_EQ(store_->remove(key).code(), Code::not_found);
  EXPECT_EQ(store_->put(Key(), bytes_of(1, 1)).code(), Code::invalid_argument);
  EXPECT_EQ(store_->put(key, {}).code(), Code::invalid_argument);
}

TEST_F(EmbeddedPoolTest, IsOpenedAsAsked) {
  EmbeddedPool::CreateOptions make = small();
  make.opening.read_only = true;
  EXPECT_EQ(EmbeddedPool::open("mem:32MiB?zone_size=2MiB", make).status().code(),
            Code::invalid_argument);
  make.opening = {.victim_policy = VictimPolicy::fifo};  // a store's cannot be that
  EXPECT_EQ(EmbeddedPool::open("mem:32MiB?zone_size=2MiB", make).status().code(),
            Code::invalid_argument);
  make.opening = {.scrub_bytes_per_s = 1 << 30, .scrub_pause_s = 1};
  auto scrubbed = EmbeddedPool::open("mem:32MiB?zone_size=2MiB", make);
  ASSERT_TRUE(scrubbed.ok()) << scrubbed.status().describe();
  auto pages = (*scrubbed)->store("pages");
  ASSERT_TRUE(pages.ok());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pages->put(Key::from(std::to_string(i)), bytes_of(60000, 1)).ok());
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((*scrubbed)->info().scrub.pages == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "nothing is verified";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// While others use the pool, from threads that are not its own.
TEST_F(EmbeddedPoolTest, VolumesComeAndGo) {
  pool_.reset();
  EmbeddedPool::CreateOptions make = small();
  make.volume.quota_bytes = 10 << 20;
  auto opened = EmbeddedPool::open("mem:64MiB?zone_size=2MiB", make);
  ASSERT_TRUE(opened.ok()) << opened.status().describe();
  pool_ = std::move(*opened);
  std::jthread user([this](const std::stop_token& stop) {
    auto pages = pool_->store("pages");
    ASSERT_TRUE(pages.ok());
    for (unsigned i = 0; !stop.stop_requested(); ++i) {
      const Status stored = pages->put(Key::from(std::to_string(i % 50)), bytes_of(3000, i));
      ASSERT_TRUE(stored.ok()) << stored.describe();
    }
  });
  VolumeOptions second;
  second.name = "second";
  second.quota_bytes = 10 << 20;
  for (unsigned round = 0; round < 10; ++round) {
    auto made = pool_->create_volume(second);
    ASSERT_TRUE(made.ok()) << made.status().describe();
    EXPECT_EQ(pool_->create_volume(second).status().code(), Code::exists);
    ASSERT_TRUE(made->put(Key::from("k"), bytes_of(9000, round)).ok());
    const auto volumes = pool_->volumes();
    ASSERT_EQ(volumes.size(), 2u);
    EXPECT_EQ(volumes[1].options.name, "second");
    Status deleted;
    while ((deleted = pool_->delete_volume("second")).code() == Code::busy) {
      std::this_thread::yield();
    }
    ASSERT_TRUE(deleted.ok()) << deleted.describe();
    EXPECT_EQ(made->get(Key::from("k")).status().code(), Code::not_found);
    EXPECT_EQ(pool_->store("second").status().code(), Code::not_found);
  }
  EXPECT_EQ(pool_->delete_volume("second").code(), Code::not_found);
  EXPECT_EQ(pool_->info().geometry.zone_count, 32u);
}

// What is under way ends, and the volume is gone for what comes next. (Its end is held back for
// longer than the first attempt takes.)
TEST(EmbeddedPoolDeletion, WaitsForWhatChangesTheVolume) {
  auto inner = open_device("mem:32MiB?zone_size=2MiB", Access::exclusive);
  ASSERT_TRUE(inner.ok()) << inner.status().describe();
  auto owned = std::make_unique<TapDevice>(std::move(*inner));
  TapDevice& tap = *owned;
  const auto pool = EmbeddedPool::open(std::move(owned), small());
  ASSERT_TRUE(pool.ok()) << pool.status().describe();
  auto store = (*pool)->store("pages");
  ASSERT_TRUE(store.ok()) << store.status().describe();
  // Its queues are the pool's thread's, or of who has its turns.
  const auto at_home = [&](const auto& what) { (*pool)->call([&](Pool&) { what(); }); };
  at_home([&] { tap.hold(Io::Op::write); });
  Status stored;
  std::jthread user([&] { stored = store->put(Key::from("a"), bytes_of(3000, 1)); });
  for (bool held = false; !held; std::this_thread::yield()) {
    at_home([&] { held = tap.held(Io::Op::write) != 0; });
  }
  std::jthread lets_go([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    at_home([&] { tap.let_go(Io::Op::write); });
  });
  const Status deleted = (*pool)->delete_volume("pages");
  EXPECT_TRUE(deleted.ok()) << deleted.describe();
  user.join();
  EXPECT_TRUE(stored.ok()) << stored.describe();
  EXPECT_EQ(store->put(Key::from("b"), bytes_of(3000, 2)).code(), Code::not_found);
}

TEST_F(EmbeddedPoolTest, AKeyThatIsTooLongIsRefused) {
  const Key longest = Key::from("0123456789abcdef"), longer = Key::from("0123456789abcdefg");
  ASSERT_TRUE(store_->put(longest, bytes_of(1, 1)).ok());
  EXPECT_EQ(store_->get(longer).status().code(), Code::invalid_argument);
  EXPECT_EQ(store_->list(longer, 10).status().code(), Code::invalid_argument);
  EXPECT_EQ(store_->list(Key::from(""), 10)->size(), 1u) << "from the beginning";
}

// Longer than a get reads at first: it is read again.
TEST_F(EmbeddedPoolTest, LargeValuesComeWhole) {
  for (const std::size_t bytes :
       {std::size_t{65535}, std::size_t{65536}, std::size_t{65537}, std::size_t{1} << 20}) {
    ASSERT_TRUE(store_->put(Key::from("large"), bytes_of(bytes, 7)).ok());
    EXPECT_EQ(*store_->get(Key::from("large")), bytes_of(bytes, 7));
  }
}

TEST_F(EmbeddedPoolTest, APutOnlyReadsItsValue) {
  std::vector<std::byte> value = bytes_of(8192, 9);
  ASSERT_TRUE(store_->put(Key::from("v"), std::span(value).first(5000)).ok());
  EXPECT_EQ(value, bytes_of(8192, 9)) << "what lies behind it is not the store's";
}

TEST_F(EmbeddedPoolTest, GroupsAndLists) {
  PutOptions grouped;
  for (unsigned i = 0; i < 20; ++i) {
    grouped.group = 1 + i % 2;
    ASSERT_TRUE(store_->put(Key::from("key " + std::to_string(i)), bytes_of(10, i), grouped).ok());
  }
  const auto all = store_->list(Key(), 100);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 20u);
  const auto rest = store_->list((*all)[4], 100);
  EXPECT_TRUE(std::ranges::equal(*rest, std::span(*all).subspan(5)));
  EXPECT_EQ(store_->list(Key(), 3)->size(), 3u);
  EXPECT_EQ(*store_->list(Key(), ~0u), *all) << "however many there are";
  EXPECT_TRUE(store_->remove_group(1).ok());
  EXPECT_EQ(store_->list(Key(), 100)->size(), 10u);
  EXPECT_EQ(store_->remove_group(0).code(), Code::invalid_argument);
}

TEST_F(EmbeddedPoolTest, ManyAtOnceAndNone) {
  std::vector<PageOp> ops(100);
  std::vector<std::byte> value = bytes_of(3000, 3);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ops[i].kind = PageOp::Kind::put;
    ops[i].key = Key::from(std::to_string(i));
    ops[i].data = value.data();
    ops[i].length = ops[i].capacity = 3000;
  }
  store_->run(ops);
  for (const PageOp& op : ops) EXPECT_TRUE(op.status.ok()) << op.status.describe();
  store_->run(std::span<PageOp>());
  EXPECT_EQ(store_->async().usage().pages, 100u);
}

TEST_F(EmbeddedPoolTest, ThreadsShareIt) {
  std::atomic<unsigned> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 2; ++t) {
      threads.emplace_back([this, t, &wrong] {
        auto store = pool_->store("pages");
        for (unsigned i = 0; i < 300; ++i) {
          const Key key = Key::from(std::to_string(t) + "." + std::to_string(i % 20));
          wrong += !store->put(key, bytes_of(2000, i)).ok();
          const auto page = store->get(key);
          wrong += !page.ok() || *page != bytes_of(2000, i);
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0u);
}

TEST_F(EmbeddedPoolTest, AnUnknownVolumeIsNotFound) {
  EXPECT_EQ(pool_->store("other").status().code(), Code::not_found);
}

class EmbeddedFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  const std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("furrow-embedded-" + std::to_string(getpid()));
  const std::string path_ = (directory_ / "pool.img").string();
  const std::string uri_ = "emu:" + path_;
};

TEST_F(EmbeddedFileTest, IsMadeOnceAndOpenedAgain) {
  EXPECT_EQ(EmbeddedPool::open(uri_).status().code(), Code::not_found);
  for (unsigned round = 0; round < 3; ++round) {
    const auto pool = EmbeddedPool::open(uri_, small());
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    EXPECT_EQ(EmbeddedPool::open(uri_).status().code(), Code::in_use);
    auto store = (*pool)->store("pages");
    ASSERT_TRUE(store.ok()) << store.status().describe();
    if (round != 0) {
      EXPECT_EQ(*store->get(Key::from("round")), bytes_of(100, round - 1));
    }
    ASSERT_TRUE(store->put(Key::from("round"), bytes_of(100, round)).ok());
  }
}

TEST_F(EmbeddedFileTest, NothingIsLeftOfOneThatCannotBe) {
  EmbeddedPool::CreateOptions make = small();
  make.volume.quota_bytes = 1;
  EXPECT_EQ(EmbeddedPool::open(uri_, make).status().code(), Code::invalid_argument);
  EXPECT_EQ(EmbeddedPool::open(uri_).status().code(), Code::not_found);
  make = small();
  make.size_bytes = 1 << 20;
  EXPECT_EQ(EmbeddedPool::open(uri_, make).status().code(), Code::invalid_argument);
  EXPECT_EQ(EmbeddedPool::open(uri_).status().code(), Code::not_found);
}

TEST_F(EmbeddedFileTest, WhatCannotBeAPoolSaysWhy) {
  EXPECT_EQ(EmbeddedPool::open("nowhere:").status().code(), Code::invalid_argument);
  { std::ofstream(path_) << std::string(1 << 20, 'x'); }
  EXPECT_EQ(EmbeddedPool::open(uri_, small()).status().code(), Code::foreign);
  EmbeddedPool::CreateOptions bad = small();
  bad.volume.name = "no such name/";
  EXPECT_EQ(EmbeddedPool::open("mem:32MiB?zone_size=2MiB", bad).status().code(),
            Code::invalid_argument);
}

}  // namespace
}  // namespace furrow
