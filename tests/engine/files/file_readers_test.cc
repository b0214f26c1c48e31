// Establishes that threads without an event loop read by borrowed readers (FileReaders): a reader
// is one thread's at a time and is used again, there are no more than kReadersMax, who comes when
// all are borrowed waits for one, what is read is right, also where the pool's thread has to be
// asked, and the first one that cannot be made is an error. How: a pool in memory with a thread of
// its own.
#include "engine/files/file_readers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "engine/embedded_pool.h"
#include "tests/engine/pool_file.h"
#include "tests/engine/rig.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

constexpr std::uint32_t kReadBytes = 4096;

class FileReadersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EmbeddedPool::CreateOptions make;
    make.size_bytes = 32 << 20;
    make.volume.name = "pages";
    make.volume.mode = VolumeMode::store;
    make.volume.value_bytes_max = 64 << 10;
    auto opened = EmbeddedPool::open("mem:32MiB?zone_size=1MiB", make);
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    pool_ = std::move(*opened);
    auto store = pool_->store("pages");
    ASSERT_TRUE(store.ok());
    for (std::uint64_t i = 0; i < FileReaders::kOpsMax; ++i) {
      ASSERT_TRUE(store->put(key_of(i), content(i, 1, kReadBytes)).ok());
    }
    store_ = &store->async();
    readers_ = std::make_unique<FileReaders>(*pool_);
  }
  // `count` pages by one reader; those from kOpsMax on are not there.
  void expect_read(FileReaders::Lease& reader, std::uint64_t first, unsigned count) {
    std::vector<AlignedBuffer> pages;
    const ReadParts parts = reader->parts();
    for (unsigned i = 0; i < count; ++i) {
      pages.emplace_back(kReadBytes);
      PageOp& op = parts.ops[i];
      op.kind = PageOp::Kind::get;
      op.key = key_of(first + i);
      op.data = pages[i].data();
      op.capacity = kReadBytes;
    }
    run(*reader.operator->(), count);
    for (unsigned i = 0; i < count; ++i) {
      const bool there = first + i < FileReaders::kOpsMax;
      EXPECT_EQ(parts.ops[i].status.code(), there ? Code::ok : Code::not_found);
      if (there) {
        EXPECT_TRUE(equal(pages[i].span(), content(first + i, 1, kReadBytes)));
      }
    }
  }

  // The first so many of its ops.
  void run(FileReaders::Reader& reader, unsigned count) {
    for (unsigned i = 0; i < count; ++i) reader.submit(*store_, i);
    std::set<unsigned> done;
    while (done.size() != count) {
      const std::span<const unsigned> some = reader.wait();
      ASSERT_FALSE(some.empty());
      for (const unsigned each : some) EXPECT_TRUE(each < count && done.insert(each).second);
    }
  }

  std::unique_ptr<EmbeddedPool> pool_;
  PageStore* store_ = nullptr;
  std::unique_ptr<FileReaders> readers_;  // before the pool
};

TEST_F(FileReadersTest, AReaderIsUsedAgainAndReadsManyAtOnce) {
  FileReaders::Reader* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    auto lease = readers_->borrow();
    ASSERT_TRUE(lease.ok() && *lease);
    if (first == nullptr) first = lease->operator->();
    EXPECT_EQ(lease->operator->(), first);
    expect_read(*lease, 0, FileReaders::kOpsMax);
    expect_read(*lease, FileReaders::kOpsMax - 2, 4);
  }
}

