// Establishes that SegmentScan finds what a segment holds, from its summary with two reads and from
// its batch headers without one; that damage costs what it hit: a summary nothing, a batch header
// its own batch, which it names as a gap unless a note repeats it; that it asks for nothing outside
// of the segment or behind what was written; that a structure of a newer version is told apart from
// damage; and that nothing of another life, another place or a page passes for a header. How: it is
// pure; it is fed from images of zones, with LBAs damaged or unreadable.
#include "log/segment_scan.h"

#include <set>

#include "tests/log/reseal.h"
#include "tests/log/zone_image.h"

namespace furrow {
namespace {

constexpr std::uint32_t kBytes = 512;

class SegmentScanTest : public testing::Test {
 protected:
  static ZoneImage::Shape shape(std::uint64_t capacity = 96, std::uint64_t segment = 32) {
    ZoneImage::Shape made;
    made.stamp.pool.fill(3);
    made.stamp.zone = ZoneId{5};
    made.stamp.generation = 77;
    made.capacity_lbas = capacity;
    made.segment_lbas = segment;
    return made;
  }
  // `number` pages of `bytes` each, numbered from `from` on, in one batch.
  static std::uint32_t add(ZoneImage& image, std::uint64_t from, std::uint64_t number,
                           std::uint32_t bytes = 700, std::uint32_t flushed_lba = 1) {
    std::vector<ZoneImage::Item> items;
    for (std::uint64_t i = 0; i < number; ++i)
      items.push_back(image.page(from + i, from + i, bytes));
    return image.add_batch(items, flushed_lba);
  }
  SegmentScan scan(const ZoneImage& image, std::uint64_t segment = 0, bool borrow = false) {
    return scan(image, image.shape().stamp, segment, borrow);
  }
  SegmentScan scan(const ZoneImage& image, const ZoneStamp& stamp, std::uint64_t segment,
                   bool borrow) {
    const std::uint64_t begin = segment * image.shape().segment_lbas;
    const std::uint64_t end =
        std::min(begin + image.shape().segment_lbas, image.shape().capacity_lbas);
    SegmentScan made({stamp, begin, end, image.written_lbas(), kBytes, borrow});
    reads_.clear();
    while (const auto read = made.next()) {
      reads_.push_back(*read);
      if (reads_.size() > 1000) {
        ADD_FAILURE() << "it never ends";
        break;
      }
      EXPECT_GT(read->lbas, 0u);
      EXPECT_GE(read->lba, begin);
      EXPECT_LE(read->lba + read->lbas, std::min<std::uint64_t>(end, image.written_lbas()));
      bool fails = false;
      for (const std::uint64_t lba : unreadable_) {
        fails |= lba >= read->lba && lba < read->lba + read->lbas;
      }
      if (fails) {
        made.feed(Status(Code::io_error, Origin::zone));
      } else {
        made.feed(image.bytes().subspan(read->lba * kBytes, std::size_t{read->lbas} * kBytes));
      }
    }
    return made;
  }
  // Those of `image` that `without` does not name, by their numbers' sequences.
  static std::vector<PageRecord> records(const ZoneImage& image,
                                         const std::set<std::uint64_t>& without = {}) {
    std::vector<PageRecord> wanted = image.records();
    std::erase_if(wanted, [&](const PageRecord& r) { return without.contains(r.sequence); });
    return wanted;
  }

