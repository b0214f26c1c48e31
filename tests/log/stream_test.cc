// Establishes what Stream promises about order, batches, segments and zones: appends are answered
// in their order, never before they are on the device; those of one turn share a batch, and beside
// one in flight another starts only when 256 KiB wait; batches, pages, summaries and padding stand
// where the format says, at each way to fill a segment and a zone; relocations go first. How: a
// stream alone, on a device that writes down what it is asked and holds answers back; what it wrote
// is read by ZoneSurvey.
#include "log/stream.h"

#include <numeric>

#include "tests/log/stream_rig.h"

namespace furrow {
namespace {

TEST_F(StreamTest, NothingIsOpenedBeforeSomethingIsAppended) {
  stream_->kick();
  EXPECT_TRUE(run());
  EXPECT_TRUE(device_->events().empty());
  EXPECT_TRUE(stream_->idle());
  EXPECT_EQ(stream_->room_lbas(), 0u);
  EXPECT_EQ(owner_.zones_opened, 0u);
}

TEST_F(StreamTest, AppendsOfOneTurnShareABatchAndStandInTheirOrder) {
  put_now(0, 1);
  const std::size_t before = writes().size();
  std::vector<Page*> given;
  for (std::uint64_t i = 1; i <= 5; ++i)
    given.push_back(&put(i, static_cast<std::uint32_t>(300 * i)));
  tombstone(6);
  stream_->append(*pages_.back());
  given.push_back(pages_.back().get());
  EXPECT_TRUE(run());
  ASSERT_EQ(writes().size(), before + 1);
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
  const ZoneId zone = zone_of(*given[0]);
  const std::vector<SurveyedBatch> found = batches(zone);
  ASSERT_EQ(found.size(), 2u);
  const SurveyedBatch& batch = found[1];
  ASSERT_EQ(batch.records.size(), 6u);
  std::uint64_t lba = batch.header.lba + batch.header.header_lbas;
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(batch.records[i], given[i]->record);
    if (i == 5) break;
    EXPECT_EQ(batch.records[i].lba, lba) << "pages follow one another without gaps";
    lba += pool_->page_lbas(given[i]->record.length);
    EXPECT_EQ(given[i]->lba, pool_->device_lba(zone, given[i]->record.lba));
    expect_on_medium(*given[i]);
  }
  EXPECT_EQ(batch.records[5].lba, batch.header.lba) << "a tombstone lies at its batch's header";
  EXPECT_EQ(batch.header.lba + batch.header.batch_lbas, lba);
  for (std::size_t i = 1; i < 6; ++i) {
    EXPECT_EQ(batch.records[i].sequence, batch.records[i - 1].sequence + 1);
  }
  const ZoneDirectory& table = pool_->tables[zone.value];
  EXPECT_EQ(table.records, 7u);
  EXPECT_EQ(table.tombstones, 1u);
  EXPECT_EQ(batches_of(table),
            (std::vector<std::uint32_t>{found[0].header.lba, found[1].header.lba}));
}

TEST_F(StreamTest, WhatComesWhileABatchIsInFlightSharesTheNext) {
  put_now(0, 1);
  device_->hold(Io::Op::write);
  put(1, 100);
  EXPECT_TRUE(run());
  const std::size_t before = writes().size();
  for (std::uint64_t i = 2; i <= 9; ++i) {
    put(i, 100);
    EXPECT_TRUE(run());
  }
  EXPECT_EQ(writes().size(), before) << "one is in flight, and little waits";
  EXPECT_EQ(answered_.size(), 1u) << "nothing is answered that the device has not";
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  EXPECT_EQ(writes().size(), before + 1) << "eight appends, one batch";
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(StreamTest, ManyWaitingBytesStartAnotherBatchAndAnswersKeepTheirOrder) {
  remake(large(4096), 128 << 10);
  put_now(0, 1);
  device_->hold(Io::Op::write);
  put(1, 100);
  EXPECT_TRUE(run());
  put(2, 128 << 10);
  put(3, (128 << 10) - 1);
  EXPECT_TRUE(run());
  EXPECT_EQ(device_->held(Io::Op::write), 1u) << "a byte short of 256 KiB";
  put(4, 1);
  EXPECT_TRUE(run());
  ASSERT_EQ(device_->held(Io::Op::write), 2u);
  device_->let_one_go(Io::Op::write, 1);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, std::vector<std::uint64_t>{0}) << "the batch before is not answered yet";
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
}

TEST_F(StreamTest, ABatchHasAtMost255RecordsAndAMebibyte) {
  remake(large(16384), 1 << 20);
  for (std::uint64_t i = 0; i < 256; ++i) put(i, 1);
  EXPECT_TRUE(run());
  std::vector<SurveyedBatch> found = batches(zone_of(*pages_[0]));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].records.size(), 255u);
  EXPECT_EQ(found[1].records.size(), 1u);
  // 1 MiB goes into one, and one LBA more does not.
  put(300, (1 << 20) - kLbaBytes);
  put(301, kLbaBytes);
  put(302, 1);
  EXPECT_TRUE(run());
  found = batches(zone_of(*pages_[0]));
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[2].records.size(), 2u);
  EXPECT_EQ(found[3].records.size(), 1u);
  for (const auto& each : pages_) expect_on_medium(*each);
}

