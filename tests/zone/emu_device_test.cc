// Establishes what an emulated device keeps and refuses: states and data over closing, geometry,
// damaged slots and superblocks, truncated, foreign, copied and doubly opened files, block devices.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>

#include "tests/zone/emu_fixture.h"
#include "tests/zone/loop_device.h"

namespace furrow::test {
namespace {

TEST_F(EmuDeviceTest, KeepsStatesAndDataWhenClosed) {
  create();
  {
    auto device = open();
    Client client(*device);
    ASSERT_TRUE(client.write(0, 0, 10, 1).ok());
    ASSERT_TRUE(client.manage(Io::Op::open, 1).ok());
    ASSERT_TRUE(client.write(2, 0, 384, 3).ok());  // to its capacity
    ASSERT_TRUE(client.write(3, 0, 5, 4).ok());
    ASSERT_TRUE(client.manage(Io::Op::finish, 3).ok());
    ASSERT_TRUE(client.write(4, 0, 7, 5).ok());
    ASSERT_TRUE(client.manage(Io::Op::reset, 4).ok());
    ASSERT_TRUE(client.manage(Io::Op::finish, 5).ok());
  }
  auto device = open("?direct=0");
  EXPECT_EQ(device->geometry().zone_count, 8u);
  EXPECT_EQ(device->geometry().zone_capacity_bytes(), kMiB + kMiB / 2);
  EXPECT_EQ(device->geometry().open_zones_max, 4u);
  EXPECT_EQ(device->geometry().active_zones_max, 6u);
  const auto zones = *device->report();
  EXPECT_EQ(zones[0].state, ZoneState::closed);
  EXPECT_EQ(zones[0].written_lbas, 10u);
  EXPECT_EQ(zones[1].state, ZoneState::empty);
  EXPECT_EQ(zones[2].state, ZoneState::full);
  EXPECT_EQ(zones[3].state, ZoneState::full);
  EXPECT_EQ(zones[4].state, ZoneState::empty);
  EXPECT_EQ(zones[5].state, ZoneState::full);
  Client client(*device);
  client.expect_data(0, 0, 10, 1);
  client.expect_data(2, 0, 384, 3);
  client.expect_data(3, 0, 5, 4);
  client.expect_zeroes(3, 5, 10);
  client.expect_zeroes(4, 0, 7);
  EXPECT_TRUE(client.write(0, 10, 1, 6).ok());
}

// As a power cut may leave it, which lost the write pointer's last steps and not the data. Were it
// still there, the next cut could bring it back below a write pointer that has moved on.
TEST_F(EmuDeviceTest, VoidsWhatLiesBehindAWritePointer) {
  create();
  {
    auto device = open();
    Client client(*device);
    ASSERT_TRUE(client.write(0, 0, 10, 1).ok());
    ASSERT_TRUE(client.write(2, 0, 384, 3).ok());  // to its capacity
    ASSERT_TRUE(client.write(3, 0, 5, 4).ok());
  }
  const emu::Superblock layout = superblock();
  const std::uint64_t stale = 0x5741'4C45'5354'4146;
  for (const std::uint64_t lba : {10, 11, 200, 383}) {
    poke(layout.offset_of(ZoneId{0}, lba), &stale, sizeof stale);
    poke(layout.offset_of(ZoneId{3}, lba), &stale, sizeof stale);
  }
  { auto inspected = open("", Access::inspect); }
  EXPECT_EQ(peek(layout.offset_of(ZoneId{0}, 10)), stale) << "an inspection wrote";
  auto device = open();
  for (const std::uint64_t lba : {10, 11, 200, 383}) {
    EXPECT_EQ(peek(layout.offset_of(ZoneId{0}, lba)), 0u) << lba;
    EXPECT_EQ(peek(layout.offset_of(ZoneId{3}, lba)), 0u) << lba;
  }
  Client client(*device);
  client.expect_data(0, 0, 10, 1);
  client.expect_data(2, 0, 384, 3);
  client.expect_data(3, 0, 5, 4);
}

TEST_F(EmuDeviceTest, ADamagedSlotLosesNothing) {
  create();
  {
    auto device = open();
    Client client(*device);
    for (std::uint64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(client.write(2, 4 * i, 4, 10 + i).ok());
      ASSERT_TRUE(client.write(3, 4 * i, 4, 20 + i).ok());
    }
  }
  const emu::Superblock super = superblock();
  const emu::SlotCodec codec(super);
  const auto slot_at = [&](unsigned copy, std::uint32_t zone) {
    return super.table_offset[copy] + zone * 8;
  };
  const auto newest = [&](std::uint32_t zone) {
    const auto a = codec.decode(ZoneId{zone}, peek(slot_at(0, zone)));
    const auto b = codec.decode(ZoneId{zone}, peek(slot_at(1, zone)));
    return emu::SlotCodec::newer(*a, *b) ? 0u : 1u;
  };
  const std::uint64_t damaged = peek(slot_at(newest(2), 2)) ^ 0x4000;
  poke(slot_at(newest(2), 2), &damaged, 8);
  const std::uint64_t garbage = 0x123456789abcdef;
  poke(slot_at(0, 3), &garbage, 8);
  poke(slot_at(1, 3), &garbage, 8);
  {
    auto device = open();
    const auto zones = *device->report();
    // Four LBAs lie behind the older slot's write pointer: all of the zone can be read.
    EXPECT_EQ(zones[2].state, ZoneState::full);
    EXPECT_NE(std::string(zones[2].reason).find("slots"), std::string::npos);
    EXPECT_EQ(zones[3].state, ZoneState::offline);
    EXPECT_NE(std::string(zones[3].reason).find("slots"), std::string::npos);
    EXPECT_EQ(zones[1].state, ZoneState::empty);
    Client client(*device);
    client.expect_data(2, 4, 4, 11);
    client.expect_data(2, 8, 4, 12);
    AlignedBuffer got;
    EXPECT_EQ(client.read(client.at(3, 0), 1, got).nvme(), nvme_status::kZoneOffline);
    EXPECT_EQ(client.manage(Io::Op::reset, 3).nvme(), nvme_status::kInvalidTransition);
    EXPECT_FALSE(client.write(2, 12, 4, 30).ok());
    ASSERT_TRUE(client.manage(Io::Op::reset, 2).ok());
    ASSERT_TRUE(client.write(2, 0, 4, 30).ok());
  }
  auto device = open();
  Client client(*device);
  client.expect_data(2, 0, 4, 30);
  client.expect_zeroes(2, 4, 4);
  EXPECT_EQ((*device->report())[3].state, ZoneState::offline);
}

TEST_F(EmuDeviceTest, ADamagedSuperblockFallsBackToItsCopy) {
  create();
  const std::array<char, 512> zeroes{};
  poke(0, zeroes.data(), zeroes.size());
  EXPECT_EQ(open_code(), Code::ok);
  DeviceShape again = shape();
  again.force = true;
  ASSERT_TRUE(create_device(uri_, again).ok());
  poke(100, "x", 1);
  EXPECT_EQ(open_code(), Code::ok);
  poke(4096 + 60, "x", 1);
  EXPECT_EQ(open_code(), Code::corrupt);
}

TEST_F(EmuDeviceTest, RefusesWhatANewerVersionMade) {
  create();
  const auto rewrite = [&](auto&& change) {
    emu::Superblock super = superblock();
    change(super);
    std::array<std::byte, emu::kSuperblockBytes> bytes;
    emu::encode(super, bytes);
    for (const std::uint64_t offset : emu::kSuperblockOffsets) {
      poke(offset, bytes.data(), bytes.size());
    }
  };
  rewrite([](emu::Superblock& super) { super.compatible = 4; });
  EXPECT_EQ(open_code(), Code::ok);
  rewrite([](emu::Superblock& super) { super.read_only = 1; });
  EXPECT_EQ(open_code(), Code::unsupported);
  EXPECT_EQ(open_code(Access::inspect), Code::ok);
  rewrite([](emu::Superblock& super) { super.geometry.zone_count += 1; });
  EXPECT_EQ(open_code(), Code::unsupported);  // still the feature; the size comes after
  rewrite([](emu::Superblock& super) {
    super.read_only = 0;
    super.data_offset += 4096;  // no superblock of ours
  });
  EXPECT_EQ(open_code(), Code::corrupt);
  std::filesystem::remove(path_);
  create();
  rewrite([](emu::Superblock& super) { super.incompatible = 2; });
  EXPECT_EQ(open_code(Access::inspect), Code::unsupported);
}

TEST_F(EmuDeviceTest, RefusesTruncatedForeignAndMissingFiles) {
  EXPECT_EQ(open_code(), Code::not_found);
  create();
  ASSERT_EQ(truncate(path_.c_str(), 6 * kMiB), 0);
  EXPECT_EQ(open_code(), Code::corrupt);
  ASSERT_EQ(truncate(path_.c_str(), 100), 0);
  EXPECT_EQ(open_code(), Code::foreign);
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  EXPECT_EQ(open_code(), Code::foreign);
  create();  // an empty file may be used
  EXPECT_EQ(open_code(), Code::ok);
  EXPECT_EQ(create_device(uri_, shape()).code(), Code::foreign);  // one of ours is there
  uri_ = "emu:" + dir_.file("");
  EXPECT_NE(open_code(), Code::ok);
  EXPECT_NE(create_device(uri_, shape()).code(), Code::ok);
  EXPECT_EQ(create_device("emu:" + dir_.file("no/such/directory"), shape()).code(),
            Code::not_found);
}

TEST_F(EmuDeviceTest, CreateRefusesForeignDataUnlessForced) {
  const auto attempt = [&](std::uint64_t offset, std::string_view bytes) {
    std::filesystem::remove(path_);
    { std::ofstream file(path_); }
    std::filesystem::resize_file(path_, 4 * kMiB);
    poke(offset, bytes.data(), bytes.size());
    const Status status = create_device(uri_, shape());
    EXPECT_EQ(status.code(), Code::foreign) << offset;
    EXPECT_EQ(std::filesystem::file_size(path_), 4 * kMiB) << "it was touched";
  };
  attempt(1080, "\x53\xEF");
  attempt(kMiB - 1, "x");
  attempt(0, "hello");
  EXPECT_EQ(open_code(), Code::foreign);
  DeviceShape forced = shape();
  forced.force = true;
  ASSERT_TRUE(create_device(uri_, forced).ok());
  auto device = open();
  Client client(*device);
  client.expect_zeroes(0, 0, 8);
}

TEST_F(EmuDeviceTest, AFailedCreateLeavesNoFile) {
  DeviceShape bad = shape();
  bad.zone_capacity_bytes = 4 * kMiB;
  EXPECT_EQ(create_device(uri_, bad).code(), Code::invalid_argument);
  bad = DeviceShape{};  // no size, and no file to take it from
  EXPECT_EQ(create_device(uri_, bad).code(), Code::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(EmuDeviceTest, IsOpenedByOneAtATime) {
  create();
  auto device = open();
  EXPECT_EQ(open_code(), Code::in_use);
  EXPECT_NE(device_holder(uri_).find("process " + std::to_string(getpid())), std::string::npos);
  DeviceShape forced = shape();
  forced.force = true;
  EXPECT_EQ(create_device(uri_, forced).code(), Code::in_use);
  auto inspected = open("", Access::inspect);
  Client reader(*inspected);
  reader.expect_zeroes(0, 0, 1);
  EXPECT_EQ(reader.write(0, 0, 1, 1).code(), Code::permission);
  EXPECT_EQ(reader.manage(Io::Op::reset, 0).code(), Code::permission);
  EXPECT_EQ(reader.flush().code(), Code::permission);
  EXPECT_TRUE(Client(*device).flush().ok());
  device.reset();
  EXPECT_EQ(device_holder(uri_), "");
  EXPECT_EQ(open_code(), Code::ok);
}

// As after a crash: data behind a write pointer, which an exclusive opener voids.
TEST_F(EmuDeviceTest, ACheckWritesNothing) {
  create();
  {
    auto device = open();
    ASSERT_TRUE(Client(*device).write(0, 0, 8, 1).ok());
  }
  const std::uint64_t tail = superblock().offset_of(ZoneId{0}, 8), garbage = 0x0123456789ABCDEF;
  poke(tail, &garbage, sizeof garbage);
  std::filesystem::permissions(path_, std::filesystem::perms(0440));
  const auto bytes = [this] {
    std::string all(std::filesystem::file_size(path_), '\0');
    std::ifstream(path_, std::ios::binary)
        .read(all.data(), static_cast<std::streamsize>(all.size()));
    return all;
  };
  const std::string before = bytes();
  {
    auto device = open("", Access::check);
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(open_code(), Code::in_use) << "it has the lock";
    EXPECT_EQ(open_code(Access::check), Code::in_use);
    EXPECT_NE(device_holder(uri_).find(std::to_string(getpid())), std::string::npos);
    const ZoneInfo zone = (*device->report())[0];
    EXPECT_EQ(zone.state, ZoneState::closed);
    EXPECT_EQ(zone.written_lbas, 8u);
    Client reader(*device);
    reader.expect_data(0, 0, 8, 1);
    reader.expect_zeroes(0, 8, 8);
    EXPECT_EQ(reader.write(0, 8, 1, 1).code(), Code::permission);
    EXPECT_EQ(reader.manage(Io::Op::reset, 0).code(), Code::permission);
    EXPECT_EQ(reader.flush().code(), Code::permission);
  }
  EXPECT_EQ(bytes(), before);
  std::filesystem::permissions(path_, std::filesystem::perms(0640));
  {
    auto device = open();
    EXPECT_EQ(open_code(Access::check), Code::in_use);
  }
  EXPECT_EQ(peek(tail), 0u);
}

TEST_F(EmuDeviceTest, ACheckGoesOnAReadOnlyFileSystem) {
  create();
  const std::string folder = std::filesystem::path(path_).parent_path();
  if (mount(folder.c_str(), folder.c_str(), "", MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "cannot mount";
  }
  struct Unmount {
    std::string where;
    ~Unmount() { EXPECT_EQ(umount(where.c_str()), 0); }
  } const unmount{folder};
  ASSERT_EQ(mount("", folder.c_str(), "", MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr), 0);
  const auto writer = open_device(uri_, Access::exclusive);
  EXPECT_EQ(writer.status().code(), Code::permission);
  EXPECT_NE(std::string(writer.status().hint()).find("mounted read-only"), std::string::npos);
  auto device = open("", Access::check);
  ASSERT_NE(device, nullptr);
  Client(*device).expect_zeroes(0, 0, 8);
}

TEST_F(EmuDeviceTest, ACopyIsAnotherDevice) {
  EXPECT_EQ(device_identity(uri_), "") << "there is none yet";
  create();
  const std::string identity = device_identity(uri_);
  EXPECT_FALSE(identity.empty());
  EXPECT_EQ(device_identity(uri_ + "?direct=0"), identity);
  std::filesystem::create_symlink(path_, path_ + ".link");
  EXPECT_EQ(device_identity("emu:" + path_ + ".link"), identity);
  std::filesystem::copy_file(path_, path_ + ".copy");
  EXPECT_NE(device_identity("emu:" + path_ + ".copy"), identity);
  for (const char* unknown : {"mem:64MiB", "zbd:/dev/null", "nvme:/dev/null", "none"}) {
    EXPECT_EQ(device_identity(unknown), "") << unknown;
  }
}

TEST_F(EmuDeviceTest, ACopyOpens) {
  create();
  {
    auto device = open();
    Client client(*device);
    ASSERT_TRUE(client.write(0, 0, 16, 1).ok());
  }
  const std::string copy = dir_.file("copy.img");
  std::filesystem::copy_file(path_, copy);
  auto original = open();
  uri_ = "emu:" + copy;
  auto device = open();
  Client client(*device);
  client.expect_data(0, 0, 16, 1);
  ASSERT_TRUE(client.write(0, 16, 1, 2).ok());
  Client(*original).expect_zeroes(0, 16, 1);
}

// On a block device: a loop device over a file, where the machine lets us make one.
TEST_F(EmuDeviceTest, WorksOnABlockDevice) {
  const LoopDevice loop(path_, 24 * kMiB);
  if (!loop.there()) GTEST_SKIP() << "no loop device";
  uri_ = "emu:" + loop.name();
  poke(512, "EFI PART", 8);  // into the file under it, which nobody has read yet
  EXPECT_EQ(create_device(uri_, shape()).code(), Code::foreign);
  DeviceShape large = shape();
  large.size_bytes = 64 * kMiB;
  large.force = true;
  EXPECT_EQ(create_device(uri_, large).code(), Code::invalid_argument);
  DeviceShape forced = shape();
  forced.size_bytes = 0;  // all of it
  forced.force = forced.preallocate = true;
  EXPECT_EQ(create_device(uri_, forced).code(), Code::invalid_argument) << "it has its blocks";
  forced.preallocate = false;
  ASSERT_TRUE(create_device(uri_, forced).ok());
  {
    auto device = open("?reclaim=now");
    EXPECT_EQ(device->geometry().zone_count, 12u);  // of 1.5 MiB, behind the metadata
    EXPECT_EQ(open_code(), Code::in_use);
    Client client(*device);
    ASSERT_TRUE(client.write(11, 0, 384, 1).ok());
    ASSERT_TRUE(client.write(3, 0, 16, 2).ok());
    ASSERT_TRUE(client.flush().ok());
    ASSERT_TRUE(client.manage(Io::Op::reset, 3).ok());
    dynamic_cast<emu::EmuDevice&>(*device).drain_reclaim();
    client.expect_data(11, 0, 384, 1);
  }
  auto device = open();
  EXPECT_EQ((*device->report())[11].state, ZoneState::full);
  EXPECT_EQ((*device->report())[3].state, ZoneState::empty);
  Client(*device).expect_data(11, 0, 384, 1);
  device.reset();
  ASSERT_EQ(system(("blockdev --setro " + loop.name()).c_str()), 0);
  EXPECT_EQ(open_code(), Code::permission);
  EXPECT_EQ(create_device(uri_, forced).code(), Code::permission);
  EXPECT_EQ(open_code(Access::check), Code::ok);
}

// As where a sector of it is bad: a loop device whose file ends in front of it.
TEST_F(EmuDeviceTest, AZoneTableThatCannotBeReadIsAnError) {
  const LoopDevice loop(path_, 24 * kMiB);
  if (!loop.there()) GTEST_SKIP() << "no loop device";
  uri_ = "emu:" + loop.name();
  DeviceShape whole = shape();
  whole.size_bytes = 0;
  ASSERT_TRUE(create_device(uri_, whole).ok());
  ASSERT_EQ(system(("blockdev --flushbufs " + loop.name()).c_str()), 0);
  std::filesystem::resize_file(path_, superblock().table_offset[1]);
  for (const Access access : {Access::inspect, Access::check}) {
    const auto device = open("", access);
    ASSERT_NE(device, nullptr) << "one copy of it can be read";
    const std::vector<std::string> lines = device->damage();
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("slots of zones 0 to 11 are damaged in copy 1"), std::string::npos)
        << lines[0];
  }
  EXPECT_EQ(open_code(), Code::io_error);
  {
    const auto device = open("", Access::mend);
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->damage().size(), 1u);
    const Status mended = device->mend();
    ASSERT_TRUE(mended.ok()) << mended.describe();
  }
  ASSERT_EQ(system(("blockdev --flushbufs " + loop.name()).c_str()), 0);
  {
    const auto device = open("", Access::exclusive);
    ASSERT_NE(device, nullptr) << "the other copy was written anew";
    EXPECT_TRUE(device->damage().empty());
  }
  std::filesystem::resize_file(path_, emu::kTableOffset);
  // What was read before may be held yet, by a ring that is being taken apart.
  ASSERT_EQ(system(("blockdev --flushbufs " + loop.name()).c_str()), 0);
  EXPECT_EQ(open_code(Access::mend), Code::io_error) << "neither can be read";
  for (const Access access : {Access::inspect, Access::check, Access::exclusive}) {
    const auto device = open_device(uri_, access);
    EXPECT_EQ(device.status().code(), Code::io_error) << device.status().describe();
  }
}

}  // namespace
}  // namespace furrow::test
