// Establishes that volumes get another quota, and disks another size, while they are used: that the
// room is there at once, that a smaller quota is only given when no more is held (and no page of a
// store is lost on the way), that what is promised to one volume is never another's, that refusals
// say what could be had, and that all of it outlives an opening. (Power cuts: resize_cut_test.cc.)
#include <gtest/gtest.h>

#include <thread>

#include "engine/embedded_pool.h"
#include "tests/engine/block/disk.h"
#include "zone/fault_device.h"

namespace furrow::testing {
namespace {

constexpr std::uint64_t kZone = 1 << 20;
constexpr const char* kDevice = "mem:42MiB?zone_size=1MiB";  // 40 zones for volumes
constexpr std::size_t kBytes = 12000;

VolumeOptions resizable(const char* name, VolumeMode mode, std::uint64_t zones) {
  VolumeOptions options;
  options.name = name;
  options.mode = mode;
  options.quota_bytes = zones * kZone;
  options.value_bytes_max = 64 << 10;
  return options;
}

class ResizeTest : public ::testing::Test {
 protected:
  ResizeAnswer resize(const char* name, const ResizeOptions& options) {
    for (unsigned turns = 0; turns < 1'000'000; ++turns) {
      const ResizeAnswer answer = rig_.pool->resize_volume(name, options);
      const PageStore* const store = rig_.pool->find(name);
      const VolumeUsage usage = store != nullptr ? store->usage() : VolumeUsage();
      if (answer.status.code() != Code::busy) {
        const bool resized = answer.status.ok() && options.quota_bytes != 0;
        EXPECT_TRUE(!resized || usage.zones < usage.quota_zones) << "none is left for copies";
        return answer;
      }
      EXPECT_EQ(answer.zones_to_free, usage.zones + 1 - options.quota_bytes / kZone);
      ++busy_;
      rig_.loop.run_once();
    }
    ADD_FAILURE() << "no zone is freed";
    return {};
  }
  ResizeAnswer quota(std::uint64_t zones, const char* name = "pages") {
    return resize(name, {.quota_bytes = zones * kZone});
  }
  void make(VolumeMode mode, std::uint64_t zones) {
    ASSERT_NO_FATAL_FAILURE(rig_.make(resizable("pages", mode, zones)));
  }
  // Until it is full, or so many.
  void fill(std::uint64_t pages) {
    while (puts_ < pages && rig_.put(puts_, 1, kBytes).ok()) ++puts_;
  }
  std::uint64_t found() {
    std::uint64_t pages = 0;
    for (std::uint64_t key = 0; key < puts_; ++key) {
      const auto page = rig_.get(key);
      if (!page.ok()) {
        EXPECT_EQ(page.status().code(), Code::not_found) << page.status().describe();
        continue;
      }
      EXPECT_TRUE(equal(*page, content(key, 1, kBytes))) << key;
      ++pages;
    }
    return pages;
  }
  std::uint64_t unpromised() { return rig_.pool->info().zones_unpromised; }

  Rig rig_{kDevice};
  std::uint64_t puts_ = 0, busy_ = 0;
};

// Many puts at a time: where room is made, they take it.
class Writers {
 public:
  Writers(Rig& rig, std::uint64_t first_key) : rig_(rig), next_key_(first_key) {}
  void turn() {
    for (auto& slot : slots_) {
      if (slot != nullptr && !slot->done) continue;
      if (slot != nullptr) {
        ASSERT_TRUE(slot->op.status.ok()) << slot->op.status.describe();
        ++puts_;
      }
      slot = std::make_unique<Put>();
      const auto bytes = content(next_key_, 1, kBytes);
      std::memcpy(slot->page.data(), bytes.data(), kBytes);
      slot->op.kind = PageOp::Kind::put;
      slot->op.key = key_of(next_key_++);
      slot->op.data = slot->page.data();
      slot->op.length = kBytes;
      slot->op.capacity = static_cast<std::uint32_t>(slot->page.size());
      slot->op.context = slot.get();
      slot->op.on_result = nullptr;
      slot->op.on_released = [](PageOp& op) { static_cast<Put*>(op.context)->done = true; };
      rig_.session->submit(*rig_.store, slot->op);
    }
    rig_.loop.run_once();
  }
  // Those that run come to their end.
  ~Writers() {
    for (auto& slot : slots_) {
      while (slot != nullptr && !slot->done) rig_.loop.run_once();
    }
  }
  std::uint64_t puts() const { return puts_; }

