// Establishes that a zone whose headers or summaries are damaged is written anew with all that they
// said: the same records at the same LBAs, pages byte for byte, intact by survey() and under
// another stamp; that what nobody knows any more is not called rebuildable; and that an error (a
// page that cannot be read, a write or flush that fails, what does not read back) leaves the old
// zone as it was and the new one empty. How: images of zones on a mem: device, each structure
// damaged in turn.
#include "log/zone_rebuild.h"

#include <set>

#include "tests/log/reseal.h"
#include "tests/log/zone_image.h"
#include "zone/blocking.h"

namespace furrow {
namespace {

using Closing = SurveyedSegment::Closing;

class ZoneRebuildTest : public LogRig {
 protected:
  static constexpr ZoneId kFrom{4}, kTo{6};

  void SetUp() override {
    make({});
    ZoneImage::Shape shape;
    shape.stamp = {superblock_.pool, kFrom, 77};
    shape.hash_key = superblock_.hash_key;
    shape.stream = 1;
    image_ = std::make_unique<ZoneImage>(shape);
    for (std::uint64_t segment = 0; segment < 3; ++segment) {
      for (std::uint64_t batch = 0; batch < 3; ++batch) {
        std::vector<ZoneImage::Item> items{ZoneImage::tombstone(7, 9)};
        for (std::uint64_t i = 0; i <= batch; ++i) {
          const std::uint64_t n = segment * 100 + batch * 10 + i + 1;
          items.push_back(ZoneImage::in_group(image_->page(n, n, 600), segment));
        }
        batches_.push_back(image_->add_batch(items));
      }
      if (segment != 2) image_->close_segment();
    }
    queue_of_test_ = *device_->create_queue(4);
  }
  void TearDown() override { queue_of_test_.reset(); }

  SurveyedZone zone(const ZoneStamp& stamp) {
    const std::uint64_t written = info(stamp.zone).written_lbas;
    return {stamp, written, written, shape_.zone_capacity_lbas, shape_.segment_lbas, kLbaBytes};
  }
  ZoneSurvey look(const SurveyedZone& at) {
    return survey(at, [this, &at](std::uint64_t lba, std::uint32_t lbas) {
      buffer_ = AlignedBuffer(std::size_t{lbas} * kLbaBytes);
      Io io;
      io.op = Io::Op::read;
      io.lba = Lba{device_->geometry().zone_start(at.stamp.zone).value + lba};
      io.set_data(buffer_.data(), lbas, kLbaBytes);
      const Status status = run_blocking(*queue_of_test_, io);
      if (!status.ok()) return Result<std::span<const std::byte>>(status);
      return Result<std::span<const std::byte>>(buffer_.span());
    });
  }
  Result<std::uint64_t> rebuild() { return rebuild(zone({superblock_.pool, kFrom, 77})); }
  Result<std::uint64_t> rebuild(const SurveyedZone& from) {
    survey_ = look(from);
    const ZoneHeader header{{superblock_.pool, kTo, 99}, kVolume, 50, 1};
    return rebuild_zone(*queue_of_test_, device_->geometry(), from, survey_, header);
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
  // The new zone says what the image said, up to `end_lba` and but for `torn`, and is intact.
  void expect_rebuilt(std::uint64_t end_lba = ~std::uint64_t{0}, std::uint32_t torn = 0) {
    const ZoneSurvey now = look(zone({superblock_.pool, kTo, 99}));
    EXPECT_TRUE(now.header_intact);
    std::vector<PageRecord> wanted = image_->records();
    std::erase_if(wanted, [&](const PageRecord& r) { return r.lba >= end_lba || r.lba == torn; });
    EXPECT_EQ(records(now), wanted);
    const std::vector<std::byte> bytes = read_zone(*device_, kTo);
    for (const SurveyedSegment& segment : now.segments) {
      EXPECT_NE(segment.closing, Closing::damaged);
      EXPECT_TRUE(segment.gaps.empty());
      EXPECT_FALSE(segment.contradicts);
      for (const SurveyedBatch& batch : segment.batches) {
        EXPECT_TRUE(batch.intact);
        EXPECT_EQ(batch.header.stream, 1);
      }
    }
    for (const PageRecord& r : wanted) {
      if (r.kind != RecordKind::page) continue;
      const std::size_t at = std::size_t{r.lba} * kLbaBytes;
      EXPECT_TRUE(std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                             bytes.begin() + static_cast<std::ptrdiff_t>(at + r.length),
                             image_->bytes().begin() + static_cast<std::ptrdiff_t>(at)));
    }
    const auto header =
        decode_zone_header(std::span(bytes).first(kLbaBytes), superblock_.pool, kTo);
    ASSERT_TRUE(header.ok());
    EXPECT_EQ(header->volume, kVolume);
    EXPECT_EQ(header->opened_sequence, 50u);
  }
  void expect_untouched(const std::vector<std::byte>& before) {
    EXPECT_EQ(info(kTo).written_lbas, 0u);
    EXPECT_EQ(info(kTo).state, ZoneState::empty);
    EXPECT_TRUE(read_zone(*device_, kFrom) == before);
  }

