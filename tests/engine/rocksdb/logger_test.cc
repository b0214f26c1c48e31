// Establishes that RocksDB's LOG is written line by line, with one at the end that says what the
// volume has written, by any number of threads, each line whole and those of a thread in their
// order; and that a device that is slow, or has no room for it, or to make it, stops nobody: lines
// wait, and where there are too many they are lost, and counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <regex>
#include <thread>

#include "tests/engine/rocksdb/db_rig.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

class LoggerTest : public ::testing::Test, public DbRig {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open_env(64 << 20));
    const rocksdb::Status status = env()->NewLogger("/LOG", &logger_);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  void TearDown() override {
    logger_.reset();
    close_env();
  }
  std::vector<std::string> lines(std::string_view path = "/LOG") {
    std::vector<std::string> all;
    const std::string text = read(path);
    EXPECT_TRUE(text.ends_with('\n'));
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      all.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    // The last one is not what was logged.
    EXPECT_NE(all.back().find(" [furrow] volume files: "), std::string::npos) << all.back();
    EXPECT_NE(all.back().find(" bytes written to files, "), std::string::npos) << all.back();
    all.pop_back();
    return all;
  }

  // Of lines that say so: how many, and of how many they do.
  static std::size_t gaps(const std::vector<std::string>& all) {
    return static_cast<std::size_t>(
        std::ranges::count_if(all, [](const std::string& line) { return lost(line) != 0; }));
  }
  static unsigned lost(const std::vector<std::string>& all) {
    return std::accumulate(all.begin(), all.end(), 0u,
                           [](unsigned sum, const std::string& line) { return sum + lost(line); });
  }
  static unsigned lost(const std::string& line) {
    unsigned lines = 0;
    const std::size_t at = std::min(line.find("[WARN]"), line.size());
    return std::sscanf(line.c_str() + at, "[WARN] %u lines before were lost", &lines) == 1 ? lines
                                                                                           : 0;
  }

  std::shared_ptr<rocksdb::Logger> logger_;
};

TEST_F(LoggerTest, WritesALineWithTimeAndThread) {
  const std::string text(5000, 'x');
  rocksdb::Log(logger_, "%s %d", "first", 1);
  rocksdb::Log(rocksdb::InfoLogLevel::WARN_LEVEL, logger_, "%s\n", text.c_str());
  rocksdb::Log(rocksdb::InfoLogLevel::DEBUG_LEVEL, logger_, "nobody asked for this");
  EXPECT_EQ(logger_->GetLogFileSize(), read("/LOG").size());
  ASSERT_TRUE(logger_->Close().ok());
  const std::vector<std::string> all = lines();
  ASSERT_EQ(all.size(), 2u);
  const std::regex start(R"(\d{4}/\d\d/\d\d-\d\d:\d\d:\d\d\.\d{6} \d+ )");
  for (const std::string& line : all)
    EXPECT_TRUE(std::regex_search(line.substr(0, 40), start)) << line;
  EXPECT_TRUE(all[0].ends_with(" first 1")) << all[0];
  EXPECT_TRUE(all[1].ends_with(" [WARN] " + text)) << all[1].substr(0, 80);
}

TEST_F(LoggerTest, SeveralThreadsLogAtATime) {
  constexpr unsigned kThreads = 3, kLines = 400;
  const std::string text(300, 'z');
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (unsigned i = 0; i < kLines; ++i) {
          rocksdb::Log(logger_, "%u %u %s", t, i, text.c_str());
          if (i % 50 == t) logger_->Flush();
          (void)logger_->GetLogFileSize();  // RocksDB asks as well
        }
      });
    }
  }
  ASSERT_TRUE(logger_->Close().ok());
  std::vector<unsigned> next(kThreads);
  for (const std::string& line : lines()) {
    unsigned t = 0, i = 0;
    // Behind date and thread.
    ASSERT_EQ(std::sscanf(line.c_str(), "%*s %*s %u %u", &t, &i), 2) << line;
    ASSERT_LT(t, kThreads);
    EXPECT_EQ(i, next[t]++);
    EXPECT_TRUE(line.ends_with(" " + text)) << line;
  }
  EXPECT_EQ(next, std::vector<unsigned>(kThreads, kLines));
}