 private:
  struct Put {
    PageOp op;
    AlignedBuffer page{(kBytes + 4095) / 4096 * 4096};
    bool done = false;
  };
  Rig& rig_;
  std::uint64_t next_key_, puts_ = 0;
  std::array<std::unique_ptr<Put>, 64> slots_;
};

TEST_F(ResizeTest, AFullStoreGoesOn) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store, 5));
  fill(10'000);
  const std::uint64_t before = puts_;
  EXPECT_EQ(rig_.put(before, 1, kBytes).code(), Code::no_space);
  const ResizeAnswer much = quota(41);
  EXPECT_EQ(much.status.code(), Code::no_space);
  EXPECT_EQ(much.quota_bytes_max, 40 * kZone);
  EXPECT_EQ(rig_.store->usage().quota_zones, 5u);
  ASSERT_TRUE(quota(20).status.ok());
  EXPECT_EQ(busy_, 0u);
  EXPECT_EQ(rig_.store->usage().quota_zones, 20u);
  EXPECT_EQ(rig_.store->info().options.quota_bytes, 20 * kZone);
  EXPECT_EQ(unpromised(), 20u);
  fill(10'000);
  EXPECT_GT(puts_, 5 * before);
  EXPECT_EQ(found(), puts_);
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  EXPECT_EQ(rig_.store->usage().quota_zones, 20u);
  EXPECT_EQ(found(), puts_);
  // As if it had been made so: it can be filled again as far as before.
  EXPECT_EQ(rig_.pool->create_volume(resizable("more", VolumeMode::store, 21)).status().code(),
            Code::no_space);
  EXPECT_TRUE(rig_.pool->create_volume(resizable("more", VolumeMode::store, 20)).ok());
  EXPECT_EQ(quota(21).status.code(), Code::no_space);
}

TEST_F(ResizeTest, ACacheEvictsWhatIsTooMuch) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::cache, 40));
  fill(4000);
  ASSERT_GT(rig_.store->usage().zones, 35u);
  ASSERT_TRUE(quota(4).status.ok());
  EXPECT_GT(busy_, 0u);
  EXPECT_LE(rig_.store->usage().zones, 4u);
  EXPECT_EQ(unpromised(), 36u);
  const std::uint64_t left = found();
  EXPECT_GT(left, 50u) << "the newest are there";
  EXPECT_TRUE(rig_.get(puts_ - 1).ok());
  EXPECT_LT(left, 4 * kZone / kBytes);
  // What it gave back is another's, all of it.
  const auto other = rig_.pool->create_volume(resizable("more", VolumeMode::store, 36));
  ASSERT_TRUE(other.ok());
  PageStore* const pages = std::exchange(rig_.store, *other);
  std::uint64_t key = 0;
  while (rig_.put(key, 3, kBytes).ok()) ++key;
  EXPECT_GT(key, 27 * kZone / kBytes);
  rig_.store = pages;
  for (std::uint64_t more = 0; more < 1000; ++more) {
    ASSERT_TRUE(rig_.put(puts_, 1, kBytes).ok());
    ++puts_;
    ASSERT_LE(rig_.store->usage().zones, 4u);
  }
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  EXPECT_LE(rig_.store->usage().zones, 4u);
  EXPECT_GT(found(), 50u);
}

TEST_F(ResizeTest, ACacheShrinksUnderItsWriters) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::cache, 40));
  fill(4000);
  // One in most zones, so that each that is evicted has something to be copied.
  std::vector<std::uint64_t> pinned;
  for (std::uint64_t key = 1200; key < puts_; key += 70) {
    if (rig_.simple(PageOp::Kind::pin, key).ok()) pinned.push_back(key);
  }
  EXPECT_GT(pinned.size(), 30u);
  {
    Writers writers(rig_, puts_);
    ResizeAnswer answer;
    do {
      for (unsigned turn = 0; turn < 20; ++turn) ASSERT_NO_FATAL_FAILURE(writers.turn());
      answer = rig_.pool->resize_volume("pages", {.quota_bytes = 3 * kZone});
      ASSERT_LT(writers.puts(), 20'000u) << "it comes to its end";
    } while (answer.status.code() == Code::busy);
    ASSERT_TRUE(answer.status.ok()) << answer.status.describe();
    EXPECT_GT(writers.puts(), 40u) << "some are served in between";
    for (unsigned turn = 0; turn < 1000; ++turn) ASSERT_NO_FATAL_FAILURE(writers.turn());
  }
  EXPECT_LE(rig_.store->usage().zones, 3u);
  for (const std::uint64_t key : pinned) EXPECT_TRUE(rig_.get(key).ok()) << key;
}

