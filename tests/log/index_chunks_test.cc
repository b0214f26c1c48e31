// Establishes that a Chunk keeps its entries in all their bits, apart from each other, and finds
// tags wherever they stand; that ChunkStore gives chunks that do not overlap, moves the last one of
// a class into a hole and says so, takes memory in proportion to what is in use and gives it back,
// and refuses what was not promised. How: a model of what each chunk should hold, random
// allocations, frees and contents.
#include "log/index_chunks.h"

#include <gtest/gtest.h>

#include <map>
#include <new>
#include <random>
#include <vector>

#include "tests/log/test_seed.h"

namespace furrow {
namespace {

TEST(ChunkTest, KeepsEveryBitOfEachEntry) {
  std::mt19937_64 random(test_seed());
  for (const unsigned k : {1u, 2u, 7u, 40u}) {
    std::vector<std::uint64_t> memory(Chunk::words(k) + 2, 0x5555555555555555);
    Chunk chunk(memory.data() + 1, k);
    std::vector<ChunkEntry> entries(k * Chunk::kEntriesPerClass);
    chunk.set_bucket(0xfedcba98);
    for (unsigned round = 0; round < 3; ++round) {
      for (unsigned i = 0; i < entries.size(); ++i) {
        entries[i] = {static_cast<std::uint16_t>(random()), random(),
                      static_cast<std::uint32_t>(random())};
        if (round == 0) entries[i] = {0xffff, ~std::uint64_t{0}, 0xffffffff};
        chunk.set(i, entries[i]);
      }
      for (unsigned i = 0; i < entries.size(); ++i) {
        EXPECT_EQ(chunk.tag(i), entries[i].tag);
        EXPECT_EQ(chunk.position(i), entries[i].position);
        EXPECT_EQ(chunk.checksum(i), entries[i].checksum);
      }
      chunk.set_place(2, 77, 88);
      EXPECT_EQ(chunk.tag(2), entries[2].tag) << "the place changes, the tag does not";
      EXPECT_EQ(chunk.entry(2).position, 77u);
      EXPECT_EQ(chunk.entry(3).checksum, entries[3].checksum);
    }
    EXPECT_EQ(chunk.bucket(), 0xfedcba98);
    EXPECT_EQ(memory.front(), 0x5555555555555555u);
    EXPECT_EQ(memory.back(), 0x5555555555555555u);
  }
}

TEST(ChunkTest, KeepsLbaAndChecksumWhereTheRestIsTheSame) {
  std::mt19937_64 random(test_seed());
  constexpr std::uint64_t kSame = std::uint64_t{4095} << 40, kLbaMask = (1ull << 40) - 1;
  for (const unsigned k : {1u, 2u, 3u, 7u, 40u}) {
    std::vector<std::uint64_t> memory(Chunk::words(k, true) + 2, 0x5555555555555555);
    std::vector<std::uint64_t> other_memory(Chunk::words(k + 3, true));
    Chunk chunk(memory.data() + 1, k, kSame), other(other_memory.data(), k + 3, kSame);
    std::vector<ChunkEntry> entries(k * Chunk::kEntriesPerClass);
    chunk.set_bucket(0xfedcba98);
    for (unsigned i = 0; i < entries.size(); ++i) {
      entries[i] = {static_cast<std::uint16_t>(random()), kSame | (random() & kLbaMask),
                    static_cast<std::uint32_t>(random())};
      chunk.set(i, entries[i]);
    }
    other.copy_from(chunk, static_cast<unsigned>(entries.size()));
    for (const Chunk& each : {chunk, other}) {
      for (unsigned i = 0; i < entries.size(); ++i) {
        EXPECT_EQ(each.tag(i), entries[i].tag);
        EXPECT_EQ(each.position(i), entries[i].position);
        EXPECT_EQ(each.checksum(i), entries[i].checksum);
      }
    }
    chunk.copy_from(other, static_cast<unsigned>(entries.size()));  // and to a smaller one
    EXPECT_EQ(chunk.entry(3).position, entries[3].position);
    EXPECT_EQ(chunk.bucket(), 0xfedcba98);
    EXPECT_EQ(memory.front(), 0x5555555555555555u);
    EXPECT_EQ(memory.back(), 0x5555555555555555u);
  }
}

TEST(ChunkTest, ScansForATag) {
  constexpr unsigned kClass = 11;
  std::vector<std::uint64_t> memory(Chunk::words(kClass));
  Chunk chunk(memory.data(), kClass);
  // Tags beside the one looked for: all that differ from it in one bit, 0 and 0xffff.
  for (const std::uint16_t tag : {0x0000, 0x8000, 0x7fff, 0xffff, 0x0001, 0x1234}) {
    for (unsigned at = 0; at < 44; ++at) {
      for (unsigned i = 0; i < 44; ++i) {
        chunk.set(i, {static_cast<std::uint16_t>(tag ^ 1u << i % 16), i, i});
      }
      chunk.set(at, {tag, at, at});
      chunk.set(43 - at, {tag, 43 - at, 43 - at});
      for (const unsigned count : {0u, 1u, at, at + 1, 44u}) {
        std::vector<unsigned> found;
        chunk.scan(count, tag, [&](unsigned i) { found.push_back(i); });
        std::vector<unsigned> wanted;
        for (unsigned i = 0; i < count; ++i) {
          if (i == at || i == 43 - at) wanted.push_back(i);
        }
        EXPECT_EQ(found, wanted) << tag << " at " << at << " of " << count;
      }
    }
  }
}

TEST(ChunkTest, CopiesToAnotherClass) {
  std::vector<std::uint64_t> small_memory(Chunk::words(2)), large_memory(Chunk::words(5));
  Chunk small(small_memory.data(), 2), large(large_memory.data(), 5);
  for (unsigned i = 0; i < 8; ++i) small.set(i, {static_cast<std::uint16_t>(i), i * 10, i * 100});
  large.set(7, {99, 99, 99});
  large.copy_from(small, 7);
  for (unsigned i = 0; i < 7; ++i) EXPECT_EQ(large.entry(i).position, i * 10);
  for (unsigned i = 0; i < 7; ++i) EXPECT_EQ(large.checksum(i), i * 100);
  EXPECT_EQ(large.position(7), 99u);
  EXPECT_EQ(Chunk::class_of(0), 0u);
  EXPECT_EQ(Chunk::class_of(1), 1u);
  EXPECT_EQ(Chunk::class_of(4), 1u);
  EXPECT_EQ(Chunk::class_of(5), 2u);
}

class ChunkStoreTest : public testing::Test {
 protected:
  // What a chunk should hold: all its words' worth of entries, made from its number.
  struct Held {
    unsigned k;
    ChunkStore::Ref ref;
  };
  void write(std::uint32_t number) {
    const Held& held = held_.at(number);
    Chunk chunk = store_.chunk(held.ref, held.k);
    for (unsigned i = 0; i < held.k * 4; ++i) {
      chunk.set(i, {static_cast<std::uint16_t>(number + i), number * 1000ull + i, number ^ i});
    }
    chunk.set_bucket(number);
  }
  void expect_whole() {
    for (const auto& [number, held] : held_) {
      const Chunk chunk = store_.chunk(held.ref, held.k);
      ASSERT_EQ(chunk.bucket(), number);
      for (unsigned i = 0; i < held.k * 4; ++i) {
        ASSERT_EQ(chunk.position(i), number * 1000ull + i) << number;
        ASSERT_EQ(chunk.checksum(i), number ^ i);
        ASSERT_EQ(chunk.tag(i), static_cast<std::uint16_t>(number + i));
      }
    }
  }
  void allocate(unsigned k) {
    held_[next_] = {k, store_.allocate(k)};
    write(next_++);
  }
  void free(std::uint32_t number) {
    const Held held = held_.at(number);
    held_.erase(number);
    const auto moved = store_.free(held.k, held.ref);
    if (moved) {
      ASSERT_TRUE(held_.contains(moved->bucket)) << "it moves what is in use";
      ASSERT_EQ(moved->to, held.ref) << "into the hole";
      held_.at(moved->bucket).ref = moved->to;
    }
    store_.trim(held.k);
  }