TEST_F(StreamTest, PagesInNarrowOrUnalignedMemoryAreCopied) {
  put_now(0, 1);
  Page& narrow = page(1, 700);  // no room to round up: what lies behind must not be touched
  narrow.memory = AlignedBuffer(4096);
  const auto content = page_bytes(1, 0, 700);
  std::ranges::copy(content, narrow.memory.data());
  std::ranges::fill(narrow.memory.span().subspan(700), std::byte{0xee});
  narrow.data = narrow.memory.data();
  narrow.capacity = 700;
  Page& odd = page(2, 600);
  odd.memory = AlignedBuffer(8192);
  odd.data = odd.memory.data() + 8;
  odd.capacity = 8000;
  std::ranges::copy(page_bytes(2, 0, 600), odd.data);
  Page& roomy = page(3, 513);
  stream_->append(narrow);
  stream_->append(odd);
  stream_->append(roomy);
  EXPECT_TRUE(run());
  for (const Page* each : {&narrow, &odd, &roomy}) expect_on_medium(*each);
  EXPECT_EQ(narrow.memory.data()[700], std::byte{0xee});
  EXPECT_EQ(narrow.memory.data()[1023], std::byte{0xee});
}

// What they are copied to grows while it is filled, and keeps what is there.
TEST_F(StreamTest, PagesThatAreCopiedOutgrowWhatABatchBegunWith) {
  remake(large(4096), 300 << 10);
  put_now(0, 1);
  const std::size_t written = writes().size();
  for (std::uint64_t n = 1; n <= 60; ++n) {
    Page& copied = page(n, n % 20 == 7 ? 200 << 10 : 7000);
    copied.capacity = copied.record.length;
    stream_->append(copied);
  }
  EXPECT_TRUE(run());
  EXPECT_EQ(writes().size(), written + 1) << "one batch";
  for (const auto& each : pages_) expect_on_medium(*each);
}

