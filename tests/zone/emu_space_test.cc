// Establishes that an emulated device on a full file system loses nothing, and that the space of
// reset zones is given back without harm to reads and later writes. (That no read waits for it long
// is in the size of the pieces, and the pauses between them: ReclaimerTest.)
#include <sys/mount.h>

#include <chrono>
#include <thread>

#include "tests/zone/emu_fixture.h"

namespace furrow::test {
namespace {

TEST_F(EmuDeviceTest, AFullFileSystemSealsTheZoneAndLosesNothing) {
  const std::string mount_point = dir_.file("small");
  std::filesystem::create_directory(mount_point);
  if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  struct Unmount {
    std::string where;
    ~Unmount() { EXPECT_EQ(umount(where.c_str()), 0); }
  } const unmount{mount_point};
  uri_ = "emu:" + mount_point + "/device.img";
  create();
  {
    auto device = open("?direct=0&reclaim=now");
    Client client(*device);
    ASSERT_TRUE(client.write(0, 0, 384, 1).ok());
    ASSERT_TRUE(client.write(1, 0, 384, 2).ok());
    Status status;
    std::uint32_t offset = 0;
    while (status.ok() && offset < 384) {
      status = client.write(2, offset, 16, 100 + offset);
      if (status.ok()) offset += 16;
    }
    ASSERT_EQ(status.code(), Code::no_space) << status.describe();
    EXPECT_EQ(status.sys_errno(), ENOSPC);
    const ZoneInfo sealed = (*device->report())[2];
    EXPECT_EQ(sealed.state, ZoneState::full);
    EXPECT_NE(std::string(sealed.reason), "");
    EXPECT_EQ(client.write(2, offset, 1, 1).nvme(), nvme_status::kZoneFull);
    for (std::uint32_t at = 0; at < offset; at += 16) client.expect_data(2, at, 16, 100 + at);
    client.expect_zeroes(2, offset, 16);
    client.expect_data(0, 0, 384, 1);
    client.expect_data(1, 0, 384, 2);
    EXPECT_TRUE(client.flush().ok());
    ASSERT_TRUE(client.manage(Io::Op::reset, 1).ok());
    dynamic_cast<emu::EmuDevice&>(*device).drain_reclaim();
    EXPECT_TRUE(client.write(3, 0, 128, 3).ok());
  }
  {
    auto device = open("?direct=0");
    EXPECT_EQ((*device->report())[2].state, ZoneState::full);
    Client(*device).expect_data(0, 0, 384, 1);
  }
}

TEST_F(EmuDeviceTest, GivesTheSpaceOfResetZonesBack) {
  for (const char* parameters : {"?reclaim=now", "?reclaim=never", "?reclaim=lazy"}) {
    std::filesystem::remove(path_);
    create();
    auto device = open(parameters);
    Client client(*device);
    ASSERT_TRUE(client.write(0, 0, 384, 1).ok());
    ASSERT_TRUE(client.write(1, 0, 384, 2).ok());
    ASSERT_TRUE(client.flush().ok());
    const std::uint64_t before = used_bytes(path_);
    ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
    const bool now = std::string_view(parameters) == "?reclaim=now";
    if (now) dynamic_cast<emu::EmuDevice&>(*device).drain_reclaim();
    const std::uint64_t freed = before - used_bytes(path_);
    EXPECT_EQ(freed, now ? kMiB + kMiB / 2 : 0) << parameters;
    client.expect_data(1, 0, 384, 2);
    client.expect_zeroes(0, 0, 384);
  }
}

// A device that was closed without that, or killed, has it given back when it is opened again.
TEST_F(EmuDeviceTest, ClosingGivesBackWhatResetZonesHad) {
  for (const bool killed : {false, true}) {
    std::filesystem::remove(path_);
    create();
    auto device = open(killed ? "?reclaim=never" : "");
    {
      Client client(*device);
      for (const std::uint32_t zone : {0u, 1u}) ASSERT_TRUE(client.write(zone, 0, 384, 1).ok());
      ASSERT_TRUE(client.flush().ok());
      ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
    }
    const std::uint64_t before = used_bytes(path_);
    device.reset();
    EXPECT_EQ(before - used_bytes(path_), killed ? 0 : kMiB + kMiB / 2);
    device = open("");
    Client(*device).expect_data(1, 0, 384, 1);
    device.reset();
    EXPECT_EQ(before - used_bytes(path_), kMiB + kMiB / 2);
  }
}

// A zone is written again before, while and after its old space is punched: no new byte may be
// lost.
TEST_F(EmuDeviceTest, ReclaimNeverTouchesAZoneInUse) {
  create();
  auto device = open("?reclaim=now");
  Client client(*device);
  for (std::uint64_t round = 0; round < 60; ++round) {
    ASSERT_TRUE(client.write(1, 0, 200, 1000 * round).ok());
    ASSERT_TRUE(client.write(1, 200, 184, 1000 * round + 1).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(round % 8 * 1000));
    client.expect_data(1, 0, 200, 1000 * round);
    client.expect_data(1, 200, 184, 1000 * round + 1);
    ASSERT_TRUE(client.manage(Io::Op::reset, 1).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(round % 5 * 700));
  }
}

}  // namespace
}  // namespace furrow::test
