// Establishes that a grace period ends only after every reader that had entered before it began has
// left, with readers entering and leaving on other threads. Meant to run under TSan too.
#include "alloc/epoch.h"

#include <gtest/gtest.h>

#include <thread>

namespace furrow {
namespace {

TEST(EpochTest, WaitsForThoseBefore) {
  Epoch epoch;
  Epoch::Reader& reader = epoch.add();
  const unsigned before = reader.enter();
  epoch.begin_grace();
  EXPECT_FALSE(epoch.grace_over());
  const unsigned after = reader.enter();
  EXPECT_NE(before, after);
  reader.leave(before);
  EXPECT_TRUE(epoch.grace_over()) << "a reader that came later does not hold it up";
  epoch.begin_grace();
  EXPECT_FALSE(epoch.grace_over());
  reader.leave(after);
  EXPECT_TRUE(epoch.grace_over());
  epoch.remove(reader);
}

// A "zone" is a plain (non-atomic) word that the owner overwrites only after a grace period; a
// reader that saw it published must still find it whole. A protocol error is a data race or a
// wrong value.
TEST(EpochTest, NothingIsReusedUnderAReader) {
  constexpr int kZones = 8;
  constexpr int kRounds = 3000;
  Epoch epoch;
  std::array<std::uint64_t, kZones> zones{};
  std::array<std::atomic<std::uint64_t>, kZones> published{};  // 0: not to be read
  std::atomic<bool> end{false};
  std::atomic<std::uint64_t> wrong{0}, read{0};
  std::vector<std::jthread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&, t] {
      Epoch::Reader& reader = epoch.add();
      for (std::uint64_t i = t; !end.load(std::memory_order_relaxed); ++i) {
        const unsigned side = reader.enter();
        const std::uint64_t expected = published[i % kZones].load(std::memory_order_acquire);
        if (expected != 0) {
          wrong += zones[i % kZones] != expected;
          ++read;
        }
        reader.leave(side);
      }
      epoch.remove(reader);
    });
  }
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    const std::size_t zone = round % kZones;
    published[zone].store(0);
    epoch.begin_grace();
    while (!epoch.grace_over()) std::this_thread::yield();
    zones[zone] = round;
    published[zone].store(round, std::memory_order_release);
  }
  while (read == 0) std::this_thread::yield();
  end = true;
  readers.clear();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace furrow
