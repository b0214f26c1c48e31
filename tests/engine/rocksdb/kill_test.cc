// Establishes that kill -9 takes nothing from a database that RocksDB acknowledged, synced or not,
// and that the next process opens it, in whatever WAL recovery mode and with whatever options
// either was opened. How: rounds of db_writer, of one thread or several, killed after a random
// time; its successor in this
// process finds every acknowledged version or a later one. FURROW_TEST_SEED replays the times as
// far as a machine does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "tests/engine/rocksdb/db_rig.h"
#include "tests/log/test_seed.h"

extern char** environ;

namespace furrow::testing {
namespace {

constexpr unsigned kRounds = 12;

std::string writer_path() {
  std::string path(4096, '\0');
  const ssize_t bytes = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return path.substr(0, path.rfind('/')) + "/db_writer";
}

class KillTest : public ::testing::Test, public DbRig {
 protected:
  // Runs a writer until it is killed; what it said goes to acknowledged_.
  void run_writer(std::uint64_t seed, std::chrono::milliseconds time) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::string program = writer_path(), where = "furrow://" + uri(), number = std::to_string(seed);
    char* arguments[] = {program.data(), where.data(), number.data(), nullptr};
    pid_t child = 0;
    ASSERT_EQ(posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::jthread killer;
    std::string text;
    char part[4096];
    for (ssize_t bytes; (bytes = ::read(ends[0], part, sizeof part)) > 0;) {
      if (text.empty()) {  // the time counts from the first acknowledgement on
        killer = std::jthread([&] {
          std::this_thread::sleep_for(time);
          ::kill(child, SIGKILL);
        });
      }
      text.append(part, static_cast<std::size_t>(bytes));
    }
    close(ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit status " << WEXITSTATUS(status);
    ASSERT_EQ(WTERMSIG(status), SIGKILL) << "it crashed";
    remember(text);
  }
  void remember(const std::string& text) {
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
      unsigned key = 0, version = 0;
      ASSERT_EQ(std::sscanf(text.c_str() + at, "%u %u", &key, &version), 2);
      acknowledged_[key] = version;
      ++lines_;
    }
  }
  void verify() {
    ASSERT_NO_FATAL_FAILURE(open_env());
    Families opened;
    const rocksdb::Status status = open_families(2, drawn_options(random_(), env()), opened);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (auto& [key, version] : acknowledged_) {
      std::string value;
      ASSERT_TRUE(opened.db->Get({}, opened.of(key), db_key(key), &value).ok()) << "key " << key;
      const int found = db_version(key, value);
      ASSERT_GE(found, static_cast<int>(version)) << "key " << key;
      version = static_cast<unsigned>(found);
    }
  }

  std::mt19937_64 random_{test_seed()};
  std::map<unsigned, unsigned> acknowledged_;
  std::uint64_t lines_ = 0;
};

TEST_F(KillTest, TakesNothingThatWasAcknowledged) {
  ASSERT_NO_FATAL_FAILURE(open_env());
  close_env();
  for (unsigned round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ASSERT_NO_FATAL_FAILURE(run_writer(random_(), std::chrono::milliseconds(20 + random_() % 400)));
    ASSERT_NO_FATAL_FAILURE(verify());
    close_env();
  }
  EXPECT_GT(lines_, 100u);
}

}  // namespace
}  // namespace furrow::testing