TEST_F(ResizeTest, PinnedPagesKeepTheirZones) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::cache, 20));
  fill(600);
  for (std::uint64_t key = 0; key < 600; ++key) {
    ASSERT_TRUE(rig_.simple(PageOp::Kind::pin, key).ok());
  }
  const ResizeAnswer little = quota(4);
  EXPECT_EQ(little.status.code(), Code::no_space);
  EXPECT_GT(little.quota_bytes_min, 12 * kZone) << "they fill half of it at most";
  EXPECT_LT(little.quota_bytes_min, 20 * kZone);
  EXPECT_EQ(rig_.store->usage().quota_zones, 20u);
  ASSERT_TRUE(quota(little.quota_bytes_min / kZone).status.ok());
  EXPECT_EQ(found(), 600u);
  fill(5000);
  for (std::uint64_t key = 0; key < 600; ++key) ASSERT_TRUE(rig_.get(key).ok()) << key;
}

TEST_F(ResizeTest, AStoreIsCollectedDownToWhatItNeeds) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store, 30));
  fill(1800);
  std::vector<std::uint64_t> kept;
  for (std::uint64_t key = 0; key < puts_; ++key) {
    if (key % 4 == 0) {
      kept.push_back(key);
    } else {
      ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, key).ok());
    }
  }
  const std::uint64_t zones_before = rig_.store->usage().zones;
  EXPECT_GT(zones_before, 20u);
  const ResizeAnswer little = quota(3);
  EXPECT_EQ(little.status.code(), Code::no_space);
  EXPECT_EQ(busy_, 0u) << "nothing was begun";
  const std::uint64_t least = little.quota_bytes_min / kZone;
  EXPECT_GT(least, 6u) << kept.size() * kBytes / kZone << " zones of pages";
  EXPECT_LT(least, 14u);
  const ResizeAnswer done = quota(least);
  ASSERT_TRUE(done.status.ok()) << done.status.describe();
  EXPECT_GT(busy_, 0u);
  EXPECT_LE(rig_.store->usage().zones, least);
  EXPECT_EQ(found(), kept.size());
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  EXPECT_EQ(rig_.store->usage().quota_zones, least);
  EXPECT_EQ(found(), kept.size());
  // It lives: overwrites go on, for longer than any zone of it lasts.
  for (std::uint64_t i = 0; i < 1500; ++i) {
    ASSERT_TRUE(rig_.put(kept[i % kept.size()], 1, kBytes).ok()) << i;
  }
  EXPECT_EQ(found(), kept.size());
  EXPECT_LE(rig_.store->usage().zones, least);
}

TEST_F(ResizeTest, AShrinkIsCalledOff) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::cache, 40));
  fill(4000);
  EXPECT_EQ(rig_.pool->resize_volume("pages", {.quota_bytes = 3 * kZone}).status.code(),
            Code::busy);
  rig_.turns(20);
  EXPECT_EQ(rig_.store->usage().quota_zones, 40u);
  EXPECT_EQ(unpromised(), 0u) << "nobody is promised what is not free yet";
  ASSERT_TRUE(quota(40).status.ok());
  fill(8000);
  EXPECT_GT(rig_.store->usage().zones, 35u);
  // And by closing the pool, with a writer that waits for a zone.
  for (unsigned i = 0; i < 3; ++i) {
    (void)rig_.pool->resize_volume("pages", {.quota_bytes = 3 * kZone});
    rig_.turns(3);
  }
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());
  EXPECT_EQ(rig_.store->usage().quota_zones, 40u);
  EXPECT_GT(found(), 100u);
}

