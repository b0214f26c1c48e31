// Establishes what a pool keeps on a device that fails: a change of the volumes that was refused
// has not been made; zones that are gone, batch headers and pages that cannot be read, and writes
// that fail cost what they hit. How: a pool on a device that fails, and loses power, where it is
// told to.
#include <gtest/gtest.h>

#include "log/metadata_ring.h"
#include "tests/engine/pool_file.h"
#include "zone/fault_device.h"

namespace furrow::testing {
namespace {

// A pool of 16 zones of 1 MiB on a device that can fail.
void make_on_fault_device(Rig& rig, VolumeMode mode, FaultDevice*& device) {
  auto inner = furrow::open_device("mem:16MiB?zone_size=1MiB", Access::exclusive);
  ASSERT_TRUE(inner.ok());
  auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
  device = fault.get();
  rig.device = std::move(fault);
  VolumeOptions options;
  options.name = "pages";
  options.mode = mode;
  options.value_bytes_max = 64 << 10;
  ASSERT_NO_FATAL_FAILURE(rig.make(options));
}

// What is in the open pool becomes durable; then the power is cut, and it is opened again.
void flush_and_cut(Rig& rig, FaultDevice& device) {
  PageOp flush;
  flush.kind = PageOp::Kind::flush;
  ASSERT_TRUE(rig.run(flush).ok());
  ASSERT_TRUE(device.power_cut(CrashModel::drive).ok());
  rig.close();
  rig.device = device.take_inner();
  ASSERT_NO_FATAL_FAILURE(rig.open());
}

// The deletion's record is on the medium, and the flush behind it failed: what is durable later
// must not be that.
TEST(FailedChangesTest, AVolumeWhoseDeletionFailedStays) {
  for (const unsigned fails : {2u, 1000u}) {
    SCOPED_TRACE(fails);
    Rig rig("");
    FaultDevice* device = nullptr;
    ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
    ASSERT_TRUE(rig.put(1, 1, 9000).ok());
    device->fail_flushes(fails);
    Status deleted;
    while ((deleted = rig.pool->delete_volume("pages")).code() == Code::busy) rig.turns(1);
    ASSERT_EQ(deleted.code(), Code::io_error) << deleted.describe();
    device->fail_flushes(0);
    // To another zone, before which the journal is in order again.
    for (std::uint64_t i = 2; i < 50; ++i) ASSERT_TRUE(rig.put(i, 1, 60000).ok());
    ASSERT_NO_FATAL_FAILURE(flush_and_cut(rig, *device));
    ASSERT_NE(rig.store, nullptr) << "the volume is gone, with what was flushed since";
    for (std::uint64_t i = 1; i < 50; ++i) EXPECT_TRUE(rig.get(i).ok()) << i;
  }
}

TEST(FailedChangesTest, ReservationsThatWereNotKeptAreNotThere) {
  Rig rig("");
  FaultDevice* device = nullptr;
  ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
  const std::uint64_t volume = rig.store->info().id;
  ReservationRecord wanted;
  wanted.volume = volume;
  wanted.persists = true;
  wanted.registrants = {{{1}, 7}};
  ASSERT_TRUE(rig.put(1, 1, 9000).ok());
  ASSERT_TRUE(rig.keep_reservations(wanted).ok());
  const ReservationRecord before = rig.pool->reservations(volume);
  wanted.registrants = {{{2}, 8}};  // the other host preempts it
  device->fail_flushes(2);
  ASSERT_EQ(rig.keep_reservations(wanted).code(), Code::io_error);
  ASSERT_TRUE(rig.put(2, 1, 9000).ok());
  ASSERT_NO_FATAL_FAILURE(flush_and_cut(rig, *device));
  EXPECT_TRUE(rig.pool->reservations(volume) == before);
}

// Nor what is durable in the zone that the volume went on with, or is stored there and outlives the
// process alone.
TEST(FailedChangesTest, WhatFollowsADeletionThatFailedPutsTheJournalInOrder) {
  for (const PageOp::Kind first : {PageOp::Kind::flush, PageOp::Kind::put}) {
    Rig rig("");
    FaultDevice* device = nullptr;
    ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
    ASSERT_TRUE(rig.put(1, 1, 9000).ok());
    device->fail_flushes(1000);
    Status deleted;
    while ((deleted = rig.pool->delete_volume("pages")).code() == Code::busy) rig.turns(1);
    ASSERT_EQ(deleted.code(), Code::io_error) << deleted.describe();
    device->fail_flushes(0);
    // Until the journal can be, nothing is said to be durable, or stored.
    device->fail_writes(Lba{0}, 2 * device->geometry().zone_size_lbas);
    PageOp flush;
    flush.kind = PageOp::Kind::flush;
    const Status answer = first == PageOp::Kind::put ? rig.put(2, 1, 9000) : rig.run(flush);
    EXPECT_EQ(answer.code(), Code::io_error);
    device->heal();
    ASSERT_TRUE(rig.put(2, 1, 9000).ok());
    ASSERT_NO_FATAL_FAILURE(flush_and_cut(rig, *device));
    ASSERT_NE(rig.store, nullptr) << "the volume is gone, with what was flushed since";
    for (const std::uint64_t i : {1, 2}) EXPECT_TRUE(rig.get(i).ok()) << i;
  }
}

// Zones that are gone at an open are taken off a quota of "all": the cache goes on, smaller.
TEST(LostZonesTest, ACacheOfEverythingGoesOnSmaller) {
  Rig rig("");
  FaultDevice* device = nullptr;
  ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::cache, device));
  rig.close();
  for (const std::uint32_t zone : {5u, 6u, 7u}) device->degrade(ZoneId{zone}, ZoneState::offline);
  ASSERT_NO_FATAL_FAILURE(rig.open());
  const auto found = rig.pool->check({.pages = false});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->damage.size(), 3u);
  EXPECT_EQ(found->notes.size(), 1u) << "what that means";
  for (std::uint64_t i = 0; i < 1500; ++i) {
    ASSERT_TRUE(rig.put(i, 1, 30000).ok()) << i;
    if (i % 3 == 0) {
      ASSERT_TRUE(rig.get(i).ok());
    }
  }
  EXPECT_GT(rig.store->stats().evicted_zones, 20u);
}

