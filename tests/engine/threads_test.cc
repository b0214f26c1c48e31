// Establishes that sessions on several threads see whole pages while the home executor overwrites,
// deletes, evicts and resets zones beneath them. Meant to run under TSan too.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/embedded_pool.h"
#include "tests/engine/rig.h"

namespace furrow::testing {
namespace {

constexpr std::uint64_t kKeys = 300;
constexpr std::size_t kBytes = 5000;

// Its own executor and session; gets at random, and puts that travel to the home executor.
void client(Pool& pool, PageStore& store, std::uint64_t seed, std::atomic<bool>& end,
            std::atomic<std::uint64_t>& wrong, std::atomic<std::uint64_t>& hits) {
  EventLoop loop({50, seed});
  std::mt19937_64 random(seed);
  auto session = pool.create_session(loop, 32);
  ASSERT_TRUE(session.ok());
  struct Slot {
    PageOp op;
    AlignedBuffer page{8192};
    std::uint64_t key = 0;
    bool busy = false;
  };
  std::array<Slot, 16> slots;
  while (!end.load(std::memory_order_relaxed)) {
    for (Slot& slot : slots) {
      if (slot.busy) continue;
      if (slot.op.kind == PageOp::Kind::get && slot.op.status.ok() && slot.op.data != nullptr) {
        // The version stands in the first 8 bytes of what follows from key and version.
        std::uint64_t version = 0;
        std::memcpy(&version, slot.page.data(), 8);
        std::vector<std::byte> expected = content(slot.key, version, kBytes);
        std::memcpy(expected.data(), &version, 8);
        wrong +=
            slot.op.length != kBytes || std::memcmp(expected.data(), slot.page.data(), kBytes) != 0;
        ++hits;
      }
      slot.key = random() % kKeys;
      slot.op.kind = random() % 3 == 0 ? PageOp::Kind::put : PageOp::Kind::get;
      slot.op.key = key_of(slot.key);
      slot.op.data = slot.page.data();
      slot.op.capacity = 8192;
      slot.op.context = &slot;
      slot.op.on_released = [](PageOp& op) { static_cast<Slot*>(op.context)->busy = false; };
      if (slot.op.kind == PageOp::Kind::put) {
        const std::uint64_t version = random();
        auto page = content(slot.key, version, kBytes);
        std::memcpy(page.data(), &version, 8);
        std::memcpy(slot.page.data(), page.data(), kBytes);
        slot.op.length = kBytes;
      }
      slot.busy = true;
      (*session)->submit(store, slot.op);
    }
    loop.run_once();
  }
  for (Slot& slot : slots) {
    while (slot.busy) loop.run_once();
  }
}

TEST(ThreadsTest, ReadersSeeWholePagesUnderEvictionAndReset) {
  EmbeddedPool::CreateOptions make;
  make.volume.name = "pages";
  make.volume.value_bytes_max = 64 << 10;
  auto pool = EmbeddedPool::open("mem:12MiB?zone_size=1MiB", make);
  ASSERT_TRUE(pool.ok()) << pool.status().describe();
  PageStore& store = *(*pool)->pool().find("pages");
  std::atomic<bool> end{false};
  std::atomic<std::uint64_t> wrong{0}, hits{0};
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 1; i <= 2; ++i) {
      threads.emplace_back([&, i] { client((*pool)->pool(), store, i, end, wrong, hits); });
    }
    // Until zones have been turned over many times.
    for (int i = 0; i < 600 && store.stats().zones_reset < 60; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    end = true;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GE(store.stats().zones_reset, 60u);
  EXPECT_GT(hits, 1000u);
  EXPECT_EQ(store.stats().corrupt_pages, 0u);
  EXPECT_LE(store.usage().zones, store.usage().quota_zones);
}

// Sessions that go on with a volume that is being deleted: each operation is answered, with a whole
// page or an error, also when its zones are another volume's meanwhile.
TEST(ThreadsTest, AVolumeIsDeletedUnderItsReaders) {
  for (std::uint64_t round = 1; round <= 5; ++round) {
    Rig rig("mem:16MiB?zone_size=1MiB");
    VolumeOptions options;
    options.name = "pages";
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig.make(options));
    PageStore& doomed = *rig.store;
    std::atomic<bool> end{false};
    std::atomic<unsigned> running{2};
    std::atomic<std::uint64_t> wrong{0}, hits{0};
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 1; i <= 2; ++i) {
      threads.emplace_back([&, i] {
        client(*rig.pool, doomed, round * 10 + i, end, wrong, hits);
        --running;
      });
    }
    while (hits < 200) rig.loop.run_once();
    Status deleted(Code::busy, Origin::engine);
    for (std::uint64_t turn = 0; turn < 10'000'000 && deleted.code() == Code::busy; ++turn) {
      rig.loop.run_once();
      deleted = rig.pool->delete_volume("pages");
    }
    EXPECT_TRUE(deleted.ok()) << deleted.describe();
    EXPECT_EQ(doomed.usage().pages, 0u);
    EXPECT_EQ(rig.get(1).status().code(), Code::not_found);
    EXPECT_EQ(rig.put(1, 1, 100).code(), Code::not_found);
    rig.return_zones();
    const auto next = rig.pool->create_volume(options);
    EXPECT_TRUE(next.ok()) << next.status().describe();
    if (next.ok()) {
      rig.store = *next;
      for (std::uint64_t i = 0; i < 500; ++i) EXPECT_TRUE(rig.put(i, 1, 20000).ok());
      EXPECT_EQ(*rig.get(499), content(499, 1, 20000));
    }
    end = true;
    while (running != 0) rig.loop.run_once();
    threads.clear();
    EXPECT_EQ(wrong, 0u);
  }
}

}  // namespace
}  // namespace furrow::testing
