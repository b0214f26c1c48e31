// Establishes that RocksDB's LOG is written line by line, and that a device without room for it
// stops nobody: lines are lost, and counted where there is room again.
#include <gtest/gtest.h>

#include <cstdio>
#include <regex>
#include <thread>

#include "tests/engine/rocksdb/db_rig.h"

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
  std::vector<std::string> lines() {
    std::vector<std::string> all;
    const std::string text = read("/LOG");
    EXPECT_TRUE(text.ends_with('\n'));
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      all.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return all;
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

TEST_F(LoggerTest, LosesLinesOnAFullDevice) {
  auto other = make("/other");
  const std::string mib(1 << 20, 'x');
  Status filling;
  while (filling.ok()) filling = other->append(bytes_of(mib));
  ASSERT_EQ(filling.code(), Code::no_space);

  constexpr unsigned kLines = 20'000;  // some MiB: more than what waits for room
  const std::string text(500, 'y');
  for (unsigned i = 0; i < kLines; ++i) rocksdb::Log(logger_, "%06u %s", i, text.c_str());
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
  const std::string& gap = all[all.size() - 2];
  unsigned lost = 0;
  ASSERT_EQ(std::sscanf(gap.c_str() + gap.find('['), "[WARN] %u lines before were lost", &lost), 1)
      << gap;
  EXPECT_EQ(all.size() - 2 + lost, kLines + tries - 1);
  EXPECT_TRUE(all.back().ends_with(" again " + std::to_string(tries))) << all.back();
}

}  // namespace
}  // namespace furrow::testing
