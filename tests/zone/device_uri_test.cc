// Establishes what users may write for devices and sizes, that each mistake is refused with a hint,
// and which geometry follows from a shape.
#include "zone/device_uri.h"

#include <gtest/gtest.h>

#include "zone/device.h"

namespace furrow {
namespace {

TEST(ParseSize, TakesIntegersWithBinaryUnits) {
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("3KiB"), 3072u);
  EXPECT_EQ(*parse_size("512MiB"), 512u << 20);
  EXPECT_EQ(*parse_size("4GiB"), std::uint64_t{4} << 30);
  EXPECT_EQ(*parse_size("2TiB"), std::uint64_t{2} << 40);
  EXPECT_EQ(*parse_size("3K"), 3072u);
  EXPECT_EQ(*parse_size("512M"), 512u << 20);
  EXPECT_EQ(*parse_size("4G"), std::uint64_t{4} << 30);
  EXPECT_EQ(*parse_size("2T"), std::uint64_t{2} << 40);
  EXPECT_EQ(*parse_size("9223372036854775807"), 9223372036854775807u);
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text : {"", "KiB", "1.5GiB", "-1", "+1", "1 GiB", "1GB", "1g", "1gib", "1GiBx",
                           "0x10", "99999999999999999999", "9223372036854775808", "8388608TiB"}) {
    const Result<std::uint64_t> size = parse_size(text);
    EXPECT_FALSE(size.ok()) << text;
    EXPECT_EQ(size.status().code(), Code::invalid_argument) << text;
    EXPECT_NE(std::string(size.status().hint()), "") << text;
  }
}

TEST(DeviceUri, SplitsSchemePlaceAndParameters) {
  const Result<DeviceUri> uri = parse_device_uri("emu:/var/lib/a:b.img?direct=0&reclaim=now");
  ASSERT_TRUE(uri.ok());
  EXPECT_EQ(uri->scheme, "emu");
  EXPECT_EQ(uri->place, "/var/lib/a:b.img");
  const Result<EmuOptions> options = emu_options(*uri);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->path, "/var/lib/a:b.img");
  EXPECT_FALSE(options->direct);
  EXPECT_EQ(options->reclaim, Reclaim::now);
  EXPECT_EQ(emu_options(*parse_device_uri("emu:/x"))->reclaim, std::nullopt) << "the device says";
}

TEST(DeviceUri, TheModeOfAnIoUring) {
  for (const IoMode mode :
       {IoMode::regular, IoMode::sqpoll, IoMode::iopoll, IoMode::sqpoll_iopoll}) {
    const std::string plain = with_parameter("zbd:/dev/x", "io_mode", to_string(mode));
    EXPECT_EQ(plain, std::string("zbd:/dev/x?io_mode=") + to_string(mode));
    const Result<DriveOptions> drive = drive_options(*parse_device_uri(plain));
    ASSERT_TRUE(drive.ok());
    EXPECT_EQ(drive->io_mode, mode);
    const std::string second = with_parameter("emu:/x?direct=0", "io_mode", to_string(mode));
    const Result<EmuOptions> emu = emu_options(*parse_device_uri(second));
    ASSERT_TRUE(emu.ok());
    EXPECT_EQ(emu->io_mode, mode);
    EXPECT_FALSE(emu->direct);
  }
  EXPECT_EQ(emu_options(*parse_device_uri("emu:/x"))->io_mode, IoMode::regular);
}

