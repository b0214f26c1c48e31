// Establishes what an emulated device does on file systems that are really full, and were filled by
// others: a write is refused or done, never a signal, whether the file system writes in place
// (ext4) or copies (btrfs, a reflinked file on XFS); what was acknowledged is there, also when it
// is opened again; and small writes go on for a while in the room that it keeps. How: each in a
// file, mounted by the loop driver; skipped where that is not permitted, or the tools are not
// there.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "tests/zone/emu_fixture.h"

namespace furrow::test {
namespace {

class FullDiskTest : public EmuDeviceTest {
 protected:
  // `make`: the command that makes the file system, without its file.
  bool mount_new(const std::string& make, std::uint64_t bytes) {
    const std::string image = dir_.file("disk.img");
    mount_point_ = dir_.file("disk");
    std::filesystem::create_directory(mount_point_);
    std::ofstream(image).close();
    std::filesystem::resize_file(image, bytes);
    const std::string command = make + " " + image + " >/dev/null 2>&1 && mount -o loop " + image +
                                " " + mount_point_ + " 2>/dev/null";
    mounted_ = std::system(command.c_str()) == 0;
    path_ = mount_point_ + "/device.img";
    uri_ = "emu:" + path_;
    return mounted_;
  }
  void TearDown() override {
    if (mounted_) {
      EXPECT_EQ(std::system(("umount " + mount_point_).c_str()), 0);
    }
  }
  void fill_up() {
    const std::string junk(64 << 10, 'x');
    const int fd = ::open((mount_point_ + "/junk").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    for (std::size_t piece = junk.size(); piece >= 512; piece /= 2) {
      while (write(fd, junk.data(), piece) > 0) {
      }
      (void)fsync(fd);
    }
    ::close(fd);
  }
  void make_room() {
    std::filesystem::remove(mount_point_ + "/junk");
    sync();
  }
  // Writes to the zone find their blocks: what is wanting then is room for the zone table alone.
  void allocate(std::uint32_t zone) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    const emu::Superblock made = superblock();
    EXPECT_EQ(
        fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(made.offset_of(ZoneId{zone}, 0)),
                  static_cast<off_t>(made.stride_bytes)),
        0);
    (void)fsync(fd);
    ::close(fd);
  }
  // Writes until that is refused, and checks all of it, also by another opener while it is full.
  void run_full() {
    std::uint64_t written = 1;
    {
      auto device = open();
      ASSERT_NE(device, nullptr);
      Client client(*device);
      ASSERT_TRUE(client.write(0, 0, 1, 1000).ok());
      ASSERT_TRUE(client.write(2, 0, 1, 7).ok());
      ASSERT_TRUE(client.flush().ok());
      allocate(0);
      fill_up();
      Status status;
      while (written < 384) {
        status = client.write(0, written, 1, 1000 + written);
        if (!status.ok()) break;
        ++written;
        (void)client.flush();  // so that the table's pages are clean, and are to be copied again
      }
      EXPECT_EQ(status.code(), Code::no_space) << status.describe();
      EXPECT_EQ(status.sys_errno(), ENOSPC);
      for (const Io::Op op : {Io::Op::finish, Io::Op::reset}) {
        const Status managed = client.manage(op, 2);
        EXPECT_EQ(managed.code(), Code::no_space) << managed.describe();
      }
      for (std::uint64_t at = 0; at < written; ++at) client.expect_data(0, at, 1, 1000 + at);
      client.expect_data(2, 0, 1, 7);
      EXPECT_EQ((*device->report())[0].state, ZoneState::full);
    }
    for (const bool full : {true, false}) {
      if (!full) make_room();
      auto device = open();
      ASSERT_NE(device, nullptr);
      Client client(*device);
      for (std::uint64_t at = 0; at < written; ++at) client.expect_data(0, at, 1, 1000 + at);
      client.expect_zeroes(0, written, 1);
      client.expect_data(2, 0, 1, 7);
      if (full) continue;
      EXPECT_TRUE(client.write(1, 0, 8, 5).ok());
      EXPECT_TRUE(client.manage(Io::Op::reset, 2).ok());
      EXPECT_TRUE(client.flush().ok());
    }
  }

  std::string mount_point_;
  bool mounted_ = false;
};

TEST_F(FullDiskTest, BtrfsCopiesEachPageOfTheTable) {
  if (!mount_new("mkfs.btrfs -q", 256 * kMiB)) GTEST_SKIP() << "cannot make and mount a btrfs";
  create();
  ASSERT_NO_FATAL_FAILURE(run_full());
}

TEST_F(FullDiskTest, XfsCopiesTheTableOfAReflinkedFile) {
  if (!mount_new("mkfs.xfs -q -m reflink=1", 320 * kMiB)) {
    GTEST_SKIP() << "cannot make and mount an XFS";
  }
  create();
  const int from = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  const int to = ::open((path_ + ".copy").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(ioctl(to, FICLONE, from), 0);
  ::close(from);
  ::close(to);
  auto device = open();
  Client client(*device);
  allocate(0);
  fill_up();
  const Status status = client.write(0, 0, 1, 1);
  EXPECT_EQ(status.code(), Code::no_space) << status.describe();
  EXPECT_EQ((*device->report())[0].written_lbas, client.geometry.zone_capacity_lbas) << "sealed";
  client.expect_zeroes(0, 0, 1);
  make_room();
  EXPECT_TRUE(client.write(1, 0, 8, 5).ok());
  client.expect_data(1, 0, 8, 5);
}

TEST_F(FullDiskTest, Ext4HasRoomKeptForSmallWrites) {
  if (!mount_new("mkfs.ext4 -q -m 0", 64 * kMiB)) GTEST_SKIP() << "cannot make and mount an ext4";
  DeviceShape larger = shape();
  larger.size_bytes = 64 * kMiB;  // 1 MiB is kept
  ASSERT_TRUE(create_device(uri_, larger).ok());
  auto device = open();
  Client client(*device);
  ASSERT_TRUE(client.write(0, 0, 1, 1).ok());
  ASSERT_TRUE(client.flush().ok());
  EXPECT_FALSE(device->short_of_room());
  fill_up();
  EXPECT_FALSE(device->short_of_room()) << "nothing was needed yet";
  EXPECT_EQ(client.write(1, 0, 128, 1).code(), Code::no_space) << "too much at once";
  EXPECT_FALSE(device->short_of_room());
  std::uint64_t written = 0;
  while (written < 384 && client.write(2, written, 1, 1000 + written).ok()) {
    ++written;
    ASSERT_TRUE(client.flush().ok());
    ASSERT_TRUE(device->short_of_room());
    // So that what the file system has over is taken back, as it is where a while passes.
    if (written <= 12) std::this_thread::sleep_for(std::chrono::milliseconds(110));
  }
  EXPECT_GE(written, 96u) << "three times as many as a piece takes";
  EXPECT_LT(written, 256u) << "where did that go?";
  for (std::uint64_t at = 0; at < written; ++at) client.expect_data(2, at, 1, 1000 + at);
  make_room();
  for (int i = 0; i < 100 && device->short_of_room(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_FALSE(device->short_of_room());
  EXPECT_TRUE(client.write(3, 0, 128, 1).ok());
}

}  // namespace
}  // namespace furrow::test
