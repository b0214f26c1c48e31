// Establishes what Stream promises about durability: a zone's header and the zone before it are
// durable before anything follows it, by one flush; headers carry the last flush point, a note does
// when nothing follows, and an orderly close notes the whole. How: a stream alone, on a device that
// writes down what it is asked and holds answers back; what it wrote is read by ZoneSurvey.
#include "log/stream.h"
#include "tests/log/stream_rig.h"

namespace furrow {
namespace {

TEST_F(StreamTest, AZonesHeaderIsDurableBeforeAnythingFollows) {
  device_->hold(Io::Op::flush);
  Page& first = put(1, 700);
  EXPECT_TRUE(run());
  EXPECT_EQ(owner_.zones_opened, 1u);
  ASSERT_EQ(writes().size(), 1u) << "the header, and nothing before its flush is answered";
  EXPECT_EQ(writes()[0].lba, 0u);
  EXPECT_EQ(writes()[0].lbas, 1u);
  EXPECT_EQ(first.answers, 0u);
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(run());
  ASSERT_EQ(writes().size(), 2u);
  EXPECT_EQ(first.answers, 1u);
  const ZoneId zone = writes()[0].zone;
  const std::vector<std::byte> bytes = read_zone(*device_, zone);
  const auto header = decode_zone_header(std::span(bytes).first(kLbaBytes), pool_->pool, zone);
  ASSERT_TRUE(header.ok()) << header.status().describe();
  EXPECT_EQ(header->volume, kVolume);
  EXPECT_EQ(header->stream, kUserStream);
  EXPECT_EQ(header->stamp.generation, generation(zone));
  EXPECT_LT(header->opened_sequence, pool_->next_sequence);
}

// A cache's zone counts no more where one behind it is gone: none that is opened then may say that
// it came next.
TEST_F(StreamTest, AZoneNamesTheOneBeforeItUnlessThatCountsNoMore) {
  const auto previous_of = [&](ZoneId zone) {
    const std::vector<std::byte> bytes = read_zone(*device_, zone);
    return decode_zone_header(std::span(bytes).first(kLbaBytes), pool_->pool, zone)
        ->previous_opened;
  };
  const ZoneId first = zone_of(put_now(1, 100));
  const ZoneId second = zone_of(fill_zone());
  pool_->tables[second.value].evicted = true;
  const ZoneId third = zone_of(fill_zone());
  EXPECT_EQ(previous_of(first), 0u);
  EXPECT_EQ(previous_of(second), pool_->allocator.zone(first).opened_sequence);
  EXPECT_EQ(previous_of(third), 0u);
}

// Flushes that were asked for before the zone's last write, or before the header, do not count.
TEST_F(StreamTest, NothingFollowsAHeaderBeforeAFlushOfItAndTheZoneBefore) {
  const ZoneId first = zone_of(put_now(1, 100));
  device_->hold(Io::Op::flush);
  device_->forget_events();
  stream_->note_flush();
  EXPECT_TRUE(run());
  ASSERT_EQ(device_->held(Io::Op::flush), 1u);
  const std::size_t opened = owner_.zones_opened;
  Page& next = fill_zone();
  EXPECT_EQ(pool_->allocator.zone(first).use, ZoneUse::sealed);
  EXPECT_EQ(owner_.zones_opened, opened + 1);
  const TapDevice::Event header = writes().back();
  EXPECT_NE(header.zone, first);
  EXPECT_EQ(header.lba, 0u);
  EXPECT_EQ(header.lbas, 1u);
  const std::size_t before = writes().size();
  EXPECT_FALSE(stream_->idle());

  device_->let_one_go(Io::Op::flush, 0);
  EXPECT_TRUE(run());
  EXPECT_EQ(writes().size(), before);
  EXPECT_EQ(next.answers, 0u);
  ASSERT_EQ(device_->held(Io::Op::flush), 1u) << "one for both";
  device_->let_one_go(Io::Op::flush, 0);
  EXPECT_TRUE(run());
  EXPECT_EQ(next.answers, 1u);
  EXPECT_EQ(zone_of(next), header.zone);
  EXPECT_EQ(device_->count(Io::Op::flush), 2u);
  EXPECT_FALSE(stream_->filled_unflushed());
}

TEST_F(StreamTest, AHeadersFlushComesBehindIt) {
  device_->hold(Io::Op::write);
  put(1, 600);
  EXPECT_TRUE(run());
  for (std::uint64_t i = 2; i < 82; ++i) put(i, 8 * kLbaBytes);  // enough not to wait for it
  EXPECT_TRUE(run());
  EXPECT_EQ(device_->held(Io::Op::write), 1u);
  EXPECT_EQ(device_->count(Io::Op::flush), 0u);
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  EXPECT_EQ(pages_[0]->answers, 1u);
}

TEST_F(StreamTest, AFailedFlushBetweenZonesIsToldAndTriedAgain) {
  device_->fail(Io::Op::flush, Status(), 0);
  put_now(1, 100);
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone}, 100);
  Page& told = fill_zone();
  EXPECT_EQ(told.answers, 1u);
  EXPECT_EQ(told.status.code(), Code::io_error);
  Page& removal = tombstone(3);
  stream_->append(removal);
  EXPECT_TRUE(run());
  EXPECT_EQ(removal.status.code(), Code::io_error) << "nor may a deletion wait for that";
  EXPECT_EQ(owner_.zones_opened, 2u);
  EXPECT_EQ(writes().back().lba, 0u) << "nothing follows the header";
  device_->fail(Io::Op::flush, Status(), 0);
  EXPECT_NE(zone_of(put_now(2, 100)), zone_of(*pages_[0]));
  EXPECT_EQ(owner_.zones_opened, 2u);
}

