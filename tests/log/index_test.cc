// Establishes that the index holds exactly what was put in: random operations beside a plain
// multimap, through growing, shrinking, splitting, merging and bulk loading; a walk in listing
// order gives each entry once whatever happens meanwhile; readers in threads never miss an entry
// that stays and never see half of one (each entry's checksum follows from its position); and its
// DRAM stays within 15 bytes an entry at any size from a million on.
#include "log/index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/log/test_seed.h"

namespace furrow {
namespace {

#if defined(FURROW_SANITIZED)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 31) * 0x7fb5d329728ea185;
  x = (x ^ x >> 27) * 0x81dadef4bc2dd44d;
  return x ^ x >> 33;
}

std::uint32_t same_length = 0;  // of all pages of the test's index; 0: they differ

// Everything of an entry follows from its LBA, so that a torn one shows.
IndexEntry entry_at(std::uint64_t lba) {
  const std::uint64_t bits = mix(lba);
  if (same_length != 0) {
    return {lba, same_length, static_cast<std::uint32_t>(bits >> 32), false, false};
  }
  return {lba, static_cast<std::uint32_t>(bits % (1u << 22)) + 1,
          static_cast<std::uint32_t>(bits >> 32), (bits >> 22 & 1) != 0, (bits >> 23 & 1) != 0};
}

std::vector<IndexEntry> candidates(const Index& index, std::uint64_t order) {
  std::vector<IndexEntry> found(2);
  unsigned count = index.find(order, 0, found);
  found.resize(std::max(count, 2u));
  if (count > 2) count = 2 + index.find(order, 2, std::span(found).subspan(2));
  found.resize(count);
  return found;
}

bool contains(const Index& index, std::uint64_t order, const IndexEntry& entry) {
  return std::ranges::count(candidates(index, order), entry) == 1;
}

// All LBAs by a walk in listing order; each must come once.
std::set<std::uint64_t> walk(const Index& index) {
  std::set<std::uint64_t> lbas;
  std::vector<IndexEntry> entries;
  std::uint64_t from = 0;
  do {
    const std::uint64_t next = index.bucket_entries(from, entries);
    EXPECT_TRUE(next == 0 || next > from);
    for (const IndexEntry& entry : entries) EXPECT_TRUE(lbas.insert(entry.lba).second);
    from = next;
  } while (from != 0);
  return lbas;
}

// Of entries in all their bits, and of such as differ in LBA and checksum alone.
class IndexShapes : public testing::TestWithParam<std::uint32_t> {
 protected:
  IndexShapes() { same_length = GetParam(); }
  ~IndexShapes() override { same_length = 0; }
};
INSTANTIATE_TEST_SUITE_P(Lengths, IndexShapes, testing::Values(0u, 4096u));

TEST(IndexTest, EntryKeepsItsExtremes) {
  Index index(1000);
  const IndexEntry low{0, 1, 0, false, false};
  const IndexEntry high{(std::uint64_t{1} << 40) - 1, 1u << 22, ~0u, true, true};
  index.insert(0, low);
  index.insert(~std::uint64_t{0}, high);
  EXPECT_EQ(candidates(index, 0), std::vector{low});
  EXPECT_EQ(candidates(index, ~std::uint64_t{0}), std::vector{high});
  EXPECT_FALSE(index.erase(0, 1));
  EXPECT_FALSE(index.replace(1, high.lba, low));
  EXPECT_TRUE(index.erase(0, 0));
  EXPECT_TRUE(candidates(index, 0).empty());
  EXPECT_EQ(index.size(), 1u);
}

TEST(IndexTest, SameHashKeepsAllCandidates) {
  Index index(1000);
  for (std::uint64_t lba = 0; lba < 9; ++lba) index.insert(77, entry_at(lba));
  EXPECT_EQ(candidates(index, 77).size(), 9u);
  EXPECT_EQ(index.find(77, 9, {}), 0u);
  EXPECT_EQ(index.find(77, 12, {}), 0u);
  EXPECT_TRUE(index.erase(77, 4));
  const auto left = candidates(index, 77);
  EXPECT_EQ(left.size(), 8u);
  EXPECT_EQ(std::ranges::count(left, entry_at(4)), 0);
}

// Random inserts, erases and replaces, in phases that grow and phases that shrink.
TEST_P(IndexShapes, AgainstMultimap) {
  for (const std::uint64_t entries_max : {std::uint64_t{1}, std::uint64_t{1} << 24}) {
    std::mt19937_64 random(test_seed());
    Index index(entries_max, {same_length, 0});
    std::multimap<std::uint64_t, std::uint64_t> oracle;
    std::vector<std::uint64_t> orders;
    std::uint64_t next_lba = 0;
    const int operations = kSlow ? 30'000 : 400'000;
    for (int i = 0; i < operations; ++i) {
      const bool growing = i / (operations / 5) % 2 == 0;
      const std::uint64_t order =
          !orders.empty() && random() % 8 == 0 ? orders[random() % orders.size()] : random();
      const bool insert = random() % 100 < (growing ? 75u : 20u);
      if (insert) {
        index.insert(order, entry_at(next_lba));
        oracle.emplace(order, next_lba++);
        orders.push_back(order);
      } else if (!oracle.empty()) {
        auto victim = oracle.lower_bound(order);
        if (victim == oracle.end()) victim = oracle.begin();
        if (random() % 4 == 0) {
          ASSERT_TRUE(index.replace(victim->first, victim->second, entry_at(next_lba)));
          victim->second = next_lba++;
        } else {
          ASSERT_TRUE(index.erase(victim->first, victim->second));
          oracle.erase(victim);
        }
      }
      ASSERT_EQ(index.size(), oracle.size());
      const auto probe = oracle.lower_bound(random());
      if (probe != oracle.end()) {
        ASSERT_TRUE(contains(index, probe->first, entry_at(probe->second)));
      }
    }
    for (const auto& [order, lba] : oracle) ASSERT_TRUE(contains(index, order, entry_at(lba)));
    EXPECT_EQ(walk(index).size(), oracle.size());
    while (!oracle.empty()) {
      ASSERT_TRUE(index.erase(oracle.begin()->first, oracle.begin()->second));
      oracle.erase(oracle.begin());
    }
    EXPECT_EQ(index.size(), 0u);
    EXPECT_TRUE(walk(index).empty());
  }
}

TEST(IndexTest, FalseCandidatesAreRare) {
  std::mt19937_64 random(test_seed());
  constexpr std::uint64_t kEntries = 200'000;
  Index index(kEntries);
  for (std::uint64_t i = 0; i < kEntries; ++i) index.insert(random(), entry_at(i));
  std::uint64_t strangers = 0;
  for (int i = 0; i < 100'000; ++i) strangers += index.find(random(), 0, {});
  EXPECT_LT(strangers, 100'000 / 50u);
}

// Keys that were picked to list next to each other must not break anything, only cost.
TEST(IndexTest, CrowdedRange) {
  std::mt19937_64 random(test_seed());
  Index index(1 << 20);
  std::vector<std::uint64_t> orders;
  for (std::uint64_t i = 0; i < (kSlow ? 5'000u : 10'000u); ++i) {
    orders.push_back(random() >> 14);
    index.insert(orders.back(), entry_at(i));
  }
  for (std::uint64_t i = 0; i < orders.size(); ++i) {
    ASSERT_TRUE(contains(index, orders[i], entry_at(i)));
  }
  EXPECT_EQ(walk(index).size(), orders.size());
  for (std::uint64_t i = 0; i < orders.size(); ++i) ASSERT_TRUE(index.erase(orders[i], i));
  EXPECT_EQ(index.size(), 0u);
}

// The entries that stay come once each, while others come and go in bulk between the steps.
TEST(IndexTest, WalkWhileSplittingAndMerging) {
  std::mt19937_64 random(test_seed());
  Index index(1 << 20);
  constexpr std::uint64_t kStaying = 20'000;
  for (std::uint64_t i = 0; i < kStaying; ++i) index.insert(random(), entry_at(i));
  std::vector<std::pair<std::uint64_t, std::uint64_t>> passing;
  std::uint64_t next_lba = kStaying, from = 0;
  std::vector<std::uint64_t> seen(kStaying);
  std::vector<IndexEntry> entries;
  for (unsigned step = 0;; ++step) {
    from = index.bucket_entries(from, entries);
    for (const IndexEntry& entry : entries) {
      if (entry.lba < kStaying) ++seen[entry.lba];
    }
    if (from == 0) break;
    for (int i = 0; i < 600; ++i) {
      if (step / 100 % 2 == 0) {
        passing.emplace_back(random(), next_lba);
        index.insert(passing.back().first, entry_at(next_lba++));
      } else if (!passing.empty()) {
        ASSERT_TRUE(index.erase(passing.back().first, passing.back().second));
        passing.pop_back();
      }
    }
  }
  EXPECT_EQ(std::ranges::count(seen, 1u), static_cast<std::ptrdiff_t>(kStaying));
}

TEST(IndexTest, ErasesWhatAPredicateNames) {
  constexpr std::uint64_t kEntries = 200'000, kBegin = 50'000, kEnd = 190'000;
  Index index(kEntries);
  for (std::uint64_t lba = 0; lba < kEntries; ++lba) index.insert(mix(~lba), entry_at(lba));
  std::vector<IndexEntry> erased;
  std::uint64_t from = 0;
  do {
    from = index.erase_in_bucket(
        from, [](const IndexEntry& entry) { return entry.lba >= kBegin && entry.lba < kEnd; },
        erased);
  } while (from != 0);
  EXPECT_EQ(erased.size(), kEnd - kBegin);
  std::set<std::uint64_t> lbas;
  for (const IndexEntry& entry : erased) {
    EXPECT_EQ(entry, entry_at(entry.lba));
    EXPECT_TRUE(lbas.insert(entry.lba).second);
  }
  EXPECT_EQ(index.size(), kEntries - (kEnd - kBegin));
  for (std::uint64_t lba = 0; lba < kEntries; ++lba) {
    ASSERT_EQ(contains(index, mix(~lba), entry_at(lba)), lba < kBegin || lba >= kEnd) << lba;
  }
}

TEST(IndexTest, BulkLoadEqualsInserts) {
  std::mt19937_64 random(test_seed());
  for (const std::uint64_t count : {0u, 1u, 1000u, kSlow ? 50'000u : 300'000u}) {
    std::vector<Index::Loaded> records;
    for (std::uint64_t i = 0; i < count; ++i) records.push_back({random(), entry_at(i)});
    std::ranges::sort(records, {}, &Index::Loaded::order);
    Index index(100'000);
    index.load(records);
    EXPECT_EQ(index.size(), count);
    for (const auto& record : records) ASSERT_TRUE(contains(index, record.order, record.entry));
    EXPECT_EQ(walk(index).size(), count);
    for (const auto& record : records) ASSERT_TRUE(index.erase(record.order, record.entry.lba));
    EXPECT_EQ(index.size(), 0u);
  }
}

// Three readers, one owner. Readers check that entries that stay are always found, whole, and that
// the whole walk gives each of them once.
TEST_P(IndexShapes, ReadersBesideTheOwner) {
  std::mt19937_64 random(test_seed());
  constexpr std::uint64_t kStaying = 3'000;
  Index index(1 << 20, {same_length, 0});
  std::vector<std::uint64_t> staying(kStaying);
  // The LBA of staying entry i is i + kStaying * n, n growing with each replace.
  std::vector<std::uint64_t> lba_of(kStaying);
  for (std::uint64_t i = 0; i < kStaying; ++i) {
    staying[i] = random();
    index.insert(staying[i], entry_at(lba_of[i] = i));
  }
  constexpr std::uint64_t kPassingLbas = std::uint64_t{1} << 39;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> finds{0}, walks{0};

  const auto finder = [&](std::uint64_t seed) {
    std::mt19937_64 pick(seed);
    while (!stop.load()) {
      const std::uint64_t i = pick() % kStaying;
      IndexEntry found[8];
      const unsigned count = std::min(index.find(staying[i], 0, found), 8u);
      bool present = false;
      for (unsigned c = 0; c < count; ++c) {
        ASSERT_EQ(found[c], entry_at(found[c].lba)) << "torn";
        present |= found[c].lba < kPassingLbas && found[c].lba % kStaying == i;
      }
      ASSERT_TRUE(present);
      finds.fetch_add(1);
    }
  };
  const auto walker = [&] {
    std::vector<IndexEntry> entries;
    while (!stop.load()) {
      std::vector<unsigned> seen(kStaying);
      std::uint64_t from = 0;
      do {
        from = index.bucket_entries(from, entries);
        for (const IndexEntry& entry : entries) {
          ASSERT_EQ(entry, entry_at(entry.lba)) << "torn";
          if (entry.lba < kPassingLbas) ++seen[entry.lba % kStaying];
        }
      } while (from != 0);
      ASSERT_EQ(std::ranges::count(seen, 1u), static_cast<std::ptrdiff_t>(kStaying));
      walks.fetch_add(1);
    }
  };
  std::thread threads[] = {std::thread(finder, 1), std::thread(finder, 2), std::thread(walker)};

  std::vector<std::pair<std::uint64_t, std::uint64_t>> passing;
  std::uint64_t next_lba = kPassingLbas;
  const int operations = kSlow ? 30'000 : 2'000'000;
  for (int i = 0; i < operations || finds.load() < 1000 || walks.load() < 3; ++i) {
    const bool growing = i / (operations / 6) % 2 == 0;
    if (i % 3 == 0) {
      const std::uint64_t which = random() % kStaying;
      ASSERT_TRUE(index.replace(staying[which], lba_of[which], entry_at(lba_of[which] + kStaying)));
      lba_of[which] += kStaying;
    } else if (random() % 100 < (growing ? 90u : 10u)) {
      passing.emplace_back(random(), next_lba);
      index.insert(passing.back().first, entry_at(next_lba++));
    } else if (!passing.empty()) {
      std::swap(passing[random() % passing.size()], passing.back());
      ASSERT_TRUE(index.erase(passing.back().first, passing.back().second));
      passing.pop_back();
    }
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(index.size(), kStaying + passing.size());
}

TEST_P(IndexShapes, IsEmptyAtOnceForReaders) {
  std::mt19937_64 random(test_seed());
  Index index(1 << 20, {same_length, 0});
  std::vector<std::uint64_t> orders(kSlow ? 20'000 : 200'000);
  for (std::uint64_t& order : orders) {
    order = random();
    index.insert(order, entry_at(&order - orders.data()));
  }
  std::atomic<std::uint64_t> finds{0};
  const auto finder = [&](std::uint64_t seed) {
    std::mt19937_64 pick(seed);
    std::vector<IndexEntry> entries;
    for (unsigned misses = 0; misses < 100;) {
      const std::uint64_t i = pick() % orders.size();
      const std::vector<IndexEntry> found = candidates(index, orders[i]);
      for (const IndexEntry& entry : found) ASSERT_EQ(entry, entry_at(entry.lba)) << "torn";
      (void)index.bucket_entries(orders[i], entries);
      for (const IndexEntry& entry : entries) ASSERT_EQ(entry, entry_at(entry.lba)) << "torn";
      misses = found.empty() ? misses + 1 : 0;
      finds.fetch_add(1);
    }
  };
  std::thread threads[] = {std::thread(finder, 1), std::thread(finder, 2)};
  while (finds.load() < 1000) std::this_thread::yield();
  index.clear();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(index.size(), 0u);
  EXPECT_LT(index.bytes(), 4096u);
  for (const std::uint64_t order : orders) ASSERT_TRUE(candidates(index, order).empty());
}

class IndexBudgetTest : public testing::Test {
 protected:
  static constexpr double kBytesPerEntryMax = 15.0;
  void check(const char* when) const {
    const double per_entry =
        static_cast<double>(index_.bytes()) / static_cast<double>(index_.size());
    EXPECT_LE(per_entry, kBytesPerEntryMax) << when << ", " << index_.size() << " entries";
    worst_ = std::max(worst_, per_entry);
  }
  void grow_to(std::uint64_t entries) {
    while (orders_.size() < entries) {
      orders_.push_back(random_());
      index_.insert(orders_.back(), entry_at(orders_.size() - 1));
    }
  }
  void churn(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
      const std::uint64_t which = random_() % orders_.size();
      ASSERT_TRUE(index_.erase(orders_[which], which));
      orders_[which] = random_();
      index_.insert(orders_[which], entry_at(which));
    }
  }
  void shrink_to(std::uint64_t entries) {
    while (orders_.size() > entries) {
      ASSERT_TRUE(index_.erase(orders_.back(), orders_.size() - 1));
      orders_.pop_back();
    }
  }

  std::mt19937_64 random_{test_seed()};
  Index index_{2'000'000};
  std::vector<std::uint64_t> orders_;
  mutable double worst_ = 0;
};

TEST_F(IndexBudgetTest, AtAnySize) {
  if (kSlow) GTEST_SKIP() << "says nothing new under a sanitizer, and takes a minute";
  // Buckets split one after the other: twice as many entries are where it began, one level on.
  const std::uint64_t unit = 1'000'000;
  const std::uint64_t most = 2 * unit;
  for (std::uint64_t entries = unit; entries <= most; entries += unit / 8) {
    grow_to(entries);
    check("growing");
    churn(unit / 8);
    check("after churn");
  }
  for (std::uint64_t entries = most; entries >= unit; entries -= unit / 8) {
    shrink_to(entries);
    check("shrinking");
    churn(unit / 8);
    check("shrinking, after churn");
  }
  std::cout << "most bytes an entry: " << worst_ << std::endl;
}

TEST_F(IndexBudgetTest, BulkLoaded) {
  if (kSlow) GTEST_SKIP() << "says nothing new under a sanitizer, and takes half a minute";
  for (const std::uint64_t entries : {1'000'000u, 1'370'000u, 2'000'000u}) {
    std::vector<Index::Loaded> records(entries);
    for (std::uint64_t i = 0; i < entries; ++i) records[i] = {random_(), entry_at(i)};
    std::ranges::sort(records, {}, &Index::Loaded::order);
    Index index(entries);
    index.load(records);
    EXPECT_LE(static_cast<double>(index.bytes()) / static_cast<double>(entries), kBytesPerEntryMax);
  }
}

// A block volume's map: at most 12 bytes a block.
TEST(IndexTest, PagesOfOneLengthTakeLess) {
  if (kSlow) GTEST_SKIP() << "says nothing new under a sanitizer, and takes long";
  std::mt19937_64 random(test_seed());
  Index index(4'000'000, {4096, 28});
  for (std::uint64_t entries = 1; entries <= 2'000'000; ++entries) {
    index.insert(random(), {entries, 4096, 7, false, false});
    if (entries % 100'000 != 0 || entries < 300'000) continue;
    EXPECT_LE(static_cast<double>(index.bytes()) / static_cast<double>(entries), 12.0) << entries;
  }
}

// No two orders are equal in the first 20 bits: never another key's entry, also before any split.
TEST(IndexTest, OrdersOfFewBitsNeverMeet) {
  Index index(1000, {4096, 20});
  for (std::uint64_t i = 0; i < 1 << 20; i += 5) index.insert(i << 44, {i, 4096, 0, false, false});
  for (std::uint64_t i = 0; i < 1 << 20; ++i) {
    ASSERT_EQ(candidates(index, i << 44).size(), i % 5 == 0 ? 1u : 0u) << i;
  }
}

// An index that began small takes all that it was to have room for.
TEST(IndexTest, GrowsToTheLimitThatItWasGiven) {
  const std::uint64_t entries = kSlow ? 40'000 : 400'000;
  Index index(1000, {.entries_limit = entries});
  for (std::uint64_t i = 0; i < entries; ++i) index.insert(mix(i), {i, 4096, 7, false, false});
  EXPECT_EQ(index.size(), entries);
  for (std::uint64_t i = 0; i < entries; i += 7) {
    std::array<IndexEntry, 64> found;
    const unsigned count = index.find(mix(i), 0, found);
    ASSERT_TRUE(std::ranges::any_of(std::span(found).first(std::min(count, 64u)),
                                    [i](const IndexEntry& entry) { return entry.lba == i; }));
  }
}

// What bytes() says is what the kernel says: nothing of note is left out.
TEST_F(IndexBudgetTest, BytesAreTheKernelsToo) {
  if (kSlow) GTEST_SKIP() << "sanitizers take memory of their own";
  const auto resident = [] {
    std::uint64_t pages = 0, ignored = 0;
    FILE* file = std::fopen("/proc/self/statm", "r");
    EXPECT_EQ(std::fscanf(file, "%lu %lu", &ignored, &pages), 2);
    std::fclose(file);
    return pages * 4096;
  };
  orders_.reserve(1'500'000);
  std::fill_n(std::back_inserter(orders_), 1'500'000, 1);  // touch it now
  orders_.clear();
  const std::uint64_t before = resident(), counted = index_.bytes();
  grow_to(1'500'000);
  shrink_to(1'000'000);
  churn(250'000);
  const double used = static_cast<double>(resident() - before);
  EXPECT_NEAR(used / static_cast<double>(index_.bytes() - counted), 1.0, 0.02);
}

}  // namespace
}  // namespace furrow