// Of MOR and MAR the one that is not said is 14, as far as the other one lets it.
TEST(DeviceUri, OneLimitFollowsTheOther) {
  const auto limits = [](const std::string& parameters) {
    const Result<MemOptions> mem = mem_options(*parse_device_uri("mem:64MiB" + parameters));
    const Result<Geometry> geometry = geometry_of(mem->shape);
    EXPECT_TRUE(geometry.ok()) << parameters << ": " << geometry.status().describe();
    return std::pair(geometry->open_zones_max, geometry->active_zones_max);
  };
  EXPECT_EQ(limits(""), std::pair(14u, 14u));
  EXPECT_EQ(limits("?mar=8"), std::pair(8u, 8u));
  EXPECT_EQ(limits("?mar=20"), std::pair(14u, 20u));
  EXPECT_EQ(limits("?mar=0"), std::pair(14u, 0u)) << "no limit";
  EXPECT_EQ(limits("?mor=20"), std::pair(20u, 20u));
  EXPECT_EQ(limits("?mor=3"), std::pair(3u, 14u));
  EXPECT_EQ(limits("?mor=0"), std::pair(0u, 0u));
  EXPECT_EQ(limits("?mor=2&mar=5"), std::pair(2u, 5u));
}

TEST(DeviceUri, RefusesMistakesWithAHint) {
  for (const char* uri : {"",
                          "/dev/nvme0n1",
                          ":1GiB",
                          "emu:",
                          "emu:?direct=0",
                          "fdp:/dev/ng0n1",
                          "mem:lots",
                          "mem:0",
                          "mem:1MiB",
                          "mem:64MiB?zone_size=1.5MiB",
                          "mem:64MiB?lba=1024",
                          "mem:64MiB?zone_size=1000",
                          "mem:64MiB?zone_capacity=100",
                          "mem:64MiB?mor=-1",
                          "mem:64MiB?zone_size=1MiB&zone_capacity=2MiB",
                          "mem:64MiB?mor=4&mar=2",
                          "mem:64MiB?mor=0&mar=14",
                          "mem:64MiB?mor=4294967296&mar=0",
                          "mem:64MiB?direct=0",
                          "mem:64MiB?lba",
                          "mem:64MiB?lba=",
                          "mem:64MiB?lba=512&lba=512",
                          "mem:64MiB?reclaim=maybe",
                          "emu:/x?lba=512",
                          "emu:/x?direct=2",
                          "emu:/x?reclaim=soon",
                          "emu:/x?io_mode=poll",
                          "mem:64MiB?io_mode=sqpoll",
                          "emu:/x?=1",
                          "zbd:",
                          "zbd:/dev/x?direct=0",
                          "nvme:",
                          "nvme:/dev/x?direct=0",
                          "nvme:/dev/x?io_mode=SQPOLL"}) {
    const auto device = open_device(uri, Access::exclusive);
    ASSERT_FALSE(device.ok()) << uri;
    EXPECT_EQ(device.status().code(), Code::invalid_argument) << uri;
    EXPECT_NE(std::string(device.status().hint()), "") << uri;
  }
  EXPECT_EQ(create_device("mem:1GiB", {}).code(), Code::invalid_argument);
  EXPECT_EQ(create_device("what:ever", {}).code(), Code::invalid_argument);
}

TEST(GeometryOf, FillsInDefaultsThatSuitTheSize) {
  struct Want {
    std::uint64_t size_bytes, zone_bytes;
  };
  constexpr std::uint64_t kMiB = 1u << 20, kGiB = 1u << 30;
  for (const Want want :
       {Want{4 * kMiB, 4 * kMiB}, Want{64 * kMiB, 4 * kMiB}, Want{kGiB, 4 * kMiB},
        Want{10 * kGiB, 32 * kMiB}, Want{1000 * kGiB, kGiB}, Want{10240 * kGiB, kGiB}}) {
    DeviceShape shape;
    shape.size_bytes = want.size_bytes;
    const Result<Geometry> geometry = geometry_of(shape);
    ASSERT_TRUE(geometry.ok()) << geometry.status().describe();
    EXPECT_EQ(geometry->zone_size_lbas * geometry->lba_bytes, want.zone_bytes);
    EXPECT_EQ(geometry->zone_capacity_lbas, geometry->zone_size_lbas);
    EXPECT_EQ(geometry->zone_count, want.size_bytes / want.zone_bytes);
    EXPECT_EQ(geometry->append_lbas_max * std::uint64_t{geometry->lba_bytes}, kMiB);
  }
}

}  // namespace
}  // namespace furrow
