// Establishes what a journal record may change and what it may not: each kind applied to a state,
// refused where it does not fit (and the state is as before then), and what makes a volume, a name
// or a whole state valid. (The codecs of checkpoints and journal records: format_test.)
#include <gtest/gtest.h>

#include <algorithm>

#include "log/metadata_format.h"

namespace furrow {
namespace {

using Kind = JournalRecord::Kind;

class PoolStateTest : public testing::Test {
 protected:
  static VolumeRecord volume(std::uint64_t id, const std::string& name, std::uint32_t nsid) {
    VolumeRecord made;
    made.id = id;
    made.name = name;
    made.nsid = nsid;
    made.value_bytes_max = 4096;
    return made;
  }
  static JournalRecord created(const VolumeRecord& volume) {
    JournalRecord record;
    record.kind = Kind::volume_created;
    record.volume = volume;
    return record;
  }
  static JournalRecord deleted(std::uint64_t id) {
    JournalRecord record;
    record.kind = Kind::volume_deleted;
    record.volume.id = id;
    return record;
  }
  static JournalRecord opened(std::uint64_t count) {
    JournalRecord record;
    record.open_count = count;
    return record;
  }
  static JournalRecord trimmed(std::uint32_t zone, std::uint32_t end, std::uint64_t generation) {
    JournalRecord record;
    record.kind = Kind::zone_trimmed;
    record.trim = {zone, end, generation};
    return record;
  }
  void expect_taken(const JournalRecord& record) {
    const Status status = apply(state_, record);
    EXPECT_TRUE(status.ok()) << status.describe();
    EXPECT_TRUE(valid_state(state_));
  }
  void expect_refused(const JournalRecord& record) {
    const PoolState before = state_;
    EXPECT_EQ(apply(state_, record).code(), Code::corrupt);
    EXPECT_EQ(state_, before);
  }
  PoolState state_;
};

TEST_F(PoolStateTest, OpeningsAreCountedUpwards) {
  expect_taken(opened(1));
  expect_taken(opened(2));
  expect_taken(opened(7));
  EXPECT_EQ(state_.open_count, 7u);
  expect_refused(opened(7));
  expect_refused(opened(3));
  expect_taken(opened(kOpenCountMax));
  expect_refused(opened(kOpenCountMax + 1));  // sequences of that opening would not fit
}

TEST_F(PoolStateTest, VolumesComeAndGoAndAnIdIsNeverUsedTwice) {
  expect_taken(created(volume(1, "a", 1)));
  expect_taken(created(volume(5, "b", 2)));
  EXPECT_EQ(state_.next_volume_id, 6u);
  expect_refused(created(volume(5, "c", 3)));
  expect_refused(created(volume(3, "c", 3)));  // below the next
  expect_refused(created(volume(6, "a", 3)));  // name taken
  expect_refused(created(volume(6, "c", 2)));  // NSID taken
  expect_taken(created(volume(6, "c", 0)));
  expect_taken(created(volume(7, "d", 0)));  // two without an NSID
  expect_taken(deleted(1));
  expect_refused(deleted(1));
  expect_refused(deleted(99));
  expect_refused(created(volume(1, "z", 9)));
  expect_taken(created(volume(8, "a", 1)));  // name and NSID are free again
  ASSERT_EQ(state_.volumes.size(), 4u);
  EXPECT_EQ(state_.volumes.back().name, "a");
  for (const VolumeRecord& each : {volume(5, "b", 2), volume(6, "c", 0)}) {
    EXPECT_EQ(std::ranges::count(state_.volumes, each), 1);
  }
  // Not even the last one's, once that is deleted.
  expect_taken(deleted(8));
  expect_refused(created(volume(8, "q", 0)));
}

TEST_F(PoolStateTest, ATrimReplacesTheZonesEarlierOne) {
  expect_taken(trimmed(5, 10, 100));
  expect_taken(trimmed(2, 0, 101));
  expect_taken(trimmed(9, 7, 102));
  expect_taken(trimmed(5, 3, 103));
  EXPECT_EQ(state_.trims, (std::vector<ZoneTrimRecord>{{2, 0, 101}, {5, 3, 103}, {9, 7, 102}}));
}

// Of the same life of the zone; and one that ends nowhere says nothing.
TEST_F(PoolStateTest, WhatATrimSaysIsDurableStaysSo) {
  JournalRecord durable = trimmed(5, 10, 100);
  durable.trim.durable = true;
  expect_taken(durable);
  expect_taken(trimmed(5, 8, 100));
  EXPECT_EQ(state_.trims, (std::vector<ZoneTrimRecord>{{5, 8, 100, true}}));
  expect_taken(trimmed(5, 8, 101));
  EXPECT_EQ(state_.trims, (std::vector<ZoneTrimRecord>{{5, 8, 101, false}}));
  durable.trim.end_lba = ZoneTrimRecord::kNothing;
  expect_refused(durable);
  expect_refused(trimmed(5, ZoneTrimRecord::kEndLbaMax + 1, 100));
  expect_taken(trimmed(5, ZoneTrimRecord::kNothing, 101));
  EXPECT_TRUE(state_.trims.empty());
}

TEST_F(PoolStateTest, FormattedChangesNothing) {
  expect_taken(created(volume(1, "a", 1)));
  const PoolState before = state_;
  JournalRecord formatted;
  formatted.kind = Kind::formatted;
  expect_taken(formatted);
  EXPECT_EQ(state_, before);
}

TEST_F(PoolStateTest, RecordsWithFieldsOfAnotherKindAreRefused) {
  JournalRecord record = opened(1);
  record.volume.id = 3;
  expect_refused(record);
  record = opened(1);
  record.trim.zone = 3;
  expect_refused(record);
  record = created(volume(1, "a", 1));
  record.open_count = 1;
  expect_refused(record);
  record = trimmed(1, 2, 3);
  record.open_count = 1;
  expect_refused(record);
  record = JournalRecord();
  record.kind = static_cast<Kind>(9);
  expect_refused(record);
  record.kind = static_cast<Kind>(0);
  expect_refused(record);
}

TEST_F(PoolStateTest, ValidVolumes) {
  EXPECT_TRUE(valid_volume(volume(1, "a", 0)));
  EXPECT_FALSE(valid_volume(volume(0, "a", 0)));
  EXPECT_FALSE(valid_volume(volume(UINT64_MAX, "a", 0)));
  EXPECT_FALSE(valid_volume(volume(1, "", 0)));
  VolumeRecord large = volume(1, "a", 0);
  large.value_bytes_max = kValueBytesMax;
  EXPECT_TRUE(valid_volume(large));
  ++large.value_bytes_max;
  EXPECT_FALSE(valid_volume(large));
  VolumeRecord block = volume(1, "a", 0);
  block.size_mib = 1;
  EXPECT_FALSE(valid_volume(block)) << "of no other kind";
  block.kind = kKindBlock;
  EXPECT_FALSE(valid_volume(block));
  block.lba_shift = 12;
  block.value_bytes_max = kBlockPageBytes;
  EXPECT_TRUE(valid_volume(block));
  block.size_mib = kSizeMibMax;
  EXPECT_TRUE(valid_volume(block));
  ++block.size_mib;
  EXPECT_FALSE(valid_volume(block));
  block.size_mib = 0;
  EXPECT_FALSE(valid_volume(block));
  EXPECT_TRUE(valid_name("A-z_0.9"));
  EXPECT_TRUE(valid_name(std::string(63, 'x')));
  EXPECT_FALSE(valid_name(std::string(64, 'x')));
  for (const char* name : {"", "a b", "a/b", "a\n", "\xc3\xa4"}) EXPECT_FALSE(valid_name(name));
}

TEST_F(PoolStateTest, ValidStates) {
  EXPECT_TRUE(valid_state(PoolState()));
  PoolState state;
  state.volumes = {volume(1, "a", 1), volume(2, "b", 0), volume(4, "c", 0)};
  state.trims = {{1, 5, 6}, {3, 5, 6}};
  state.next_volume_id = 5;
  ASSERT_TRUE(valid_state(state));
  PoolState wrong = state;
  wrong.next_volume_id = 4;
  EXPECT_FALSE(valid_state(wrong)) << "an id would be used twice";
  wrong = state;
  std::swap(wrong.volumes[0], wrong.volumes[1]);
  EXPECT_FALSE(valid_state(wrong));
  wrong = state;
  wrong.volumes[1].name = "a";
  EXPECT_FALSE(valid_state(wrong));
  wrong = state;
  wrong.volumes[2].nsid = 1;
  EXPECT_FALSE(valid_state(wrong));
  wrong = state;
  wrong.trims[1].zone = 1;
  EXPECT_FALSE(valid_state(wrong)) << "one a zone";
  wrong = state;
  wrong.open_count = 1u << 24;
  EXPECT_FALSE(valid_state(wrong));
  EXPECT_EQ(checkpoint_bytes(state), checkpoint_bytes(PoolState()) + 3 * 112 + 2 * 16)
      << "log/FORMAT.md says so";
}

TEST_F(PoolStateTest, ZonesAreLentToOneVolumeOnce) {
  const auto lent = [](std::uint64_t id, std::vector<LentZones> runs, bool anew = true) {
    JournalRecord record;
    record.kind = Kind::zones_lent;
    record.volume.id = id;
    record.anew = anew;
    for (LentZones& run : runs) run.volume = id;
    record.lent = std::move(runs);
    return record;
  };
  VolumeRecord zoned = volume(1, "zones", 1);
  zoned.kind = kKindZoned;
  zoned.value_bytes_max = 0;
  zoned.quota_zones = 5;
  zoned.active_zones_max = 3;
  expect_taken(trimmed(11, 7, 1));
  expect_refused(created(zoned));  // it has no zones
  expect_taken(lent(1, {{0, 10, 3}}));
  EXPECT_TRUE(state_.trims.empty()) << "its life is over";
  expect_taken(trimmed(12, 7, 1));
  EXPECT_TRUE(state_.trims.empty());
  expect_refused(lent(1, {{0, 12, 1}}, false));
  expect_taken(lent(1, {{0, 20, 2}}, false));
  expect_refused(lent(2, {{0, 21, 1}}));
  EXPECT_EQ(features_needed(state_), kFeatureZonedVolumes);
  expect_taken(created(zoned));
  expect_refused(lent(1, {}));  // they are its own
  expect_taken(deleted(1));
  EXPECT_EQ(state_.lent.size(), 2u) << "until they were reset";
  expect_taken(lent(1, {{0, 20, 1}}));
  expect_taken(lent(1, {}));
  EXPECT_TRUE(state_.lent.empty());
  // What was lent to one that was not made is nobody's when its number is another's.
  expect_taken(lent(2, {{0, 10, 3}}));
  expect_taken(created(volume(2, "pages", 1)));
  EXPECT_TRUE(state_.lent.empty());
}

TEST_F(PoolStateTest, AVolumeIsResizedAndNoDiskGetsSmaller) {
  const auto resized = [](std::uint64_t id, std::uint64_t quota_zones, std::uint32_t size_mib) {
    JournalRecord record;
    record.kind = Kind::volume_resized;
    record.volume.id = id;
    record.volume.quota_zones = quota_zones;
    record.volume.size_mib = size_mib;
    return record;
  };
  VolumeRecord pages = volume(1, "pages", 1), disk = volume(2, "disk", 2);
  pages.quota_zones = disk.quota_zones = 5;
  disk.kind = kKindBlock;
  disk.value_bytes_max = kBlockPageBytes;
  disk.lba_shift = 9;
  disk.size_mib = 100;
  VolumeRecord zoned = volume(3, "zones", 3);
  zoned.kind = kKindZoned;
  zoned.value_bytes_max = 0;
  zoned.quota_zones = 1;
  expect_taken(created(pages));
  expect_taken(created(disk));
  JournalRecord lent;
  lent.kind = Kind::zones_lent;
  lent.volume.id = 3;
  lent.lent = {{3, 10, 1}};
  expect_taken(lent);
  expect_taken(created(zoned));
  expect_taken(resized(1, 9, 0));
  expect_taken(resized(1, 3, 0));
  expect_taken(resized(2, 7, 100));
  expect_taken(resized(2, 4, kSizeMibMax));
  pages.quota_zones = 3;
  disk.quota_zones = 4;
  disk.size_mib = kSizeMibMax;
  EXPECT_EQ(state_.volumes, (std::vector{pages, disk, zoned})) << "nothing else of them changes";
  expect_refused(resized(2, 4, 100));  // smaller
  expect_refused(resized(2, 4, 0));
  expect_refused(resized(2, 4, kSizeMibMax + 1));
  expect_refused(resized(1, 3, 1));  // no disk
  expect_refused(resized(1, 0, 0));
  expect_refused(resized(3, 2, 0));  // its zones are lent
  expect_refused(resized(4, 3, 0));  // not there
  expect_refused(resized(0, 3, 0));
  JournalRecord more = resized(1, 3, 0);
  more.volume.nsid = 5;
  expect_refused(more);
  EXPECT_EQ(features_needed(state_), kFeatureBlockVolumes | kFeatureZonedVolumes);
  EXPECT_EQ(features_needed(resized(1, 3, 0)), kFeatureResizedVolumes);
  EXPECT_EQ(features_needed(created(pages)), 0u);
}

TEST_F(PoolStateTest, RunsOfLentZonesAreInOrderAndApart) {
  for (const std::vector<LentZones>& wrong :
       std::vector<std::vector<LentZones>>{{{1, 5, 0}},
                                           {{0, 5, 1}},
                                           {{1, 5, 2}, {1, 6, 1}},
                                           {{1, 5, 1}, {1, 4, 1}},
                                           {{1, 0xffffffff, 1}}}) {
    state_ = PoolState();
    state_.next_volume_id = 9;
    state_.lent = wrong;
    EXPECT_FALSE(valid_state(state_));
  }
  state_.lent = {{1, 4, 1}, {2, 5, 2}};
  EXPECT_TRUE(valid_state(state_));
  state_.trims = {{5, 1, 1}};
  EXPECT_FALSE(valid_state(state_)) << "a lent zone has no trim";
}

}  // namespace
}  // namespace furrow
