// Establishes that survey() tells all that a zone's structures say, summaries and batch headers
// both: of an intact zone its records, twice the same; of one structure that is damaged what the
// other says of it, and that it is damaged; where neither tells, a gap and nothing else; that two
// that differ contradict each other; that a structure of a newer version is told, and no damage to
// be repaired; and that what is void is left out. How: on images of zones, with each LBA damaged in
// turn, or unreadable.
#include "log/zone_survey.h"

#include <set>

#include "log/zone_rebuild.h"
#include "tests/log/reseal.h"
#include "tests/log/zone_image.h"

namespace furrow {
namespace {

using Closing = SurveyedSegment::Closing;
constexpr std::uint32_t kLbaBytes = 512;

class ZoneSurveyTest : public testing::Test {
 protected:
  ZoneSurveyTest() : image_(shape()) {
    // Two segments with summaries, one that is open.
    for (std::uint64_t segment = 0; segment < 3; ++segment) {
      for (std::uint64_t batch = 0; batch < 3; ++batch) {
        std::vector<ZoneImage::Item> items;
        for (std::uint64_t i = 0; i <= batch; ++i) {
          const std::uint64_t n = segment * 100 + batch * 10 + i + 1;
          ZoneImage::Item item = image_.page(n, n, 600);
          if (segment == 1) item = ZoneImage::in_group(item, 8);
          if (segment == 1 && i == 1) item = ZoneImage::expiring(item, 5);
          items.push_back(item);
        }
        // First, as known records are in the order of their LBAs.
        if (batch == 1) items.insert(items.begin(), ZoneImage::tombstone(7, 9));
        batches_.push_back(image_.add_batch(items, 1 + static_cast<std::uint32_t>(segment)));
      }
      if (segment != 2) image_.close_segment();
    }
  }
  static ZoneImage::Shape shape() {
    ZoneImage::Shape made;
    made.stamp.pool.fill(3);
    made.stamp.zone = ZoneId{5};
    made.stamp.generation = 77;
    made.stream = 1;
    return made;
  }
  SurveyedZone zone(const ZoneImage& image) const {
    return {image.shape().stamp,         image.written_lbas(),       image.written_lbas(),
            image.shape().capacity_lbas, image.shape().segment_lbas, kLbaBytes};
  }
  ZoneSurvey look(const ZoneImage& image) { return look(image, zone(image)); }
  ZoneSurvey look(const ZoneImage& image, const SurveyedZone& zone) {
    return survey(zone, [&](std::uint64_t lba, std::uint32_t lbas) {
      EXPECT_LE(lba + lbas, zone.capacity_lbas);
      EXPECT_GT(lbas, 0u);
      for (std::uint64_t at = lba; at < lba + lbas; ++at) {
        if (unreadable_.contains(at)) {
          return Result<std::span<const std::byte>>(Status(Code::io_error, Origin::zone));
        }
      }
      return Result<std::span<const std::byte>>(
          image.bytes().subspan(lba * kLbaBytes, std::size_t{lbas} * kLbaBytes));
    });
  }
  static std::vector<PageRecord> records(const ZoneSurvey& found) {
    std::vector<PageRecord> all;
    for (const SurveyedSegment& segment : found.segments) {
      for (const SurveyedBatch& batch : segment.batches) {
        all.insert(all.end(), batch.records.begin(), batch.records.end());
      }
    }
    return all;
  }
  static std::size_t damaged_batches(const ZoneSurvey& found) {
    std::size_t count = 0;
    for (const SurveyedSegment& segment : found.segments) {
      count += static_cast<std::size_t>(
          std::ranges::count(segment.batches, false, &SurveyedBatch::intact));
    }
    return count;
  }
  static std::size_t gaps(const ZoneSurvey& found) {
    std::size_t count = 0;
    for (const SurveyedSegment& segment : found.segments) count += segment.gaps.size();
    return count;
  }

