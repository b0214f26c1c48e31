// Establishes what a repair that was cut off leaves behind: a zone that it had not written to its
// end counts for nothing, and of two that say the same the one that was damaged goes, and what was
// torn stays so. How: the power fails, or zones cannot be reset, while a repair writes to the zone
// before all others, whose copies of pages would be taken first.
#include <gtest/gtest.h>

#include "tests/engine/pool_file.h"
#include "tests/log/tap_device.h"
#include "zone/fault_device.h"

namespace furrow::testing::repair_cut_off_test {
namespace {

constexpr std::size_t kPageBytes = 9000;
constexpr std::uint64_t kKeys = 70;
constexpr std::uint32_t kEmpty = 2;  // the first zone behind the ring's

class RepairCutOffTest : public ::testing::Test, public PoolFile {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(8 << 20, 256 << 10));
    ASSERT_NO_FATAL_FAILURE(rig_.make(volume("gone")));
    ASSERT_TRUE(rig_.put(1, 1, kPageBytes).ok());
    const Result<PageStore*> made = rig_.pool->create_volume(volume("pages"));
    ASSERT_TRUE(made.ok()) << made.status().describe();
    rig_.store = *made;
    for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(rig_.put(i, 1, kPageBytes).ok());
    ASSERT_TRUE(rig_.simple(PageOp::Kind::flush, 0).ok());
    Status deleted;
    while ((deleted = rig_.pool->delete_volume("gone")).code() == Code::busy) rig_.turns(1);
    ASSERT_TRUE(deleted.ok()) << deleted.describe();
    rig_.return_zones();
    ASSERT_EQ(zone(kEmpty).state, ZoneState::empty);
    ASSERT_EQ(zone(kEmpty + 1).state, ZoneState::full);
  }
  static VolumeOptions volume(const char* name) {
    VolumeOptions options;
    options.name = name;
    options.mode = VolumeMode::store;
    options.quota_bytes = 3 << 20;
    options.value_bytes_max = 16 << 10;
    return options;
  }
  ZoneInfo zone(std::uint32_t number) { return (*rig_.device->report())[number]; }
  void close() {
    rig_.close();
    rig_.device.reset();
  }
  // Writes the zone anew, and leaves the old one.
  void repair_without_resets() {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    TapDevice tap(std::move(rig_.device));
    tap.fail(Io::Op::reset, Status(Code::io_error, Origin::zone), 100);
    const auto repaired = Pool::repair(tap, rig_.loop);
    ASSERT_TRUE(repaired.ok()) << repaired.status().describe();
    ASSERT_EQ(repaired->failed.size(), 1u);
    ASSERT_NE((*tap.report())[kEmpty].written_lbas, 0u);
  }
  void open() {
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    ASSERT_NO_FATAL_FAILURE(rig_.open());
  }
  void expect_all() {
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      const auto page = rig_.get(i);
      ASSERT_TRUE(page.ok()) << i << ": " << page.status().describe();
      ASSERT_EQ(*page, content(i, 1, kPageBytes)) << i;
    }
  }

  Rig rig_{uri()};
};

// Batch headers stand before the pages that they name.
TEST_F(RepairCutOffTest, APartOfAZoneCountsForNothing) {
  close();
  damage(offsets_of("FUZH").front() + 40);
  const FileImage damaged = read_file();
  unsigned begun = 0;
  for (std::uint64_t lbas = 20; lbas < 70; lbas += 3) {
    SCOPED_TRACE("cut after " + std::to_string(lbas) + " LBAs");
    write_file(damaged);
    ASSERT_NO_FATAL_FAILURE(rig_.open_device());
    FaultDevice fault(std::move(rig_.device), {.seed = lbas});
    fault.cut_after(lbas, CrashModel::emu);
    (void)Pool::repair(fault, rig_.loop);
    ASSERT_TRUE(fault.dead());
    rig_.device = fault.take_inner();
    begun += zone(kEmpty).written_lbas > 1 ? 1 : 0;
    ASSERT_NO_FATAL_FAILURE(rig_.open());
    ASSERT_NO_FATAL_FAILURE(expect_all());
    close();
  }
  EXPECT_NE(begun, 0u);
}

// A store may have no room for both.
TEST_F(RepairCutOffTest, OfAFullZoneAndItsCopyTheCopyStays) {
  close();
  damage(offsets_of("FUZH").front() + 40);
  ASSERT_NO_FATAL_FAILURE(repair_without_resets());
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(zone(kEmpty).state, ZoneState::full);
  EXPECT_EQ(zone(kEmpty + 1).state, ZoneState::empty);
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

// Of the zone that was written to last the end is looked at, and with two of them that of one.
TEST_F(RepairCutOffTest, WhatWasTornStaysSo) {
  ASSERT_NO_FATAL_FAILURE(rig_.reopen());  // a note repeats what the batch headers say
  rig_.store = rig_.pool->find("pages");
  ASSERT_TRUE(rig_.put(1, 2, kPageBytes).ok());
  const FileImage unflushed = read_file();
  close();
  write_file(unflushed);
  const auto headers = offsets_of("FUBH");
  damage(headers.back() + kLba + 17);  // its page
  const auto first = std::ranges::upper_bound(headers, offsets_of("FUZH").back());
  ASSERT_LT(first - headers.begin() + 2, std::ssize(headers));
  damage(*first + 40);
  ASSERT_NO_FATAL_FAILURE(repair_without_resets());
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_NO_FATAL_FAILURE(expect_all());
}

}  // namespace
}  // namespace furrow::testing::repair_cut_off_test
