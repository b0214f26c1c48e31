// Establishes what the pool's shared parts answer: ZoneDirectory finds the batch of a page, joins
// runs of a group, and forgets what lies behind an LBA; PoolContext converts positions. How:
// against plain containers.
#include "log/pool_context.h"

#include "tests/log/log_rig.h"

namespace furrow {
namespace {

TEST(ZoneDirectoryTest, TheBatchOfAPageIsTheLastOneBeforeIt) {
  ZoneDirectory table;
  for (const std::uint32_t lba : {1, 8, 9, 40}) table.batches.push_back(lba);
  EXPECT_EQ(table.batch_of(2), 1u);
  EXPECT_EQ(table.batch_of(8), 1u) << "a page lies behind its header";
  EXPECT_EQ(table.batch_of(9), 8u);
  EXPECT_EQ(table.batch_of(39), 9u);
  EXPECT_EQ(table.batch_of(1000), 40u);
}

TEST(ZoneDirectoryTest, GroupsAreRuns) {
  ZoneDirectory table;
  for (const std::uint32_t lba : {2, 3, 9}) table.add_group(5, lba);
  table.add_group(6, 12);
  table.add_group(5, 14);
  ASSERT_EQ(table.groups.size(), 3u);
  EXPECT_EQ(table.groups[0].first_lba, 2u);
  EXPECT_EQ(table.groups[0].last_lba, 9u);
  EXPECT_EQ(table.groups[1].group, 6u);
  EXPECT_EQ(table.groups[1].last_lba, 12u);
  EXPECT_EQ(table.groups[2].first_lba, 14u);
  EXPECT_GE(table.bytes(), 3 * sizeof(ZoneDirectory::GroupRun));
}

// Of a zone that is not written any more it is known at once that it has nothing of most others.
TEST(ZoneDirectoryTest, NoGroupThatIsThereIsMissed) {
  for (const std::uint32_t runs : {1u, 15u, 16u, 17u, 1000u}) {
    const auto group_of = [](std::uint32_t run) { return 1 + run * std::uint64_t{3}; };
    ZoneDirectory table;
    for (std::uint32_t run = 0; run < runs; ++run) {
      for (const std::uint32_t page : {0, 3}) table.add_group(group_of(run), 2 + run * 10 + page);
    }
    for (const bool compact : {false, true}) {
      if (compact) table.compact();
      for (std::uint32_t run = 0; run < runs; ++run) {
        EXPECT_TRUE(table.has_group(group_of(run))) << run;
        EXPECT_FALSE(table.has_group(group_of(run) + 1)) << run;
        for (const std::uint32_t page : {0, 3}) {
          EXPECT_EQ(table.group_of(2 + run * 10 + page), group_of(run));
        }
      }
    }
    EXPECT_EQ(table.group_of(1), 0u);
    unsigned seem = 0;
    for (std::uint64_t group = 0; group < 10'000; ++group) {
      seem += table.groups_had.may_have(1'000'000 + group) ? 1 : 0;
    }
    if (runs >= 16) {
      EXPECT_LT(seem, 200u) << runs;
      EXPECT_LE(table.groups_had.bytes(), runs * 2 + 8);
    }
    // It is gone on with after an opening; what was not written then is forgotten.
    const std::uint32_t end = 2 + runs * 10;
    table.add_group(7'000'001, end);
    EXPECT_TRUE(table.has_group(7'000'001));
    EXPECT_TRUE(table.has_group(group_of(0)));
    table.truncate(end);
    table.compact();
    EXPECT_FALSE(table.has_group(7'000'001));
    EXPECT_TRUE(table.has_group(group_of(runs - 1)));
  }
}

TEST(ZoneDirectoryTest, WhatWasNotWrittenIsForgotten) {
  for (std::uint32_t end = 1; end < 20; ++end) {
    ZoneDirectory table;
    for (const std::uint32_t lba : {1, 8, 12}) table.batches.push_back(lba);
    for (const std::uint32_t lba : {2, 3, 9}) table.add_group(5, lba);
    for (const std::uint32_t lba : {13, 15}) table.add_group(6, lba);
    table.records = table.tombstones = table.group_tombstones = table.expiring = 1;
    table.truncate(end);
    // With a batch left, what is counted is an upper bound.
    const std::uint64_t counted = end == 1 ? 0 : 1;
    EXPECT_EQ(table.records, counted);
    EXPECT_EQ(table.tombstones, counted);
    EXPECT_EQ(table.group_tombstones, counted);
    EXPECT_EQ(table.expiring, counted);
    const std::vector<std::uint32_t> batches = batches_of(table);
    for (const std::uint32_t batch : {1u, 8u, 12u}) {
      EXPECT_EQ(std::ranges::count(batches, batch), batch < end ? 1 : 0) << end;
    }
    EXPECT_EQ(table.groups.size(), (end > 2 ? 1u : 0u) + (end > 13 ? 1u : 0u));
    for (const ZoneDirectory::GroupRun& run : table.groups) {
      EXPECT_LT(run.last_lba, end);
      EXPECT_GE(run.last_lba, run.first_lba);
    }
  }
}

class PoolContextTest : public LogRig {};

TEST_F(PoolContextTest, Positions) {
  make({});
  EXPECT_EQ(pool_->device_lba(ZoneId{3}, 5), 3 * shape_.zone_size_lbas + 5);
  EXPECT_EQ(pool_->relative_lba(3 * shape_.zone_size_lbas + 5), 5u);
  EXPECT_EQ(pool_->page_lbas(1), 1u);
  EXPECT_EQ(pool_->page_lbas(512), 1u);
  EXPECT_EQ(pool_->page_lbas(513), 2u);
  const ZoneId zone = *pool_->allocator.take(kVolume, 0, 123, 123);
  EXPECT_EQ(pool_->stamp(zone), (ZoneStamp{superblock_.pool, zone, 123}));
}

}  // namespace
}  // namespace furrow
