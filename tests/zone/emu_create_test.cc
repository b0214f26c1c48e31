// Establishes what making an emulated device takes for nobody's data, and what not: anything in a
// file, wherever it is, is somebody's; what an earlier making left that was cut off is not. And
// that a device that is closed leaves the file alone from then on, though zones were to be given
// back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/zone/device_test_util.h"
#include "tests/zone/emu_fixture.h"
#include "tests/zone/loop_device.h"
#include "zone/emu_layout.h"

namespace furrow::test {
namespace {

class EmuCreateTest : public testing::Test {
 protected:
  static DeviceShape shape() {
    DeviceShape made;
    made.size_bytes = 16 * kMiB;
    made.zone_size_bytes = 2 * kMiB;
    return made;
  }
  // A new file of zeroes that take space, or (`hole`) do not.
  void make_file(std::uint64_t bytes, bool hole) {
    std::filesystem::remove(path_);
    std::ofstream file(path_, std::ios::binary);
    if (!hole) file << std::string(bytes, '\0');
    file.close();
    std::filesystem::resize_file(path_, bytes);
  }
  void poke(std::uint64_t offset, std::string_view bytes) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
    ASSERT_TRUE(file.good());
  }
  Code create() { return create_device(uri_, shape()).code(); }

  TempDir dir_;
  std::string path_ = dir_.file("device.img");
  std::string uri_ = "emu:" + path_;
};

TEST_F(EmuCreateTest, DataAnywhereInAFileIsSomebodys) {
  for (const bool hole : {true, false}) {
    for (const std::uint64_t offset :
         {std::uint64_t{0}, kMiB - 1, kMiB, 5 * kMiB + 12345, 8 * kMiB - 1}) {
      make_file(8 * kMiB, hole);
      poke(offset, "x");
      EXPECT_EQ(create(), Code::foreign) << offset;
      EXPECT_EQ(std::filesystem::file_size(path_), 8 * kMiB) << "it was touched";
    }
    make_file(8 * kMiB, hole);
    EXPECT_EQ(create(), Code::ok) << "zeroes are nobody's";
  }
}

// What marks a device, or one that was not finished, does so at a file's beginning alone.
TEST_F(EmuCreateTest, WhatLooksLikeADeviceElsewhereIsData) {
  ASSERT_EQ(create(), Code::ok);
  const std::string device = create_device(uri_, shape()).describe();
  for (const char* mark : {"FurrowZD", "FurrowZD unfinished"}) {
    make_file(8 * kMiB, true);
    poke(kMiB, mark);
    const Status status = create_device(uri_, shape());
    EXPECT_EQ(status.code(), Code::foreign) << mark;
    EXPECT_NE(status.describe(), device) << mark;
  }
}

// The file as it is when the making is cut off before the superblock: each of its writes may be
// there or not.
TEST_F(EmuCreateTest, AMakingThatWasCutOffCanBeRepeated) {
  ASSERT_EQ(create(), Code::ok);
  std::string whole(std::filesystem::file_size(path_), '\0');
  std::ifstream(path_, std::ios::binary).read(whole.data(), static_cast<std::streamsize>(kMiB));
  for (const std::uint64_t end : {4096u, 8192u, 12288u, 65536u}) {
    make_file(whole.size(), true);
    poke(0, std::string_view(whole).substr(0, end));
    for (const std::uint64_t offset : emu::kSuperblockOffsets) {
      if (offset < end) poke(offset, std::string(emu::kSuperblockBytes, '\0'));
    }
    poke(0, "FurrowZD unfinished");
    EXPECT_EQ(open_device(uri_, Access::exclusive).status().code(), Code::foreign) << end;
    EXPECT_EQ(create(), Code::ok) << end;
    EXPECT_TRUE(open_device(uri_, Access::exclusive).ok()) << end;
  }
}

TEST_F(EmuCreateTest, RefusesShapesThatCouldNotBeOpened) {
  DeviceShape wide = shape();
  wide.zone_size_bytes = std::uint64_t{20} << 40;
  wide.zone_capacity_bytes = 4 * kMiB;
  wide.size_bytes = 8 * wide.zone_size_bytes;
  EXPECT_EQ(create_device(uri_, wide).code(), Code::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(path_)) << "a refusal left a file";
}

// A signal would end it at the first write past that, unless it has said what is to be done then.
TEST_F(EmuCreateTest, AProcessThatMayNotWriteAllOfTheFileIsRefused) {
  for (const bool made : {false, true}) {
    SCOPED_TRACE(made);
    if (made) {
      ASSERT_EQ(create(), Code::ok);
    }
    const FileSizeLimit limit(15 * kMiB);
    (void)signal(SIGXFSZ, SIG_DFL);
    const Status status =
        made ? open_device(uri_, Access::exclusive).status() : create_device(uri_, shape());
    EXPECT_EQ(status.code(), Code::no_space) << status.describe();
    EXPECT_EQ(status.sys_errno(), EFBIG);
    EXPECT_EQ(std::filesystem::exists(path_), made);
    EXPECT_EQ(open_device(uri_, Access::check).ok(), made);
    (void)signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(open_device(uri_, Access::exclusive).ok(), made);
  }
}

// On a loop device with sectors of 4 KiB, where the machine lets us make one.
TEST_F(EmuCreateTest, RefusesLbasThatDirectIoWouldNotTake) {
  const LoopDevice loop(path_, 32 * kMiB, "--sector-size 4096");
  if (!loop.there()) GTEST_SKIP() << "no loop device";
  uri_ = "emu:" + loop.name();
  DeviceShape small_lbas = shape();
  small_lbas.lba_bytes = 512;
  EXPECT_EQ(create_device(uri_, small_lbas).code(), Code::unsupported);
  EXPECT_EQ(create(), Code::ok) << "nothing was made";
  small_lbas.force = true;
  EXPECT_EQ(create_device(uri_, small_lbas).code(), Code::unsupported);
  EXPECT_TRUE(open_device(uri_, Access::check).ok()) << "nor lost";
  EXPECT_EQ(create_device(uri_ + "?direct=0", small_lbas).code(), Code::ok);
  EXPECT_TRUE(open_device(uri_ + "?direct=0", Access::check).ok());
}

// Whoever waits for the lock may write at once: nothing of the device before may still be punching.
TEST_F(EmuCreateTest, TheNextOpenerMeetsNoPunch) {
  ASSERT_EQ(create(), Code::ok);
  for (int round = 0; round < 12; ++round) {
    auto device = open_device(uri_ + "?reclaim=now", Access::exclusive);
    ASSERT_TRUE(device.ok()) << device.status().describe();
    std::thread next([this] {
      for (;;) {
        auto opened = open_device(uri_ + "?reclaim=never", Access::exclusive);
        if (!opened.ok()) {
          ASSERT_EQ(opened.status().code(), Code::in_use);
          continue;
        }
        Client client(**opened);
        for (unsigned zone = 0; zone < 8; ++zone) {
          ASSERT_TRUE(client.manage(Io::Op::reset, zone).ok());
          ASSERT_TRUE(client.write(zone, 0, 512, zone).ok());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        for (unsigned zone = 0; zone < 8; ++zone) client.expect_data(zone, 0, 512, zone);
        return;
      }
    });
    {
      Client client(**device);
      for (unsigned zone = 0; zone < 8; ++zone) {
        ASSERT_TRUE(client.manage(Io::Op::reset, zone).ok());
        ASSERT_TRUE(client.write(zone, 0, 512, 99).ok());
        ASSERT_TRUE(client.manage(Io::Op::reset, zone).ok());
      }
    }
    device->reset();
    next.join();
  }
}

}  // namespace
}  // namespace furrow::test
