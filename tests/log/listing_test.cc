// Establishes that a listing gives every key that is there once, in listing order, whatever the
// number asked for at a time and wherever the keys lie; that absent and expired ones are left out;
// that a damaged batch header costs its own keys and a failing read is told; and that what changes
// meanwhile does no harm to the rest. How: against a sorted map of the keys' hashes.
#include "log/listing.h"

#include <map>

#include "tests/log/page_log_rig.h"

namespace furrow {
namespace {

class ListingTest : public PageLogRig {
 protected:
  void SetUp() override {
    Shape shape;
    shape.zones = 14;
    shape.quota = 10;
    make_log(shape, false);
  }
  void add(std::uint64_t number) {
    ASSERT_TRUE(put(number, 0, 40).ok());
    present_[log_->hash(key_number(number))] = key_number(number);
  }
  std::vector<Key> expected() const {
    std::vector<Key> keys;
    for (const auto& [hash, key] : present_) keys.push_back(key);
    return keys;
  }
  std::vector<Key> list_all(std::uint32_t at_a_time) {
    std::vector<Key> all;
    for (Key after;;) {
      const std::vector<Key> some = list(after, at_a_time);
      EXPECT_LE(some.size(), at_a_time);
      all.insert(all.end(), some.begin(), some.end());
      if (some.size() < at_a_time) return all;
      after = some.back();
    }
  }
  std::map<KeyHash, Key> present_;
};

TEST_F(ListingTest, OfNothing) {
  EXPECT_TRUE(list(Key(), 10).empty());
  EXPECT_TRUE(list(key_number(3), 10).empty());
  EXPECT_TRUE(list(Key(), 0).empty());
}

TEST_F(ListingTest, EveryKeyOnceInOrderHoweverManyAtATime) {
  for (std::uint64_t n = 0; n < 300; ++n) {
    EXPECT_TRUE((n != 1 && n != 2 && n != 40) || list_all(7) == expected());
    add(n);
  }
  for (const std::uint32_t at_a_time : {1u, 2u, 7u, 299u, 300u, 301u, 1000u}) {
    EXPECT_TRUE(list_all(at_a_time) == expected()) << at_a_time;
  }
  EXPECT_TRUE(list(Key(), 0).empty());
  EXPECT_GT(log_->stats().lists, 300u);
  for (std::uint64_t n = 0; n < 300; n += 3) {
    ASSERT_TRUE(remove(n).ok());
    present_.erase(log_->hash(key_number(n)));
  }
  EXPECT_TRUE(list_all(50) == expected());
  reopen();
  EXPECT_TRUE(list_all(50) == expected());
}

TEST_F(ListingTest, GoesOnBehindAKeyThatIsNotThere) {
  for (std::uint64_t n = 0; n < 60; ++n) add(n);
  for (std::uint64_t n = 100; n < 120; ++n) {
    const KeyHash after = log_->hash(key_number(n));
    std::vector<Key> rest;
    for (auto at = present_.upper_bound(after); at != present_.end(); ++at) {
      rest.push_back(at->second);
    }
    EXPECT_TRUE(list(key_number(n), 1000) == rest) << n;
  }
}

TEST_F(ListingTest, ExpiredKeysAreLeftOut) {
  const auto soon = static_cast<std::uint32_t>(executor_.wall_s() + 10);
  for (std::uint64_t n = 0; n < 20; ++n) add(n);
  for (std::uint64_t n = 20; n < 40; ++n) {
    ASSERT_TRUE(put(n, 0, 40, {.expires_s = soon}).ok());
  }
  EXPECT_EQ(list(Key(), 100).size(), 40u);
  clock_.now_ns += 11'000'000'000;
  EXPECT_TRUE(list_all(9) == expected());
}

TEST_F(ListingTest, ADamagedHeaderCostsItsOwnKeys) {
  for (std::uint64_t n = 0; n < 30; ++n) add(n);
  // A summary repeats the first one; of the last segment there is none yet.
  flip_bit(*device_, zone_of(17), pool_->relative_lba(entry(17).lba) - 1);
  EXPECT_TRUE(list_all(4) == expected());
  flip_bit(*device_, zone_of(29), pool_->relative_lba(entry(29).lba) - 1);
  present_.erase(log_->hash(key_number(29)));
  EXPECT_TRUE(list_all(4) == expected());
  EXPECT_GE(log_->stats().corrupt_pages, 1u);
}

TEST_F(ListingTest, AFailingReadIsTold) {
  for (std::uint64_t n = 0; n < 30; ++n) add(n);
  device_->fail(Io::Op::read, {Code::io_error, Origin::zone}, 10'000);
  Status status;
  list(Key(), 100, &status);
  EXPECT_EQ(status.code(), Code::io_error) << "an end that is none must not look like one";
  device_->fail(Io::Op::read, {}, 0);
  EXPECT_TRUE(list_all(100) == expected());
  EXPECT_TRUE(log_->idle());
}

// The index of a large volume begins with many buckets, and most may stay empty. Others have their
// turn while they are looked at.
TEST_F(ListingTest, EmptyBucketsAreLookedAtInTurns) {
  Shape shape;
  shape.zones = 6;
  shape.zone_size_lbas = shape.zone_capacity_lbas = shape.segment_lbas = 1 << 20;
  shape.quota = 4;
  drop_pool();
  make_log(shape, false);
  constexpr std::uint64_t kBuckets = 4 << 10;  // as the index begins, one for 1024 LBAs
  struct Count : Task {
    Executor* home = nullptr;
    std::uint64_t turns = 0;
    bool stop = false;
  } count;
  count.home = &executor_;
  count.run = [](Task& task) {
    auto& its = static_cast<Count&>(task);
    ++its.turns;
    if (!its.stop) its.home->post(its);
  };
  for (const unsigned pages : {0u, 3u}) {
    for (std::uint64_t n = 0; n < pages; ++n) add(n);
    count.turns = 0;
    count.stop = false;
    executor_.post(count);
    EXPECT_EQ(list(Key(), 100).size(), pages);
    EXPECT_GE(count.turns, kBuckets / Listing::kBucketsPerTurn);
    EXPECT_LE(count.turns, 4 * kBuckets / Listing::kBucketsPerTurn);
    count.stop = true;
    run();
    EXPECT_TRUE(list_all(2) == expected());
  }
}

// Pages move and go while a listing reads: those that stay are there, once, in order.
TEST_F(ListingTest, BesideChangesAndCollection) {
  for (std::uint64_t n = 0; n < 80; ++n) add(n);
  struct List : ListOp {
    bool done = false;
  } op;
  std::vector<Key> keys(1000);
  std::uint64_t churn = 1000;
  for (unsigned round = 0; round < 20; ++round) {
    op = List();
    op.keys = keys.data();
    op.keys_max = 1000;
    op.on_done = [](ListOp& done) { static_cast<List&>(done).done = true; };
    device_->hold(Io::Op::read);
    log_->list(op);
    for (unsigned i = 0; i < 30; ++i) {
      start_put(churn + i % 15, round * 30 + i, 900);
    }
    run();
    device_->let_go(Io::Op::read);
    ASSERT_TRUE(run([&] { return op.done; }));
    run();
    ASSERT_TRUE(op.status.ok()) << op.status.describe();
    std::vector<Key> stayed(keys.begin(), keys.begin() + op.keys_count);
    std::erase_if(stayed, [&](const Key& key) { return !present_.contains(log_->hash(key)); });
    EXPECT_TRUE(stayed == expected()) << round;
    EXPECT_TRUE(
        std::is_sorted(keys.begin(), keys.begin() + op.keys_count,
                       [&](const Key& a, const Key& b) { return log_->hash(a) < log_->hash(b); }));
  }
  EXPECT_GT(log_->stats().zones_reset, 0u);
}

}  // namespace
}  // namespace furrow
