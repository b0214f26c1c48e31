// Establishes what zbd: and nvme: make of what the kernel tells of a drive: limits of a request in
// whole LBAs and one segment less than it takes, defaults where a file is missing or no number, and
// the bound on open zones. How: folders that look like those of sysfs.
#include "zone/drive_facts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/zone/device_test_util.h"

namespace furrow::test {
namespace {

class DriveFacts : public ::testing::Test {
 protected:
  void write(const std::string& name, const char* text) {
    std::filesystem::create_directories(std::filesystem::path(dir_.file(name)).parent_path());
    std::ofstream(dir_.file(name)) << text;
  }
  drive::RequestLimits limits(std::uint64_t lba) const {
    return drive::request_limits({dir_.file("")}, "max_kb", lba);
  }
  TempDir dir_;
};

TEST_F(DriveFacts, NumbersAndLines) {
  write("number", "17\n");
  write("text", "none [mq-deadline]\nmore");
  write("empty", "");
  EXPECT_EQ(drive::read_number(dir_.file("number"), 5), 17u);
  for (const char* name : {"text", "empty", "missing"}) {
    EXPECT_EQ(drive::read_number(dir_.file(name), 5), 5u) << name;
  }
  EXPECT_EQ(drive::read_line(dir_.file("text")), "none [mq-deadline]");
  EXPECT_EQ(drive::read_line(dir_.file("missing")), "");
}

TEST_F(DriveFacts, ARequestIsAsLargeAsTheKernelTakesIt) {
  EXPECT_EQ(limits(4096).bytes, 128u << 10) << "what is assumed when nothing is told";
  EXPECT_EQ(limits(4096).pieces, 128u);
  write("queue/max_kb", "1280\n");
  write("queue/max_segments", "33\n");
  EXPECT_EQ(limits(4096).bytes, 32u * 4096) << "the segments bound it";
  EXPECT_EQ(limits(4096).pieces, 33u);
  write("queue/max_segments", "65535\n");
  EXPECT_EQ(limits(4096).bytes, 1280u << 10) << "the bytes do";
  EXPECT_EQ(limits(4096).pieces, 1024u) << "no more than an iovec has";
  write("queue/max_kb", "6\n");
  EXPECT_EQ(limits(4096).bytes, 4096u) << "whole LBAs";
  EXPECT_EQ(limits(512).bytes, 6u << 10);
  write("queue/max_kb", "1\n");
  EXPECT_EQ(limits(4096).bytes, 4096u) << "one at least";
  write("queue/max_segments", "1\n");
  EXPECT_EQ(limits(4096).pieces, 1u);
}

// Under multipath nvme0n1 is reached by nvme0cNn1.
TEST_F(DriveFacts, ADisksRequestsGoToItOrToItsPaths) {
  const std::string blocks = dir_.file("");
  const auto disks = [&](const char* name) {
    std::vector<std::string> found;
    for (const std::string& each : drive::request_disks(name, blocks)) {
      found.push_back(each.substr(blocks.size()));
    }
    std::ranges::sort(found);
    return found;
  };
  using Disks = std::vector<std::string>;
  for (const char* name : {"nvme0n1", "nvme0c0n1", "nvme0c3n1", "nvme0c0n11", "nvme1n1", "nvme10n1",
                           "nvme10c0n1", "nullb0", "nvme0n11", "c1", "cage"}) {
    write(std::string(name) + "/queue/max_open_zones", "0\n");
  }
  EXPECT_EQ(disks("nvme0n1"), Disks({"nvme0c0n1/", "nvme0c3n1/"}));
  EXPECT_EQ(disks("nvme0n11"), Disks({"nvme0c0n11/"}));
  EXPECT_EQ(disks("nvme1n1"), Disks({"nvme1n1/"}));
  EXPECT_EQ(disks("nvme10n1"), Disks({"nvme10c0n1/"}));
  for (const char* name : {"nullb0", "sda", "nvme"}) {
    EXPECT_EQ(disks(name), Disks({std::string(name) + "/"}));
  }
}

TEST_F(DriveFacts, TheLeastOfSeveralPathsCounts) {
  const std::vector<std::string> both = {dir_.file("one/"), dir_.file("two/")};
  const auto least = [&] { return drive::least_number(both, "queue/max_open_zones"); };
  EXPECT_EQ(least(), 0u);
  write("one/queue/max_open_zones", "0\n");
  write("two/queue/max_open_zones", "14\n");
  EXPECT_EQ(least(), 14u);
  write("one/queue/max_open_zones", "12\n");
  EXPECT_EQ(least(), 12u);
  write("one/queue/max_kb", "256\n");
  write("two/queue/max_kb", "8\n");
  EXPECT_EQ(drive::request_limits(both, "max_kb", 4096).bytes, 8u << 10);
}

TEST_F(DriveFacts, MetadataIsFoundOfEitherKernel) {
  const std::vector<std::string> disk = {dir_.file("")};
  EXPECT_FALSE(drive::have_metadata(disk));
  write("integrity/format", "none\n");
  write("metadata_bytes", "0\n");
  EXPECT_FALSE(drive::have_metadata(disk));
  write("metadata_bytes", "8\n");
  EXPECT_TRUE(drive::have_metadata(disk));
  write("metadata_bytes", "0\n");
  for (const char* format : {"nop\n", "T10-DIF-TYPE1-CRC\n"}) {
    write("integrity/format", format);
    EXPECT_TRUE(drive::have_metadata(disk)) << format;
  }
}

TEST_F(DriveFacts, NoMoreZonesOpenThanActive) {
  Geometry geometry;
  const auto bounded = [&](std::uint32_t open, std::uint32_t active) {
    geometry.open_zones_max = open;
    geometry.active_zones_max = active;
    drive::bound_open_zones(geometry);
    EXPECT_EQ(geometry.active_zones_max, active);
    return geometry.open_zones_max;
  };
  EXPECT_EQ(bounded(0, 0), 0u);
  EXPECT_EQ(bounded(14, 0), 14u);
  EXPECT_EQ(bounded(0, 14), 14u);
  EXPECT_EQ(bounded(20, 14), 14u);
  EXPECT_EQ(bounded(8, 14), 8u);
}

TEST_F(DriveFacts, ConventionalZonesAreBeforeAndBehindThoseThatAreUsed) {
  using Zones = std::vector<bool>;
  const auto run = [](const Zones& zones) {
    const auto found = drive::sequential_zones(zones);
    return found ? std::pair(found->first, found->count) : std::pair(0u, 0u);
  };
  EXPECT_EQ(run({true, true, true}), std::pair(0u, 3u));
  EXPECT_EQ(run({false, false, true, true, true}), std::pair(2u, 3u));
  EXPECT_EQ(run({false, true, true, false}), std::pair(1u, 2u));
  EXPECT_EQ(run({true, false, false}), std::pair(0u, 1u));
  for (const Zones& refused : {Zones{}, Zones{false, false}, Zones{true, false, true}}) {
    EXPECT_EQ(drive::sequential_zones(refused).status().code(), Code::unsupported);
  }
}

TEST_F(DriveFacts, TheKernelIsAsNewAsItIs) {
  EXPECT_TRUE(drive::kernel_at_least(2, 6));
  EXPECT_TRUE(drive::kernel_at_least(5, 0)) << "io_uring itself is of 5.1";
  EXPECT_FALSE(drive::kernel_at_least(1000, 0));
}

TEST_F(DriveFacts, APathThatIsNotThere) {
  const auto missing = drive::stat_device(dir_.file("missing"), "look elsewhere");
  EXPECT_EQ(missing.status().code(), Code::not_found);
  EXPECT_STREQ(missing.status().hint(), "look elsewhere");
  const auto found = drive::stat_device("/dev/null", "");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(drive::device_number(*found), "1:3");
}

TEST_F(DriveFacts, LbasHaveTwoSizesAndNoMetadata) {
  EXPECT_EQ(*drive::lba_bytes(9, 0), 512u);
  EXPECT_EQ(*drive::lba_bytes(12, 0), 4096u);
  for (const unsigned exponent : {0u, 8u, 10u, 13u, 255u}) {
    EXPECT_EQ(drive::lba_bytes(exponent, 0).status().code(), Code::unsupported) << exponent;
  }
  for (const unsigned exponent : {9u, 12u}) {
    const Status with_metadata = drive::lba_bytes(exponent, 8).status();
    EXPECT_EQ(with_metadata.code(), Code::unsupported);
    EXPECT_NE(std::string(with_metadata.hint()).find("metadata"), std::string::npos);
  }
}

TEST_F(DriveFacts, ZonesKeepTheirCapacity) {
  EXPECT_TRUE(drive::check_zone_operation(0).ok());
  EXPECT_TRUE(drive::check_zone_operation(2).ok()) << "zones that the drive fills by itself";
  for (const std::uint16_t changing : {1, 3}) {
    const Status refused = drive::check_zone_operation(changing);
    EXPECT_EQ(refused.code(), Code::unsupported);
    EXPECT_NE(std::string(refused.hint()).find("capacity"), std::string::npos);
  }
}

}  // namespace
}  // namespace furrow::test
