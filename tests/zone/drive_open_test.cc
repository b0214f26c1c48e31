// Establishes that zbd: and nvme: refuse what is no zoned drive, each with its reason, and touch
// nothing.
// (What it does on one: conformance_test, in the guest of tests/vm.)
#include <filesystem>
#include <fstream>

#include "tests/zone/device_test_util.h"
#include "zone/zbd_drive.h"
#include "zone/zone_state_machine.h"

namespace furrow::test {
namespace {

Status opened(const std::string& uri) {
  const auto device = open_device(uri, Access::inspect);
  return device.status();
}

TEST(DriveOpen, RefusesWhatIsNoZonedDrive) {
  TempDir dir;
  const std::string file = dir.file("file");
  std::ofstream(file) << "kept";
  EXPECT_EQ(opened("zbd:" + dir.file("none")).code(), Code::not_found);
  EXPECT_NE(std::string(opened("zbd:" + dir.file("none")).hint()).find("lsblk -z"),
            std::string::npos);
  EXPECT_EQ(opened("zbd:" + file).code(), Code::unsupported);
  EXPECT_NE(std::string(opened("zbd:" + file).hint()).find("emu:"), std::string::npos);
  EXPECT_EQ(opened("zbd:/dev/null").code(), Code::unsupported);
  EXPECT_NE(std::string(opened("zbd:/dev/null").hint()).find("character device"),
            std::string::npos);
  EXPECT_EQ(create_device("zbd:" + file, {}).code(), Code::invalid_argument);
  EXPECT_EQ(opened("nvme:" + dir.file("none")).code(), Code::not_found);
  for (const std::string path : {file.c_str(), "/dev/null"}) {
    EXPECT_EQ(opened("nvme:" + path).code(), Code::unsupported);
    EXPECT_NE(std::string(opened("nvme:" + path).hint()).find("/dev/ng0n1"), std::string::npos);
  }
  EXPECT_EQ(create_device("nvme:/dev/null", {}).code(), Code::invalid_argument);
  std::string text;
  std::ifstream(file) >> text;
  EXPECT_EQ(text, "kept");
}

TEST(DriveOpen, RefusesABlockDeviceWithoutZones) {
  std::string found;
  for (const auto& each : std::filesystem::directory_iterator("/sys/class/block")) {
    std::ifstream zoned(each.path() / "queue/zoned");
    std::string model;
    const std::string device = "/dev/" + each.path().filename().string();
    if (zoned >> model && model == "none" && std::filesystem::exists(device)) found = device;
  }
  if (found.empty()) GTEST_SKIP() << "there is no block device here";
  const Status status = opened("zbd:" + found);
  EXPECT_EQ(status.code(), Code::unsupported) << found << ": " << status.describe();
  EXPECT_NE(std::string(status.hint()).find("not zoned"), std::string::npos);
}

TEST(DriveOpen, TellsErrorsOfTheDriveApart) {
  EXPECT_EQ(zbd::drive_error(ENODEV, "x").sys_errno(), ENODEV);
  EXPECT_NE(std::string(zbd::drive_error(ENXIO, "x").hint()).find("gone"), std::string::npos);
  EXPECT_EQ(zbd::drive_error(EOVERFLOW, "x").nvme(), nvme_status::kTooManyActive);
  EXPECT_EQ(zbd::drive_error(ETOOMANYREFS, "x").nvme(), nvme_status::kTooManyOpen);
  EXPECT_EQ(zbd::drive_error(EIO, "x").code(), Code::io_error);
  EXPECT_STREQ(zbd::drive_error(EIO, "x").hint(), "x");
}

}  // namespace
}  // namespace furrow::test
