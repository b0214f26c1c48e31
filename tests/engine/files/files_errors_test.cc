// Establishes what becomes of a file whose bytes the device could not take, whether in the
// background or when they were synced: every later append, sync and close says so, also when the
// device is well again; what had been synced is read all the same, then and after the next mount;
// and other files go on. How: on a device that takes no writes to the volume's zones for a while.
#include <gtest/gtest.h>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

class FilesErrorsTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr std::string_view kSynced = "what was synced before";

  void SetUp() override {
    fault_ = mount_on<FaultDevice>(64 << 20, FaultOptions());
    ASSERT_NE(fault_, nullptr);
    file_ = make("/file");
    other_ = make("/other");
    for (OpenFile* each : {file_.get(), other_.get()}) {
      ASSERT_TRUE(each->append(bytes_of(kSynced)).ok());
      ASSERT_TRUE(each->sync().ok());
    }
  }
  void fail_writes() {
    const Geometry& shape = files().geometry();
    const Lba first = shape.zone_start(ZoneId{zone_lives().begin()->first});
    fault_->fail_writes(first, shape.zone_count * shape.zone_size_lbas - first.value);
  }
  void expect_errors() {
    for (unsigned i = 0; i < 2; ++i) {
      EXPECT_EQ(file_->append(bytes_of("later")).code(), Code::io_error);
      EXPECT_EQ(file_->sync().code(), Code::io_error);
    }
    EXPECT_TRUE(other_->append(bytes_of(", and later")).ok());
    EXPECT_TRUE(other_->sync().ok());
    EXPECT_EQ(file_->close().code(), Code::io_error);
    EXPECT_EQ(file_->close().code(), Code::io_error) << "nothing has been closed";
    EXPECT_TRUE(other_->close().ok());
  }
  void expect_synced() {
    EXPECT_EQ(read("/file").substr(0, kSynced.size()), kSynced);
    EXPECT_EQ(read("/other"), std::string(kSynced) + ", and later");
  }
  void expect_synced_now_and_later() {
    file_.reset();
    other_.reset();
    expect_synced();
    unmount();
    ASSERT_NO_FATAL_FAILURE(mount());
    expect_synced();
    write("/file", "anew");
    EXPECT_EQ(read("/file"), "anew");
  }

  FaultDevice* fault_ = nullptr;
  std::unique_ptr<OpenFile> file_, other_;
};

TEST_F(FilesErrorsTest, WhatFailsInTheBackgroundIsToldFromThenOn) {
  fail_writes();
  // Full chunks, which go to the device by themselves.
  (void)file_->append(bytes_of(std::string(2 << 20, 'x')));
  file_->content().quiesce();
  fault_->heal();
  expect_errors();
  expect_synced_now_and_later();
}

TEST_F(FilesErrorsTest, ASyncThatFailsIsToldFromThenOn) {
  fail_writes();
  EXPECT_TRUE(file_->append(bytes_of(", and what is not")).ok()) << "it waits in memory";
  EXPECT_EQ(file_->sync().code(), Code::io_error);
  fault_->heal();
  expect_errors();
  expect_synced_now_and_later();
}

// Under the same name, as who tries again does: nothing of what failed is in what is written then.
TEST_F(FilesErrorsTest, AFileThatFailedIsWrittenAnew) {
  auto fresh = make("/fresh");  // of which the device gets nothing
  fail_writes();
  for (OpenFile* each : {file_.get(), fresh.get()}) {
    (void)each->append(bytes_of(std::string(2 << 20, 'x')));
    EXPECT_EQ(each->sync().code(), Code::io_error);
  }
  file_.reset();
  fresh.reset();
  fault_->heal();
  write("/file", "anew");
  write("/fresh", "anew, too");
  ASSERT_TRUE(other_->close().ok());
  other_.reset();
  for (unsigned mounts = 0; mounts < 2; ++mounts) {
    EXPECT_EQ(read("/file"), "anew");
    EXPECT_EQ(read("/fresh"), "anew, too");
    kill();
    ASSERT_NO_FATAL_FAILURE(mount());
  }
}

}  // namespace
}  // namespace furrow::testing