// An LBA that cannot be read is no torn write: what lies behind it stays.
TEST(UnreadableTest, ABatchHeaderInTheNewestZone) {
  Rig rig("");
  FaultDevice* device = nullptr;
  ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(rig.put(i, 1, 9000).ok());
  EXPECT_TRUE(rig.pool->opening_damage().empty());
  rig.close();
  // The first data zone is the third: its header, then a batch of four LBAs for each page.
  device->fail_reads(Lba{2 * 256 + 1 + 4 * 7}, 1);
  device->fail_reads(Lba{2 * 256 + 1 + 4 * 20 + 1}, 1);  // the note that repeats it
  ASSERT_NO_FATAL_FAILURE(rig.open());
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(rig.get(i).ok(), i != 7) << i;
  const std::vector<std::string> told = rig.pool->opening_damage();
  ASSERT_EQ(told.size(), 1u) << "as not readable, and not as damaged too";
  EXPECT_NE(told[0].find("cannot be read"), std::string::npos) << told[0];
  ASSERT_TRUE(rig.put(7, 2, 9000).ok());
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_TRUE(rig.get(i).ok()) << i;
}

// A page's read is counted each time, also when the volume is gone.
TEST(UnreadableTest, AReadThatFailsIsCounted) {
  Rig rig("");
  FaultDevice* device = nullptr;
  ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(rig.put(i, 1, 9000).ok());
  device->fail_reads(Lba{2 * 256 + 1 + 4 * 3 + 1}, 1);  // the fourth page, behind its batch header
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(rig.get(i).ok(), i != 3) << i;
  EXPECT_EQ(rig.store->stats().failed_reads, 1u);
  EXPECT_EQ(rig.get(3).status().code(), Code::io_error);
  EXPECT_EQ(rig.store->stats().failed_reads, 2u);
  EXPECT_EQ(rig.pool->info().media_errors, 2u);
  ASSERT_TRUE(rig.pool->delete_volume("pages").ok());
  EXPECT_EQ(rig.pool->info().media_errors, 2u);
  rig.pool->forget_deleted();
  EXPECT_EQ(rig.pool->info().media_errors, 2u);
}

// A header that cannot be read at one opening, and can at the next. Until then a store neither
// writes a summary that leaves its batch out nor collects the zone, however much else is stored and
// deleted: pages are there again, and what was deleted stays deleted.
TEST(UnreadableTest, AStoreLosesNothingToAPassingError) {
  for (const bool newest : {true, false}) {
    Rig rig("");
    FaultDevice* device = nullptr;
    ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
    // The first data zone: its header, then a batch of four LBAs for each page, and one of one LBA.
    for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(rig.put(i, 1, 9000).ok());
    ASSERT_TRUE(rig.simple(PageOp::Kind::remove, 3).ok());
    const std::uint64_t tombstone = 2 * 256 + 1 + 4 * 20;
    std::uint64_t last = 20;
    for (; !newest && last < 100; ++last) ASSERT_TRUE(rig.put(last, 1, 9000).ok());
    rig.close();
    device->fail_reads(Lba{2 * 256 + 1 + 4 * 7}, 1);
    device->fail_reads(Lba{tombstone}, 1);
    // Nor do note and summary help, where there are any.
    device->fail_reads(Lba{tombstone + 2}, 1);
    device->fail_reads(Lba{2 * 256 + 255}, 1);
    ASSERT_NO_FATAL_FAILURE(rig.open());
    EXPECT_EQ(rig.get(7).status().code(), Code::not_found);
    const auto found = rig.pool->check({.pages = false});
    ASSERT_TRUE(found.ok());
    EXPECT_FALSE(found->clean());
    for (std::uint64_t round = 2; round < 12; ++round) {
      for (std::uint64_t i = 1000; i < 1150; ++i) ASSERT_TRUE(rig.put(i, round, 9000).ok()) << i;
    }
    EXPECT_GT(rig.store->stats().zones_reset, 5u);
    rig.close();
    rig.device = device->take_inner();
    ASSERT_NO_FATAL_FAILURE(rig.open());
    for (std::uint64_t i = 0; i < last; ++i) {
      EXPECT_EQ(rig.get(i).status().code(), i == 3 ? Code::not_found : Code::ok) << i;
    }
    const auto again = rig.pool->check({});
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(again->clean()) << again->damage.front().text;
  }
}

