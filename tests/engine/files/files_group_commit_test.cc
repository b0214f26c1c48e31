// Establishes that syncs of many files that come at a time share the device's flushes, and that one
// alone is one flush. How: threads that append to a file each, of one database's or of several, and
// sync, on a device that takes some milliseconds for all it does; TapDevice counts the flushes.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/engine/files/files_rig.h"
#include "tests/log/tap_device.h"
#include "zone/event_loop.h"
#include "zone/fault_device.h"

namespace furrow::testing {
namespace {

constexpr unsigned kThreads = 8, kSyncs = 20;  // of each

class FilesGroupCommitTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount());  // makes it
    unmount();
    auto inner = open_device(uri(), Access::exclusive);
    ASSERT_TRUE(inner.ok()) << inner.status().describe();
    FaultOptions slow;
    slow.latency_us = 4000;
    slow.clock = &clock_;
    auto tap = std::make_unique<TapDevice>(std::make_unique<FaultDevice>(std::move(*inner), slow));
    tap_ = tap.get();
    auto pool = EmbeddedPool::open(std::move(tap), {});
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    ASSERT_NO_FATAL_FAILURE(FilesRig::mount(std::shared_ptr<EmbeddedPool>(std::move(*pool))));
  }
  void TearDown() override { unmount(); }
  // A file that is there, with its name, after a power cut.
  std::unique_ptr<OpenFile> make_durable(const std::string& path) {
    auto file = make(path);
    EXPECT_TRUE(file->append(bytes_of("begin")).ok() && file->sync().ok());
    return file;
  }
  std::size_t flushes() const { return tap_->count(Io::Op::flush); }

  EventLoop clock_;
  TapDevice* tap_ = nullptr;
};

TEST_F(FilesGroupCommitTest, SyncsThatComeTogetherShareFlushes) {
  std::vector<std::unique_ptr<OpenFile>> logs;
  for (unsigned i = 0; i < kThreads; ++i) logs.push_back(make_durable("/" + std::to_string(i)));
  tap_->forget_events();
  std::atomic<unsigned> failed{0};
  {
    std::vector<std::jthread> threads;
    for (auto& log : logs) {
      threads.emplace_back([&] {
        for (unsigned i = 0; i < kSyncs; ++i) {
          if (!log->append(bytes_of("a line of 24 characters\n")).ok() || !log->sync().ok()) {
            ++failed;
          }
        }
      });
    }
  }
  EXPECT_EQ(failed, 0u);
  std::printf("%zu flushes for %u syncs\n", flushes(), kThreads * kSyncs);
  EXPECT_GE(flushes(), kSyncs) << "a thread's syncs come one after another";
  EXPECT_LE(flushes(), kThreads * kSyncs * 3 / 4);
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

}  // namespace
}  // namespace furrow::testing