// Also when something else is asked for then, and refused: no more zones are freed for nothing.
TEST_F(ResizeTest, AShrinkEndsWithARefusal) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store, 30));
  fill(1800);
  for (std::uint64_t key = 0; key < puts_; ++key) {
    if (key % 4 == 0) continue;
    ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, key).ok());
  }
  EXPECT_EQ(rig_.pool->resize_volume("pages", {.quota_bytes = 15 * kZone}).status.code(),
            Code::busy);
  EXPECT_EQ(rig_.pool->resize_volume("pages", {.quota_bytes = 3 * kZone}).status.code(),
            Code::no_space);
  const std::uint64_t held = rig_.store->usage().zones;
  for (const std::uint64_t until_ns = rig_.loop.now_ns() + 300'000'000;
       rig_.loop.now_ns() < until_ns;) {
    rig_.loop.run_once();
  }
  EXPECT_GE(rig_.store->usage().zones + 1, held);
}

TEST_F(ResizeTest, ZonesOfADeletedVolumeAreTakenWhenTheyAreBack) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store, 10));
  ASSERT_TRUE(rig_.pool->create_volume(resizable("other", VolumeMode::store, 30)).ok());
  PageStore* const pages = std::exchange(rig_.store, rig_.pool->find("other"));
  fill(1000);
  rig_.store = pages;
  ASSERT_TRUE(rig_.pool->delete_volume("other").ok());
  ASSERT_GT(rig_.pool->info().zones_returning, 5u);
  const ResizeOptions all{.quota_bytes = 40 * kZone};
  EXPECT_EQ(rig_.pool->resize_volume("pages", all).status.code(), Code::busy);
  EXPECT_EQ(rig_.store->usage().quota_zones, 10u);
  Code code = Code::busy;
  for (unsigned turns = 0; turns < 100'000 && code == Code::busy; ++turns) {
    rig_.loop.run_once();
    code = rig_.pool->resize_volume("pages", all).status.code();
  }
  EXPECT_EQ(code, Code::ok);
  EXPECT_EQ(rig_.store->usage().quota_zones, 40u);
}

// Where the device does not let zones be freed the volume goes on with what it has, and when it
// does the next attempt is as good as the first.
TEST_F(ResizeTest, ADeviceInTroubleEndsAShrink) {
  auto inner = open_device(kDevice, Access::exclusive);
  ASSERT_TRUE(inner.ok());
  auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
  FaultDevice& device = *fault;
  rig_.device = std::move(fault);
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store, 30));
  fill(1800);
  for (std::uint64_t key = 0; key < puts_; ++key) {
    if (key % 4 == 0) continue;
    ASSERT_TRUE(rig_.simple(PageOp::Kind::remove, key).ok());
  }
  const auto refused = [&] {
    const ResizeAnswer answer = quota(15);
    EXPECT_FALSE(answer.status.ok());
    EXPECT_EQ(rig_.store->usage().quota_zones, 30u);
    EXPECT_EQ(unpromised(), 10u);
    EXPECT_TRUE(rig_.put(puts_, 1, kBytes).ok());
    ++puts_;
    return answer.status.code();
  };
  device.fail_flushes(1);
  EXPECT_EQ(refused(), Code::io_error);
  // It is left alone for a moment then.
  for (const std::uint64_t until_ns = rig_.loop.now_ns() + 30'000'000;
       rig_.loop.now_ns() < until_ns;) {
    rig_.loop.run_once();
  }
  const Geometry& geometry = device.geometry();
  device.fail_reads(geometry.zone_start(ZoneId{2}), 40 * geometry.zone_size_lbas);
  EXPECT_EQ(refused(), Code::no_space) << "of no zone all pages can be read";
  device.heal();
  ResizeAnswer answer;
  const std::uint64_t until_ns = rig_.loop.now_ns() + 20'000'000'000;
  do {
    answer = quota(15);
    rig_.turns(100);
  } while (!answer.status.ok() && rig_.loop.now_ns() < until_ns);
  ASSERT_TRUE(answer.status.ok()) << answer.status.describe();
  EXPECT_LE(rig_.store->usage().zones, 15u);
  EXPECT_EQ(unpromised(), 25u);
  EXPECT_EQ(found(), 1800u / 4 + 2);
}

