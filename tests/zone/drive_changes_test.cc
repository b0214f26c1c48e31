// Establishes that a zone which the drive takes away by itself, and says so in its list of changed
// zones, is sent nothing more, while the others go on; that what was changed before the drive was
// opened is not looked at twice, and a drive without a list is not asked again; and what is read in
// NVMe's form of that list; and that a drive is said to be gone when it is. How: a drive that is a
// file, whose report the test changes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/zone/fake_drive.h"
#include "zone/nvme_drive.h"
#include "zone/zone_state_machine.h"

namespace furrow::test {
namespace {

TEST(DriveChanges, AZoneThatTheDriveTookIsSentNothing) {
  FakeDrive drive;
  FakeDevice device(drive);
  Client client(device);
  for (std::uint32_t zone = 0; zone < 4; ++zone) ASSERT_TRUE(client.write(zone, 0, 4, zone).ok());
  drive.set(1, ZoneState::read_only, true);
  drive.set(2, ZoneState::offline, true);
  drive.set(3, ZoneState::read_only, false);  // it forgot to say
  std::uint64_t at = 4;
  EXPECT_TRUE(
      comes_true([&] { return client.write(1, at++, 1, 9).nvme() == nvme_status::kZoneReadOnly; }));
  EXPECT_EQ(client.write(2, 4, 1, 9).nvme(), nvme_status::kZoneOffline);
  AlignedBuffer into;
  EXPECT_EQ(client.read(client.at(2, 0), 1, into).nvme(), nvme_status::kZoneOffline);
  client.expect_data(1, 0, 4, 1);
  EXPECT_TRUE(client.write(0, 4, 1, 9).ok());
  EXPECT_TRUE(client.write(3, 4, 1, 9).ok()) << "nobody said that it was taken";
  EXPECT_STREQ(device.report().value()[1].reason, "worn");
}

TEST(DriveChanges, WhatChangedBeforeIsInTheReport) {
  FakeDrive drive;
  drive.set(1, ZoneState::read_only, true);
  FakeDevice device(drive);
  EXPECT_EQ(drive.asked(), 1u);
  Client client(device);
  EXPECT_EQ(client.write(1, 0, 1, 9).nvme(), nvme_status::kZoneReadOnly);
  EXPECT_TRUE(comes_true([&] { return drive.asked() > 2; })) << "it goes on to look";
}

TEST(DriveChanges, ADriveWithoutAListIsAskedOnce) {
  FakeDrive drive;
  drive.keep_no_list();
  FakeDevice device(drive);
  Client client(device);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
  EXPECT_EQ(drive.asked(), 1u);
}

// The drive forgets what it has listed; what could not be looked at is looked at later.
TEST(DriveChanges, NoneOfTheListIsLostWhereTheDriveDoesNotReport) {
  FakeDrive drive;
  FakeDevice device(drive);
  Client client(device);
  drive.fail(EIO);
  drive.set(1, ZoneState::read_only, true);
  drive.set(3, ZoneState::offline, true);
  const unsigned asked = drive.asked();
  EXPECT_TRUE(comes_true([&] { return drive.asked() > asked + 1; }));
  EXPECT_EQ(device.zones_taken(), 0u);
  drive.fail(0);
  EXPECT_TRUE(comes_true([&] { return device.zones_taken() == 2; }));
  EXPECT_EQ(device.zone(ZoneId{1}).state, ZoneState::read_only);
  EXPECT_EQ(device.zone(ZoneId{3}).state, ZoneState::offline);
  EXPECT_FALSE(device.gone());
}

TEST(DriveChanges, AListThatCannotBeReadForOnceIsReadAgain) {
  FakeDrive drive;
  FakeDevice device(drive);
  drive.fail_list(EIO);
  drive.set(1, ZoneState::read_only, true);
  const unsigned asked = drive.asked();
  EXPECT_TRUE(comes_true([&] { return drive.asked() > asked + 1; }));
  drive.fail_list(0);
  EXPECT_TRUE(comes_true([&] { return device.zones_taken() == 1; }));
}

// Nobody asks anything of it.
TEST(DriveChanges, AnIdleDriveIsFoundToBeGone) {
  for (const bool by_its_list : {true, false}) {
    FakeDrive drive;
    if (!by_its_list) drive.keep_no_list();
    FakeDevice device(drive);
    EXPECT_FALSE(device.gone());
    by_its_list ? drive.fail_list(ENODEV) : drive.pull_out();
    EXPECT_TRUE(comes_true([&] { return device.gone(); }));
  }
}

// Neighbours by one report, and not so many that what waits would wait long.
TEST(DriveChanges, ALongListTakesFewReports) {
  FakeDrive drive(false, 2000);
  FakeDevice device(drive);
  Client client(device);
  const unsigned before = drive.reports();
  drive.set(7, ZoneState::offline, false);
  drive.set(1999, ZoneState::read_only, false);
  drive.list_all();
  EXPECT_TRUE(comes_true([&] { return device.zones_taken() == 2; }));
  EXPECT_LE(drive.reports(), before + 4);
  EXPECT_TRUE(client.write(1, 0, 1, 9).ok());
}

TEST(DriveChanges, WhatADriveNeverKnowsItSaysSo) {
  for (const int status : {0x001, 0x002, 0x109, 0x4002}) {
    EXPECT_TRUE(nvme::is_refusal(status)) << std::hex << status;
  }
  for (const int status : {0x006, 0x082, 0x371, 0x281, 0x10A}) {
    EXPECT_FALSE(nvme::is_refusal(status)) << std::hex << status;
  }
}

TEST(DriveChanges, ADriveThatFailsForOnceIsNotGone) {
  FakeDrive drive;
  FakeDevice device(drive);
  Client client(device);
  drive.fail(EIO);
  EXPECT_EQ(client.manage(Io::Op::reset, 0).code(), Code::io_error);
  EXPECT_FALSE(device.gone());
  drive.fail(0);
  EXPECT_TRUE(client.manage(Io::Op::reset, 0).ok());
  drive.fail(ENODEV);
  EXPECT_EQ(client.manage(Io::Op::reset, 0).sys_errno(), ENODEV);
  EXPECT_TRUE(device.gone());
}

class ChangedZones : public ::testing::Test {
 protected:
  ChangedZones() {
    geometry_.zone_count = 600;
    geometry_.zone_size_lbas = 768;
  }
  void count(std::uint16_t zones) { std::memcpy(log_.data(), &zones, 2); }
  void name(std::size_t entry, std::uint64_t lba) {
    std::memcpy(log_.data() + 8 + 8 * entry, &lba, 8);
  }
  std::vector<std::uint32_t> zones() const {
    std::vector<std::uint32_t> found;
    for (const ZoneId zone : nvme::changed_zones(log_, geometry_)) found.push_back(zone.value);
    return found;
  }
  Geometry geometry_;
  std::array<std::byte, nvme::kChangedZonesBytes> log_{};
};

TEST_F(ChangedZones, ThoseThatAreNamed) {
  using Zones = std::vector<std::uint32_t>;
  EXPECT_EQ(zones(), Zones());
  name(0, 768 * 599);
  name(1, 0);
  name(2, 768 * 5);
  EXPECT_EQ(zones(), Zones()) << "none is counted";
  count(2);
  EXPECT_EQ(zones(), Zones({0, 599}));
  count(3);
  name(1, 768 * 5);
  EXPECT_EQ(zones(), Zones({5, 599})) << "one that is there twice";
  name(2, 768 * 600);
  EXPECT_EQ(zones(), Zones({5, 599})) << "one that the drive does not have";
  name(2, ~std::uint64_t{0});
  EXPECT_EQ(zones(), Zones({5, 599}));
}

TEST_F(ChangedZones, AsManyAsItHoldsAndMore) {
  for (std::size_t i = 0; i < 511; ++i) name(i, 768 * (i + 1));
  count(511);
  EXPECT_EQ(zones().size(), 511u);
  EXPECT_EQ(zones().front(), 1u);
  for (const std::uint16_t more : {std::uint16_t{512}, std::uint16_t{0xFFFF}}) {
    count(more);
    EXPECT_EQ(zones().size(), 600u);
  }
}

}  // namespace
}  // namespace furrow::test
