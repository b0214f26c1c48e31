// Establishes that a device which is preallocated has all its blocks, and written ones, when it was
// made; that zones keep theirs when they are reset, unless the URI says otherwise; that it is a
// device as any other; and that one for which there is no room is not made.
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "tests/zone/emu_fixture.h"
#include "tests/zone/small_file_system.h"

namespace furrow::test {
namespace {

class EmuPreallocatedTest : public EmuDeviceTest {
 protected:
  static DeviceShape preallocated() {
    DeviceShape made = shape();
    made.preallocate = true;
    return made;
  }
  void SetUp() override {
    const Status status = create_device(uri_, preallocated());
    ASSERT_TRUE(status.ok()) << status.describe();
  }
  // Bytes of the zones that the file has no block for, or one that was never written. Nothing: the
  // file system does not tell.
  std::optional<std::uint64_t> unwritten_bytes() {
    const emu::Fd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_EQ(fsync(file.get()), 0);
    constexpr std::uint32_t kExtents = 256;
    alignas(fiemap) std::byte memory[sizeof(fiemap) + kExtents * sizeof(fiemap_extent)]{};
    auto& map = *reinterpret_cast<fiemap*>(memory);
    const std::uint64_t begin = superblock().data_offset, end = superblock().end_offset();
    map.fm_start = begin;
    map.fm_length = end - begin;
    map.fm_extent_count = kExtents;
    if (ioctl(file.get(), FS_IOC_FIEMAP, &map) != 0) return std::nullopt;
    EXPECT_LT(map.fm_mapped_extents, kExtents);
    const auto* const extents = reinterpret_cast<const fiemap_extent*>(&map + 1);
    std::uint64_t written = 0;
    for (std::uint32_t i = 0; i < map.fm_mapped_extents; ++i) {
      if ((extents[i].fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0) continue;
      const std::uint64_t first = std::max<std::uint64_t>(extents[i].fe_logical, begin);
      const std::uint64_t last =
          std::min<std::uint64_t>(extents[i].fe_logical + extents[i].fe_length, end);
      written += last - std::min(first, last);
    }
    return end - begin - written;
  }
};

TEST_F(EmuPreallocatedTest, HasAllItsBlocksFromTheBeginning) {
  EXPECT_GE(used_bytes(path_), superblock().end_offset() - superblock().data_offset);
  EXPECT_EQ(unwritten_bytes().value_or(0), 0u);
  EXPECT_TRUE(open()->preallocated());
  EXPECT_EQ(open()->missing_bytes(), 0u);
}

TEST_F(EmuPreallocatedTest, OthersDoNot) {
  std::filesystem::remove(path_);
  create();
  EXPECT_FALSE(open()->preallocated());
  EXPECT_GT(unwritten_bytes().value_or(1), 0u);
}

TEST_F(EmuPreallocatedTest, ZonesThatAreResetKeepTheirBlocksUnlessTheUriSaysOtherwise) {
  for (const char* parameters : {"", "?reclaim=now"}) {
    auto device = open(parameters);
    Client client(*device);
    ASSERT_TRUE(client.write(0, 0, 384, 1).ok());
    ASSERT_TRUE(client.flush().ok());
    const std::uint64_t before = used_bytes(path_);
    ASSERT_TRUE(client.manage(Io::Op::reset, 0).ok());
    dynamic_cast<emu::EmuDevice&>(*device).drain_reclaim();
    const bool kept = std::string_view(parameters).empty();
    EXPECT_EQ(before - used_bytes(path_), kept ? 0 : kMiB + kMiB / 2) << parameters;
    if (kept) {
      EXPECT_EQ(unwritten_bytes().value_or(0), 0u);
    }
    client.expect_zeroes(0, 0, 384);
  }
}

// Also where the room that is kept behind the zones is as large as what they have lost.
TEST_F(EmuPreallocatedTest, IsNotAnyMoreWhenAZoneHasLostItsBlocks) {
  std::filesystem::remove(path_);
  DeviceShape larger = preallocated();
  larger.size_bytes = 64 * kMiB;
  larger.zone_size_bytes = larger.zone_capacity_bytes = kMiB;
  ASSERT_TRUE(create_device(uri_, larger).ok());
  EXPECT_TRUE(open()->preallocated());
  const bool told = unwritten_bytes().has_value();
  {
    auto device = open("?reclaim=now");
    Client client(*device);
    ASSERT_TRUE(client.write(1, 0, 256, 1).ok());
    ASSERT_TRUE(client.manage(Io::Op::reset, 1).ok());
    dynamic_cast<emu::EmuDevice&>(*device).drain_reclaim();
  }
  if (!told) GTEST_SKIP() << "the file system does not tell";
  EXPECT_FALSE(open()->preallocated());
  EXPECT_FALSE(open("", Access::inspect)->preallocated());
}

TEST_F(EmuPreallocatedTest, IsADeviceAsAnyOther) {
  for (std::uint64_t life = 0; life < 3; ++life) {
    auto device = open();
    Client client(*device);
    EXPECT_EQ(unwritten_bytes().value_or(0), 0u) << "also behind what an earlier life wrote";
    for (std::uint32_t zone = 0; zone < 3; ++zone) {
      const std::uint64_t written = (*device->report())[zone].written_lbas;
      EXPECT_EQ(written, life * 20);
      for (std::uint64_t at = 0; at < written; ++at) client.expect_data(zone, at, 1, zone + at);
      client.expect_zeroes(zone, written, 100);
      for (std::uint64_t at = written; at < written + 20; ++at) {
        ASSERT_TRUE(client.write(zone, at, 1, zone + at).ok());
        ASSERT_TRUE(client.flush().ok());
      }
    }
  }
}

TEST_F(EmuPreallocatedTest, IsNotMadeWhereThereIsNoRoomForAll) {
  const SmallFileSystem small("tmpfs", "size=12m");
  if (!small.mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  const std::string path = small.file("device.img");
  const Status status = create_device("emu:" + path, preallocated());
  EXPECT_EQ(status.code(), Code::no_space) << status.describe();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(create_device("emu:" + path, shape()).ok()) << "a sparse one is";
  small.fill_up("junk");
  DeviceShape forced = preallocated();
  forced.force = true;
  EXPECT_EQ(create_device("emu:" + path, forced).code(), Code::no_space);
  EXPECT_TRUE(open_device("emu:" + path, Access::check).ok()) << "what was there is lost";
}

}  // namespace
}  // namespace furrow::test