// What is refused changes nothing.
TEST_F(ResizeTest, WhatCannotBeIsRefused) {
  ASSERT_NO_FATAL_FAILURE(make(VolumeMode::store, 10));
  VolumeOptions zones = resizable("zones", VolumeMode::store, 0);
  zones.kind = VolumeKind::zoned;
  zones.zones = 3;
  ASSERT_TRUE(rig_.pool->create_volume(zones).ok());
  VolumeOptions disk = block_options(8 << 20, 512);
  disk.quota_bytes = 5 * kZone;
  ASSERT_TRUE(rig_.pool->create_volume(disk).ok());
  const auto code = [&](const char* name, const ResizeOptions& options) {
    return rig_.pool->resize_volume(name, options).status.code();
  };
  EXPECT_EQ(code("none", {.quota_bytes = 5 * kZone}), Code::not_found);
  EXPECT_EQ(code("pages", {}), Code::invalid_argument);
  EXPECT_EQ(code("pages", {.quota_bytes = 3 * kZone - 1}), Code::invalid_argument);
  EXPECT_EQ(code("pages", {.block_bytes = 1 << 20}), Code::invalid_argument);
  EXPECT_EQ(code("zones", {.quota_bytes = 5 * kZone}), Code::unsupported);
  EXPECT_EQ(code("disk", {.block_bytes = (8 << 20) + 512}), Code::invalid_argument);
  EXPECT_EQ(code("disk", {.block_bytes = std::uint64_t{16} << 40}), Code::invalid_argument);
  EXPECT_EQ(code("disk", {.block_bytes = 7 << 20}), Code::unsupported);
  EXPECT_EQ(code("disk", {.block_bytes = std::uint64_t{17} << 30}), Code::unsupported);
  EXPECT_EQ(code("disk", {.quota_bytes = 99 * kZone, .block_bytes = 9 << 20}), Code::no_space);
  EXPECT_EQ(rig_.pool->find("disk")->info().options.block_bytes, 8u << 20);
  EXPECT_EQ(code("pages", {.quota_bytes = 10 * kZone}), Code::ok) << "as it is";
  rig_.close();
  ASSERT_NO_FATAL_FAILURE(rig_.open(true));
  EXPECT_EQ(rig_.pool->resize_volume("pages", {.quota_bytes = 20 * kZone}).status.code(),
            Code::permission);
}

