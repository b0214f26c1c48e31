// Establishes that syncs of many files that come at a time share the device's flushes, and that one
// alone is one flush; that a file which is written apart is begun without waiting for the flush
// that it takes; that a file is cut by few writes; and that a sync ends though others go on. How:
// threads that append to a file each, of one database's or of several, and sync, while the device's
// flush, or a write, is held; TapDevice counts.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/engine/files/files_rig.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

constexpr unsigned kThreads = 8, kSyncs = 10;  // of each

class FilesGroupCommitTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount());  // makes it
    unmount();
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    auto tap = std::make_unique<TapDevice>(std::move(*inner));
    tap_ = tap.get();
    auto pool = EmbeddedPool::open(std::move(tap), {});
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    pool_ = std::move(*pool);
    ASSERT_NO_FATAL_FAILURE(FilesRig::mount(pool_));
  }
  void TearDown() override {
    unmount();
    pool_.reset();
  }
  // On the pool's thread, whose device it is.
  void hold_flushes() {
    pool_->call([this](Pool&) { tap_->hold(Io::Op::flush); });
  }
  void let_flushes_go() {
    pool_->call([this](Pool&) { tap_->let_go(Io::Op::flush); });
  }
  void wait_until_held() {
    for (std::size_t held = 0; held == 0; std::this_thread::yield()) {
      pool_->call([&](Pool&) { held = tap_->held(Io::Op::flush); });
    }
  }
  // That nobody else comes cannot be waited for.
  static void give_others_time() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }
  // A file that is there, with its name, after a power cut.
  std::unique_ptr<OpenFile> make_durable(const std::string& path) {
    auto file = make(path);
    EXPECT_TRUE(file->append(bytes_of("begin")).ok() && file->sync().ok());
    return file;
  }
  std::size_t flushes() const { return tap_->count(Io::Op::flush); }

  TapDevice* tap_ = nullptr;
  std::shared_ptr<EmbeddedPool> pool_;
};

TEST_F(FilesGroupCommitTest, SyncsThatComeTogetherShareFlushes) {
  std::vector<std::unique_ptr<OpenFile>> logs;
  for (unsigned i = 0; i < kThreads; ++i) logs.push_back(make_durable("/" + std::to_string(i)));
  tap_->forget_events();
  std::atomic<unsigned> failed{0};
  for (unsigned i = 0; i < kSyncs; ++i) {
    std::vector<std::jthread> threads;
    hold_flushes();
    for (auto& log : logs) {
      threads.emplace_back([&] {
        if (!log->append(bytes_of("a line of 24 characters\n")).ok() || !log->sync().ok()) ++failed;
      });
    }
    wait_until_held();
    give_others_time();
    let_flushes_go();
  }
  EXPECT_EQ(failed, 0u);
  EXPECT_GE(flushes(), kSyncs);
  // The first one's, that of all who came meanwhile, and now and then of one that came late.
  EXPECT_LE(flushes(), 3 * kSyncs) << "for " << kThreads * kSyncs << " syncs";
}

TEST_F(FilesGroupCommitTest, AFileThatIsWrittenApartIsBegunWithoutWaiting) {
  hold_flushes();
  auto log = make("/log");
  log->content().set_lifetime(Lifetime::short_term);
  ASSERT_TRUE(log->append(bytes_of("begun")).ok());
  EXPECT_EQ(read(*log), "begun");
  wait_until_held();
  std::atomic<bool> synced{false};
  std::jthread syncs([&] { synced = log->sync().ok(); });
  give_others_time();
  EXPECT_FALSE(synced) << "its record is not durable yet";
  let_flushes_go();
  syncs.join();
  EXPECT_TRUE(synced);
}

TEST_F(FilesGroupCommitTest, AFileIsCutByFewWrites) {
  constexpr std::size_t kChunks = 100;
  write("/file", std::string(kChunks * 65'536, 'x'));
  auto file = files().open_file("/file");
  ASSERT_TRUE(file.ok());
  tap_->forget_events();
  ASSERT_TRUE((*file)->truncate(3 * 65'536 + 1).ok());
  EXPECT_EQ(read(**file).size(), 3 * 65'536 + 1u);
  EXPECT_LE(tap_->count(Io::Op::write), 20u);
}

TEST_F(FilesGroupCommitTest, OneAloneIsOneFlush) {
  auto log = make_durable("/log");
  tap_->forget_events();
  for (unsigned i = 0; i < kSyncs; ++i) {
    ASSERT_TRUE(log->append(bytes_of("a line of 24 characters\n")).ok());
    ASSERT_TRUE(log->sync().ok());
  }
  EXPECT_EQ(flushes(), kSyncs);
}

// Its chunks are so large that the device gets few at a time.
class LargeChunksTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr std::size_t kChunk = 256 << 10;

  void SetUp() override {
    EmbeddedPool::CreateOptions make;
    make.size_bytes = 512 << 20;
    make.volume.name = "files";
    make.volume.kind = VolumeKind::fs;
    make.volume.mode = VolumeMode::store;
    make.volume.value_bytes_max = kChunk;
    ASSERT_TRUE(EmbeddedPool::open(uri(), make).ok());
    tap_ = mount_on<TapDevice>(0);
    ASSERT_NE(tap_, nullptr);
  }
  // On the pool's thread, whose device it is.
  void on_tap(const std::function<void(TapDevice&)>& what) {
    mounted_pool().call([&](Pool&) { what(*tap_); });
  }
  void let_one_write_go() {
    for (bool one = false; !one; std::this_thread::yield()) {
      on_tap([&](TapDevice& tap) {
        one = tap.held(Io::Op::write) != 0;
        if (one) tap.let_one_go(Io::Op::write, 0);
      });
    }
  }
  // Whether it is, soon.
  static bool becomes(const std::atomic<bool>& what) {
    for (unsigned tries = 0; tries < 20 && !what; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return what;
  }

  TapDevice* tap_ = nullptr;
};

// A log that grows all the time: there is something on its way whenever one looks.
TEST_F(LargeChunksTest, ASyncEndsThoughOthersGoOnAppending) {
  const std::string text(8 * kChunk, 'x');
  auto log = make("/log");
  on_tap([](TapDevice& tap) { tap.hold(Io::Op::write); });
  ASSERT_TRUE(log->append(bytes_of(text)).ok());
  std::atomic<bool> synced{false};
  std::jthread syncs([&] { synced = log->sync().ok(); });
  for (unsigned round = 0; round < 6 && !becomes(synced); ++round) {
    std::atomic<bool> appended{false};
    const std::jthread appends([&] { appended = log->append(bytes_of(text)).ok(); });
    while (!becomes(appended)) let_one_write_go();
    let_one_write_go();
  }
  EXPECT_TRUE(synced);
  on_tap([](TapDevice& tap) { tap.let_go(Io::Op::write); });
}

}  // namespace
}  // namespace furrow::testing