  std::vector<SegmentScan::Read> reads_;
  std::set<std::uint64_t> unreadable_;
};

TEST_F(SegmentScanTest, OfNothing) {
  ZoneImage image(shape());
  const SegmentScan header_only = scan(image);
  EXPECT_TRUE(reads_.empty());
  EXPECT_TRUE(header_only.records().empty());
  EXPECT_TRUE(header_only.gaps().empty());
  EXPECT_FALSE(header_only.damaged());
  EXPECT_FALSE(header_only.summarized());
  add(image, 1, 2);
  EXPECT_TRUE(scan(image, 1).records().empty()) << "nothing was written there";
  EXPECT_TRUE(reads_.empty());
}

TEST_F(SegmentScanTest, ASummaryTellsInTwoReads) {
  ZoneImage image(shape());
  const std::uint32_t first = add(image, 1, 3);
  const std::uint32_t second = image.add_batch({ZoneImage::tombstone(9, 20)});
  const std::uint32_t summary = image.close_segment();
  const SegmentScan found = scan(image);
  EXPECT_TRUE(found.summarized());
  EXPECT_EQ(found.records(), image.records());
  EXPECT_EQ(found.batch_lbas(), (std::vector<std::uint32_t>{first, second}));
  EXPECT_TRUE(found.gaps().empty());
  EXPECT_FALSE(found.damaged());
  ASSERT_EQ(reads_.size(), 2u);
  EXPECT_EQ(reads_[0].lba, 31u);
  EXPECT_EQ(reads_[1].lba, summary);
}

// No writer makes such a one, and a zone's batches are to ascend over all its segments.
TEST_F(SegmentScanTest, ASummaryThatNamesABatchBeforeItsSegmentIsDamaged) {
  for (const std::uint32_t named : {31u, 32u}) {
    ZoneImage image(shape());
    add(image, 1, 2);
    image.close_segment();
    const std::uint32_t batch = add(image, 10, 1);
    ASSERT_EQ(batch, 32u);
    image.close_segment();
    const auto last = image.lba(63);
    const Summary summary = *SummaryView::footer(last, image.shape().stamp);
    ASSERT_EQ(summary.summary_lbas, 1u);
    encode(summary, std::vector{image.records().back()}, std::vector{named}, last);
    const SegmentScan found = scan(image, 1);
    EXPECT_EQ(found.summarized(), named == batch);
    EXPECT_EQ(found.damaged(), named != batch);
    EXPECT_EQ(found.batch_lbas(), std::vector{batch}) << "by its header";
  }
}

// Its footer is read twice, and a device may answer the second time with what stands elsewhere.
TEST_F(SegmentScanTest, ASummaryOfAnotherPlaceThanItsFooterSaidIsDamaged) {
  ZoneImage image(shape());
  const std::uint32_t batch = add(image, 1, 2);
  const std::uint32_t summary = image.close_segment();
  add(image, 10, 2);
  const std::uint32_t other = image.close_segment();
  const auto bytes = [&](std::uint32_t lba, std::uint32_t lbas) {
    return image.bytes().subspan(std::size_t{lba} * kBytes, std::size_t{lbas} * kBytes);
  };
  ASSERT_EQ(32 - summary, 64 - other);
  SegmentScan made({image.shape().stamp, 0, 32, image.written_lbas(), kBytes, false});
  made.feed(bytes(31, 1));
  ASSERT_EQ(made.next()->lba, summary);
  made.feed(bytes(other, 64 - other));
  EXPECT_TRUE(made.damaged());
  while (const auto read = made.next()) made.feed(bytes(read->lba, read->lbas));
  EXPECT_EQ(made.batch_lbas(), std::vector{batch}) << "by its header";
}

TEST_F(SegmentScanTest, RecordsOfASummaryCanStayWhereTheyAre) {
  // Blocks of 64 are handed out: none, fewer, as many, more.
  for (const std::uint64_t count : {0u, 1u, 63u, 64u, 65u, 128u, 130u}) {
    ZoneImage image(shape(512, 512));
    if (count != 0) add(image, 1, count, 40);
    image.close_segment();
    const SegmentScan found = scan(image, 0, true);
    EXPECT_TRUE(found.records().empty());
    std::vector<PageRecord> seen;
    found.for_each([&](std::span<const PageRecord> some) {
      seen.insert(seen.end(), some.begin(), some.end());
    });
    EXPECT_EQ(seen, image.records()) << count;
    std::vector<PageRecord> copied;
    const SegmentScan copying = scan(image);
    copying.for_each([&](std::span<const PageRecord> some) {
      copied.insert(copied.end(), some.begin(), some.end());
    });
    EXPECT_EQ(copied, image.records());
  }
}

TEST_F(SegmentScanTest, WithoutASummaryBatchHeadersTell) {
  ZoneImage image(shape());
  std::vector<std::uint32_t> batches{add(image, 1, 3), add(image, 10, 1, 512, 8),
                                     add(image, 20, 2, 1, 4)};
  SegmentScan found = scan(image);
  EXPECT_FALSE(found.summarized());
  EXPECT_EQ(found.records(), image.records());
  EXPECT_EQ(found.batch_lbas(), batches);
  EXPECT_EQ(found.flushed_lba(), 8u) << "the highest";
  EXPECT_TRUE(found.gaps().empty());
  EXPECT_FALSE(found.damaged());
  EXPECT_EQ(reads_.size(), 3u) << "one a batch";
  EXPECT_EQ(reads_[0].lba, 1u) << "behind the zone header";
  EXPECT_EQ(found.take_records(), image.records());
}

TEST_F(SegmentScanTest, LaterSegmentsBeginAtTheirBegin) {
  ZoneImage image(shape());
  add(image, 1, 1);
  image.close_segment();
  const std::uint32_t batch = add(image, 5, 2);
  const SegmentScan found = scan(image, 1);
  EXPECT_EQ(batch, 32u);
  ASSERT_EQ(found.records().size(), 2u);
  EXPECT_EQ(found.records()[0].sequence, 5u);
  EXPECT_EQ(scan(image, 0).records().size(), 1u);
  EXPECT_TRUE(scan(image, 2).records().empty());
}

TEST_F(SegmentScanTest, AHeaderLongerThanTheFirstReadIsReadWhole) {
  ZoneImage image(shape(1024, 1024));
  std::vector<ZoneImage::Item> items;
  for (std::uint64_t i = 0; i < 400; ++i) items.push_back(ZoneImage::tombstone(i, i + 1));
  image.add_batch(items);
  add(image, 1000, 2);
  const SegmentScan found = scan(image);
  EXPECT_EQ(found.records(), image.records());
  EXPECT_TRUE(found.gaps().empty());
  EXPECT_EQ(reads_.size(), 3u);
  EXPECT_EQ(reads_[1].lbas, (80 + 400 * 48 + kBytes - 1) / kBytes);
}

TEST_F(SegmentScanTest, ADamagedSummaryCostsNothing) {
  ZoneImage whole(shape());
  const std::uint32_t first = add(whole, 1, 3), second = add(whole, 10, 2);
  const std::uint32_t summary = whole.close_segment();
  // Footer or body, damaged or unreadable.
  for (const std::uint64_t lba : {std::uint64_t{31}, std::uint64_t{summary}}) {
    for (const bool unreadable : {false, true}) {
      ZoneImage image = whole;
      unreadable_.clear();
      if (unreadable) {
        unreadable_ = {lba};
      } else {
        image.damage(lba);
      }
      const SegmentScan found = scan(image);
      EXPECT_TRUE(found.damaged());
      EXPECT_FALSE(found.summarized());
      EXPECT_EQ(found.records(), image.records());
      EXPECT_EQ(found.batch_lbas(), (std::vector<std::uint32_t>{first, second}));
      ASSERT_EQ(found.gaps().size(), 1u) << "where writing ended, or damage begins";
      EXPECT_EQ(found.gaps()[0], second + 1 + 4);
    }
  }
}

TEST_F(SegmentScanTest, ADamagedBatchHeaderCostsItsOwnBatch) {
  ZoneImage whole(shape());
  const std::vector<std::uint32_t> batches{add(whole, 1, 2), add(whole, 11, 3), add(whole, 21, 2),
                                           add(whole, 31, 1)};
  for (std::size_t bad = 0; bad < batches.size(); ++bad) {
    for (const bool unreadable : {false, true}) {
      ZoneImage image = whole;
      unreadable_.clear();
      if (unreadable) {
        unreadable_ = {batches[bad]};
      } else {
        image.damage(batches[bad]);
      }
      const SegmentScan found = scan(image);
      std::set<std::uint64_t> gone;
      for (std::uint64_t i = 0; i < 3; ++i) gone.insert(1 + bad * 10 + i);
      EXPECT_EQ(found.records(), records(whole, gone)) << bad;
      EXPECT_EQ(found.gaps(), std::vector<std::uint64_t>{batches[bad]}) << bad;
      std::vector<std::uint32_t> rest = batches;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(bad));
      EXPECT_EQ(found.batch_lbas(), rest);
    }
  }
  // Two in a row are one gap: nobody knows where the second one was.
  ZoneImage image = whole;
  unreadable_.clear();
  image.damage(batches[1]);
  image.damage(batches[2]);
  EXPECT_EQ(scan(image).gaps(), std::vector<std::uint64_t>{batches[1]});
  EXPECT_EQ(scan(image).records(), records(whole, {11, 12, 13, 21, 22}));
  // And an unreadable page behind a damaged header is looked past.
  unreadable_ = {batches[1] + 2u};
  EXPECT_EQ(scan(image).records(), records(whole, {11, 12, 13, 21, 22}));
  EXPECT_TRUE(scan(image).damaged());
}

// What a note repeats is not lost with its header, damaged or unreadable, one or several in a row.
TEST_F(SegmentScanTest, ANoteFillsTheGapsBeforeIt) {
  ZoneImage whole(shape());
  std::vector<std::uint32_t> batches{add(whole, 1, 2), add(whole, 11, 3)};
  batches.push_back(whole.add_batch({ZoneImage::tombstone(5, 20)}));
  batches.push_back(whole.add_note());
  batches.push_back(add(whole, 31, 1));
  for (unsigned bad = 1; bad < 8; ++bad) {
    for (const bool unreadable : {false, true}) {
      ZoneImage image = whole;
      unreadable_.clear();
      for (unsigned i = 0; i < 3; ++i) {
        if ((bad >> i & 1) == 0) continue;
        if (unreadable) unreadable_.insert(batches[i]);
        if (!unreadable) image.damage(batches[i]);
      }
      const SegmentScan found = scan(image);
      EXPECT_EQ(found.records(), image.records()) << bad;
      EXPECT_EQ(found.batch_lbas(), batches);
      EXPECT_TRUE(found.gaps().empty());
      EXPECT_TRUE(found.unreadable_gaps().empty());
    }
  }
}

TEST_F(SegmentScanTest, ANoteFillsNothingElse) {
  ZoneImage whole(shape());
  const std::uint32_t first = add(whole, 1, 2), second = add(whole, 11, 2);
  const std::uint32_t note = whole.add_note(1);
  const std::uint32_t last = add(whole, 21, 1);
  ZoneImage image = whole;
  image.damage(first);
  EXPECT_EQ(scan(image).gaps(), std::vector<std::uint64_t>{first}) << "it was not repeated";
  EXPECT_EQ(scan(image).records(), records(whole, {1, 2}));
  image.damage(second);  // one gap with it, of which the note knows a part
  EXPECT_EQ(scan(image).gaps(), std::vector<std::uint64_t>{first});
  EXPECT_EQ(scan(image).records(), records(whole, {1, 2, 11, 12}));
  image = whole;
  image.damage(last);
  EXPECT_EQ(scan(image).gaps(), std::vector<std::uint64_t>{last}) << "it stands behind the note";
  for (const bool unreadable : {false, true}) {
    image = whole;
    image.damage(second);
    unreadable_ = {note + 1u};
    if (!unreadable) image.damage(note + 1), unreadable_.clear();
    EXPECT_EQ(scan(image).gaps(), std::vector<std::uint64_t>{second}) << "the note is damaged, too";
    EXPECT_EQ(scan(image).records(), records(whole, {11, 12}));
  }
}

// It may be torn: the flush that the note knows of did not cover it.
TEST_F(SegmentScanTest, ANoteFillsNoGapThatWasNotDurable) {
  ZoneImage image(shape());
  const std::uint32_t first = add(image, 1, 2), second = add(image, 11, 2);
  image.add_note(0, second);
  image.damage(first);
  image.damage(second);
  EXPECT_EQ(scan(image).gaps(), std::vector<std::uint64_t>{second}) << "what is left of one gap";
  EXPECT_EQ(scan(image).records(), records(image, {11, 12}));
  ZoneImage other(shape());
  add(other, 1, 2);
  const std::uint32_t torn = add(other, 11, 2);
  other.add_note(0, torn);
  other.damage(torn);
  EXPECT_EQ(scan(other).gaps(), std::vector<std::uint64_t>{torn});
}

TEST_F(SegmentScanTest, WhatCouldNotBeReadIsToldApartFromDamage) {
  ZoneImage whole(shape());
  const std::uint32_t first = add(whole, 1, 2), second = add(whole, 11, 3);
  const std::uint32_t third = add(whole, 21, 1);
  ZoneImage image = whole;
  image.damage(first);
  unreadable_ = {third};
  SegmentScan found = scan(image);
  EXPECT_EQ(found.gaps(), (std::vector<std::uint64_t>{first, third}));
  EXPECT_EQ(found.unreadable_gaps(), std::vector<std::uint64_t>{third});
  EXPECT_FALSE(found.unreadable_before(third));
  EXPECT_TRUE(found.unreadable_before(third + 1));
  unreadable_ = {second};  // what follows the damaged header may be one, too
  EXPECT_EQ(scan(image).unreadable_gaps(), std::vector<std::uint64_t>{first});
  // A summary that cannot be read hides no batch header.
  unreadable_ = {31};
  image = whole;
  image.close_segment();
  found = scan(image);
  EXPECT_EQ(found.records(), image.records());
  EXPECT_TRUE(found.unreadable_gaps().empty());
}

TEST_F(SegmentScanTest, AnUnreadablePageCostsNoHeader) {
  ZoneImage image(shape());
  const std::vector<std::uint32_t> batches{add(image, 1, 2), add(image, 11, 2), add(image, 21, 1)};
  std::vector<ZoneImage::Item> items;
  for (std::uint64_t i = 0; i < 20; ++i) items.push_back(ZoneImage::tombstone(i, i + 30));
  const std::uint32_t long_one = image.add_batch(items);
  for (std::uint64_t lba = 1; lba < long_one; ++lba) {
    if (std::ranges::count(batches, lba) != 0) continue;
    unreadable_ = {lba};
    const SegmentScan found = scan(image);
    EXPECT_EQ(found.records(), image.records()) << lba;
    EXPECT_TRUE(found.gaps().empty());
  }
  unreadable_ = {long_one + 1u};
  EXPECT_EQ(scan(image).gaps(), std::vector<std::uint64_t>{long_one}) << "it is the header's";
  EXPECT_EQ(scan(image).records().size(), 5u);
}

TEST_F(SegmentScanTest, DamageInTheRecordsOfALongHeaderIsAGap) {
  ZoneImage image(shape());
  add(image, 1, 1);
  std::vector<ZoneImage::Item> items;
  for (std::uint64_t i = 0; i < 30; ++i) items.push_back(ZoneImage::tombstone(i, i + 10));
  const std::uint32_t long_one = image.add_batch(items);
  add(image, 100, 1);
  image.damage(long_one + 2);  // the fixed part is whole
  const SegmentScan found = scan(image);
  EXPECT_EQ(found.gaps(), std::vector<std::uint64_t>{long_one});
  ASSERT_EQ(found.records().size(), 2u);
  EXPECT_EQ(found.records()[1].sequence, 100u);
}

// The second is found, as its fixed part is whole, and is none either: two gaps, one behind the
// other, of which what the note says is taken once.
TEST_F(SegmentScanTest, ANoteFillsGapsInARowOnce) {
  ZoneImage image(shape());
  const std::uint32_t first = add(image, 1, 1);
  std::vector<ZoneImage::Item> items;
  for (std::uint64_t i = 0; i < 30; ++i) items.push_back(ZoneImage::tombstone(i, i + 10));
  const std::uint32_t second = image.add_batch(items);
  const std::uint32_t note = image.add_note();
  image.damage(first);
  image.damage(second + 2);
  const SegmentScan found = scan(image);
  EXPECT_TRUE(found.gaps().empty());
  EXPECT_EQ(found.batch_lbas(), (std::vector<std::uint32_t>{first, second, note}));
  EXPECT_EQ(found.records(), image.records());
}

TEST_F(SegmentScanTest, ABatchThatWasNotWrittenWholeIsAGap) {
  ZoneImage whole(shape());
  add(whole, 1, 2);
  const std::uint32_t torn = add(whole, 11, 3);
  for (std::uint32_t written = torn + 1; written < whole.written_lbas(); ++written) {
    ZoneImage image = whole;
    image.set_written(written);
    const SegmentScan found = scan(image);
    EXPECT_EQ(found.records(), records(whole, {11, 12, 13})) << written;
    EXPECT_EQ(found.gaps(), std::vector<std::uint64_t>{torn});
  }
  ZoneImage image = whole;
  image.set_written(torn);
  EXPECT_TRUE(scan(image).gaps().empty()) << "it was never begun";
}

TEST_F(SegmentScanTest, NothingOfAnotherLifeOrPlacePassesForAHeader) {
  // An earlier life of the zone, whose structures are still there behind the newer ones.
  ZoneImage::Shape earlier = shape();
  earlier.stamp.generation = 76;
  ZoneImage old(earlier);
  add(old, 1, 3);
  const std::uint32_t behind = add(old, 11, 3);
  old.close_segment();
  ZoneImage image(shape());
  add(image, 1, 3);
  ASSERT_EQ(image.written_lbas(), behind);
  for (std::uint64_t lba = behind; lba < 32; ++lba) {
    std::ranges::copy(old.lba(lba), image.lba(lba).begin());
  }
  image.set_written(32);
  SegmentScan found = scan(image);
  EXPECT_EQ(found.records(), image.records());
  EXPECT_EQ(found.gaps(), std::vector<std::uint64_t>{behind});
  EXPECT_FALSE(found.summarized());
  // A page that is a copy of a header of this zone, met while looking for the next one.
  ZoneImage crafted(shape());
  const std::uint32_t first = add(crafted, 1, 1);
  const std::uint32_t bad = add(crafted, 11, 2, 512);
  std::ranges::copy(crafted.lba(first), crafted.lba(bad + 1).begin());
  const std::uint32_t last = add(crafted, 21, 1);
  crafted.damage(bad);
  found = scan(crafted);
  EXPECT_EQ(found.batch_lbas(), (std::vector<std::uint32_t>{first, last}));
  EXPECT_EQ(found.records(), records(crafted, {11, 12}));
}

TEST_F(SegmentScanTest, ANewerStructureIsToldApartFromDamage) {
  ZoneImage whole(shape());
  const std::uint32_t first = add(whole, 1, 1), second = add(whole, 11, 1);
  const std::uint32_t note = whole.add_note();
  const auto version = [this](const ZoneImage& image, std::uint64_t end_lba) {
    return scan(image).version_before(end_lba).code();
  };
  EXPECT_EQ(version(whole, 96), Code::ok);
  for (const bool damaged : {false, true}) {  // the header before it: it is met by searching
    for (const std::uint32_t lba : {second, note}) {
      ZoneImage image = whole;
      if (damaged) image.damage(first);
      image.make_newer(lba);
      EXPECT_EQ(version(image, 96), Code::unsupported) << lba;
      EXPECT_EQ(version(image, lba + 1), Code::unsupported) << lba;
      EXPECT_EQ(version(image, lba), Code::ok) << "where a trim cuts it off";
      ZoneStamp other = image.shape().stamp;
      other.generation = 78;
      EXPECT_TRUE(scan(image, other, 0, false).version_before(96).ok());
    }
  }
  ZoneImage image = whole;
  image.damage(first);
  image.make_newer(image.written_lbas() - 1);  // the note's summary
  EXPECT_EQ(version(image, 96), Code::unsupported);
  image = whole;
  image.close_segment();
  image.make_newer(31);
  EXPECT_EQ(version(image, 32), Code::unsupported);
  EXPECT_EQ(version(image, 31), Code::ok);
  EXPECT_EQ(scan(image).records(), whole.records()) << "batch headers tell, for what that is worth";
}

TEST_F(SegmentScanTest, AnotherStampFindsNothing) {
  ZoneImage image(shape());
  add(image, 1, 2);
  image.close_segment();
  ZoneStamp other = image.shape().stamp;
  other.zone = ZoneId{6};
  EXPECT_TRUE(scan(image, other, 0, false).records().empty());
  other = image.shape().stamp;
  other.pool.fill(4);
  EXPECT_TRUE(scan(image, other, 0, false).records().empty());
}

// Bytes made to look like a summary, which no writer wrote.
TEST_F(SegmentScanTest, ASummaryThatPointsOutOfItsSegmentIsNotBelieved) {
  ZoneImage image(shape());
  add(image, 1, 1);
  image.close_segment();
  add(image, 5, 2);
  const std::uint32_t second = image.close_segment();
  constexpr std::size_t kFirstLbaAt = kPrefixBytes + kStampBytes + 8 + 8 + 4;
  const auto footer = image.lba(63).last(kFooterBytes);
  ASSERT_EQ(load_le<std::uint32_t>(footer.data() + kFirstLbaAt), second);
  store_le<std::uint32_t>(footer.data() + kFirstLbaAt, 31);      // in the segment before
  store_le<std::uint32_t>(footer.data() + kFirstLbaAt + 4, 31);  // where its data ends
  store_le<std::uint32_t>(footer.data() + kFirstLbaAt + 8, 64 - 31);
  store_le<std::uint32_t>(footer.data() + kFirstLbaAt + 24, (64 - 31) * kBytes);
  reseal(footer);
  const SegmentScan found = scan(image, 1);
  EXPECT_FALSE(found.summarized());
  ASSERT_EQ(found.records().size(), 2u) << "from the batch headers";
}

}  // namespace
}  // namespace furrow