  ChunkStore store_{std::uint64_t{64} << 20};
  std::map<std::uint32_t, Held> held_;
  std::uint32_t next_ = 1;
};

TEST_F(ChunkStoreTest, ChunksDoNotOverlapWhateverComesAndGoes) {
  std::mt19937_64 random(test_seed());
  for (unsigned i = 0; i < 6000; ++i) {
    if (held_.size() < 40 || random() % 100 < 55) {
      allocate(1 + static_cast<unsigned>(random() % 30));
    } else {
      auto at = held_.lower_bound(static_cast<std::uint32_t>(random() % next_));
      ASSERT_NO_FATAL_FAILURE(free(at == held_.end() ? held_.begin()->first : at->first));
    }
    if (i % 1000 != 999) continue;
    ASSERT_NO_FATAL_FAILURE(expect_whole());
  }
}

TEST_F(ChunkStoreTest, TheLargestClassAndTheSmallest) {
  for (unsigned i = 0; i < 5; ++i) allocate(ChunkStore::kClassMax);
  for (unsigned i = 0; i < 5; ++i) allocate(1);
  expect_whole();
  ASSERT_NO_FATAL_FAILURE(free(1));
  ASSERT_NO_FATAL_FAILURE(free(10)) << "the last one leaves no hole";
  expect_whole();
}

TEST_F(ChunkStoreTest, MemoryFollowsUse) {
  const std::uint64_t empty = store_.bytes();
  constexpr unsigned kChunks = 3000;
  for (unsigned i = 0; i < kChunks; ++i) allocate(20);
  const std::uint64_t net = kChunks * Chunk::words(20) * 8;
  EXPECT_GE(store_.bytes(), empty + net);
  EXPECT_LE(store_.bytes(), empty + net + net / 8) << "little slack";
  const std::uint64_t full = store_.bytes();
  for (std::uint32_t number = 1; number <= kChunks; number += 2) {
    ASSERT_NO_FATAL_FAILURE(free(number));
  }
  EXPECT_LE(store_.bytes(), empty + net / 2 + net / 8);
  expect_whole();
  while (!held_.empty()) ASSERT_NO_FATAL_FAILURE(free(held_.begin()->first));
  EXPECT_LT(store_.bytes(), empty + (16 << 10));
  for (unsigned i = 0; i < kChunks; ++i) allocate(20);
  EXPECT_LE(store_.bytes(), full + 4096) << "what was given back is used again";
  expect_whole();
}

TEST_F(ChunkStoreTest, RefusesMoreThanWasPromised) {
  ChunkStore tiny(1);
  std::uint64_t taken = 0;
  EXPECT_THROW(for (;; ++taken) tiny.allocate(ChunkStore::kClassMax), std::bad_alloc);
  EXPECT_GE(taken, 512u) << "each class may hold an extent that is hardly used";
}

}  // namespace
}  // namespace furrow