TEST_F(StreamTest, HeadersCarryTheLastFlushPoint) {
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  const auto last_point = [&] { return batches(zone).back().header.flushed_lba; };
  EXPECT_EQ(last_point(), 1u) << "the zone's header";
  put_now(2, 600);
  EXPECT_EQ(last_point(), 1u) << "nobody has asked for a flush";
  const auto written = static_cast<std::uint32_t>(stream_->written_lba(zone));
  EXPECT_EQ(stream_->written_lba(ZoneId{9}), ~std::uint64_t{0});
  device_->hold(Io::Op::flush);
  stream_->note_flush();
  EXPECT_TRUE(run());
  put_now(3, 600);  // written after the flush was submitted: not covered by it
  EXPECT_EQ(last_point(), 1u) << "the flush is not answered yet";
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(run());
  put_now(4, 600);
  EXPECT_EQ(last_point(), written);
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone});
  stream_->note_flush();
  EXPECT_TRUE(run());
  put_now(5, 600);
  EXPECT_EQ(last_point(), written) << "a flush that failed covers nothing";
}

TEST_F(StreamTest, AFlushCoversNothingThatIsStillInFlight) {
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  const std::uint64_t written = stream_->written_lba(zone);
  device_->hold(Io::Op::write);
  put(2, 600);
  EXPECT_TRUE(run());
  EXPECT_EQ(stream_->written_lba(zone), written);
  stream_->note_flush();
  EXPECT_TRUE(run());
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  put_now(3, 600);
  EXPECT_EQ(batches(zone).back().header.flushed_lba, written);
}

// Nor what is written when it has begun, though that is asked for before it ends.
TEST_F(StreamTest, AFlushCoversNothingThatIsWrittenWhenItHasBegun) {
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  const std::uint64_t first = stream_->written_lba(zone);
  device_->hold(Io::Op::flush);
  stream_->note_flush();
  EXPECT_TRUE(run());
  ASSERT_EQ(device_->held(Io::Op::flush), 1u);
  put_now(2, 600);
  const std::uint64_t second = stream_->written_lba(zone);
  stream_->note_flush();
  EXPECT_TRUE(run());
  device_->let_one_go(Io::Op::flush, 0);
  EXPECT_TRUE(run());
  put_now(3, 600);
  EXPECT_EQ(batches(zone).back().header.flushed_lba, first);
  device_->let_go(Io::Op::flush);
  EXPECT_TRUE(run());
  put_now(4, 600);
  EXPECT_EQ(batches(zone).back().header.flushed_lba, second);
}

