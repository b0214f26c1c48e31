// Establishes that a file is replaced whole, with its permissions and by its link, or stays as it
// was, with nothing left beside it; and that what is no regular file is written to in place. How: a
// folder of its own, and a limit of file sizes that stands for a full disk.
#include "tools/host_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace furrow::tools {
namespace {

namespace fs = std::filesystem;

class HostFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/furrow-host-file.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~HostFileTest() override { fs::remove_all(folder_); }

  static Status replace(const fs::path& path, std::string_view text) {
    return replace_file(path.string(), std::as_bytes(std::span(text)));
  }
  static std::string text_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(HostFileTest, ANewFileHasTheUsualPermissions) {
  const mode_t mask = umask(027);
  EXPECT_TRUE(replace(folder_ / "new", "some bytes").ok());
  umask(mask);
  EXPECT_EQ(text_of(folder_ / "new"), "some bytes");
  EXPECT_EQ(fs::status(folder_ / "new").permissions(), fs::perms(0640));
  EXPECT_EQ(files(), 1u);
}

TEST_F(HostFileTest, AnOldOneKeepsItsPermissionsAndLinks) {
  ASSERT_TRUE(replace(folder_ / "old", "long old contents").ok());
  fs::permissions(folder_ / "old", fs::perms(0600));
  fs::create_symlink("old", folder_ / "link");
  EXPECT_TRUE(replace(folder_ / "link", "short").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(text_of(folder_ / "old"), "short");
  EXPECT_EQ(fs::status(folder_ / "old").permissions(), fs::perms(0600));
  EXPECT_EQ(files(), 2u);
}

TEST_F(HostFileTest, FurtherNamesAndALinkToNothingAreFollowed) {
  ASSERT_TRUE(replace(folder_ / "old", "long old contents").ok());
  fs::create_hard_link(folder_ / "old", folder_ / "name");
  EXPECT_TRUE(replace(folder_ / "name", "short").ok());
  EXPECT_EQ(text_of(folder_ / "old"), "short");
  fs::create_symlink("new", folder_ / "link");
  EXPECT_TRUE(replace(folder_ / "link", "some bytes").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(text_of(folder_ / "new"), "some bytes");
}

TEST_F(HostFileTest, ANameTooLongForAnotherBesideItIsWrittenInPlace) {
  const fs::path name = folder_ / std::string(255, 'n');
  std::ofstream(name) << "long old contents";
  EXPECT_TRUE(replace(name, "short").ok());
  EXPECT_EQ(text_of(name), "short");
  EXPECT_EQ(files(), 1u);
}

TEST_F(HostFileTest, WithoutRoomTheOldOneStaysAndNoNewOneIsLeft) {
  ASSERT_TRUE(replace(folder_ / "old", "old contents").ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string large(8192, 'x');
  const Status over_old = replace(folder_ / "old", large),
               new_one = replace(folder_ / "new", large);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(over_old.code(), Code::io_error);
  EXPECT_EQ(over_old.sys_errno(), EFBIG);
  EXPECT_EQ(new_one.code(), Code::io_error);
  EXPECT_EQ(text_of(folder_ / "old"), "old contents");
  EXPECT_EQ(files(), 1u);
}

TEST_F(HostFileTest, WhatCannotBeSaysWhy) {
  EXPECT_EQ(replace(folder_ / "none" / "file", "x").code(), Code::not_found);
  const Status folder = replace(folder_, "x");
  EXPECT_EQ(folder.code(), Code::io_error);
  EXPECT_EQ(folder.sys_errno(), EISDIR);
  EXPECT_EQ(files(), 0u);
}

TEST_F(HostFileTest, APipeIsWrittenTo) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = text_of(pipe); });
  EXPECT_TRUE(replace(pipe, "through the pipe").ok());
  reader.join();
  EXPECT_EQ(read, "through the pipe");
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_TRUE(replace("/dev/null", "x").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(replace("/dev/full", "x").code(), Code::no_space);
}

}  // namespace
}  // namespace furrow::tools