  std::unique_ptr<ZoneImage> image_;
  std::vector<std::uint32_t> batches_;
  std::unique_ptr<IoQueue> queue_of_test_;
  AlignedBuffer buffer_;
  ZoneSurvey survey_;
};

TEST_F(ZoneRebuildTest, WhateverStructureIsDamaged) {
  std::set<std::uint64_t> structures{0, 31, 63};
  for (std::size_t i = 0; i < 6; ++i) structures.insert(batches_[i]);
  for (const std::uint64_t lba : structures) {
    ZoneImage damaged = *image_;
    damaged.damage(lba);
    damaged.write_to(*device_);
    const std::vector<std::byte> before = read_zone(*device_, kFrom);
    const Result<std::uint64_t> end = rebuild();
    ASSERT_TRUE(end.ok()) << lba << ": " << end.status().describe();
    EXPECT_TRUE(is_rebuildable(survey_));
    EXPECT_EQ(*end, image_->written_lbas());
    expect_rebuilt();
    EXPECT_TRUE(read_zone(*device_, kFrom) == before) << "the old zone is not touched";
    ASSERT_TRUE(direct(Io::Op::reset, kTo).ok());
  }
}

TEST_F(ZoneRebuildTest, SeveralAtOnceAndAFullZone) {
  image_->close_segment();
  ZoneImage damaged = *image_;
  for (const std::uint64_t lba :
       {std::uint64_t{0}, std::uint64_t{batches_[0]}, std::uint64_t{batches_[2]}, std::uint64_t{63},
        std::uint64_t{batches_[7]}}) {
    damaged.damage(lba);
  }
  damaged.write_to(*device_);
  ASSERT_EQ(info(kFrom).state, ZoneState::full);
  const Result<std::uint64_t> end = rebuild();
  ASSERT_TRUE(end.ok()) << end.status().describe();
  EXPECT_EQ(*end, shape_.zone_capacity_lbas);
  EXPECT_EQ(info(kTo).state, ZoneState::full);
  expect_rebuilt();
}

// What a note repeats bears the old zone's stamp: zeroes are in its place.
TEST_F(ZoneRebuildTest, NotesAreEmptied) {
  const std::uint32_t note = image_->add_note();
  ZoneImage damaged = *image_;
  damaged.damage(0);
  damaged.write_to(*device_);
  ASSERT_TRUE(rebuild().ok());
  expect_rebuilt();
  const std::vector<std::byte> bytes = read_zone(*device_, kTo);
  const Result<BatchHeader> header =
      BatchView::fixed_part(std::span(bytes).subspan(std::size_t{note} * kLbaBytes, kLbaBytes),
                            {superblock_.pool, kTo, 99});
  ASSERT_TRUE(header.ok());
  ASSERT_TRUE(is_note(*header));
  const auto behind = std::span(bytes).subspan((std::size_t{note} + 1) * kLbaBytes,
                                               (std::size_t{header->batch_lbas} - 1) * kLbaBytes);
  EXPECT_TRUE(std::ranges::all_of(behind, [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(ZoneRebuildTest, ItIsDurableWhenItReturns) {
  device_->forget_events();
  image_->write_to(*device_);
  ASSERT_TRUE(rebuild().ok());
  const std::vector<TapDevice::Event> events = device_->events();
  const auto last_write = std::find_if(events.rbegin(), events.rend(), [](const auto& e) {
    return e.op == Io::Op::write && e.zone == kTo;
  });
  ASSERT_NE(last_write, events.rend());
  EXPECT_TRUE(std::any_of(events.rbegin(), last_write,
                          [](const auto& e) { return e.op == Io::Op::flush && e.answered; }));
}

TEST_F(ZoneRebuildTest, WhatIsVoidIsNotCopied) {
  image_->write_to(*device_);
  SurveyedZone from = zone({superblock_.pool, kFrom, 77});
  for (const std::uint64_t end :
       std::vector<std::uint64_t>{batches_[7], batches_[8] + 3u, batches_[8] + 1u, 40, 32}) {
    from.end_lba = end;
    const Result<std::uint64_t> written = rebuild(from);
    ASSERT_TRUE(written.ok()) << end << ": " << written.status().describe();
    EXPECT_LE(*written, std::max<std::uint64_t>(end + 2, 32)) << end;
    expect_rebuilt(end);
    ASSERT_TRUE(direct(Io::Op::reset, kTo).ok());
  }
}

TEST_F(ZoneRebuildTest, NorIsATornPage) {
  image_->write_to(*device_);
  for (const PageRecord& torn : image_->records()) {
    if (torn.kind != RecordKind::page) continue;
    SurveyedZone from = zone({superblock_.pool, kFrom, 77});
    from.torn = {torn.lba};
    const Result<std::uint64_t> written = rebuild(from);
    ASSERT_TRUE(written.ok()) << torn.lba << ": " << written.status().describe();
    EXPECT_EQ(*written, image_->written_lbas());
    expect_rebuilt(~std::uint64_t{0}, torn.lba);
    ASSERT_TRUE(direct(Io::Op::reset, kTo).ok());
  }
}

TEST_F(ZoneRebuildTest, WhatNobodyKnowsIsNotRebuildable) {
  image_->write_to(*device_);
  ASSERT_TRUE(rebuild().ok());
  EXPECT_TRUE(is_rebuildable(survey_));
  EXPECT_TRUE(is_rebuildable(ZoneSurvey()));
  for (const bool with_summary : {false, true}) {
    ZoneImage damaged = *image_;
    damaged.damage(batches_[with_summary ? 1 : 7]);
    if (with_summary) damaged.damage(31);
    damaged.write_to(*device_);
    EXPECT_FALSE(is_rebuildable(look(zone({superblock_.pool, kFrom, 77}))));
  }
  ZoneImage contradiction = *image_;
  const auto header = contradiction.lba(batches_[0]);
  header[kBatchHeaderBytes + 16] ^= std::byte{1};
  reseal_batch(header);
  contradiction.write_to(*device_);
  EXPECT_FALSE(is_rebuildable(look(zone({superblock_.pool, kFrom, 77}))));
}

TEST_F(ZoneRebuildTest, AnErrorLeavesTheOldZoneAndAnEmptyNewOne) {
  ZoneImage damaged = *image_;
  damaged.damage(batches_[1]);
  damaged.write_to(*device_);
  const std::vector<std::byte> before = read_zone(*device_, kFrom);
  const SurveyedZone from = zone({superblock_.pool, kFrom, 77});
  const ZoneSurvey found = look(from);
  const ZoneHeader header{{superblock_.pool, kTo, 99}, kVolume, 50, 1};
  for (const Io::Op op : {Io::Op::write, Io::Op::read, Io::Op::flush}) {
    device_->fail(op, {Code::io_error, Origin::zone});
    const Result<std::uint64_t> end =
        rebuild_zone(*queue_of_test_, device_->geometry(), from, found, header);
    EXPECT_EQ(end.status().code(), Code::io_error);
    expect_untouched(before);
  }
  EXPECT_TRUE(rebuild().ok()) << "another attempt";
  expect_rebuilt();
}

TEST_F(ZoneRebuildTest, WhatDoesNotReadBackIsNoRebuiltZone) {
  image_->write_to(*device_);
  const std::vector<std::byte> before = read_zone(*device_, kFrom);
  const SurveyedZone from = zone({superblock_.pool, kFrom, 77});
  ZoneSurvey wrong = look(from);
  std::swap(wrong.segments[2].batches[0], wrong.segments[2].batches[1]);
  const ZoneHeader header{{superblock_.pool, kTo, 99}, kVolume, 50, 1};
  const auto end = rebuild_zone(*queue_of_test_, device_->geometry(), from, wrong, header);
  EXPECT_EQ(end.status().code(), Code::io_error) << "it does not read back as it was written";
  expect_untouched(before);
}

TEST_F(ZoneRebuildTest, WithoutAZoneToOpenItSaysSo) {
  image_->write_to(*device_);
  for (std::uint32_t i = 7; device_->geometry().active_zones_max != 0 && i < 10; ++i) {
    ASSERT_TRUE(direct(Io::Op::open, ZoneId{i}).ok());
  }
  ASSERT_TRUE(direct(Io::Op::open, ZoneId{3}).ok());
  const std::vector<std::byte> before = read_zone(*device_, kFrom);
  EXPECT_EQ(rebuild().status().code(), Code::too_many_zones);
  expect_untouched(before);
}

}  // namespace
}  // namespace furrow