// The edges of a segment: with each size of page it ends with a summary that names what is in it.
TEST_F(StreamTest, SegmentsEndWithASummaryOfTheirRecords) {
  for (std::uint32_t bytes = 1; bytes <= 12 * kLbaBytes; bytes += kLbaBytes / 4) {
    remake({}, 12 * kLbaBytes);
    while (owner_.zones_opened < 2) put_now(next_++, bytes);
    const ZoneId zone = zone_of(*pages_[0]);
    EXPECT_EQ(pool_->allocator.zone(zone).use, ZoneUse::sealed);
    EXPECT_EQ(info(zone).state, ZoneState::full);
    const ZoneSurvey found = survey_zone(zone);
    ASSERT_EQ(found.segments.size(), 3u);
    std::size_t at = 0;
    for (const SurveyedSegment& segment : found.segments) {
      EXPECT_EQ(segment.closing, SurveyedSegment::Closing::intact) << bytes;
      EXPECT_FALSE(segment.contradicts) << bytes;
      EXPECT_TRUE(segment.gaps.empty()) << bytes;
      EXPECT_FALSE(segment.batches.empty()) << bytes;
      for (const SurveyedBatch& batch : segment.batches) {
        for (const PageRecord& record : batch.records) {
          ASSERT_EQ(record, pages_[at]->record) << bytes;
          expect_on_medium(*pages_[at++]);
        }
      }
    }
    EXPECT_EQ(at + 1, pages_.size()) << "the last one is in the next zone";
  }
}

TEST_F(StreamTest, SummariesHaveColumnsForWhatTheirRecordsHave) {
  for (std::uint64_t i = 0; owner_.zones_opened < 2; ++i) {
    Page& one = page(i, 700);
    if (i % 3 == 1) one.record.group = 1000 + i / 6;
    if (i % 3 == 2) one.record.expires_s = static_cast<std::uint32_t>(2'000'000'000 + i);
    one.record.pinned = i % 4 == 0;
    if (i % 5 == 4) one.record.sequence = i;  // relocated: far from the others
    stream_->append(one);
    EXPECT_TRUE(run());
  }
  const ZoneId zone = zone_of(*pages_[0]);
  std::size_t at = 0;
  for (const SurveyedSegment& segment : survey_zone(zone).segments) {
    EXPECT_EQ(segment.closing, SurveyedSegment::Closing::intact);
    EXPECT_FALSE(segment.contradicts) << "summary and batch headers say the same";
    for (const SurveyedBatch& batch : segment.batches) {
      for (const PageRecord& record : batch.records) EXPECT_EQ(record, pages_[at++]->record);
    }
  }
  const ZoneDirectory& table = pool_->tables[zone.value];
  ASSERT_FALSE(table.groups.empty());
  EXPECT_EQ(table.groups[0].group, 1000u);
  EXPECT_EQ(table.groups[0].first_lba, pages_[1]->record.lba);
  EXPECT_EQ(table.groups[0].last_lba, pages_[4]->record.lba);
}

// What recovery found without records, as their batch headers are damaged, or a segment that begins
// with a note.
TEST_F(StreamTest, ASegmentWithoutRecordsIsClosedToo) {
  put_now(1, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  Stream::Resume resume;
  resume.zone = zone;
  resume.next_lba = stream_->written_lba(zone);
  open(14 << 10);
  stream_->resume(std::move(resume));
  Page& large = put_now(2, 14 << 10);  // all of a segment, nearly
  EXPECT_EQ(large.record.lba, shape_.segment_lbas + 1);
  EXPECT_EQ(survey_zone(zone).segments[0].closing, SurveyedSegment::Closing::intact);
}

TEST_F(StreamTest, AMarkerIsAnsweredBehindAllThatWasGivenBefore) {
  put_now(0, 1);
  Page& alone = page(1, 1);
  alone.marker = true;
  stream_->append(alone);
  EXPECT_TRUE(run());
  EXPECT_EQ(alone.answers, 1u) << "nothing is before it";
  device_->hold(Io::Op::write);
  put(2, 100);
  EXPECT_TRUE(run());
  Page& marker = page(3, 1);
  marker.marker = true;
  stream_->append(marker);
  put(4, 100);
  EXPECT_TRUE(run());
  EXPECT_EQ(marker.answers, 0u);
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
  std::size_t records = 0;
  for (const SurveyedBatch& batch : batches(zone_of(*pages_[0]))) records += batch.records.size();
  EXPECT_EQ(records, 3u) << "markers write nothing";
}

// .. also where that is in several batches, or fails.
TEST_F(StreamTest, AMarkerIsAnsweredBehindTheLastBatchInFlight) {
  remake(large(4096), 300 << 10);
  put_now(0, 1);
  device_->hold(Io::Op::write);
  put(1, 300 << 10);
  EXPECT_TRUE(run());
  put(2, 300 << 10);
  EXPECT_TRUE(run());
  ASSERT_EQ(device_->held(Io::Op::write), 2u);
  Page& marker = page(3, 1);
  marker.marker = true;
  stream_->append(marker);
  EXPECT_TRUE(run());
  device_->let_one_go(Io::Op::write, 0);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1}));
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  owner_.may_write = false;
  put(4, 100);
  Page& behind = page(5, 1);
  behind.marker = true;
  stream_->append(behind);
  EXPECT_TRUE(run());
  EXPECT_EQ(behind.answers, 0u);
  stream_->fail_waiting({Code::no_space, Origin::log});
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
}