// Nor a zone whose end is: it counts as filled when all of it is on the device.
TEST_F(StreamTest, AFlushDoesNotCoverAZoneWhoseEndIsStillInFlight) {
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  owner_.may_open = false;
  device_->hold(Io::Op::write);
  for (std::uint64_t i = 2; i < 82; ++i) put(i, 8 * kLbaBytes);  // together enough for all of it
  EXPECT_TRUE(run());
  ASSERT_EQ(stream_->room_lbas(), 0u);
  ASSERT_LT(stream_->written_lba(zone), shape_.zone_capacity_lbas);
  stream_->flush_filled();
  stream_->note_flush();
  EXPECT_TRUE(run());
  EXPECT_TRUE(stream_->unflushed());
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  ASSERT_EQ(pool_->allocator.zone(zone).use, ZoneUse::sealed);
  EXPECT_TRUE(stream_->filled_unflushed());
  stream_->flush_filled();
  EXPECT_TRUE(run());
  EXPECT_FALSE(stream_->filled_unflushed());
}

// Nor one that was filled when it had begun, or when it fails.
TEST_F(StreamTest, AFlushDoesNotCoverAZoneThatIsFilledMeanwhile) {
  put_now(1, 600);
  owner_.may_open = false;
  fill_zone();
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone});
  stream_->flush_filled();
  EXPECT_TRUE(run());
  EXPECT_TRUE(stream_->filled_unflushed());
  device_->hold(Io::Op::flush);
  owner_.may_open = true;
  stream_->kick();
  EXPECT_TRUE(run());
  ASSERT_EQ(device_->held(Io::Op::flush), 1u) << "of the next zone's header";
  stream_->flush_filled();
  device_->let_one_go(Io::Op::flush, 0);
  EXPECT_TRUE(run());
  ASSERT_FALSE(stream_->filled_unflushed());
  ASSERT_EQ(device_->held(Io::Op::flush), 1u) << "which was asked for behind it";
  owner_.may_open = false;
  fill_zone();
  device_->let_one_go(Io::Op::flush, 0);
  EXPECT_TRUE(run());
  EXPECT_TRUE(stream_->filled_unflushed());
  device_->let_go(Io::Op::flush);
  stream_->flush_filled();
  EXPECT_TRUE(run());
  EXPECT_FALSE(stream_->filled_unflushed());
}

TEST_F(StreamTest, ASummaryIsFollowedByAFlushInTheBackground) {
  put_now(1, 100);
  device_->forget_events();
  for (std::uint64_t i = 2; device_->count(Io::Op::flush) == 0; ++i) {
    ASSERT_LT(i, 20u);
    put_now(i, 5 * kLbaBytes);
  }
  const ZoneId zone = zone_of(*pages_[0]);
  const ZoneSurvey found = survey_zone(zone);
  EXPECT_EQ(found.segments[0].closing, SurveyedSegment::Closing::intact);
  ASSERT_GE(found.segments.size(), 2u);
  put_now(50, 1);
  EXPECT_GE(batches(zone).back().header.flushed_lba, shape_.segment_lbas);
}

TEST_F(StreamTest, AnOrderlyCloseNotesThatAllIsDurable) {
  EXPECT_TRUE(stream_->close()) << "nothing was written";
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  bool closed = false;
  for (unsigned i = 0; i < 10 && !closed; ++i) {
    closed = stream_->close();
    EXPECT_TRUE(run());
  }
  EXPECT_TRUE(closed);
  const std::vector<SurveyedBatch> found = batches(zone);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[1].records.empty());
  EXPECT_EQ(found[1].header.flushed_lba, found[1].header.lba) << "all before the note is durable";
}

