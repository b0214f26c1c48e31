// Establishes what becomes of a file whose bytes the device could not take, whether in the
// background or when they were synced: every later append, sync and close says so, also when the
// device is well again; what had been synced is read all the same, then and after the next mount;
// and other files go on. And that what is not known to be done, as a flush or a record failed, is
// taken for neither: a sync, a cut, a removal, a record, a change of names. How: on a device that
// takes no writes to the volume's zones for a while, or flushes not.
#include <gtest/gtest.h>

#include "engine/page_store_impl.h"
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

  // Of its record, among those of the volume.
  std::uint32_t place_of(std::string_view path) {
    const std::uint64_t inode = files().stat(path)->inode;
    auto pages = *mounted_pool().store("files");
    for (std::uint32_t slot = 0; slot < 1024; ++slot) {
      const auto page = pages.get(slot_key(slot));
      if (page.ok() && decode_file_record(*page)->inode == inode) return slot;
    }
    ADD_FAILURE() << path << " has no record";
    return 0;
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

// Where it is not known whether the medium says so: what is appended afterwards is found by what it
// says then.
TEST_F(FilesErrorsTest, ACutThatFailedTakesNothingOfWhatIsAppended) {
  fail_writes();
  EXPECT_EQ(file_->truncate(0).code(), Code::io_error);
  fault_->heal();
  ASSERT_TRUE(file_->append(bytes_of(", and later")).ok());
  ASSERT_TRUE(file_->sync().ok());
  volume()->abandon();
  file_.reset();
  other_.reset();
  kill();
  forget_staged();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/file"), std::string(kSynced) + ", and later");
}

TEST_F(FilesErrorsTest, APlaceIsNotUsedAgainWhileItsRemovalMayBeUndone) {
  const std::uint32_t place = place_of("/other");
  other_.reset();
  ASSERT_TRUE(files().remove("/other").ok());
  fault_->fail_flushes(100);
  EXPECT_EQ(files().sync_names().code(), Code::io_error);
  fault_->fail_flushes(0);
  (void)make("/next");
  EXPECT_NE(place_of("/next"), place);
  EXPECT_TRUE(files().sync_names().ok());
  (void)make("/last");
  EXPECT_EQ(place_of("/last"), place);
}

// It stands where the one before did, perhaps, and goes with the file all the same: who has its
// place next would be found beside it.
TEST_F(FilesErrorsTest, ARecordThatIsNotKnownToBeDurableGoesWithItsFile) {
  file_.reset();
  other_.reset();
  const std::uint32_t place = place_of("/file");
  {
    auto file = files().open_file("/file");
    ASSERT_TRUE(file.ok());
    fault_->fail_flushes(100);
    EXPECT_EQ((*file)->append(bytes_of("more")).code(), Code::io_error);
    fault_->fail_flushes(0);
    fail_writes();
    EXPECT_EQ((*file)->close().code(), Code::io_error) << "its record is written once more";
  }
  fault_->heal();
  ASSERT_TRUE(files().remove("/file").ok());
  const FilesUsage usage = files().usage();
  EXPECT_EQ(files().store().usage().pages, 1 + usage.directories + usage.files + usage.chunks);
  ASSERT_TRUE(files().sync_names().ok());
  write("/next", "text");
  EXPECT_EQ(place_of("/next"), place);
  unmount();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(read("/next"), "text");
  EXPECT_EQ(names("/"), (std::vector<std::string>{"next", "other"}));
}

// Who then gets the name that a file did not get, or loses it, takes nothing from that file, and
// leaves it nothing.
TEST_F(FilesErrorsTest, AChangeOfNamesThatIsNotKnownToBeDurableIsNotDone) {
  for (const char* path : {"/a", "/c", "/e"}) write(path, path);
  auto open = files().open_file("/e");
  ASSERT_TRUE(open.ok());
  const auto expect_failure = [this](auto change) {
    mounted_pool().call([this](Pool&) {  // as where a change of the volumes failed: puts are
      static_cast<PageStoreImpl&>(files().store()).context().unsettled = true;  // behind a flush
    });
    fault_->fail_flushes(100);
    EXPECT_EQ(change().code(), Code::io_error);
    fault_->fail_flushes(0);
  };
  expect_failure([this] { return files().rename("/a", "/b"); });
  expect_failure([this] { return files().link("/c", "/d"); });
  expect_failure([this] { return files().remove("/e"); });
  open->reset();
  for (const char* path : {"/b", "/d"}) write(path, path);
  EXPECT_TRUE(files().remove("/d").ok());
  EXPECT_TRUE(files().sync_names().ok());
  file_.reset();
  other_.reset();
  kill();
  ASSERT_NO_FATAL_FAILURE(mount());
  EXPECT_EQ(names("/"), (std::vector<std::string>{"a", "b", "c", "e", "file", "other"}));
  for (const char* path : {"/a", "/b", "/c", "/e"}) EXPECT_EQ(read(path), path);
}

// One without a tail, as all of it is full chunks: its flush is one of its own.
TEST_F(FilesErrorsTest, ASyncWhoseFlushFailedIsDoneByTheNext) {
  auto file = make("/full");
  ASSERT_TRUE(file->append(bytes_of(std::string(64 << 10, 'x'))).ok());
  fault_->fail_flushes(100);
  for (unsigned i = 0; i < 2; ++i) EXPECT_EQ(file->sync().code(), Code::io_error);
  fault_->fail_flushes(0);
  EXPECT_TRUE(file->sync().ok());
}

}  // namespace
}  // namespace furrow::testing