// A full zone does not say where its data ends, and what is behind is no damage.
TEST(FailedZoneTest, EndsWhereItsWriteFailed) {
  for (const bool killed : {false, true}) {
    SCOPED_TRACE(killed);
    Rig rig("");
    FaultDevice* device = nullptr;
    ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
    for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(rig.put(i, 1, 9000).ok());
    const ZoneInfo zone = device->zone(ZoneId{2});
    device->fail_writes(Lba{2 * 256 + zone.written_lbas}, 1);
    for (std::uint64_t i = 5; i < 10; ++i) ASSERT_TRUE(rig.put(i, 1, 9000).ok());
    ASSERT_EQ(device->zone(ZoneId{2}).state, ZoneState::full);
    device->heal();
    killed ? flush_and_cut(rig, *device) : rig.reopen();
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(rig.pool->opening_damage(), std::vector<std::string>());
    const Result<CheckReport> report = rig.pool->check({});
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->damage.empty()) << report->damage[0].text;
    for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(rig.get(i).ok()) << i;
  }
}

// Also where the journal did not take that then: it does before another zone is written.
TEST(FailedZoneTest, EndsThereWhereTheJournalCouldNotSaySo) {
  Rig rig("");
  FaultDevice* device = nullptr;
  ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(rig.put(i, 1, 9000).ok());
  const std::uint64_t end = device->zone(ZoneId{2}).written_lbas;
  device->fail_writes(Lba{2 * 256 + end}, 1);
  device->fail_flushes(1000);
  EXPECT_EQ(rig.put(5, 1, 9000).code(), Code::io_error);
  ASSERT_EQ(device->zone(ZoneId{2}).state, ZoneState::full);
  device->fail_flushes(0);
  for (std::uint64_t i = 5; i < 50; ++i) ASSERT_TRUE(rig.put(i, 1, 60000).ok());
  const Result<MetadataRing> ring = MetadataRing::open(*rig.device, true);
  ASSERT_TRUE(ring.ok()) << ring.status().describe();
  ASSERT_EQ(ring->state().trims.size(), 1u);
  EXPECT_EQ(ring->state().trims[0].zone, 2u);
  EXPECT_EQ(ring->state().trims[0].end_lba, end);
}

// A write that fails sends the zone's unwritten pages to another zone, and nobody looks for them,
// or for their batch headers, where they were to be.
TEST(FailedZoneTest, AGroupThatWentOnElsewhereIsDeletedWhole) {
  Rig rig("");
  FaultDevice* device = nullptr;
  ASSERT_NO_FATAL_FAILURE(make_on_fault_device(rig, VolumeMode::store, device));
  device->fail_writes(Lba{2 * 256 + 150}, 1);
  std::vector<PageOp> puts(80);
  std::vector<std::vector<std::byte>> pages;
  for (std::uint64_t i = 0; i < puts.size(); ++i) {
    pages.push_back(content(i, 1, 9000));
    puts[i].kind = PageOp::Kind::put;
    puts[i].key = key_of(i);
    puts[i].group = 7;
    puts[i].data = pages.back().data();
    puts[i].length = 9000;
    rig.submit(puts[i]);
    rig.loop.run_once();
  }
  rig.wait();
  for (const PageOp& put : puts) ASSERT_TRUE(put.status.ok()) << put.status.describe();
  EXPECT_EQ(rig.store->usage().zones, 2u);
  PageOp removal;
  removal.kind = PageOp::Kind::remove_group;
  removal.group = 7;
  EXPECT_TRUE(rig.run(removal).ok()) << removal.status.describe();
  EXPECT_EQ(rig.store->usage().pages, 0u);
  ASSERT_NO_FATAL_FAILURE(rig.reopen());
  EXPECT_EQ(rig.store->usage().pages, 0u);
}

}  // namespace
}  // namespace furrow::testing
