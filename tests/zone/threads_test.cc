// Establishes that a thread that cannot be had is an error, and that what is shared among threads
// is done by those that can. How: stacks that nobody has the memory for.
#include "zone/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>

#include "tests/zone/device_test_util.h"
#include "tests/zone/no_threads.h"

namespace furrow {
namespace {

TEST(Threads, OneRunsWhatItIsGiven) {
  std::thread thread;
  std::thread::id id;
  ASSERT_TRUE(start_thread(thread, [&id] { id = std::this_thread::get_id(); }).ok());
  const std::thread::id started = thread.get_id();
  thread.join();
  EXPECT_EQ(id, started);
  EXPECT_NE(id, std::this_thread::get_id());
}

TEST(Threads, OneThatCannotBeHadIsAnError) {
  const test::NoThreads none;
  std::thread thread;
  const Status status = start_thread(thread, [] { ADD_FAILURE(); });
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_EQ(status.sys_errno(), EAGAIN);
  EXPECT_FALSE(thread.joinable());
}

TEST(Threads, WorkIsDoneByAsManyAsWereAskedFor) {
  std::mutex mutex;
  std::set<unsigned> numbers;
  std::set<std::thread::id> threads;
  run_on_threads(4, [&](unsigned i) {
    const std::lock_guard lock(mutex);
    numbers.insert(i);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(numbers, (std::set<unsigned>{0, 1, 2, 3}));
  EXPECT_EQ(threads.size(), 4u);
}

TEST(Threads, WorkIsDoneByOneWhereThereAreNoOthers) {
  const test::NoThreads none;
  std::atomic<unsigned> todo{100}, done{0};
  run_on_threads(4, [&](unsigned i) {
    EXPECT_EQ(i, 0u);
    for (; todo != 0; --todo) ++done;
  });
  EXPECT_EQ(done, 100u);
}

TEST(Threads, ADeviceThatNeedsOneSaysSo) {
  const test::TempDir dir;
  const std::string uri = "emu:" + dir.file("device");
  DeviceShape shape;
  shape.size_bytes = 64 * test::kMiB;
  ASSERT_TRUE(create_device(uri, shape).ok());
  const test::NoThreads none;
  const auto refused = open_device(uri, Access::exclusive);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().sys_errno(), EAGAIN) << refused.status().describe();
  EXPECT_TRUE(open_device(uri + "?reclaim=never", Access::exclusive).ok());  // it needs none
}

}  // namespace
}  // namespace furrow
