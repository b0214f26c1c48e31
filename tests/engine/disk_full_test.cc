// Establishes what a pool does when the file system under its emulated device is full: a clear
// error, and nothing that was answered is lost, now or after opening again; with room again it goes
// on. The file-size limit of the process stands for the full disk: writes behind it fail (EFBIG),
// which the device reports like ENOSPC, and it can be lifted again without being root.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "tests/engine/pool_file.h"

namespace furrow::testing::disk_full_test {
namespace {

constexpr std::size_t kBytes = 60000;

class DiskFullTest : public PoolFileTest, public ::testing::WithParamInterface<VolumeMode> {
 protected:
  void SetUp() override {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    ASSERT_NO_FATAL_FAILURE(make_pool(64 << 20, GetParam()));
  }
  void TearDown() override {
    limit(before_.rlim_cur);
    std::signal(SIGXFSZ, handler_);
    PoolFileTest::TearDown();
  }
  void limit(rlim_t bytes) {
    const rlimit now{bytes, before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  Status put_in_group(std::uint64_t key, std::uint64_t group) {
    std::vector<std::byte> page = content(key, 1, kBytes);
    PageOp op;
    op.kind = PageOp::Kind::put;
    op.key = key_of(key);
    op.group = group;
    op.data = page.data();
    op.length = op.capacity = kBytes;
    return rig_->run(op);
  }
  void check_all() {
    for (const std::uint64_t key : stored_) {
      const auto page = rig_->get(key);
      ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
      ASSERT_EQ(*page, content(key, 1, kBytes)) << key;
    }
  }

  void (*handler_)(int) = SIG_DFL;
  rlimit before_{};
  std::set<std::uint64_t> stored_;
};

INSTANTIATE_TEST_SUITE_P(Modes, DiskFullTest,
                         ::testing::Values(VolumeMode::cache, VolumeMode::store),
                         [](const auto& mode) {
                           return mode.param == VolumeMode::cache ? "cache" : "store";
                         });

TEST_P(DiskFullTest, IsAClearErrorAndLosesNothing) {
  constexpr std::uint64_t kRoomBytes = 32 << 20;
  limit(kRoomBytes);
  Status status;
  std::uint64_t key = 0;
  for (; key < 1000; ++key) {
    status = rig_->put(key, 1, kBytes);
    if (!status.ok()) break;
    stored_.insert(key);
  }
  EXPECT_EQ(status.code(), Code::no_space) << status.describe();
  EXPECT_NE(status.describe().find("file system"), std::string::npos) << status.describe();
  EXPECT_GT(stored_.size() * kBytes, kRoomBytes / 2) << "the room there was has been used";
  ASSERT_NO_FATAL_FAILURE(check_all());
  EXPECT_EQ(rig_->get(key).status().code(), Code::not_found) << "what was refused is not there";
  // A delete writes as well: it is done, or refused with the same error.
  const Status removed = rig_->simple(PageOp::Kind::remove, 0);
  EXPECT_TRUE(removed.ok() || removed.code() == Code::no_space) << removed.describe();
  if (removed.ok()) stored_.erase(0);
  ASSERT_NO_FATAL_FAILURE(check_all());

  // Opened again while the disk is still full.
  rig_->close();
  rig_->device.reset();
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  ASSERT_NO_FATAL_FAILURE(rig_->open());
  ASSERT_NO_FATAL_FAILURE(check_all());

  limit(before_.rlim_cur);
  ASSERT_TRUE(rig_->put(5000, 1, kBytes).ok()) << "there is room again";
  EXPECT_TRUE(rig_->simple(PageOp::Kind::remove, 1).ok());
  EXPECT_EQ(*rig_->get(5000), content(5000, 1, kBytes));
  ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  stored_.erase(1);
  ASSERT_NO_FATAL_FAILURE(check_all());
  EXPECT_TRUE(rig_->get(5000).ok());
  EXPECT_EQ(rig_->get(1).status().code(), Code::not_found);
}

// Nor does it call itself damaged, where the journal was refused a record and an older checkpoint
// was given up for the one that there was no room for.
TEST_P(DiskFullTest, AVolumeThatCouldNotBeDeletedLeavesNoDamage) {
  ASSERT_TRUE(rig_->put(1, 1, kBytes).ok());
  limit(8192);
  EXPECT_EQ(rig_->pool->delete_volume("pages").code(), Code::no_space);
  limit(before_.rlim_cur);
  rig_->close();
  ASSERT_NO_FATAL_FAILURE(rig_->open(true));
  EXPECT_EQ(rig_->pool->opening_damage(), std::vector<std::string>());
  ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  EXPECT_TRUE(rig_->get(1).ok());
}

// Each is done, for good, or refused with a clear error; then its page is there, or gone as a
// whole.
TEST_P(DiskFullTest, DeletesAreDoneOrRefused) {
  constexpr std::uint64_t kGrouped = 40, kGroups = 4;
  for (std::uint64_t key = 0; key < kGrouped; ++key) {
    ASSERT_TRUE(put_in_group(key, 1 + key % kGroups).ok());
    stored_.insert(key);
  }
  constexpr std::uint64_t kNextZone = kDataAt + 6 * (4 << 20);
  limit(kNextZone - (1 << 20));
  for (std::uint64_t key = kGrouped; rig_->put(key, 1, kBytes).ok(); ++key) {
    ASSERT_LT(key, 1000u);
    stored_.insert(key);
  }
  limit(kNextZone + (64 << 10));  // a little room for deletes, not for all of them
  const std::set<std::uint64_t> all = stored_;
  std::set<std::uint64_t> refused;
  const auto note = [&](const Status& removed, std::uint64_t key) {
    if (removed.ok()) return void(stored_.erase(key));
    EXPECT_EQ(removed.code(), Code::no_space) << removed.describe();
    EXPECT_NE(removed.describe().find("file system"), std::string::npos) << removed.describe();
    stored_.erase(key);
    refused.insert(key);
  };
  for (std::uint64_t group = 1; group <= kGroups / 2; ++group) {
    PageOp op;
    op.kind = PageOp::Kind::remove_group;
    op.group = group;
    op.durability = Durability::flushed;
    const Status removed = rig_->run(op);
    for (std::uint64_t key = group - 1; key < kGrouped; key += kGroups) note(removed, key);
  }
  for (const std::uint64_t key : all) {
    if (key >= kGrouped && key % 3 == 0) note(rig_->simple(PageOp::Kind::remove, key), key);
  }
  const auto check = [&](bool later) {
    ASSERT_NO_FATAL_FAILURE(check_all());
    for (const std::uint64_t key : all) {
      if (stored_.contains(key)) continue;
      const auto page = rig_->get(key);
      const bool gone = page.status().code() == Code::not_found;
      if (!refused.contains(key)) {
        EXPECT_TRUE(gone) << key;
      } else if (!gone || !later) {
        ASSERT_TRUE(page.ok()) << key << ": " << page.status().describe();
        EXPECT_EQ(*page, content(key, 1, kBytes)) << key;
      }
    }
  };
  ASSERT_NO_FATAL_FAILURE(check(false));
  EXPECT_FALSE(refused.empty());
  EXPECT_LT(stored_.size() + refused.size(), all.size()) << "some were done";
  close_device();
  ASSERT_NO_FATAL_FAILURE(rig_->open_device());
  ASSERT_NO_FATAL_FAILURE(rig_->open());
  ASSERT_NO_FATAL_FAILURE(check(true));

  limit(before_.rlim_cur);
  for (const std::uint64_t key : refused) {
    const Status removed = rig_->simple(PageOp::Kind::remove, key);
    EXPECT_TRUE(removed.ok() || removed.code() == Code::not_found) << removed.describe();
  }
  refused.clear();
  ASSERT_NO_FATAL_FAILURE(rig_->reopen());
  ASSERT_NO_FATAL_FAILURE(check(true));
}

}  // namespace
}  // namespace furrow::testing::disk_full_test