// A flush that nothing follows is noted after a while, with what the batch headers say.
TEST_F(StreamTest, AFlushIsNotedWhenNothingFollows) {
  put_now(1, 600);
  put_now(2, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  const auto written = static_cast<std::uint32_t>(stream_->written_lba(zone));
  const std::uint64_t begin_ns = clock_.now_ns;
  stream_->note_flush();
  EXPECT_TRUE(run([&] { return stream_->idle(); }));
  EXPECT_EQ(stream_->room_lbas(), shape_.zone_capacity_lbas - written) << "not at once";
  EXPECT_TRUE(run());
  EXPECT_GT(clock_.now_ns, begin_ns + 9'000'000);
  const std::vector<SurveyedBatch> found = batches(zone);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(is_note(found[2].header));
  EXPECT_EQ(found[2].header.lba, written);
  EXPECT_EQ(found[2].header.flushed_lba, written);
  const std::vector<std::byte> bytes = read_zone(*device_, zone);
  const auto told = [&](const BatchHeader& note) {
    const auto body = std::span(bytes).subspan((note.lba + note.header_lbas) * kLbaBytes,
                                               (note.batch_lbas - note.header_lbas) * kLbaBytes);
    return SummaryView::open(body, note.stamp);
  };
  const auto first = told(found[2].header);
  ASSERT_TRUE(first.ok()) << first.status().describe();
  ASSERT_EQ(first->summary().record_count, 2u);
  EXPECT_EQ(first->record(0), found[0].records[0]);
  EXPECT_EQ(first->record(1), found[1].records[0]);
  EXPECT_EQ(first->batch_count(), 2u);
  // One is enough: not one for each flush that has nothing to make durable but notes.
  for (unsigned i = 0; i < 3; ++i) {
    stream_->note_flush();
    EXPECT_TRUE(run());
  }
  EXPECT_TRUE(stream_->close());
  EXPECT_EQ(batches(zone).size(), 3u);
}

TEST_F(StreamTest, ANoteRepeatsWhatNoOneBeforeItDid) {
  std::vector<std::uint32_t> notes;
  put_now(1, 100);
  const ZoneId zone = zone_of(*pages_[0]);
  for (std::uint64_t i = 2; i < 4; ++i) {
    stream_->note_flush();
    EXPECT_TRUE(run());
    put_now(i, 100);
  }
  stream_->note_flush();
  EXPECT_TRUE(run());
  const std::vector<std::byte> bytes = read_zone(*device_, zone);
  std::uint64_t told = 0;
  for (const SurveyedBatch& batch : batches(zone)) {
    if (!is_note(batch.header)) continue;
    const auto view =
        SummaryView::open(std::span(bytes).subspan((batch.header.lba + 1) * kLbaBytes,
                                                   (batch.header.batch_lbas - 1) * kLbaBytes),
                          batch.header.stamp);
    ASSERT_TRUE(view.ok());
    ASSERT_EQ(view->summary().record_count, 1u);
    EXPECT_EQ(view->record(0).sequence, pages_[told]->record.sequence);
    ++told;
  }
  EXPECT_EQ(told, 3u);
  // The segment's summary names all.
  while (survey_zone(zone).segments[0].closing == SurveyedSegment::Closing::open) {
    put_now(next_++, 5 * kLbaBytes);
  }
  EXPECT_FALSE(survey_zone(zone).segments[0].contradicts);
}

TEST_F(StreamTest, UnderLoadAFlushIsNotedByWhatFollows) {
  put_now(1, 100);
  const ZoneId zone = zone_of(*pages_[0]);
  for (std::uint64_t i = 2; i < 8; ++i) {
    stream_->note_flush();
    EXPECT_TRUE(run([&] { return stream_->idle(); }));
    Page& next = put(i, 100);
    EXPECT_TRUE(run([&] { return next.answers == 1 && stream_->idle(); }));
  }
  EXPECT_TRUE(run());
  const std::vector<SurveyedBatch> found = batches(zone);
  ASSERT_EQ(found.size(), 7u);
  for (const SurveyedBatch& batch : found) EXPECT_EQ(batch.records.size(), 1u);
}

TEST_F(StreamTest, NoNoteTakesWhatIsKeptForCopiesNorASegmentsEnd) {
  put_now(1, 100);
  const ZoneId zone = zone_of(*pages_[0]);
  owner_.may_write = false;
  stream_->note_flush();
  EXPECT_TRUE(run());
  EXPECT_EQ(batches(zone).size(), 1u);
  owner_.may_write = true;
  while (survey_zone(zone).segments.size() == 1) {
    put_now(next_++, 100);
    stream_->note_flush();
    EXPECT_TRUE(run());
  }
  const SurveyedSegment first = survey_zone(zone).segments[0];
  EXPECT_EQ(first.closing, SurveyedSegment::Closing::intact);
  EXPECT_FALSE(first.contradicts);
}

// However much the segment has, and be it the last one.
TEST_F(StreamTest, ANoteLeavesRoomForTheSummary) {
  for (std::uint64_t i = 0; i < 29 * 3 * 2; ++i) {
    const std::uint64_t pages = 1 + i % 29, tombstones = i / 29 % 3;
    const bool closes = i >= 29 * 3;
    SCOPED_TRACE(testing::Message() << pages << " pages, " << tombstones << ' ' << closes);
    const ZoneId zone = begin_segment(pages, tombstones);
    if (!closes) stream_->note_flush();
    EXPECT_TRUE(run());
    while (closes && !stream_->close()) EXPECT_TRUE(run());
    end_segment(zone);
  }
  for (std::uint64_t records = 1; records < 160; records += 9) {
    remake({}, 8 << 10);
    for (std::uint64_t i = 0; i < records; ++i) stream_->append(tombstone(i));
    EXPECT_TRUE(run());
    stream_->note_flush();
    EXPECT_TRUE(run());
    end_segment(zone_of(*pages_[0]));
  }
}

// What was in flight when it was due brings it up again.
TEST_F(StreamTest, ANoteComesBehindWhatWasInFlight) {
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  const auto written = static_cast<std::uint32_t>(stream_->written_lba(zone));
  device_->hold(Io::Op::write);
  put(2, 600);
  EXPECT_TRUE(run());
  stream_->note_flush();
  EXPECT_TRUE(run());
  EXPECT_EQ(device_->held(Io::Op::write), 1u);
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  const std::vector<SurveyedBatch> found = batches(zone);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(is_note(found[2].header));
  EXPECT_EQ(found[2].header.flushed_lba, written);
}

// Another volume may have it soon; or it is being finished.
TEST_F(StreamTest, NothingIsNotedInAZoneThatIsTakenAway) {
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  stream_->note_flush();
  EXPECT_TRUE(run([&] { return stream_->idle(); }));
  stream_->stop_notes();
  EXPECT_TRUE(run());
  EXPECT_EQ(batches(zone).size(), 1u);
}

TEST_F(StreamTest, NothingIsNotedInAZoneThatIsBeingEnded) {
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  stream_->note_flush();
  EXPECT_TRUE(run([&] { return stream_->idle(); }));
  const std::size_t before = writes().size();
  device_->hold(Io::Op::finish);
  stream_->end_zone();
  EXPECT_TRUE(run());
  ASSERT_EQ(device_->held(Io::Op::finish), 1u);
  EXPECT_EQ(writes().size(), before);
  device_->let_go(Io::Op::finish);
  EXPECT_TRUE(run());
  EXPECT_EQ(owner_.zones_abandoned, 1u);
  EXPECT_NE(zone_of(put_now(2, 600)), zone);
}

TEST_F(StreamTest, CloseFlushesTheZoneThatWasFilledLast) {
  put_now(1, 100);
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone}, 100);
  fill_zone();
  device_->fail(Io::Op::flush, Status(), 0);
  device_->forget_events();
  EXPECT_TRUE(stream_->idle());
  EXPECT_FALSE(stream_->close());
  EXPECT_TRUE(run());
  EXPECT_TRUE(stream_->close());
  EXPECT_EQ(device_->count(Io::Op::flush), 1u);
  EXPECT_TRUE(writes().empty());
}

TEST_F(StreamTest, CloseGoesOnWhenTheFlushFails) {
  put_now(1, 600);
  device_->fail(Io::Op::flush, {Code::io_error, Origin::zone});
  EXPECT_FALSE(stream_->close());
  EXPECT_TRUE(run());
  EXPECT_TRUE(stream_->close()) << "the next recovery verifies instead";
  EXPECT_EQ(batches(zone_of(*pages_[0])).size(), 1u) << "nothing false is noted";
}

}  // namespace
}  // namespace furrow