TEST_F(LoggerTest, LosesLinesOnAFullDevice) {
  auto other = make("/other");
  const std::string mib(1 << 20, 'x');
  Status filling;
  while (filling.ok()) filling = other->append(bytes_of(mib));
  ASSERT_EQ(filling.code(), Code::no_space);

  constexpr unsigned kLines = 20'000;  // some MiB: more than what waits for room
  const std::string text(500, 'y');
  for (unsigned i = 0; i < kLines; ++i) rocksdb::Log(logger_, "%06u %s", i, text.c_str());
  for (unsigned i = 0; i < 3; ++i) logger_->Flush();  // which says nothing more of any of them
  const std::size_t before = logger_->GetLogFileSize();
  ASSERT_LT(before, kLines * text.size());

  other.reset();
  ASSERT_TRUE(files().remove("/other").ok());
  unsigned tries = 0;
  while (logger_->GetLogFileSize() == before && ++tries < 1000) {
    rocksdb::Log(logger_, "again %u", tries);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(logger_->Close().ok());

  const std::vector<std::string> all = lines();
  ASSERT_GE(all.size(), 3u);
  EXPECT_GT(lost(all), 0u);
  EXPECT_EQ(all.size() - gaps(all) + lost(all), kLines + tries);
  EXPECT_TRUE(all.back().ends_with(" again " + std::to_string(tries))) << all.back();
}

// RocksDB ends the process where a LOG that it rolls is refused.
TEST_F(LoggerTest, IsMadeOnAFullDeviceWhenThereIsRoom) {
  auto other = make("/other");
  const std::string mib(1 << 20, 'x');
  Status filling;
  while (filling.ok()) filling = other->append(bytes_of(mib));
  for (unsigned i = 0;
       files().create("/small" + std::to_string(i), FileVolume::Existing::keep).ok(); ++i) {
  }
  std::shared_ptr<rocksdb::Logger> next;
  ASSERT_TRUE(env()->NewLogger("/LOG.next", &next).ok());
  rocksdb::Log(next, "first");
  next->Flush();
  EXPECT_EQ(next->GetLogFileSize(), 0u);
  EXPECT_TRUE(env()->FileExists("/LOG.next").IsNotFound());
  other.reset();
  ASSERT_TRUE(files().remove("/other").ok());
  rocksdb::Log(next, "second");
  ASSERT_TRUE(next->Close().ok());
  const std::vector<std::string> all = lines("/LOG.next");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].ends_with(" first")) << all[0];
  EXPECT_TRUE(all[1].ends_with(" second")) << all[1];
  EXPECT_EQ(lost(all), 0u);
}

// Nothing that was written is answered, for longer than what there is memory for.
class SlowLoggerTest : public LoggerTest {
 protected:
  void SetUp() override {
    tap_ = mount_on<TapDevice>(64 << 20);
    ASSERT_NE(tap_, nullptr);
    open_env_on_mount();
    ASSERT_TRUE(env()->NewLogger("/LOG", &logger_).ok());
    // The first line has the file's record made durable.
    rocksdb::Log(logger_, "first");
    logger_->Flush();
    ASSERT_TRUE(files().sync_names().ok());
  }
  void hold_writes(bool hold) {
    mounted_pool().call(
        [&](Pool&) { hold ? tap_->hold(Io::Op::write) : tap_->let_go(Io::Op::write); });
  }

  TapDevice* tap_ = nullptr;
};

TEST_F(SlowLoggerTest, NobodyWaitsForTheDevice) {
  constexpr unsigned kLines = 8000;  // twice what waits
  const std::string text(500, 'y');
  hold_writes(true);
  std::atomic<bool> logged{false};
  std::jthread watch([&] {  // ends a test that would hang
    for (unsigned i = 0; i < 1000 && !logged; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    hold_writes(false);
  });
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < kLines; ++i) rocksdb::Log(logger_, "%06u %s", i, text.c_str());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  logged = true;
  watch.join();
  ASSERT_TRUE(logger_->Close().ok());

  const std::vector<std::string> all = lines();
  ASSERT_GT(all.size(), 2000u);
  for (unsigned i = 0; i + 2 < all.size(); ++i) {
    char number[16];
    std::snprintf(number, sizeof number, " %06u ", i);
    ASSERT_NE(all[i + 1].find(number), std::string::npos) << i << ": " << all[i + 1].substr(0, 60);
  }
  EXPECT_EQ(gaps(all), 1u);
  EXPECT_EQ(all.size() - 2 + lost(all), kLines);
}

}  // namespace
}  // namespace furrow::testing
