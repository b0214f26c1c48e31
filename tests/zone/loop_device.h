// LoopDevice: a block device over a file, where the machine lets us make one (root, losetup).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace furrow::test {

class LoopDevice {
 public:
  // The file is made, or made as long as that. `options`: of losetup.
  LoopDevice(const std::string& file, std::uint64_t bytes, const std::string& options = "") {
    { std::ofstream made(file, std::ios::app); }
    std::filesystem::resize_file(file, bytes);
    const std::string command = "losetup -f --show " + options + " " + file + " 2>/dev/null";
    const std::unique_ptr<FILE, int (*)(FILE*)> setup(popen(command.c_str(), "r"), pclose);
    char name[64] = "";
    if (setup != nullptr && std::fscanf(setup.get(), "%63s", name) == 1) name_ = name;
  }
  // Whoever has it next may write.
  ~LoopDevice() {
    if (!there()) return;
    EXPECT_EQ(std::system(("blockdev --setrw " + name_).c_str()), 0);
    EXPECT_EQ(std::system(("losetup -d " + name_).c_str()), 0);
  }
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;

  bool there() const { return !name_.empty(); }
  const std::string& name() const { return name_; }

 private:
  std::string name_;  // "/dev/loop0"
};

}  // namespace furrow::test
