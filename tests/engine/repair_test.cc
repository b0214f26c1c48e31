// Establishes that a check names each kind of damaged structure, and that a repair makes it whole
// again with every page intact: one copy of each structure of a pool on a file is damaged in turn,
// the pool is checked (read-only: the file stays as it is), repaired, checked again, and read. What
// cannot be known any more is named, and left as it is; so is a pool with a structure of a newer
// version, which is no damage.
#include <gtest/gtest.h>

#include "tests/engine/pool_file.h"
#include "tests/log/reseal.h"
#include "tests/rounds.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"

namespace furrow::testing::repair_test {
namespace {

constexpr std::uint64_t kKeys = 300;
constexpr std::size_t kFooterAt = 4096 - 96;  // of a summary, in the segment's last LBA

class RepairTest : public PoolFileTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_pool(40 << 20, VolumeMode::store));
    for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(rig_->put(i, 1, bytes_of(i)).ok());
    for (std::uint64_t i = 0; i < kKeys; i += 10) {
      ASSERT_TRUE(rig_->simple(PageOp::Kind::remove, i).ok());
    }
    close_device();
  }
  static std::size_t bytes_of(std::uint64_t key) { return 1000 + key * 7919 % 60000; }

  CheckReport check() {
    EXPECT_NO_FATAL_FAILURE(rig_->open_device());
    EXPECT_NO_FATAL_FAILURE(rig_->open(true));
    const auto report = rig_->pool->check({});
    EXPECT_TRUE(report.ok()) << report.status().describe();
    close_device();
    return *report;
  }
  RepairReport repair() {
    EXPECT_NO_FATAL_FAILURE(rig_->open_device());
    auto report = Pool::repair(*rig_->device, rig_->loop);
    EXPECT_TRUE(report.ok()) << report.status().describe();
    rig_->device.reset();
    return report.ok() ? *report : RepairReport();
  }
  // Every page is as it was stored, deleted ones are not there; and again after an opening that
  // writes.
  void expect_pages() {
    for (int round = 0; round < 2; ++round) {
      ASSERT_NO_FATAL_FAILURE(rig_->open_device());
      ASSERT_NO_FATAL_FAILURE(rig_->open(round == 0));
      for (std::uint64_t i = 0; i < kKeys; ++i) {
        const auto page = rig_->get(i);
        if (i % 10 == 0) {
          EXPECT_EQ(page.status().code(), Code::not_found) << i;
        } else {
          ASSERT_TRUE(page.ok()) << i << ": " << page.status().describe();
          ASSERT_EQ(*page, content(i, 1, bytes_of(i))) << i;
        }
      }
      if (round == 1) {
        ASSERT_TRUE(rig_->put(5000, 1, 9000).ok());
        ASSERT_TRUE(rig_->simple(PageOp::Kind::remove, 5000).ok());
      }
      close_device();
    }
  }
  void expect_named_and_repaired(std::size_t offset, Finding::Structure structure) {
    SCOPED_TRACE(std::string(to_string(structure)) + " at " + std::to_string(offset));
    damage(offset);
    const std::string before = read_file();
    const CheckReport found = check();
    ASSERT_FALSE(found.clean());
    for (const Finding& finding : found.damage) {
      EXPECT_EQ(finding.structure, structure) << finding.text;
      EXPECT_TRUE(finding.repairable) << finding.text;
    }
    EXPECT_EQ(repair_plan(found).size(), 1u);
    EXPECT_EQ(read_file(), before) << "a check writes nothing";
    const RepairReport repaired = repair();
    EXPECT_EQ(repaired.done.size(), 1u);
    for (const std::string& line : repaired.failed) ADD_FAILURE() << line;
    const CheckReport after = check();
    for (const Finding& finding : after.damage) ADD_FAILURE() << finding.text;
    ASSERT_NO_FATAL_FAILURE(expect_pages());
  }
};

TEST_F(RepairTest, NothingToDo) {
  const CheckReport report = check();
  EXPECT_TRUE(report.clean());
  EXPECT_GE(report.zones, 3u);
  EXPECT_GE(report.summaries, 2u);
  EXPECT_EQ(report.pages, kKeys - kKeys / 10);
  EXPECT_TRUE(repair_plan(report).empty());
}

// One that an opening does not read, as its segment's summary is whole.
TEST_F(RepairTest, AStructureOfANewerVersion) {
  std::string file = read_file();
  const auto bytes = std::as_writable_bytes(std::span(file));
  set_version(bytes.subspan(offsets_of("FUBH").front(), kLba), kFormatVersion + 1);
  write_file(file);
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  ASSERT_NO_FATAL_FAILURE(rig_->open(true));
  EXPECT_EQ(rig_->pool->check({}).status().code(), Code::unsupported);
  close_device();
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  EXPECT_EQ(Pool::repair(*rig_->device, rig_->loop).status().code(), Code::unsupported);
  rig_->device.reset();
  EXPECT_TRUE(read_file() == file);
}

