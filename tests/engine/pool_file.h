// PoolFileTest: a pool with one volume on a file in a directory of its own, for tests that damage
// the file or lack room for it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/engine/rig.h"

namespace furrow::testing {

class PoolFileTest : public ::testing::Test {
 protected:
  // To be called by the SetUp() of whoever derives from this.
  void make_pool(std::uint64_t size_bytes, VolumeMode mode) {
    std::filesystem::create_directory(directory_);
    DeviceShape shape;
    shape.size_bytes = size_bytes;
    shape.zone_size_bytes = 4 << 20;
    ASSERT_TRUE(create_device(uri(), shape).ok());
    rig_ = std::make_unique<Rig>(uri());
    VolumeOptions options;
    options.name = "pages";
    options.mode = mode;
    options.value_bytes_max = 64 << 10;
    ASSERT_NO_FATAL_FAILURE(rig_->make(options));
  }
  void TearDown() override {
    rig_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::string path() const { return (directory_ / "pool.img").string(); }
  std::string uri() const { return "emu:" + path(); }

  void close_device() {
    rig_->close();
    rig_->device.reset();
  }
  std::string read_file() const {
    std::string bytes(std::filesystem::file_size(path()), '\0');
    std::ifstream(path(), std::ios::binary)
        .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return bytes;
  }
  // Flips a bit of the byte there.
  void damage(std::size_t offset) {
    std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }

  const std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("furrow-pool-file-" + std::to_string(getpid()));
  std::unique_ptr<Rig> rig_;
};

}  // namespace furrow::testing