TEST_F(StreamTest, RelocationsGoFirstAndKeepTheirSequence) {
  put_now(0, 1);
  device_->hold(Io::Op::write);
  put(1, 100);
  EXPECT_TRUE(run());
  put(2, 100);
  Page& moved = page(3, 100);
  moved.priority = Append::Priority::relocation;
  moved.record.sequence = 5;
  stream_->append(moved);
  device_->let_go(Io::Op::write);
  EXPECT_TRUE(run());
  EXPECT_EQ(answered_, (std::vector<std::uint64_t>{0, 1, 3, 2}));
  EXPECT_EQ(moved.record.sequence, 5u);
  EXPECT_EQ(pool_->allocator.zone(zone_of(moved)).min_sequence, 5u);
}

TEST_F(StreamTest, TheOwnerDecidesWhoMayOpenAZone) {
  owner_.may_open = false;
  Page& user = put(1, 100);
  EXPECT_TRUE(run());
  EXPECT_EQ(user.answers, 0u);
  EXPECT_TRUE(stream_->waits_for_zone());
  EXPECT_TRUE(stream_->has_waiting_user());
  EXPECT_FALSE(stream_->relocations_wait_for_zone());
  Page& moved = page(2, 100);
  moved.priority = Append::Priority::relocation;
  owner_.may_write = false;
  stream_->append(moved);
  EXPECT_TRUE(run());
  EXPECT_TRUE(owner_.asked_for_relocation);
  EXPECT_EQ(moved.answers, 1u);
  EXPECT_EQ(user.answers, 0u) << "what is left of the zone is kept for relocation";
  owner_.may_write = true;
  stream_->kick();
  EXPECT_TRUE(run());
  EXPECT_EQ(user.answers, 1u);
}

TEST_F(StreamTest, WithoutAZoneWhatWaitsIsFailedOrWithdrawnOrHandedOn) {
  owner_.may_open = owner_.may_open_for_relocation = false;
  Page& user = put(1, 100);
  Page& taken_back = put(2, 100);
  EXPECT_TRUE(run());
  EXPECT_TRUE(stream_->withdraw(taken_back));
  EXPECT_FALSE(stream_->withdraw(taken_back)) << "it is not in here any more";
  Page& moved = page(3, 100);
  moved.priority = Append::Priority::relocation;
  stream_->append(moved);
  EXPECT_TRUE(run());
  StreamTestOwner other_owner;
  Stream other(*pool_, kVolume, kCollectionStream, 8 << 10, other_owner);
  stream_->hand_relocations_to(other);
  EXPECT_TRUE(run());
  EXPECT_EQ(moved.answers, 1u);
  EXPECT_TRUE(moved.status.ok());
  EXPECT_EQ(moved.stream, kCollectionStream) << "which its flush is noted in";
  Page& removal = tombstone(4);
  stream_->append(removal);
  EXPECT_TRUE(run());
  EXPECT_EQ(removal.answers, 0u);
  stream_->hand_deletions_to(other);
  EXPECT_TRUE(run());
  EXPECT_EQ(removal.answers, 1u);
  EXPECT_TRUE(removal.status.ok());
  EXPECT_EQ(removal.stream, kCollectionStream);
  stream_->fail_waiting({Code::no_space, Origin::log});
  EXPECT_TRUE(run());
  EXPECT_EQ(user.status.code(), Code::no_space);
  EXPECT_EQ(taken_back.answers, 0u);
  EXPECT_TRUE(stream_->idle());
  stream_->append(moved);
  stream_->fail_relocations({Code::no_space, Origin::log});
  EXPECT_EQ(moved.status.code(), Code::no_space);
  EXPECT_TRUE(run());
}