// Each of four, of which any is enough: two sections have two each.
TEST_F(RepairTest, Superblocks) {
  for (const std::size_t i : {0u, 1u, 2u, 3u}) {
    const auto superblocks = offsets_of("FUSB");
    ASSERT_GE(superblocks.size(), 4u);
    ASSERT_NO_FATAL_FAILURE(
        expect_named_and_repaired(superblocks[i] + 40, Finding::Structure::metadata));
  }
}

// Of the device under the pool, two as well.
TEST_F(RepairTest, SuperblocksOfTheDevice) {
  for (const std::size_t offset : {0u, 4096u}) {
    ASSERT_NO_FATAL_FAILURE(expect_named_and_repaired(offset + 60, Finding::Structure::device));
  }
}

// And of its zone table: of a zone of the metadata and one of pages either slot, the later or the
// earlier one.
TEST_F(RepairTest, SlotsOfTheDevice) {
  for (const std::size_t copy : {0u, 1u}) {
    for (const std::size_t zone : {1u, 3u}) {
      const std::size_t slot = 8192 + copy * 4096 + zone * 8;
      ASSERT_NO_FATAL_FAILURE(expect_named_and_repaired(slot, Finding::Structure::device));
    }
  }
}

// One whose own structures cannot be written.
class UnmendableDevice final : public ZonedDevice {
 public:
  explicit UnmendableDevice(ZonedDevice& inner)
      : ZonedDevice(inner.geometry(), inner.uri()), inner_(inner) {}
  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override {
    return inner_.create_queue(depth);
  }
  Result<std::vector<ZoneInfo>> report() override { return inner_.report(); }
  ZoneInfo zone(ZoneId zone) const override { return inner_.zone(zone); }
  std::vector<std::string> damage() const override { return inner_.damage(); }
  Status mend() override { return {Code::io_error, Origin::zone, "the medium refuses"}; }

 private:
  ZonedDevice& inner_;
};

// It is named, and what else there is to repair is repaired.
TEST_F(RepairTest, ADeviceThatCannotBeMendedKeepsNothingElseFromIt) {
  damage(4096 + 60);
  damage(offsets_of("FUSB")[0] + 40);
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  UnmendableDevice device(*rig_->device);
  const auto report = Pool::repair(device, rig_->loop);
  ASSERT_TRUE(report.ok()) << report.status().describe();
  EXPECT_EQ(report->done.size(), 1u);
  ASSERT_EQ(report->failed.size(), 1u);
  EXPECT_NE(report->failed[0].find("the medium refuses"), std::string::npos) << report->failed[0];
  rig_->device.reset();
  const CheckReport after = check();
  ASSERT_EQ(after.damage.size(), 1u);
  EXPECT_EQ(after.damage[0].structure, Finding::Structure::device);
  EXPECT_EQ(repair().done.size(), 1u);
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(expect_pages());
}

TEST_F(RepairTest, Checkpoints) {
  for (const std::size_t i : {0u, 1u}) {
    const auto checkpoints = offsets_of("FUCP");
    ASSERT_GE(checkpoints.size(), 2u);
    ASSERT_NO_FATAL_FAILURE(
        expect_named_and_repaired(checkpoints[i] + 40, Finding::Structure::metadata));
  }
}

// Of each record there are two copies. (Of the last one, which a power cut may have torn:
// lost_metadata_test.cc.)
TEST_F(RepairTest, ACopyOfAJournalRecord) {
  for (const std::size_t from_end : {4u, 3u}) {
    const auto copies = offsets_of("FUJN");
    ASSERT_NO_FATAL_FAILURE(expect_named_and_repaired(copies[copies.size() - from_end] + 40,
                                                      Finding::Structure::metadata));
  }
}

// What only a journal record said is nowhere else: it is named, writers are refused, and nothing is
// done about it. (A zone's last record cannot be told from a tear, and was answered to nobody
// then.)
TEST_F(RepairTest, AJournalRecordIsNamedAndCannotBeRebuilt) {
  // Behind record 0 of either zone.
  const std::size_t record = offsets_of("FUJN")[4];
  for (const std::size_t copy : {record, record + kLba}) damage(copy + 40);
  const CheckReport found = check();
  ASSERT_GE(found.damage.size(), 3u) << "the LBAs, and what that means";
  for (const Finding& finding : found.damage) {
    EXPECT_EQ(finding.structure, Finding::Structure::metadata) << finding.text;
    EXPECT_FALSE(finding.repairable) << finding.text;
  }
  EXPECT_TRUE(repair_plan(found).empty());
  const std::string before = read_file();
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  EXPECT_EQ(Pool::repair(*rig_->device, rig_->loop).status().code(), Code::corrupt);
  rig_->device.reset();
  EXPECT_EQ(read_file(), before);
}

TEST_F(RepairTest, ZoneHeaders) {
  // The first zone is full, the last one is written to.
  const auto headers = offsets_of("FUZH");
  for (const std::size_t header : {headers.front(), headers.back()}) {
    ASSERT_NO_FATAL_FAILURE(
        expect_named_and_repaired(header + 40, Finding::Structure::zone_header));
  }
}

