// SmallFileSystem: one in memory, of a size of its own, for what must meet a full one. Takes root.
#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/zone/device_test_util.h"
#include "zone/emu_file.h"

namespace furrow::test {

class SmallFileSystem {
 public:
  // `type`: tmpfs, or ramfs (which has no end).
  explicit SmallFileSystem(const char* type, const std::string& options = {}) {
    std::filesystem::create_directory(place_);
    mounted_ = mount("none", place_.c_str(), type, 0, options.c_str()) == 0;
  }
  ~SmallFileSystem() {
    // (Files of it may be open yet.)
    if (mounted_ && umount2(place_.c_str(), MNT_DETACH) != 0) ADD_FAILURE() << "it stays mounted";
  }
  bool mounted() const { return mounted_; }
  std::string file(const std::string& name) const { return place_ + "/" + name; }

  // All that is left goes to a file of this name.
  void fill_up(const std::string& name) const {
    const emu::Fd junk(::open(file(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_GE(junk.get(), 0);
    const std::string page(4096, 'x');
    while (write(junk.get(), page.data(), page.size()) > 0) {
    }
  }

 private:
  TempDir dir_;
  std::string place_ = dir_.file("mounted");
  bool mounted_ = false;
};

}  // namespace furrow::test
