// Establishes what one scanner of recovery makes of a zone: the records that count, by volume and
// partition, with groups and group tombstones beside them; when its pages expire; the zone's
// directory; and how the newest zone of a stream ends: whole pages behind the last flush point
// count and the zone is gone on with, the first that is not whole ends it for good, damage before
// that point voids nothing. Zones that are not the newest are finished. How: Scanner on images of
// zones.
#include "log/recovery_scan.h"

#include <map>
#include <set>

#include "tests/log/zone_image.h"

namespace furrow {
namespace {

class RecoveryScanTest : public LogRig {
 protected:
  static constexpr ZoneId kZone{4};

  void SetUp() override {
    make({});
    image_ = std::make_unique<ZoneImage>(shape());
  }
  void TearDown() override { scanner_.reset(); }
  ZoneImage::Shape shape(std::uint8_t stream = 0) {
    ZoneImage::Shape made;
    made.stamp = {superblock_.pool, kZone, 77};
    made.hash_key = superblock_.hash_key;
    made.stream = stream;
    return made;
  }
  std::uint32_t add(std::uint64_t from, std::uint64_t count, std::uint32_t flushed_lba = 1) {
    std::vector<ZoneImage::Item> items;
    for (std::uint64_t i = 0; i < count; ++i)
      items.push_back(image_->page(from + i, from + i, 600));
    return image_->add_batch(items, flushed_lba);
  }
  Scanner& scan(bool newest, bool spare = false) {
    image_->write_to(*device_);
    return scan_again(newest, spare);
  }
  Scanner& scan_again(bool newest, bool spare = false) {
    ZoneAllocator::Zone state;
    state.use = ZoneUse::sealed;
    state.owner = kVolume;
    state.generation = 77;
    pool_->allocator.release(kZone);  // of an earlier scan
    pool_->allocator.adopt(kZone, state);
    pool_->forget(kZone);
    table().end_lba = end_lba_;
    patience_.emplace(pool_->home);
    scanner_ = std::make_unique<Scanner>(*pool_, *device_->create_queue(4), *patience_);
    FoundZone zone;
    zone.info = info(kZone);
    zone.header = {image_->shape().stamp, kVolume, 77, image_->shape().stream};
    zone.newest = newest;
    zone.spare = spare;
    EXPECT_TRUE(scanner_->scan(zone).ok());
    return *scanner_;
  }
  ZoneDirectory& table() { return pool_->tables[kZone.value]; }
  // Sequences of what was gathered.
  std::multiset<std::uint64_t> sequences(Scanner& scanner) {
    std::multiset<std::uint64_t> all;
    for (auto& [volume, gathered] : scanner.gathered) {
      EXPECT_EQ(volume, kVolume);
      for (unsigned i = 0; i < kPartitions; ++i) {
        gathered.partitions[i].for_each([&](const RecoveredRecord& record) {
          EXPECT_EQ(record.order >> (64 - kPartitionBits), i);
          all.insert(record.sequence);
        });
      }
    }
    return all;
  }
  static std::multiset<std::uint64_t> up_to(std::uint64_t from, std::uint64_t count) {
    std::multiset<std::uint64_t> all;
    for (std::uint64_t i = 0; i < count; ++i) all.insert(from + i);
    return all;
  }
  void expect_trimmed(Scanner& scanner, std::uint64_t end) {
    ASSERT_EQ(scanner.trims.size(), 1u);
    EXPECT_EQ(scanner.trims[0].zone, kZone);
    EXPECT_EQ(scanner.trims[0].generation, 77u);
    EXPECT_EQ(scanner.trims[0].end_lba, end);
    EXPECT_EQ(table().end_lba, end);
  }