// The power fails at any point of a repair, as a disk with a volatile cache under a file suffers
// it: every page is still there, and the next repair completes.
TEST_F(RepairTest, PowerCutsInARepair) {
  damage(offsets_of("FUZH").front() + 40);
  const std::string damaged = read_file();
  bool whole = false;
  for (std::uint64_t lbas = 1; !whole; lbas += rounds(197, 397)) {
    SCOPED_TRACE("cut after " + std::to_string(lbas) + " LBAs");
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << damaged;
    ASSERT_NO_FATAL_FAILURE(rig_->open_device());
    FaultOptions options;
    options.seed = lbas;
    auto fault = std::make_unique<FaultDevice>(std::move(rig_->device), options);
    fault->cut_after(lbas, CrashModel::emu);
    const auto report = Pool::repair(*fault, rig_->loop);
    whole = !fault->dead();
    EXPECT_EQ(whole, report.ok() && report->failed.empty());
    ASSERT_TRUE(fault->power_cut(CrashModel::emu).ok());
    fault->take_inner().reset();
    ASSERT_NO_FATAL_FAILURE(expect_pages());
    repair();
    EXPECT_TRUE(check().clean());
    ASSERT_NO_FATAL_FAILURE(expect_pages());
  }
}

TEST_F(RepairTest, BatchHeaders) {
  const auto headers = offsets_of("FUBH");
  // Of the first zone, in the fixed part; of the second one, in a record.
  for (const std::size_t at : {headers[3] + 40, headers[kKeys / 2] + 100}) {
    ASSERT_NO_FATAL_FAILURE(expect_named_and_repaired(at, Finding::Structure::batch_header));
  }
}

TEST_F(RepairTest, Summaries) {
  const auto footers = offsets_of("FUSM", kFooterAt);
  ASSERT_GE(footers.size(), 2u);
  ASSERT_NO_FATAL_FAILURE(
      expect_named_and_repaired(footers[0] + kFooterAt + 40, Finding::Structure::summary));
  ASSERT_NO_FATAL_FAILURE(expect_named_and_repaired(offsets_of("FUSM", kFooterAt).back() + 8,
                                                    Finding::Structure::summary));
}

// A batch header that no summary stands for: what it described is not known any more. It is named,
// the zone is left as it is, and all other pages are there.
TEST_F(RepairTest, WhatIsNotKnownIsLeftAsItIs) {
  const std::size_t footer = offsets_of("FUSM", kFooterAt).front();
  const std::size_t header = offsets_of("FUBH")[3];
  ASSERT_LT(header, footer);
  damage(footer + kFooterAt + 40);
  damage(header + 40);
  const CheckReport found = check();
  ASSERT_EQ(found.damage.size(), 2u);
  for (const Finding& finding : found.damage) EXPECT_FALSE(finding.repairable) << finding.text;
  EXPECT_TRUE(repair_plan(found).empty());
  const RepairReport repaired = repair();
  EXPECT_TRUE(repaired.done.empty() && repaired.failed.empty());
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  ASSERT_NO_FATAL_FAILURE(rig_->open());
  unsigned lost = 0;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    if (i % 10 != 0 && !rig_->get(i).ok()) ++lost;
  }
  EXPECT_EQ(lost, 1u);
  close_device();
}

// A page that is damaged cannot be rebuilt; a zone that has one is still written anew for its
// headers, page and all.
TEST_F(RepairTest, ADamagedPageMovesAlong) {
  const std::size_t header = offsets_of("FUBH")[3];
  damage(header + kLba + 17);  // its page
  damage(header + 40);
  EXPECT_EQ(repair_plan(check()).size(), 1u);
  EXPECT_EQ(repair().done.size(), 1u);
  const CheckReport after = check();
  ASSERT_EQ(after.damage.size(), 1u);
  EXPECT_EQ(after.damage.front().structure, Finding::Structure::page);
}

// No zone is empty: said, and nothing is lost.
TEST_F(RepairTest, WithoutAnEmptyZone) {
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  const Geometry geometry = rig_->device->geometry();
  {
    auto queue = rig_->device->create_queue(4);
    ASSERT_TRUE(queue.ok());
    const auto zones = rig_->device->report();
    for (const ZoneInfo& info : *zones) {
      if (info.state != ZoneState::empty) continue;
      Io io;
      io.op = Io::Op::finish;
      io.zone = info.zone;
      io.lba = geometry.zone_start(info.zone);
      ASSERT_TRUE(run_blocking(**queue, io).ok());
    }
  }
  rig_->device.reset();
  damage(offsets_of("FUZH").front() + 40);
  const RepairReport repaired = repair();
  ASSERT_EQ(repaired.failed.size(), 1u);
  EXPECT_NE(repaired.failed.front().find("empty"), std::string::npos) << repaired.failed.front();
  ASSERT_NO_FATAL_FAILURE(expect_pages());
}

}  // namespace
}  // namespace furrow::testing::repair_test
