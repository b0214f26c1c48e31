// Establishes that the first write to a zone takes room for those that follow, on ext4 and with
// direct I/O only, that a zone which was reset takes it anew, and that what is taken ahead is not
// data. How: the blocks of a device's file, where the tests' directory is on ext4.
#include "zone/preallocation.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include "tests/zone/emu_fixture.h"

namespace furrow::test {
namespace {

class PreallocationTest : public EmuDeviceTest {
 protected:
  void SetUp() override {
    create();
    struct statfs system {};
    ASSERT_EQ(statfs(path_.c_str(), &system), 0);
    if (system.f_type != EXT4_SUPER_MAGIC) GTEST_SKIP() << "the tests' directory is not on ext4";
  }
  // Beside blocks of data, a few that the file system has to note where they are.
  void expect_used(std::uint64_t bytes) const {
    EXPECT_GE(used_bytes(path_), bytes);
    EXPECT_LE(used_bytes(path_), bytes + 16384);
  }
};

constexpr std::uint64_t kZoneBytes = kMiB + kMiB / 2;

TEST_F(PreallocationTest, TheFirstWriteTakesTheZone) {
  {
    auto device = open("?reclaim=now");
    Client client(*device);
    const std::uint64_t before = used_bytes(path_);  // the ballast is there
    ASSERT_TRUE(client.write(0, 0, 1, 1).ok());
    expect_used(before + kZoneBytes);
    ASSERT_TRUE(client.write(0, 1, 383, 2).ok());
    expect_used(before + kZoneBytes);
    ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
    dynamic_cast<emu::EmuDevice&>(*device).drain_reclaim();
    EXPECT_LT(used_bytes(path_), before + kZoneBytes / 2);
    ASSERT_TRUE(client.write(0, 0, 2, 3).ok());
    expect_used(before + kZoneBytes);
    client.expect_data(0, 0, 2, 3);
    client.expect_zeroes(0, 2, 382);
    ASSERT_TRUE(client.flush().ok());
  }
  auto device = open();
  Client client(*device);
  EXPECT_EQ((*device->report())[0].written_lbas, 2u);
  client.expect_data(0, 0, 2, 3);
  ASSERT_TRUE(client.write(0, 2, 382, 4).ok());
  client.expect_data(0, 2, 382, 4);
}

TEST_F(PreallocationTest, NotWithoutDirectIo) {
  auto device = open("?direct=0");
  Client client(*device);
  const std::uint64_t before = used_bytes(path_);
  ASSERT_TRUE(client.write(0, 0, 1, 1).ok());
  ASSERT_TRUE(client.flush().ok());
  EXPECT_LT(used_bytes(path_) - before, kZoneBytes / 2);
}

// Where so much is free.
class Room final : public emu::Preallocation {
 public:
  Room(int fd, const emu::Superblock& superblock, std::uint64_t free)
      : Preallocation(fd, superblock, true), free_(free) {}

 private:
  std::uint64_t free_bytes() const override { return free_; }
  const std::uint64_t free_;
};

TEST_F(PreallocationTest, NotMoreThanAStepAndNotOfTheLastRoom) {
  constexpr std::uint64_t kEnough =
      emu::Preallocation::kBytesMax * emu::Preallocation::kSpareFactor;
  emu::Superblock superblock;
  superblock.geometry.zone_count = 2;
  superblock.geometry.lba_bytes = 4096;
  superblock.geometry.zone_capacity_lbas = 3 * emu::Preallocation::kBytesMax / 4096;
  superblock.data_offset = kMiB;
  superblock.stride_bytes = superblock.geometry.zone_capacity_bytes();
  const std::string path = dir_.file("large");
  const emu::Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_GE(file.get(), 0);
  ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(superblock.end_offset())), 0);
  // Blocks of data, and a few that the file system has to note where they are.
  const auto expect_steps = [&path](std::uint64_t steps) {
    EXPECT_GE(used_bytes(path), steps * emu::Preallocation::kBytesMax);
    EXPECT_LE(used_bytes(path), steps * emu::Preallocation::kBytesMax + 65536);
  };
  const std::uint64_t step = emu::Preallocation::kBytesMax / 4096;
  emu::Preallocation none(file.get(), superblock, false);
  none.before_write(ZoneId{0}, 0, 1);
  expect_steps(0);
  Room too_little(file.get(), superblock, kEnough - 1);
  too_little.before_write(ZoneId{0}, 0, 1);
  expect_steps(0);
  Room preallocation(file.get(), superblock, kEnough);
  preallocation.before_write(ZoneId{1}, 0, 1);
  expect_steps(1);
  preallocation.before_write(ZoneId{1}, step - 1, 1);
  expect_steps(1);
  preallocation.before_write(ZoneId{1}, step, 1);
  expect_steps(2);
  preallocation.before_write(ZoneId{1}, 2 * step, 1);
  preallocation.before_write(ZoneId{1}, 3 * step - 1, 1);
  expect_steps(3);
  EXPECT_EQ(preallocation.before_write(ZoneId{1}, 0, 1), 0u);
  preallocation.forget(ZoneId{1});
  EXPECT_NE(preallocation.before_write(ZoneId{1}, 0, 1), 0u) << "may have been given back";
}

}  // namespace
}  // namespace furrow::test