TEST(ResizeLimitsTest, FarMoreThanItBeganWithTakesAnOpening) {
  Rig rig("mem:260MiB?zone_size=1MiB&lba=512");
  ASSERT_NO_FATAL_FAILURE(rig.make(resizable("pages", VolumeMode::store, 3)));
  const auto resize = [&](std::uint64_t zones) {
    return rig.pool->resize_volume("pages", {.quota_bytes = zones * kZone}).status.code();
  };
  EXPECT_EQ(resize(250), Code::unsupported);
  ASSERT_EQ(resize(192), Code::ok);
  // All of it can be used, small pages in an index that began small.
  std::uint64_t keys = 0;
  while (keys < 100'000 && rig.put(keys, 1, 100).ok()) ++keys;
  ASSERT_EQ(keys, 100'000u);
  for (std::uint64_t key = 0; key < keys; key += 501) ASSERT_TRUE(rig.get(key).ok()) << key;
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(resize(250), Code::ok);
  for (std::uint64_t key = 0; key < keys; key += 501) ASSERT_TRUE(rig.get(key).ok()) << key;
}

class DiskResizeTest : public ::testing::Test {
 protected:
  static std::vector<std::byte> block(std::uint64_t number) {
    return content(number, 1, kBlockPageBytes);
  }
  Status write(std::uint64_t number) {
    auto data = block(number);
    return disk_.run(BlockOp::Kind::write, number * 8, 8, data.data());
  }
  void expect(std::uint64_t number) {
    EXPECT_TRUE(equal(disk_.read(number * 8, 8), block(number))) << number;
  }
  Status grow(std::uint64_t mib) {
    return disk_.rig.pool->resize_volume("disk", {.block_bytes = mib << 20}).status;
  }

  Disk disk_{kDevice};
};

TEST_F(DiskResizeTest, ADiskGrowsInUse) {
  ASSERT_NO_FATAL_FAILURE(disk_.make(block_options(4 << 20, 512)));
  std::vector<std::uint64_t> written;
  std::uint64_t mib = 4;
  for (const std::uint64_t next : {5u, 8u, 9u, 64u, 4096u, 16384u}) {
    const std::uint64_t end = mib * 256;
    for (const std::uint64_t number : {end - 256, end - 255, end - 1}) {
      ASSERT_TRUE(write(number).ok());
      written.push_back(number);
    }
    EXPECT_EQ(write(end).code(), Code::invalid_argument) << "behind the end";
    // A write that is under way meanwhile.
    BlockOp running;
    auto data = block(end - 100);
    running.kind = BlockOp::Kind::write;
    running.lba = (end - 100) * 8;
    running.count = 8;
    running.data = data.data();
    disk_.submit(running);
    ASSERT_TRUE(grow(next).ok()) << next;
    disk_.wait();
    ASSERT_TRUE(running.status.ok());
    written.push_back(end - 100);
    EXPECT_EQ(disk_.rig.store->info().options.block_bytes, next << 20);
    for (const std::uint64_t number : written) expect(number);
    EXPECT_TRUE(equal(disk_.read(end * 8, 8), std::vector<std::byte>(kBlockPageBytes)));
    mib = next;
  }
  EXPECT_EQ(grow(100).code(), Code::unsupported);
  for (unsigned round = 0; round < 2; ++round) {
    for (const std::uint64_t number : written) expect(number);
    if (round == 0) {
      ASSERT_NO_FATAL_FAILURE(disk_.reopen());
    }
  }
  EXPECT_EQ(disk_.rig.store->info().options.block_bytes, mib << 20);
  // A discard of all finds also what lies behind the first end.
  EXPECT_EQ(grow(mib * 2 + 1).code(), Code::unsupported);
  ASSERT_TRUE(grow(mib * 2).ok()) << "now that the pool was opened again";
  ASSERT_TRUE(write(mib * 2 * 256 - 1).ok());
  ASSERT_TRUE(disk_.run(BlockOp::Kind::discard, 0, mib * 2 * 2048).ok());
  EXPECT_EQ(disk_.rig.store->usage().pages, 0u);
}

TEST_F(DiskResizeTest, SizeAndQuotaAtOnce) {
  VolumeOptions options = block_options(4 << 20, 4096);
  options.quota_bytes = 3 * kZone;
  ASSERT_NO_FATAL_FAILURE(disk_.make(options));
  const auto answer =
      disk_.rig.pool->resize_volume("disk", {.quota_bytes = 30 * kZone, .block_bytes = 16 << 20});
  ASSERT_TRUE(answer.status.ok()) << answer.status.describe();
  for (std::uint64_t number = 0; number < 4096; ++number) {
    auto data = block(number);
    ASSERT_TRUE(disk_.run(BlockOp::Kind::write, number, 1, data.data()).ok()) << number;
  }
  ASSERT_NO_FATAL_FAILURE(disk_.reopen());
  EXPECT_EQ(disk_.rig.store->info().options.quota_bytes, 30 * kZone);
  for (std::uint64_t number = 0; number < 4096; number += 7) {
    EXPECT_TRUE(equal(disk_.read(number, 1), block(number)));
  }
}

// Threads of their own: an embedding program's, of which one resizes.
TEST(ResizeThreadsTest, UsersOnOtherThreadsDoNotNotice) {
  EmbeddedPool::CreateOptions make;
  make.size_bytes = 42 << 20;
  make.volume = resizable("pages", VolumeMode::store, 10);
  auto opened = EmbeddedPool::open(kDevice, make);
  ASSERT_TRUE(opened.ok()) << opened.status().describe();
  EmbeddedPool& pool = **opened;
  std::vector<std::jthread> users;
  for (std::uint64_t user = 0; user < 2; ++user) {
    users.emplace_back([&pool, user](const std::stop_token& stop) {
      auto pages = pool.store("pages");
      ASSERT_TRUE(pages.ok());
      for (std::uint64_t i = 0; !stop.stop_requested(); ++i) {
        const std::uint64_t number = user * 1000 + i % 30;
        const auto page = content(number, 1, kBytes);
        const Status stored = pages->put(key_of(number), page);
        ASSERT_TRUE(stored.ok()) << stored.describe();
        const auto read = pages->get(key_of(number));
        ASSERT_TRUE(read.ok() && equal(*read, page));
        ASSERT_GE(pages->async().info().options.quota_bytes, 5 * kZone);
      }
    });
  }
  for (unsigned round = 0; round < 6; ++round) {
    for (const std::uint64_t zones : {30u, 5u, 12u}) {
      const ResizeAnswer answer = pool.resize_volume("pages", {.quota_bytes = zones * kZone});
      ASSERT_TRUE(answer.status.ok()) << answer.status.describe();
      EXPECT_EQ(pool.volumes()[0].options.quota_bytes, zones * kZone);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  EXPECT_EQ(pool.resize_volume("none", {.quota_bytes = 5 * kZone}).status.code(), Code::not_found);
}

}  // namespace
}  // namespace furrow::testing
