// Establishes what a reactor's page buffers promise: sizes and counts, memory that does not
// overlap, a larger buffer where the wanted size is used up, and the shares of connections, hosts
// and addresses, which all come back. How: the pool alone; random takes and gives beside a count.
#include "transport/buffer_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace furrow::transport {
namespace {

using Held = BufferPool::Held;

constexpr std::uint32_t kTransfer = 1 << 20;

TEST(BufferPool, SizesFollowTheTransferAndTheBytes) {
  const BufferPool pool(64 << 20, kTransfer);
  EXPECT_EQ(pool.bytes_max(), kTransfer + BufferPool::kLargeExtraBytes);
  EXPECT_EQ(pool.class_of(1), 0u);
  EXPECT_EQ(pool.class_of(BufferPool::kSmallBytes), 0u);
  EXPECT_EQ(pool.class_of(BufferPool::kSmallBytes + 1), 1u);
  EXPECT_EQ(pool.class_of(BufferPool::kMediumBytes + 1), 2u);
  EXPECT_EQ(pool.class_of(pool.bytes_max()), 2u);
  // A transfer that is small does not make the large ones smaller than the medium ones.
  EXPECT_GT(BufferPool(0, 4096).bytes_max(), BufferPool::kMediumBytes);
}

TEST(BufferPool, ThereAreSomeOfEachHoweverLittleIsGiven) {
  BufferPool pool(0, kTransfer);
  for (unsigned size = 0; size < BufferPool::kClasses; ++size) {
    for (unsigned i = 0; i < BufferPool::kBuffersMin; ++i) {
      EXPECT_NE(pool.take(size, {}).data, nullptr);
    }
  }
  EXPECT_EQ(pool.take(0, {}).data, nullptr) << "all are taken";
  EXPECT_EQ(pool.slab().iov_len % 4096, 0u);
}

TEST(BufferPool, ALargerOneServesWhereTheSizeIsUsedUp) {
  BufferPool pool(0, kTransfer);
  for (const std::uint32_t bytes : {BufferPool::kSmallBytes, BufferPool::kMediumBytes,
                                    kTransfer + BufferPool::kLargeExtraBytes}) {
    for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(pool.take(0, {}).bytes, bytes);
  }
  EXPECT_FALSE(pool.all_free());
}

TEST(BufferPool, AConnectionLeavesAsMuchAsItHas) {
  BufferPool pool(64 << 20, kTransfer);
  Held greedy{}, modest{};
  unsigned taken = 0;
  while (pool.take(2, {&greedy, nullptr, nullptr}).data != nullptr) ++taken;
  EXPECT_EQ(taken, greedy[2]);
  EXPECT_EQ(taken, 15u) << "half of thirty";
  unsigned left = 0;
  while (pool.take(2, {&modest, nullptr, nullptr}).data != nullptr) ++left;
  EXPECT_EQ(left, 8u);
}

TEST(BufferPool, HostsAndAddressesLeaveAReserve) {
  BufferPool pool(64 << 20, kTransfer);
  Held host{}, address{}, other_host{}, other_address{};
  // Each connection of the host holds one at least, until its reserve is reached.
  std::vector<Held> connections(40);
  unsigned taken = 0;
  for (Held& connection : connections) {
    while (pool.take(2, {&connection, &host, &address}).data != nullptr) ++taken;
  }
  EXPECT_EQ(taken, 27u) << "of thirty an eighth is left";
  EXPECT_EQ(host[2], taken);
  // Other hosts of the address go down to its reserve.
  std::vector<Held> hosts(40);
  unsigned of_address = 0;
  for (Held& its : hosts) {
    Held connection{};
    if (pool.take(2, {&connection, &its, &address}).data != nullptr) ++of_address;
  }
  EXPECT_EQ(of_address, 2u);
  Held first{}, second{};
  EXPECT_NE(pool.take(2, {&first, &other_host, &other_address}).data, nullptr);
  EXPECT_EQ(pool.take(2, {&second, &other_host, &other_address}).data, nullptr);
}

TEST(BufferPool, EveryBufferIsSomebodysAlone) {
  std::mt19937 random(20261121);
  BufferPool pool(2 << 20, 256 << 10);
  constexpr std::size_t kParties = 5;
  std::array<Held, kParties> connections{}, hosts{};
  Held address{};
  const auto holders = [&](std::size_t party) {
    return BufferPool::Holders{&connections[party], &hosts[party / 2], &address};
  };
  std::map<std::byte*, std::pair<std::uint32_t, std::size_t>> taken;  // bytes, whose
  const auto slab = pool.slab();
  auto* const begin = static_cast<std::byte*>(slab.iov_base);
  for (int i = 0; i < 20000; ++i) {
    const std::size_t party = random() % kParties;
    if (random() % 2 == 0 && !taken.empty()) {
      auto victim = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      pool.give(victim->first, holders(victim->second.second));
      taken.erase(victim);
      continue;
    }
    const auto buffer = pool.take(random() % BufferPool::kClasses, holders(party));
    if (buffer.data == nullptr) continue;
    ASSERT_GE(buffer.data, begin);
    ASSERT_LE(buffer.data + buffer.bytes, begin + slab.iov_len);
    const auto [at, fresh] = taken.emplace(buffer.data, std::pair{buffer.bytes, party});
    ASSERT_TRUE(fresh) << "given twice";
    if (at != taken.begin()) {
      const auto before = std::prev(at);
      ASSERT_LE(before->first + before->second.first, at->first);
    }
    if (const auto after = std::next(at); after != taken.end()) {
      ASSERT_LE(at->first + at->second.first, after->first);
    }
  }
  for (const auto& [data, its] : taken) pool.give(data, holders(its.second));
  EXPECT_TRUE(pool.all_free());
  for (unsigned size = 0; size < BufferPool::kClasses; ++size) {
    EXPECT_EQ(address[size], 0u);
    for (const Held& held : connections) EXPECT_EQ(held[size], 0u);
    for (const Held& held : hosts) EXPECT_EQ(held[size], 0u);
  }
}

}  // namespace
}  // namespace furrow::transport
