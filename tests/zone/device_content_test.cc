// Establishes that what others have left on a device is named, as far as libblkid knows it, and
// that nothing is where nothing is. How: files with what the tools make that Debian always has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/zone/device_test_util.h"

namespace furrow::test {
namespace {

class DeviceContentTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path_).close();
    std::filesystem::resize_file(path_, 8 * kMiB);
  }
  // False: the tool is not there.
  bool made_by(const std::string& command) const {
    return std::system((command + " " + path_ + " >/dev/null 2>&1").c_str()) == 0;
  }
  TempDir dir_;
  std::string path_ = dir_.file("device.img");
  std::string uri_ = "emu:" + path_;
};

TEST_F(DeviceContentTest, AFileSystemIsNamed) {
  if (!made_by("mkfs.ext4 -q -F")) GTEST_SKIP() << "there is no mkfs.ext4";
  EXPECT_EQ(device_content(uri_), "ext4 file system");
  EXPECT_EQ(device_content(uri_ + "?direct=0"), "ext4 file system");
  EXPECT_EQ(create_device(uri_, {}).code(), Code::foreign);
}

TEST_F(DeviceContentTest, OtherThingsAreNamed) {
  if (!made_by("mkswap")) GTEST_SKIP() << "there is no mkswap";
  EXPECT_EQ(device_content(uri_), "swap");
}

TEST_F(DeviceContentTest, APartitionTableIsNamed) {
  // One of type Linux, from LBA 2048 on, of 4096 LBAs; and the mark at the sector's end.
  constexpr unsigned char kEntry[16] = {0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 16, 0, 0};
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(446).write(reinterpret_cast<const char*>(kEntry), sizeof kEntry);
  file.seekp(510).write("\x55\xAA", 2);
  file.close();
  EXPECT_EQ(device_content(uri_), "dos partition table");
}

TEST_F(DeviceContentTest, NothingIsWhereNothingIsKnown) {
  EXPECT_EQ(device_content(uri_), "");
  EXPECT_EQ(device_content("emu:" + dir_.file("none")), "");
  EXPECT_EQ(device_content("mem:64MiB"), "");
  EXPECT_EQ(device_content("nvme:" + path_), "");
  EXPECT_EQ(device_content("nonsense"), "");
  DeviceShape shape;
  shape.size_bytes = 4 * kMiB;
  ASSERT_TRUE(create_device(uri_, shape).ok());
  EXPECT_EQ(device_content(uri_), "");
}

}  // namespace
}  // namespace furrow::test