TEST_F(FileReadersTest, AReaderIsNobodyElsesUntilItIsGivenBack) {
  std::set<FileReaders::Reader*> seen;
  std::vector<FileReaders::Lease> leases;
  for (unsigned i = 0; i < FileReaders::kReadersMax; ++i) {
    auto lease = readers_->borrow();
    ASSERT_TRUE(lease.ok() && *lease);
    EXPECT_TRUE(seen.insert(lease->operator->()).second) << "lent twice";
    leases.push_back(std::move(*lease));
  }
  // All are lent: the next one waits until one comes back.
  std::atomic<bool> got{false};
  std::thread waiting([&] {
    auto lease = readers_->borrow();
    ASSERT_TRUE(lease.ok() && *lease);
    EXPECT_EQ(seen.count(lease->operator->()), 1u) << "no more are made";
    got = true;
    expect_read(*lease, 0, 4);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(got);
  leases.erase(leases.begin() + 7);
  waiting.join();
  EXPECT_TRUE(got);
}

TEST_F(FileReadersTest, MoreThreadsThanReaders) {
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> done{0};
  const std::uint64_t each = rounds(20, 4);
  for (unsigned t = 0; t < FileReaders::kReadersMax + 16; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < each; ++i) {
        auto lease = readers_->borrow();
        ASSERT_TRUE(lease.ok() && *lease);
        expect_read(*lease, t % FileReaders::kOpsMax, 2);
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, each * (FileReaders::kReadersMax + 16));
}

// Its key is looked for by the pool's thread, as what was read is not its page.
TEST_F(FileReadersTest, WhatThePoolsThreadMustSay) {
  auto lease = readers_->borrow();
  ASSERT_TRUE(lease.ok() && *lease);
  const ReadParts parts = lease->operator->()->parts();
  parts.ops[0].kind = PageOp::Kind::exist;
  parts.ops[0].key = key_of(3);
  parts.ops[1].kind = PageOp::Kind::exist;
  parts.ops[1].key = key_of(1000);
  run(*lease->operator->(), 2);
  EXPECT_TRUE(parts.ops[0].status.ok());
  EXPECT_EQ(parts.ops[0].length, kReadBytes);
  EXPECT_EQ(parts.ops[1].status.code(), Code::not_found);
}

// A device that gives no more queues when it is told so.
class NoMoreQueues final : public ZonedDevice {
 public:
  explicit NoMoreQueues(std::unique_ptr<ZonedDevice> inner)
      : ZonedDevice(inner->geometry(), inner->uri()), inner_(std::move(inner)) {}
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override {
    if (none_left) return Status(Code::io_error, Origin::zone, "no queue is left");
    return inner_->create_queue(depth);
  }
  Result<std::vector<ZoneInfo>> report() override { return inner_->report(); }
  ZoneInfo zone(ZoneId zone) const override { return inner_->zone(zone); }
  std::atomic<bool> none_left{false};

 private:
  std::unique_ptr<ZonedDevice> inner_;
};

// Neither a reader nor a pool is made, and the process goes on.
TEST(FileReadersErrors, WithoutDescriptorsThereIsNone) {
  PoolFile file;
  EmbeddedPool::CreateOptions make;
  make.size_bytes = 64 << 20;
  make.volume.name = "pages";
  make.volume.value_bytes_max = 64 << 10;
  auto pool = EmbeddedPool::open(file.uri(), make);
  ASSERT_TRUE(pool.ok()) << pool.status().describe();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(STDERR_FILENO);
  ASSERT_EQ(close(next), 0);
  unsigned refused = 0;
  for (rlim_t left = 0; left < 16; ++left) {
    const rlimit few{static_cast<rlim_t>(next) + left, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    FileReaders readers(**pool);
    const auto lease = readers.borrow();
    const auto another = EmbeddedPool::open("mem:32MiB?zone_size=1MiB");
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(lease.ok() || lease.status().code() == Code::io_error);
    refused += !lease.ok() + !another.ok();
  }
  EXPECT_GT(refused, 3u);
}

TEST(FileReadersErrors, WithoutAReaderItIsAnErrorElseOneIsWaitedFor) {
  auto inner = open_device("mem:32MiB?zone_size=1MiB", Access::exclusive);
  ASSERT_TRUE(inner.ok());
  auto device = std::make_unique<NoMoreQueues>(std::move(*inner));
  std::atomic<bool>& none_left = device->none_left;
  EmbeddedPool::CreateOptions make;
  make.size_bytes = 32 << 20;
  make.volume.name = "pages";
  make.volume.value_bytes_max = 64 << 10;
  auto pool = EmbeddedPool::open(std::move(device), make);
  ASSERT_TRUE(pool.ok()) << pool.status().describe();
  {
    FileReaders readers(**pool);
    none_left = true;
    EXPECT_EQ(readers.borrow().status().code(), Code::io_error);
    none_left = false;
    auto only = std::make_unique<FileReaders::Lease>();
    {
      auto lease = readers.borrow();
      ASSERT_TRUE(lease.ok() && *lease);
      *only = std::move(*lease);
    }
    none_left = true;
    const FileReaders::Reader* const reader = only->operator->();
    std::atomic<bool> got{false};
    std::thread waiting([&] {
      auto lease = readers.borrow();
      ASSERT_TRUE(lease.ok() && *lease);
      got = lease->operator->() == reader;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(got);
    only.reset();
    waiting.join();
    EXPECT_TRUE(got);
  }
}

}  // namespace
}  // namespace furrow::testing
