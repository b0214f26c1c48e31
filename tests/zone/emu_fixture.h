// EmuDeviceTest: an emulated device on a file of its own, and that file's bytes.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>

#include "tests/zone/device_test_util.h"
#include "zone/emu_device.h"

namespace furrow::test {

// Files end at `bytes`, as where a disk is full or broken from there on.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    handler_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit now{bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    (void)signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_ = nullptr;
};

class EmuDeviceTest : public testing::Test {
 protected:
  static DeviceShape shape() {
    DeviceShape made;
    made.size_bytes = 16 * kMiB;
    made.zone_size_bytes = 2 * kMiB;
    made.zone_capacity_bytes = kMiB + kMiB / 2;
    made.open_zones_max = 4;
    made.active_zones_max = 6;
    return made;
  }
  void create() {
    const Status status = create_device(uri_, shape());
    ASSERT_TRUE(status.ok()) << status.describe();
  }
  std::unique_ptr<ZonedDevice> open(const char* parameters = "",
                                    Access access = Access::exclusive) {
    auto device = open_device(uri_ + parameters, access);
    EXPECT_TRUE(device.ok()) << device.status().describe();
    return device.ok() ? std::move(*device) : nullptr;
  }
  Code open_code(Access access = Access::exclusive) {
    const auto device = open_device(uri_, access);
    EXPECT_EQ(device.ok(), std::string(device.status().hint()).empty());
    return device.status().code();
  }
  emu::Superblock superblock() {
    std::array<std::byte, emu::kSuperblockBytes> bytes;
    std::ifstream(path_, std::ios::binary).read(reinterpret_cast<char*>(bytes.data()), 512);
    return *emu::decode(bytes);
  }
  void poke(std::uint64_t offset, const void* data, std::size_t bytes) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    ASSERT_TRUE(file.good());
  }
  std::uint64_t peek(std::uint64_t offset) {
    std::uint64_t value = 0;
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(&value), 8);
    return value;
  }
  static std::uint64_t used_bytes(const std::string& path) {
    struct stat info {};
    stat(path.c_str(), &info);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
  // Of the zone table's mapping, as the kernel says: what a flush has yet to write.
  long dirty_table_kib() const {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool ours = false;
    long kib = 0;
    while (std::getline(maps, line)) {
      if (line.find('-') < line.find(' ')) ours = line.find(path_) != std::string::npos;
      if (ours && (line.starts_with("Shared_Dirty:") || line.starts_with("Private_Dirty:"))) {
        kib += std::stol(line.substr(line.find(':') + 1));
      }
    }
    return kib;
  }

  TempDir dir_;
  std::string path_ = dir_.file("device.img");
  std::string uri_ = "emu:" + path_;
};

}  // namespace furrow::test