TEST_F(StreamTest, WhileThereIsAZoneDeletesStayWhenPagesAreFailed) {
  put_now(0, 100);
  owner_.may_write = false;
  Page& waiting = put(1, 100);
  Page& removal = tombstone(2);
  stream_->append(removal);
  EXPECT_TRUE(run());
  stream_->fail_waiting({Code::no_space, Origin::log});
  EXPECT_EQ(waiting.status.code(), Code::no_space);
  EXPECT_EQ(removal.answers, 0u) << "it makes room, and there is room for it";
  owner_.may_write = true;
  stream_->kick();
  EXPECT_TRUE(run());
  EXPECT_EQ(removal.answers, 1u);
  EXPECT_TRUE(removal.status.ok());
}

TEST_F(StreamTest, GoesOnInAZoneThatRecoveryFoundOpen) {
  put_now(1, 600);
  put_now(2, 600);
  const ZoneId zone = zone_of(*pages_[0]);
  Stream::Resume resume;
  resume.zone = zone;
  resume.next_lba = stream_->written_lba(zone);
  for (const SurveyedBatch& batch : batches(zone)) {
    resume.segment_batches.push_back(batch.header.lba);
    resume.segment_records.insert(resume.segment_records.end(), batch.records.begin(),
                                  batch.records.end());
  }
  const std::uint64_t next = resume.next_lba;
  open();
  stream_->resume(std::move(resume));
  EXPECT_EQ(stream_->room_lbas(), shape_.zone_capacity_lbas - next);
  Page& third = put_now(3, 600);
  EXPECT_EQ(zone_of(third), zone);
  EXPECT_EQ(third.record.lba, next + 1);
  EXPECT_EQ(batches(zone).back().header.flushed_lba, next) << "recovery has flushed";
  while (survey_zone(zone).segments[0].closing == SurveyedSegment::Closing::open) {
    put_now(next_++, 5 * kLbaBytes);
  }
  const ZoneSurvey found = survey_zone(zone);
  EXPECT_EQ(found.segments[0].closing, SurveyedSegment::Closing::intact);
  EXPECT_FALSE(found.segments[0].contradicts) << "the summary names the records from before, too";
}

// What the last of a segment's records has that none before it has takes room for all of them; so
// does what those have that recovery found.
TEST_F(StreamTest, ASummaryHasRoomForColumnsThatComeLateOrFromBefore) {
  constexpr std::uint32_t kExpires = 2'000'000'000;
  for (std::uint64_t i = 0; i < 29 * 3 * 2; ++i) {
    const std::uint64_t pages = 1 + i % 29, tombstones = i / 29 % 3;
    const bool expires = i >= 29 * 3;
    SCOPED_TRACE(testing::Message() << pages << " pages, " << tombstones << ' ' << expires);
    const ZoneId late = begin_segment(pages, tombstones);
    Page& last = page(pages + tombstones, 100);
    last.record.expires_s = expires ? kExpires : 0;
    last.record.group = expires ? 0 : 5;
    pool_->next_sequence += std::uint64_t{1} << 40;
    stream_->append(last);
    EXPECT_TRUE(run());
    end_segment(late);
    const ZoneId zone = begin_segment(pages, tombstones, expires ? 0 : 5, expires ? kExpires : 0);
    Stream::Resume resume;
    resume.zone = zone;
    resume.next_lba = stream_->written_lba(zone);
    if (resume.next_lba >= shape_.segment_lbas) continue;
    for (const SurveyedBatch& batch : batches(zone)) {
      resume.segment_batches.push_back(batch.header.lba);
      resume.segment_records.insert(resume.segment_records.end(), batch.records.begin(),
                                    batch.records.end());
    }
    open();
    pool_->next_sequence += std::uint64_t{1} << 40;
    stream_->resume(std::move(resume));
    end_segment(zone);
  }
}

