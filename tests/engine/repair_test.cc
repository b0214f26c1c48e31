// Establishes that a check names each kind of damaged structure, and that a repair makes it whole
// again with every page intact: one copy of each structure of a pool on a file is damaged in turn,
// the pool is checked (read-only: the file stays as it is), repaired, checked again, and read. What
// cannot be known any more is named, and left as it is; so is a pool with a structure of a newer
// version, which is no damage.
#include <gtest/gtest.h>

#include "tests/engine/pool_file.h"
#include "tests/log/reseal.h"
#include "tests/log/tap_device.h"
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
    ASSERT_NO_FATAL_FAILURE(make_pool(48 << 20, VolumeMode::store));
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
          ASSERT_TRUE(equal(*page, content(i, 1, bytes_of(i)))) << i;
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
    const FileImage before = read_file();
    const CheckReport found = check();
    ASSERT_FALSE(found.clean());
    for (const Finding& finding : found.damage) {
      EXPECT_EQ(finding.structure, structure) << finding.text;
      EXPECT_TRUE(finding.repairable) << finding.text;
    }
    EXPECT_EQ(repair_plan(found).size(), 1u);
    EXPECT_TRUE(read_file() == before) << "a check writes nothing";
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
  FileImage file = read_file();
  const auto bytes = std::as_writable_bytes(std::span(file.data(), file.size()));
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
  const FileImage before = read_file();
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  EXPECT_EQ(Pool::repair(*rig_->device, rig_->loop).status().code(), Code::corrupt);
  rig_->device.reset();
  EXPECT_TRUE(read_file() == before);
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
  const FileImage damaged = read_file();
  bool whole = false;
  for (std::uint64_t lbas = 1; !whole; lbas += rounds(197, 397)) {
    SCOPED_TRACE("cut after " + std::to_string(lbas) + " LBAs");
    write_file(damaged);
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

// Leaves the volume no more than it needs, for others.
class RepairWithoutEmptyZonesTest : public RepairTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(RepairTest::SetUp());
    ASSERT_NO_FATAL_FAILURE(rig_->open_device());
    ASSERT_NO_FATAL_FAILURE(rig_->open());
    ResizeAnswer answer;
    do {
      rig_->loop.run_once();
      answer = rig_->pool->resize_volume("pages", {.quota_bytes = 6 * kZone});
    } while (answer.status.code() == Code::busy);
    ASSERT_TRUE(answer.status.ok()) << answer.status.describe();
    left_ = rig_->pool->info().zones_unpromised;
    ASSERT_GE(left_, 3u);
  }
  std::vector<ZoneInfo> zones_that_are(ZoneState state) const {
    std::vector<ZoneInfo> zones = *rig_->device->report();
    std::erase_if(zones, [state](const ZoneInfo& info) { return info.state != state; });
    return zones;
  }
  void finish(const std::vector<ZoneInfo>& zones) const {
    auto queue = rig_->device->create_queue(4);
    ASSERT_TRUE(queue.ok());
    for (const ZoneInfo& info : zones) {
      ASSERT_TRUE(manage_blocking(**queue, Io::Op::finish, info.zone).ok());
    }
  }

  static constexpr std::uint64_t kZone = 4 << 20;
  std::uint64_t left_ = 0;  // zones that the volume has not
};

// None can be had: said, and nothing is lost.
TEST_F(RepairWithoutEmptyZonesTest, IsNotDone) {
  rig_->close();
  ASSERT_NO_FATAL_FAILURE(finish(zones_that_are(ZoneState::empty)));
  rig_->device.reset();
  damage(offsets_of("FUZH").front() + 40);
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  {
    TapDevice tap(std::move(rig_->device));
    tap.fail(Io::Op::reset, Status(Code::io_error, Origin::zone), 100);
    const auto repaired = Pool::repair(tap, rig_->loop);
    ASSERT_TRUE(repaired.ok()) << repaired.status().describe();
    ASSERT_EQ(repaired->failed.size(), 1u);
    EXPECT_NE(repaired->failed[0].find("empty"), std::string::npos) << repaired->failed[0];
  }
  ASSERT_NO_FATAL_FAILURE(expect_pages());
}

// A stop came before they were reset.
TEST_F(RepairWithoutEmptyZonesTest, TakesThoseOfADeletedVolume) {
  VolumeOptions options;
  options.name = "gone";
  options.mode = VolumeMode::store;
  options.value_bytes_max = 64 << 10;
  const auto made = rig_->pool->create_volume(options);
  ASSERT_TRUE(made.ok()) << made.status().describe();
  rig_->store = *made;
  for (std::uint64_t i = 0; rig_->put(i, 1, 60'000).ok(); ++i) {
  }
  const std::vector<PoolZone> zones = rig_->pool->zones();
  const std::uint64_t other = rig_->pool->find("pages")->info().id;
  Status deleted;
  while ((deleted = rig_->pool->delete_volume("gone")).code() == Code::busy) rig_->turns(1);
  ASSERT_TRUE(deleted.ok()) << deleted.describe();
  rig_->close();
  std::vector<ZoneInfo> its_open_ones = zones_that_are(ZoneState::implicitly_open);
  std::erase_if(its_open_ones, [&](const ZoneInfo& info) {
    const PoolZone& zone = zones[info.zone.value];
    return zone.use == ZoneUse::metadata || zone.volume == other;
  });
  ASSERT_NO_FATAL_FAILURE(finish(its_open_ones));
  EXPECT_GE(zones_that_are(ZoneState::full).size(), 2u);
  ASSERT_NO_FATAL_FAILURE(finish(zones_that_are(ZoneState::empty)));
  rig_->device.reset();
  const auto headers = offsets_of("FUZH");
  damage(headers.front() + 40);
  const RepairReport repaired = repair();
  for (const std::string& line : repaired.failed) ADD_FAILURE() << line;
  EXPECT_TRUE(check().clean());
  ASSERT_NO_FATAL_FAILURE(expect_pages());
}

}  // namespace
}  // namespace furrow::testing::repair_test
