// Establishes that a block volume loses nothing when sessions on several threads write different
// LBAs of the same 4 KiB blocks, while zones are collected in which other blocks stay, that compare
// and write is one step for all of them, and that a discard finds what was written while others
// discarded. Meant to run under TSan too.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/embedded_pool.h"
#include "tests/engine/block/disk.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

// A thread's own executor, page session and block session.
class BlockClient {
 public:
  BlockClient(Pool& pool, PageStore& volume, std::uint64_t seed)
      : loop_({50, seed}), volume_(volume) {
    auto pages = pool.create_session(loop_, 32);
    EXPECT_TRUE(pages.ok());
    pages_ = std::move(*pages);
    blocks_ = std::make_unique<BlockSession>(*pages_, loop_);
  }
  void submit(BlockOp& op) {
    ++running_;
    op.context = this;
    op.on_done = [](BlockOp& done) { --static_cast<BlockClient*>(done.context)->running_; };
    blocks_->submit(volume_, op);
  }
  void wait() {
    while (running_ != 0 || !blocks_->idle()) loop_.run_once();
  }

 private:
  EventLoop loop_;
  PageStore& volume_;
  std::unique_ptr<PageSession> pages_;
  std::unique_ptr<BlockSession> blocks_;
  unsigned running_ = 0;
};

std::unique_ptr<EmbeddedPool> shared_disk() {
  EmbeddedPool::CreateOptions make;
  make.volume = block_options(1 << 20, 512);
  auto pool = EmbeddedPool::open("mem:4MiB?zone_size=256KiB", make);
  EXPECT_TRUE(pool.ok()) << pool.status().describe();
  return std::move(*pool);
}

constexpr unsigned kThreads = 3;

TEST(BlockThreadsTest, NoWriteToAPartOfABlockIsLost) {
  constexpr std::uint64_t kLbas = 64;  // eight blocks
  constexpr std::uint64_t kVersions = rounds(60, 30);
  // And each version of each thread one block that stays, so that there are some in each zone.
  constexpr std::uint64_t kStays = 192;
  const auto stays_at = [](unsigned thread, std::uint64_t version) {
    return kLbas + (version * kThreads + thread) % kStays * 8;
  };
  const auto pool = shared_disk();
  PageStore& volume = *pool->pool().find("disk");
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        BlockClient client(pool->pool(), volume, thread);
        std::vector<BlockOp> ops(kLbas + 1);
        std::vector<std::vector<std::byte>> data(kLbas + 1);
        const auto write = [&](std::size_t i, std::uint64_t lba, std::uint64_t lbas,
                               std::uint64_t version) {
          data[i] = content(lba, version, lbas * 512);
          ops[i].kind = BlockOp::Kind::write;
          ops[i].lba = lba;
          ops[i].count = lbas;
          ops[i].data = data[i].data();
          client.submit(ops[i]);
        };
        for (std::uint64_t version = 1; version <= kVersions; ++version) {
          for (std::uint64_t lba = thread; lba < kLbas; lba += kThreads) {
            write(lba, lba, 1, version);
          }
          write(kLbas, stays_at(thread, version), 8, 0);
          client.wait();
          for (const BlockOp& op : ops) ASSERT_TRUE(op.status.ok()) << op.status.describe();
        }
      });
    }
  }
  EXPECT_GT(volume.stats().zones_reset, rounds(30, 8)) << "hardly any zone was collected";
  EXPECT_GT(volume.stats().relocated_bytes, rounds(200'000, 50'000));
  BlockClient client(pool->pool(), volume, 9);
  const auto expect = [&](std::uint64_t lba, std::uint64_t lbas, std::uint64_t version) {
    std::vector<std::byte> there(lbas * 512);
    BlockOp read;
    read.lba = lba;
    read.count = lbas;
    read.data = there.data();
    client.submit(read);
    client.wait();
    EXPECT_TRUE(equal(there, content(lba, version, there.size()))) << "LBA " << lba;
  };
  for (std::uint64_t lba = 0; lba < kLbas; ++lba) expect(lba, 1, kVersions);
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    for (std::uint64_t version = 1; version <= kVersions; ++version) {
      expect(stays_at(thread, version), 8, 0);
    }
  }
}

