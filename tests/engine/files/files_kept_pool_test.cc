// Establishes that a record, or the page that says how many there are, of which only the flush
// failed is not found again once it has been written anew, while the pool stays open, as it does
// for another volume of it: files keep what they hold over a mount, none goes, and nothing is left
// of files that were deleted. How: a device that flushes not at times.
#include <gtest/gtest.h>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {
namespace {

class KeptPoolTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount(256 << 20));
    unmount();
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    auto device = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
    fault_ = device.get();
    auto pool = EmbeddedPool::open(std::move(device), {});
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    pool_ = std::move(*pool);
    ASSERT_NO_FATAL_FAILURE(mount_again());
  }
  void TearDown() override { unmount(); }
  void mount_again() {
    unmount();
    mount(pool_);
  }
  template <class Work>
  auto without_flushes(Work&& work) {
    fault_->fail_flushes(1000);
    auto result = work();
    fault_->fail_flushes(0);
    return result;
  }
  // Its record is put, and durable or not.
  void fail_to_truncate(const std::string& path) {
    EXPECT_FALSE(
        without_flushes([&] { return files().create(path, FileVolume::Existing::truncate); }).ok());
  }

  std::shared_ptr<EmbeddedPool> pool_;
  FaultDevice* fault_ = nullptr;  // the pool's
};

// An older record would win by chance: by the order in which the index has both.
TEST_F(KeptPoolTest, FilesKeepWhatTheyHold) {
  constexpr unsigned kFiles = 200;
  const auto path = [](unsigned i) { return "/file" + std::to_string(i); };
  const auto text = [](unsigned i) { return std::string(5000 + i, 'b'); };
  for (unsigned i = 0; i < kFiles; ++i) write(path(i), std::string(10000 + i, 'a'));
  for (unsigned i = 0; i < kFiles; ++i) {
    fail_to_truncate(path(i));
    write(path(i), text(i));
  }
  ASSERT_TRUE(files().sync_names().ok());
  for (unsigned round = 0; round < 2; ++round) {
    ASSERT_NO_FATAL_FAILURE(mount_again());
    for (unsigned i = 0; i < kFiles; ++i) EXPECT_TRUE(read(path(i)) == text(i)) << path(i);
  }
}

TEST_F(KeptPoolTest, NothingIsLeftOfFilesThatWent) {
  const std::uint64_t before = files().store().usage().pages;
  for (unsigned i = 0; i < 32; ++i) {
    write("/file", "text");
    fail_to_truncate("/file");
    ASSERT_TRUE(files().remove("/file").ok());
  }
  EXPECT_EQ(files().store().usage().pages, before);
}

TEST_F(KeptPoolTest, NoFileGoes) {
  constexpr unsigned kSlotsStep = 1024;  // as many records a volume makes room for at a time
  unsigned made = 0;
  const auto make_one = [&] {
    auto file = files().create("/file" + std::to_string(made), FileVolume::Existing::refuse);
    if (!file.ok()) return false;
    EXPECT_TRUE((*file)->close().ok());
    ++made;
    return true;
  };
  while (made < kSlotsStep - 1) ASSERT_TRUE(make_one());  // and the root
  EXPECT_FALSE(without_flushes(make_one)) << "it needs a slot more than there are";
  while (made < 5 * kSlotsStep / 2) ASSERT_TRUE(make_one());
  for (unsigned round = 0; round < 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(mount_again());
    EXPECT_EQ(names("/").size(), made) << round;
    ASSERT_TRUE(make_one());
  }
}

}  // namespace
}  // namespace furrow::testing