  ZoneImage image_;
  std::vector<std::uint32_t> batches_;
  std::set<std::uint64_t> unreadable_;
};

TEST_F(ZoneSurveyTest, AnIntactZone) {
  const ZoneSurvey found = look(image_);
  EXPECT_TRUE(found.header_intact);
  ASSERT_EQ(found.segments.size(), 3u);
  EXPECT_EQ(records(found), image_.records());
  EXPECT_EQ(damaged_batches(found), 0u);
  EXPECT_EQ(gaps(found), 0u);
  for (std::size_t i = 0; i < 3; ++i) {
    const SurveyedSegment& segment = found.segments[i];
    EXPECT_EQ(segment.begin_lba, 32 * i);
    EXPECT_EQ(segment.end_lba, 32 * (i + 1));
    EXPECT_EQ(segment.closing, i < 2 ? Closing::intact : Closing::open);
    EXPECT_FALSE(segment.contradicts);
    ASSERT_EQ(segment.batches.size(), 3u);
    for (std::size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(segment.batches[b].header.lba, batches_[i * 3 + b]);
      EXPECT_EQ(segment.batches[b].header.flushed_lba, 1 + i);
    }
    EXPECT_EQ(segment.data_end_lba,
              segment.batches[2].header.lba + std::uint64_t{segment.batches[2].header.batch_lbas});
  }
}

TEST_F(ZoneSurveyTest, AZoneWithNothingButItsHeader) {
  const ZoneImage empty(shape());
  const ZoneSurvey found = look(empty);
  EXPECT_TRUE(found.header_intact);
  ASSERT_EQ(found.segments.size(), 1u);
  EXPECT_TRUE(found.segments[0].batches.empty());
  EXPECT_TRUE(found.segments[0].gaps.empty());
  EXPECT_EQ(found.segments[0].data_end_lba, 1u);
}

TEST_F(ZoneSurveyTest, AZoneHeaderThatIsDamagedOrAnothers) {
  ZoneImage image = image_;
  image.damage(0);
  EXPECT_FALSE(look(image).header_intact);
  EXPECT_EQ(records(look(image)), image_.records());
  unreadable_ = {0};
  EXPECT_FALSE(look(image_).header_intact);
  unreadable_.clear();
  SurveyedZone other = zone(image_);
  other.stamp.generation = 78;
  const ZoneSurvey found = look(image_, other);
  EXPECT_FALSE(found.header_intact);
  EXPECT_TRUE(records(found).empty()) << "nothing there is of that life";
}

// Whatever LBA is damaged: where there is a summary, all records are still known.
TEST_F(ZoneSurveyTest, EachDamagedLbaIsNoticedWhereItIsAStructureAndNoRecordIsLost) {
  std::set<std::uint64_t> structures(batches_.begin(), batches_.end());
  for (std::uint64_t lba = 1; lba < 64; ++lba) {
    for (const bool unreadable : {false, true}) {
      ZoneImage image = image_;
      unreadable_.clear();
      if (unreadable) {
        unreadable_ = {lba};
      } else {
        image.damage(lba);
      }
      const ZoneSurvey found = look(image);
      EXPECT_EQ(gaps(found), 0u) << lba;
      EXPECT_EQ(records(found), image_.records()) << lba;
      EXPECT_EQ(damaged_batches(found), structures.contains(lba) ? 1u : 0u) << lba;
      const SurveyedSegment& segment = found.segments[lba / 32];
      EXPECT_FALSE(segment.contradicts);
      const bool in_summary = segment.closing == Closing::damaged;
      EXPECT_EQ(found.segments[1 - lba / 32].closing, Closing::intact);
      EXPECT_TRUE(!in_summary || lba >= segment.data_end_lba) << lba;
      EXPECT_TRUE(in_summary || lba % 32 != 31) << "the footer";
    }
  }
}

TEST_F(ZoneSurveyTest, ADamagedHeaderIsAsItsSummaryTells) {
  ZoneImage image = image_;
  image.damage(batches_[4]);
  const ZoneSurvey whole = look(image_), found = look(image);
  const SurveyedBatch& batch = found.segments[1].batches[1];
  const SurveyedBatch& was = whole.segments[1].batches[1];
  EXPECT_FALSE(batch.intact);
  EXPECT_EQ(batch.records, was.records);
  EXPECT_EQ(batch.header.stamp, was.header.stamp);
  EXPECT_EQ(batch.header.lba, was.header.lba);
  EXPECT_EQ(batch.header.header_lbas, was.header.header_lbas);
  EXPECT_EQ(batch.header.batch_lbas, was.header.batch_lbas);
  EXPECT_EQ(batch.header.record_count, was.header.record_count);
  EXPECT_EQ(batch.header.stream, was.header.stream);
  EXPECT_LE(batch.header.flushed_lba, was.header.flushed_lba) << "never higher than it was";
}

TEST_F(ZoneSurveyTest, WhatNeitherTellsIsAGap) {
  // In the open segment: the first, one in the middle, the last.
  for (std::size_t b = 6; b < 9; ++b) {
    ZoneImage image = image_;
    image.damage(batches_[b]);
    const ZoneSurvey found = look(image);
    EXPECT_EQ(found.segments[2].gaps, std::vector<std::uint64_t>{batches_[b]});
    EXPECT_EQ(found.segments[2].batches.size(), 2u);
    EXPECT_EQ(damaged_batches(found), 0u);
  }
  // A header and the summary that would tell of it.
  ZoneImage image = image_;
  image.damage(batches_[1]);
  image.damage(31);
  const ZoneSurvey found = look(image);
  EXPECT_EQ(found.segments[0].gaps, std::vector<std::uint64_t>{batches_[1]});
  EXPECT_EQ(found.segments[0].closing, Closing::damaged);
  EXPECT_EQ(found.segments[0].batches.size(), 2u);
  EXPECT_EQ(gaps(found), 1u);
}

TEST_F(ZoneSurveyTest, BehindAnUnreadableLbaTheNextHeaderIsFound) {
  ZoneImage image = image_;
  image.damage(batches_[6]);
  unreadable_ = {batches_[6] + 1u};
  const ZoneSurvey found = look(image);
  EXPECT_EQ(found.segments[2].gaps, std::vector<std::uint64_t>{batches_[6]});
  ASSERT_EQ(found.segments[2].batches.size(), 2u);
  EXPECT_EQ(found.segments[2].batches[0].header.lba, batches_[7]);
}

// The last batch's header, behind a damaged summary, is no padding.
TEST_F(ZoneSurveyTest, ADamagedSummaryAndItsLastBatch) {
  ZoneImage image = image_;
  image.damage(31);
  image.damage(batches_[2]);
  const ZoneSurvey found = look(image);
  EXPECT_EQ(found.segments[0].gaps, std::vector<std::uint64_t>{batches_[2]});
  EXPECT_EQ(found.segments[0].batches.size(), 2u);
}

TEST_F(ZoneSurveyTest, SummaryAndHeaderThatDifferContradictEachOther) {
  ZoneImage image = image_;
  const auto header = image.lba(batches_[0]);
  header[kBatchHeaderBytes + 16] ^= std::byte{1};  // the sequence of its first record
  reseal_batch(header);
  const ZoneSurvey found = look(image);
  EXPECT_TRUE(found.segments[0].contradicts);
  EXPECT_FALSE(found.segments[1].contradicts);
}

TEST_F(ZoneSurveyTest, ANewerStructureIsTold) {
  EXPECT_TRUE(look(image_).version.ok());
  for (const std::uint64_t lba : {std::uint64_t{0}, std::uint64_t{31}, std::uint64_t{batches_[1]},
                                  std::uint64_t{batches_[6]}}) {
    ZoneImage image = image_;
    image.make_newer(lba);
    const ZoneSurvey found = look(image);
    EXPECT_EQ(found.version.code(), Code::unsupported) << lba;
    EXPECT_FALSE(is_rebuildable(found)) << lba;
    if (lba == 0) continue;
    SurveyedZone other = zone(image);
    other.stamp.generation = 78;
    EXPECT_TRUE(look(image, other).version.ok()) << "of another life";
    SurveyedZone cut = zone(image);
    cut.end_lba = lba;
    EXPECT_TRUE(look(image, cut).version.ok()) << "void";
  }
  ZoneImage image = image_;  // found by searching, and the summary of a note
  image.damage(batches_[6]);
  image.make_newer(batches_[8]);
  EXPECT_EQ(look(image).version.code(), Code::unsupported);
  image = image_;
  image.damage(batches_[6]);
  image.add_note();
  image.make_newer(image.written_lbas() - 1);
  EXPECT_EQ(look(image).version.code(), Code::unsupported);
}

TEST_F(ZoneSurveyTest, WhatIsVoidIsLeftOut) {
  const std::vector<PageRecord> all = image_.records();
  for (std::uint64_t end = 0; end <= image_.written_lbas(); ++end) {
    SurveyedZone cut = zone(image_);
    cut.end_lba = end;
    std::vector<PageRecord> wanted = all;
    std::erase_if(wanted, [&](const PageRecord& r) { return r.lba >= end; });
    const ZoneSurvey found = look(image_, cut);
    EXPECT_EQ(records(found), wanted) << end;
    EXPECT_EQ(found.segments.size(), (end + 31) / 32);
    for (const SurveyedSegment& segment : found.segments) {
      EXPECT_EQ(segment.closing == Closing::open, segment.end_lba > end) << end;
    }
  }
  for (const PageRecord& torn : all) {
    if (torn.kind != RecordKind::page) continue;
    SurveyedZone without = zone(image_);
    without.torn = {torn.lba};
    std::vector<PageRecord> wanted = all;
    std::erase(wanted, torn);
    const ZoneSurvey found = look(image_, without);
    EXPECT_EQ(records(found), wanted) << torn.lba;
    for (const SurveyedSegment& segment : found.segments) {
      EXPECT_TRUE(segment.gaps.empty() && !segment.contradicts) << torn.lba;
    }
  }
}

}  // namespace
}  // namespace furrow