TEST_F(StreamTest, RoomForPagesIsRoomForPages) {
  EXPECT_EQ(stream_->room_for_pages_lbas(), 0u);
  put_now(0, 1);
  std::uint64_t room = stream_->room_for_pages_lbas();
  EXPECT_GT(room, 0u);
  const ZoneId zone = zone_of(*pages_[0]);
  // Pages and their headers, one in each batch, until that room is used up: all fit into the zone.
  for (std::uint32_t lbas = 1; room >= lbas + 2; lbas = 1 + lbas % 9) {
    Page& one = put_now(next_++, lbas * kLbaBytes);
    ASSERT_EQ(zone_of(one), zone) << room;
    room -= lbas + 1;
    EXPECT_LE(stream_->room_for_pages_lbas(), stream_->room_lbas());
  }
}

// What it says that it takes, it takes; and of one page it says so until little is left.
TEST_F(StreamTest, SurelyTakesWhatItSays) {
  EXPECT_FALSE(stream_->surely_takes({1, 1, 1, 1})) << "there is no zone";
  std::mt19937_64 random(1);
  for (unsigned zones = 0; zones < 3; ++zones) {
    const ZoneId zone = zone_of(put_now(next_++, 1));
    for (bool takes = true; takes;) {
      const std::uint64_t count = 1 + random() % 6, largest = 1 + random() % 9;
      std::vector<std::uint64_t> lbas(count);
      for (std::uint64_t& each : lbas) each = 1 + random() % largest;
      const auto sum = std::accumulate(lbas.begin(), lbas.end(), std::uint64_t{0});
      takes = stream_->surely_takes({count, 1, sum, largest});
      EXPECT_TRUE(takes || count != 1 || stream_->room_lbas() < sum + 8) << sum;
      std::vector<Page*> pages;
      for (const std::uint64_t each : lbas) {
        if (takes) pages.push_back(&put(next_++, static_cast<std::uint32_t>(each * kLbaBytes)));
      }
      run();
      for (const Page* page : pages) ASSERT_EQ(zone_of(*page), zone);
    }
    while (zone_of(put_now(next_++, 1)) == zone) {
    }
  }
}

TEST_F(StreamTest, AppendQueueIsFirstInFirstOut) {
  std::array<Append, 4> appends;
  AppendQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pop(), nullptr);
  EXPECT_FALSE(queue.remove(appends[0]));
  for (Append& each : appends) queue.push(each);
  EXPECT_TRUE(queue.remove(appends[3])) << "the last";
  queue.push(appends[3]);
  EXPECT_TRUE(queue.remove(appends[0])) << "the first";
  EXPECT_TRUE(queue.remove(appends[2])) << "one in the middle";
  EXPECT_FALSE(queue.remove(appends[2]));
  AppendQueue front;
  front.push(appends[0]);
  front.push(appends[2]);
  queue.push_front_all(front);
  EXPECT_TRUE(front.empty());
  queue.push_front_all(front);  // of nothing
  for (const std::size_t i : {0, 2, 1, 3}) EXPECT_EQ(queue.pop(), &appends[i]);
  EXPECT_TRUE(queue.empty());
  front.push(appends[1]);
  queue.push_front_all(front);  // before nothing
  queue.push(appends[0]);
  EXPECT_EQ(queue.pop(), &appends[1]);
  EXPECT_EQ(queue.pop(), &appends[0]);
}

}  // namespace
}  // namespace furrow
