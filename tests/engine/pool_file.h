// A pool on a file, for tests that damage the file or lack room for it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/file_image.h"
#include "tests/engine/rig.h"
#include "zone/check.h"

namespace furrow::testing {

// The file in a directory of its own, which goes with it: a base of the fixtures.
class PoolFile {
 public:
  // In $FURROW_TEST_POOLS, if that is set: in memory, say, which is faster than most disks.
  PoolFile() : PoolFile(directory_of_all()) {}
  explicit PoolFile(const std::filesystem::path& in) {
    std::string name = (in / "furrow-pool-XXXXXX").string();
    FURROW_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
  }
  ~PoolFile() { std::filesystem::remove_all(directory_); }
  PoolFile(const PoolFile&) = delete;
  PoolFile& operator=(const PoolFile&) = delete;

  std::string path() const { return (directory_ / "pool.img").string(); }
  std::string uri() const { return "emu:" + path(); }
  // The device in it. `active_zones`: at most, as many of them open; 0: no limit.
  void make_device(std::uint64_t size_bytes, std::uint64_t zone_bytes,
                   std::uint32_t active_zones = 0) const {
    DeviceShape shape;
    shape.size_bytes = size_bytes;
    shape.zone_size_bytes = zone_bytes;
    if (active_zones != 0) shape.open_zones_max = shape.active_zones_max = active_zones;
    const Status made = create_device(uri(), shape);
    ASSERT_TRUE(made.ok()) << made.describe();
  }
  FileImage read_file() const { return FileImage(path()); }
  void write_file(const FileImage& image) const { image.write(path()); }
  // Flips a bit of the byte there.
  void damage(std::size_t offset) const {
    std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }

 protected:
  static std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // Where `wanted` stands in `file`, in its order.
  static std::vector<std::size_t> places(const FileImage& file, std::string_view wanted) {
    std::vector<std::size_t> found;
    const std::string_view all = file.view();
    for (std::size_t at = all.find(wanted); at != all.npos; at = all.find(wanted, at + 1)) {
      found.push_back(at);
    }
    return found;
  }
  // Offsets of the LBAs of the zones that have `magic` at `at`, in file order. Of a device of fewer
  // than 4 thousand zones, with the usual LBA.
  static constexpr std::size_t kLba = 4096, kDataAt = 1 << 20;
  std::vector<std::size_t> offsets_of(std::string_view magic, std::size_t at = 0) const {
    const FileImage file = read_file();
    std::vector<std::size_t> found;
    for (std::size_t lba = kDataAt; lba + kLba <= file.size(); lba += kLba) {
      if (file.view().substr(lba + at, magic.size()) == magic) found.push_back(lba);
    }
    return found;
  }

 private:
  static std::filesystem::path directory_of_all() {
    const char* const given = std::getenv("FURROW_TEST_POOLS");
    return given != nullptr && *given != 0 ? given : std::filesystem::temp_directory_path();
  }

  std::filesystem::path directory_;
};

// With one volume.
class PoolFileTest : public ::testing::Test, public PoolFile {
 protected:
  // To be called by the SetUp() of whoever derives from this.
  void make_pool(std::uint64_t size_bytes, VolumeMode mode) {
    ASSERT_NO_FATAL_FAILURE(make_device(size_bytes, 4 << 20));
    rig_ = std::make_unique<Rig>(uri());
    VolumeOptions options;
    options.name = "pages";
    options.mode = mode;
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_->make(options));
  }
  void close_device() {
    rig_->close();
    rig_->device.reset();
  }

  std::unique_ptr<Rig> rig_;
};

}  // namespace furrow::testing
