// Establishes that a record, or the page that says how many there are, of which only the flush
// failed is not found again once it has been written anew, while the pool stays open, as it does
// for another volume of it: files keep what they hold over a mount, none goes, and nothing is left
// of files that were deleted; nor of what a change has put that failed, wherever it did. How: a
// device that flushes, or writes, not at times.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>

#include "tests/engine/files/files_rig.h"
#include "zone/zone_state_machine.h"

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

  // When so many LBAs more have been written to any zone, it takes no more; nor does another one if
  // that is to last.
  void fail_writes_after(std::uint64_t lbas, bool lasts) {
    const Geometry& shape = fault_->geometry();
    for (const auto& [number, generation] : zone_lives()) {
      const ZoneInfo zone = fault_->zone(ZoneId{number});
      if (!is_active(zone.state)) continue;
      fault_->fail_writes(Lba{shape.zone_start(zone.zone).value + zone.written_lbas + lbas},
                          shape.zone_size_lbas);
    }
    if (!lasts) return;
    for (std::uint32_t number = 0; number < shape.zone_count; ++number) {
      const ZoneInfo zone = fault_->zone(ZoneId{number});
      if (zone.state == ZoneState::empty) {
        fault_->fail_writes(shape.zone_start(zone.zone), shape.zone_size_lbas);
      }
    }
  }
  std::uint64_t pages() { return files().store().usage().pages; }
  std::uint64_t failures() { return pool_->info().failed_writes; }

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

struct FailingChange {
  const char* name;
  Status (*make)(OpenFile&);
  std::string (*after)(const std::string& before);
};
constexpr FailingChange kFailingChanges[] = {
    {"write", [](OpenFile& file) { return file.write_at(130'000, bytes_of("other text")); },
     [](const std::string& before) {
       return std::string(before).replace(130'000, 10, "other text");
     }},
    {"cut", [](OpenFile& file) { return file.truncate(150'000); },
     [](const std::string& before) { return before.substr(0, 150'000); }},
    {"clear", [](OpenFile& file) { return file.truncate(0); },
     [](const std::string&) { return std::string(); }}};

// Which change, whether what fails lasts, and whether the file goes on.
class FailedChangesTest
    : public KeptPoolTest,
      public ::testing::WithParamInterface<std::tuple<FailingChange, bool, bool>> {
 protected:
  // Zones are freed, and written, again a moment later.
  bool heal() {
    fault_->heal();
    for (unsigned tries = 0; tries < 1000; ++tries) {
      auto file = files().create("/other", FileVolume::Existing::truncate);
      const bool well = file.ok() && (*file)->append(bytes_of("text")).ok() && (*file)->sync().ok();
      if (file.ok()) file->reset();
      if (well) return files().remove("/other").ok();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  void expect_goes_on(std::unique_ptr<OpenFile>& file, const std::string& now) {
    ASSERT_TRUE(file->append(bytes_of("more")).ok());
    ASSERT_TRUE(file->sync().ok());
    volume()->abandon();
    file.reset();
    kill();
    forget_staged();
    ASSERT_NO_FATAL_FAILURE(mount(pool_));
    EXPECT_TRUE(read("/file") == now + "more");
  }
};

TEST_P(FailedChangesTest, LeaveTheFileAsItWasOrAsItIsToBe) {
  const auto& [change, lasts, goes_on] = GetParam();
  const std::string before(200'000, 'a'), after = change.after(before);
  const std::uint64_t pages_before = pages();
  std::uint64_t failures_before = 0, lbas = 0;
  do {
    SCOPED_TRACE(lbas);
    write("/file", before);
    auto file = files().open_file("/file");
    ASSERT_TRUE(file.ok());
    failures_before = failures();
    fail_writes_after(lbas++, lasts);
    const Status status = change.make(**file);
    ASSERT_TRUE(heal());
    const std::string now = read(**file);
    EXPECT_TRUE(now == after || (now == before && !status.ok())) << status.describe();
    if (goes_on) {
      ASSERT_NO_FATAL_FAILURE(expect_goes_on(*file, now));
    }
    file->reset();
    ASSERT_TRUE(files().remove("/file").ok());
    ASSERT_EQ(pages(), pages_before);
  } while (failures() != failures_before);
  EXPECT_GT(lbas, 2u);
}

std::string name_of_change(const ::testing::TestParamInfo<FailedChangesTest::ParamType>& changed) {
  const auto& [change, lasts, goes_on] = changed.param;
  return std::string(change.name) + (lasts ? "_lasts" : "_once") + (goes_on ? "_goes_on" : "_goes");
}
INSTANTIATE_TEST_SUITE_P(Changes, FailedChangesTest,
                         ::testing::Combine(::testing::ValuesIn(kFailingChanges), ::testing::Bool(),
                                            ::testing::Bool()),
                         name_of_change);

// What of it the device has all the same, as only a flush failed, goes with the file that it was.
TEST_F(KeptPoolTest, NothingIsLeftOfAFileThatWasWrittenAnew) {
  const std::uint64_t before = pages();
  auto file = make("/file");
  ASSERT_TRUE(file->append(bytes_of("not durable")).ok());
  EXPECT_EQ(without_flushes([&] { return file->sync(); }).code(), Code::io_error);
  ASSERT_TRUE(file->truncate(0).ok());
  ASSERT_TRUE(file->append(bytes_of("anew")).ok());
  ASSERT_TRUE(file->close().ok());
  EXPECT_EQ(read("/file"), "anew");
  file.reset();
  ASSERT_TRUE(files().remove("/file").ok());
  EXPECT_EQ(pages(), before);
}

}  // namespace
}  // namespace furrow::testing