// A counter in an LBA that others' writes surround: no step of it is done twice or lost.
TEST(BlockThreadsTest, CompareAndWriteIsOneStep) {
  constexpr std::uint64_t kSteps = 100;
  const auto pool = shared_disk();
  PageStore& volume = *pool->pool().find("disk");
  std::atomic<std::uint64_t> met{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        BlockClient client(pool->pool(), volume, thread);
        std::vector<std::byte> was(512), next(512), other(512);
        for (std::uint64_t done = 0; done < kSteps;) {
          BlockOp swap, beside;
          swap.kind = BlockOp::Kind::compare_and_write;
          swap.count = beside.count = 1;
          swap.lba = 3;
          swap.expected = was.data();
          swap.data = next.data();
          std::uint64_t counter = 0;
          std::memcpy(&counter, was.data(), 8);
          ++counter;
          std::memcpy(next.data(), &counter, 8);
          beside.kind = BlockOp::Kind::write;
          beside.lba = 4 + thread;
          beside.data = other.data();
          client.submit(swap);
          client.submit(beside);
          client.wait();
          ASSERT_TRUE(swap.status.ok() && beside.status.ok());
          if (swap.equal) {
            ++done;
            continue;
          }
          ++met;
          BlockOp read;
          read.lba = 3;
          read.count = 1;
          read.data = was.data();
          client.submit(read);
          client.wait();
        }
      });
    }
  }
  BlockClient client(pool->pool(), volume, 9);
  std::vector<std::byte> there(512);
  BlockOp read;
  read.lba = 3;
  read.count = 1;
  read.data = there.data();
  client.submit(read);
  client.wait();
  std::uint64_t counter = 0;
  std::memcpy(&counter, there.data(), 8);
  EXPECT_EQ(counter, kThreads * kSteps);
  EXPECT_GT(met.load(), 0u) << "they never met, and this has shown nothing";
}

// Random writes and discards of a disk of 4 MiB, some at a time.
void write_and_discard(Pool& pool, PageStore& volume, std::uint64_t seed) {
  using Kind = BlockOp::Kind;
  std::mt19937_64 random(seed);
  BlockClient client(pool, volume, seed);
  AlignedBuffer data(64 << 10);
  std::memset(data.data(), 7, data.size());
  for (unsigned turn = 0; turn < 10; ++turn) {
    std::array<BlockOp, 6> ops;
    for (BlockOp& op : ops) {
      op.kind = random() % 2 == 0   ? Kind::write
                : random() % 2 == 0 ? Kind::discard
                                    : Kind::write_zeroes;
      op.lba = random() % 64 * 16;
      op.count = 16;
      op.data = op.kind == Kind::write ? data.data() : nullptr;
      if (op.kind != Kind::write && random() % 4 == 0) {  // whole parts
        op.lba = op.lba / 256 * 256;
        op.count = 1024 - op.lba;
      }
      client.submit(op);
    }
    client.wait();
    for (const BlockOp& op : ops) ASSERT_TRUE(op.status.ok()) << op.status.describe();
  }
}

TEST(BlockThreadsTest, ADiscardFindsWhatWasWrittenWhileOthersDiscarded) {
  EmbeddedPool::CreateOptions make;
  make.volume = block_options(4 << 20, 4096);
  const auto pool = EmbeddedPool::open("mem:32MiB?zone_size=1MiB", make);
  ASSERT_TRUE(pool.ok()) << pool.status().describe();
  PageStore& volume = *(*pool)->pool().find("disk");
  std::uint64_t found = 0;
  for (std::uint64_t round = 0; round < rounds(40, 5); ++round) {
    {
      std::vector<std::jthread> threads;
      for (unsigned thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back(
            [&, thread] { write_and_discard((*pool)->pool(), volume, round * kThreads + thread); });
      }
    }
    found += volume.usage().pages;
    BlockClient client((*pool)->pool(), volume, 9);
    BlockOp all;
    all.kind = BlockOp::Kind::discard;
    all.count = 1024;
    client.submit(all);
    client.wait();
    ASSERT_TRUE(all.status.ok()) << all.status.describe();
    ASSERT_EQ(volume.usage().pages, 0u) << "round " << round;
  }
  EXPECT_GT(found, rounds(2000, 150)) << "there was hardly anything to find";
}

}  // namespace
}  // namespace furrow::testing