  std::unique_ptr<ZoneImage> image_;
  std::optional<Patience> patience_;
  std::unique_ptr<Scanner> scanner_;
  std::uint32_t end_lba_ = ~std::uint32_t{0};  // that the journal knows of
};

TEST_F(RecoveryScanTest, GathersWhatASealedZoneSays) {
  const std::uint32_t first = image_->add_batch(
      {image_->page(1, 10, 600), ZoneImage::in_group(image_->page(2, 11, 600), 5),
       ZoneImage::in_group(image_->page(3, 12, 600), 5),
       ZoneImage::expiring(image_->page(4, 13, 600), 99), ZoneImage::tombstone(5, 14),
       ZoneImage::group_tombstone(6, 15), ZoneImage::group_tombstone(6, 9)});
  image_->close_segment();
  const std::uint32_t second = add(20, 2);
  image_->close_segment();
  const std::uint32_t third = add(30, 1);
  image_->close_segment();
  Scanner& scanner = scan(false);
  std::multiset<std::uint64_t> wanted{10, 11, 12, 13, 14, 20, 21, 30};
  EXPECT_EQ(sequences(scanner), wanted);
  Gathered& gathered = scanner.gathered[kVolume];
  EXPECT_EQ(gathered.group_tombstones, (GroupTombstones{{6, {15, 77, 15}}})) << "the newest";
  EXPECT_TRUE(gathered.spare_group_tombstones.empty());
  EXPECT_EQ(table().group_of(image_->records()[1].lba), 5u);
  EXPECT_EQ(batches_of(table()), (std::vector<std::uint32_t>{first, second, third}));
  EXPECT_EQ(table().records, 10u);
  EXPECT_EQ(table().tombstones, 1u);
  EXPECT_EQ(table().group_tombstones, 2u);
  ASSERT_EQ(table().groups.size(), 1u);
  EXPECT_EQ(table().groups[0].last_lba, image_->records()[2].lba);
  EXPECT_EQ(pool_->allocator.zone(kZone).min_sequence, 9u);
  EXPECT_TRUE(scanner.to_finish.empty()) << "it is full";
  EXPECT_TRUE(scanner.trims.empty());
  EXPECT_TRUE(scanner.resumes.empty());
  // The page's record is as it was, and when it expires is known by where it is.
  const KeyHash hash = this->hash(key_number(4));
  std::vector<RecoveredRecord> of_four;
  gathered.partitions[hash.order >> (64 - kPartitionBits)].for_each([&](const RecoveredRecord& r) {
    if (r.order == hash.order) of_four.push_back(r);
  });
  ASSERT_EQ(of_four.size(), 1u);
  const IndexEntry entry = of_four[0].entry();
  EXPECT_EQ(entry.lba, pool_->device_lba(kZone, image_->records()[3].lba));
  EXPECT_EQ(entry.length, 600u);
  EXPECT_EQ(entry.checksum, image_->records()[3].checksum);
  EXPECT_TRUE(entry.expires);
  EXPECT_EQ(pool_->expiry(entry.lba), 99u);
}

TEST_F(RecoveryScanTest, OfASpareZoneGroupTombstonesStandApart) {
  image_->add_batch({ZoneImage::group_tombstone(6, 15)});
  Scanner& scanner = scan(false, true);
  EXPECT_TRUE(scanner.gathered[kVolume].group_tombstones.empty());
  EXPECT_EQ(scanner.gathered[kVolume].spare_group_tombstones, (GroupTombstones{{6, {15, 77, 15}}}));
}

TEST_F(RecoveryScanTest, AnOpenZoneThatIsNotTheNewestIsFinishedWhereItsDataEnds) {
  add(10, 3);
  Scanner& scanner = scan(false);
  EXPECT_EQ(sequences(scanner), up_to(10, 3));
  EXPECT_EQ(scanner.to_finish, std::vector<ZoneId>{kZone});
  expect_trimmed(scanner, image_->written_lbas());
  // The journal knows it already.
  end_lba_ = image_->written_lbas();
  Scanner& again = scan_again(false);
  EXPECT_TRUE(again.trims.empty());
  EXPECT_EQ(sequences(again), up_to(10, 3));
}

TEST_F(RecoveryScanTest, WhatTheJournalSaysIsVoidStaysVoid) {
  add(10, 2);
  const std::uint32_t second = add(20, 2);
  for (const bool newest : {false, true}) {
    end_lba_ = second;
    Scanner& scanner = scan(newest);
    EXPECT_EQ(sequences(scanner), up_to(10, 2));
    EXPECT_TRUE(scanner.trims.empty());
    EXPECT_TRUE(scanner.resumes.empty()) << "it cannot be gone on with";
    EXPECT_EQ(scanner.to_finish, std::vector<ZoneId>{kZone});
  }
}

TEST_F(RecoveryScanTest, TheNewestZoneIsGoneOnWith) {
  add(10, 2);
  image_->close_segment();
  const std::uint32_t open = add(20, 3, 32);
  Scanner& scanner = scan(true);
  EXPECT_EQ(sequences(scanner).size(), 5u);
  EXPECT_TRUE(scanner.trims.empty());
  EXPECT_TRUE(scanner.to_finish.empty());
  ASSERT_EQ(scanner.resumes[kVolume].count(0), 1u);
  const Stream::Resume& resume = scanner.resumes[kVolume].at(0);
  EXPECT_EQ(resume.zone, kZone);
  EXPECT_EQ(resume.next_lba, image_->written_lbas());
  EXPECT_EQ(resume.segment_batches, std::vector<std::uint32_t>{open});
  ASSERT_EQ(resume.segment_records.size(), 3u) << "of the open segment alone";
  EXPECT_EQ(resume.segment_records[0], image_->records()[2]);
  EXPECT_FALSE(resume.flush_noted);
}

TEST_F(RecoveryScanTest, AFlushNoteSaysThatAllIsDurable) {
  add(10, 2);
  image_->add_batch({}, image_->written_lbas());
  const Stream::Resume& resume = scan(true).resumes[kVolume].at(0);
  EXPECT_TRUE(resume.flush_noted);
  EXPECT_EQ(resume.next_lba, image_->written_lbas());
}

TEST_F(RecoveryScanTest, AtASegmentsEndNothingIsCarriedOver) {
  add(10, 2);
  image_->close_segment();
  const Stream::Resume& resume = scan(true).resumes[kVolume].at(0);
  EXPECT_EQ(resume.next_lba, 32u);
  EXPECT_TRUE(resume.segment_records.empty());
  EXPECT_TRUE(resume.segment_batches.empty());
}

TEST_F(RecoveryScanTest, ByStream) {
  image_ = std::make_unique<ZoneImage>(shape(kCollectionStream));
  add(10, 1);
  EXPECT_EQ(scan(true).resumes[kVolume].count(kCollectionStream), 1u);
}

// Each page of the tail in turn is not what was written.
TEST_F(RecoveryScanTest, ATornPageBehindTheFlushPointEndsTheZone) {
  add(10, 2);
  const std::uint32_t durable = image_->written_lbas();
  add(20, 3, durable);
  add(30, 2, durable);
  const ZoneImage whole = *image_;
  for (const PageRecord& torn : whole.records()) {
    *image_ = whole;
    image_->damage(torn.lba + 1u);  // its second LBA
    Scanner& scanner = scan(true);
    if (torn.lba < durable) {
      EXPECT_EQ(sequences(scanner).size(), 7u) << "damage, which its reader finds";
      EXPECT_TRUE(scanner.trims.empty());
      EXPECT_EQ(scanner.resumes[kVolume].size(), 1u);
      continue;
    }
    std::multiset<std::uint64_t> wanted;
    for (const PageRecord& r : whole.records()) {
      if (r.lba < torn.lba) wanted.insert(r.sequence);
    }
    EXPECT_EQ(sequences(scanner), wanted) << torn.lba;
    expect_trimmed(scanner, torn.lba);
    EXPECT_TRUE(scanner.resumes[kVolume].empty());
    EXPECT_EQ(scanner.to_finish, std::vector<ZoneId>{kZone});
  }
}

TEST_F(RecoveryScanTest, AHeaderThatIsNotWholeEndsTheZoneBehindTheFlushPointAlone) {
  const std::uint32_t first = add(10, 2);
  const std::uint32_t durable = image_->written_lbas();
  const std::uint32_t second = add(20, 2, durable);
  const std::uint32_t third = add(30, 1, durable);
  const ZoneImage whole = *image_;
  image_->damage(first);
  EXPECT_EQ(sequences(scan(true)), (std::multiset<std::uint64_t>{20, 21, 30}));
  expect_trimmed(*scanner_, image_->written_lbas());  // nothing is void, nothing more is written
  *image_ = whole;
  image_->damage(second);
  EXPECT_EQ(sequences(scan(true)), up_to(10, 2));
  expect_trimmed(*scanner_, second);
  *image_ = whole;
  image_->damage(third);
  EXPECT_EQ(sequences(scan(true)), (std::multiset<std::uint64_t>{10, 11, 20, 21}));
  expect_trimmed(*scanner_, third);
  EXPECT_EQ(scanner_->to_finish, std::vector<ZoneId>{kZone});
}

// A summary names batches that may not be durable: it was written without a flush before it.
TEST_F(RecoveryScanTest, ASummaryVouchesForNothingBehindTheFlushPoint) {
  add(10, 2);
  const std::uint32_t second = add(20, 2);
  image_->close_segment();
  const ZoneImage whole = *image_;
  EXPECT_EQ(sequences(scan(true)).size(), 4u);
  *image_ = whole;
  image_->damage(second);
  EXPECT_EQ(sequences(scan(true)), up_to(10, 2));
  expect_trimmed(*scanner_, second);
  *image_ = whole;
  image_->damage(second + 1);  // its first page
  EXPECT_EQ(sequences(scan(true)), up_to(10, 2));
  expect_trimmed(*scanner_, second + 1);
  // A later header says that all of it was flushed.
  *image_ = whole;
  add(30, 1, 32);
  image_->damage(second);
  EXPECT_EQ(sequences(scan(true)).size(), 5u) << "the summary knows what the header said";
  EXPECT_TRUE(scanner_->trims.empty());
}

TEST_F(RecoveryScanTest, AFullNewestZoneIsVerifiedAndNotGoneOnWith) {
  for (std::uint64_t segment = 0; segment < 3; ++segment) {
    add(10 + segment * 10, 2);
    image_->close_segment();
  }
  const ZoneImage whole = *image_;
  EXPECT_EQ(sequences(scan(true)).size(), 6u);
  EXPECT_TRUE(scanner_->resumes[kVolume].empty());
  EXPECT_TRUE(scanner_->to_finish.empty());
  *image_ = whole;
  const std::uint32_t torn = whole.records()[4].lba;
  image_->damage(torn);
  EXPECT_EQ(sequences(scan(true)).size(), 4u);
  expect_trimmed(*scanner_, torn);
  EXPECT_TRUE(scanner_->to_finish.empty());
}

// Nor of a whole one: the next opening looks at it again.
TEST_F(RecoveryScanTest, APageThatCannotBeReadIsNoProofOfATornWrite) {
  Shape with_faults;
  with_faults.faults = true;
  drop_pool();
  make(with_faults);
  add(10, 1);
  const std::uint32_t bad = add(20, 1) + 1;
  add(30, 1);
  image_->write_to(*device_);
  faults_->fail_reads(Lba{pool_->device_lba(kZone, bad)}, 1);
  Scanner& scanner = scan_again(true);
  EXPECT_EQ(sequences(scanner), (std::multiset<std::uint64_t>{10, 20, 30}));
  EXPECT_EQ(scanner.unverified, std::vector<std::uint64_t>{pool_->device_lba(kZone, bad)});
  ASSERT_EQ(scanner.trims.size(), 1u);
  EXPECT_EQ(scanner.trims[0].end_lba, image_->written_lbas());
  EXPECT_TRUE(scanner.trims[0].aside);
  EXPECT_TRUE(scanner.resumes[kVolume].empty());
  EXPECT_TRUE(scanner.unreadable.empty());
}

// What lies behind the zone's end counts no more.
TEST_F(RecoveryScanTest, APageBehindATornOneNeedsNoReading) {
  Shape with_faults;
  with_faults.faults = true;
  drop_pool();
  make(with_faults);
  add(10, 1);
  const std::uint32_t torn = add(20, 1) + 1;
  const std::uint32_t behind = add(30, 1) + 1;
  image_->damage(torn);
  image_->write_to(*device_);
  faults_->fail_reads(Lba{pool_->device_lba(kZone, behind)}, 1);
  Scanner& scanner = scan_again(true);
  EXPECT_TRUE(scanner.unverified.empty());
  expect_trimmed(scanner, torn);
  EXPECT_FALSE(scanner.trims[0].aside);
}

TEST_F(RecoveryScanTest, AZoneWithItsHeaderAlone) {
  Scanner& scanner = scan(true);
  EXPECT_TRUE(sequences(scanner).empty());
  ASSERT_EQ(scanner.resumes[kVolume].size(), 1u);
  EXPECT_EQ(scanner.resumes[kVolume].at(0).next_lba, 1u);
}

}  // namespace
}  // namespace furrow
