// Establishes that a process killed with -9 at any moment loses nothing that it was told is stored.
//
// A child process stores pages in an emulated pool on a file and writes the number of each
// acknowledged page to a pipe; the parent kills it after a random time, opens the pool and reads
// every acknowledged page back. Several rounds on the same pool.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "engine/embedded_pool.h"
#include "tests/engine/rig.h"

namespace furrow::testing {
namespace {

struct Acknowledged {
  std::uint64_t key;
  std::uint64_t version;
};

// The version stands in front, so that the reader can tell which one it got.
std::vector<std::byte> page_of(std::uint64_t key, std::uint64_t version, std::size_t bytes) {
  auto page = content(key, version, bytes);
  std::memcpy(page.data(), &version, sizeof version);
  return page;
}

std::size_t bytes_of(std::uint64_t version) { return 100 + version * 7919 % 30000; }

[[noreturn]] void write_until_killed(const std::string& uri, int pipe, std::uint64_t first) {
  auto pool = EmbeddedPool::open(uri);
  if (!pool.ok()) _exit(3);
  auto store = (*pool)->store("pages");
  if (!store.ok()) _exit(4);
  std::mt19937_64 random(first);
  for (std::uint64_t version = first;; version += 16) {
    std::vector<PageOp> ops(16);
    std::vector<std::vector<std::byte>> pages;
    std::map<std::uint64_t, bool> used;
    std::vector<Acknowledged> stored;
    for (std::uint64_t i = 0; i < 16; ++i) {
      std::uint64_t key = random() % 500;
      while (used[key]) key = random() % 500;
      used[key] = true;
      pages.push_back(page_of(key, version + i, bytes_of(version + i)));
      ops[i].kind = PageOp::Kind::put;
      ops[i].key = key_of(key);
      ops[i].data = pages.back().data();
      ops[i].length = ops[i].capacity = static_cast<std::uint32_t>(pages.back().size());
      stored.push_back({key, version + i});
    }
    store->run(ops);
    for (const PageOp& op : ops) {
      if (!op.status.ok()) _exit(5);
    }
    const ssize_t bytes = static_cast<ssize_t>(stored.size() * sizeof(Acknowledged));
    if (write(pipe, stored.data(), static_cast<std::size_t>(bytes)) != bytes) _exit(6);
  }
}

TEST(KillTest, EverythingAcknowledgedIsThere) {
  const char* env = std::getenv("FURROW_KILL_ROUNDS");
  const int rounds = env != nullptr ? std::atoi(env) : 6;
  const auto directory =
      std::filesystem::temp_directory_path() / ("furrow-kill-" + std::to_string(getpid()));
  std::filesystem::create_directory(directory);
  const std::string uri = "emu:" + (directory / "pool.img").string();
  {
    EmbeddedPool::CreateOptions make;
    make.size_bytes = 256 << 20;
    make.volume.name = "pages";
    make.volume.mode = VolumeMode::store;
    make.volume.value_bytes_max = 64 << 10;
    auto made = EmbeddedPool::open(uri, make);
    ASSERT_TRUE(made.ok()) << made.status().describe();
  }
  std::mt19937_64 random(20261121);
  std::map<std::uint64_t, std::uint64_t> newest;  // of each key: what was acknowledged last
  std::uint64_t acknowledged = 0;
  for (int round = 0; round < rounds; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const std::uint64_t first = 1 + static_cast<std::uint64_t>(round) * 1'000'000;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      write_until_killed(uri, pipe_ends[1], first);
    }
    close(pipe_ends[1]);
    // From the first acknowledgement on, for a random while.
    Acknowledged one{};
    std::vector<Acknowledged> heard;
    ASSERT_EQ(read(pipe_ends[0], &one, sizeof one), static_cast<ssize_t>(sizeof one));
    heard.push_back(one);
    usleep(static_cast<useconds_t>(random() % 200'000));
    kill(child, SIGKILL);
    while (read(pipe_ends[0], &one, sizeof one) == static_cast<ssize_t>(sizeof one)) {
      heard.push_back(one);
    }
    close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << WEXITSTATUS(status);
    for (const Acknowledged& each : heard) newest[each.key] = each.version;
    acknowledged += heard.size();

    auto pool = EmbeddedPool::open(uri);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    auto store = (*pool)->store("pages");
    ASSERT_TRUE(store.ok());
    for (auto& [key, version] : newest) {
      const auto page = store->get(key_of(key));
      ASSERT_TRUE(page.ok()) << "round " << round << " key " << key << ": "
                             << page.status().describe();
      // What was in flight at a kill may have come after it, and is then what must stay.
      std::uint64_t found = 0;
      std::memcpy(&found, page->data(), sizeof found);
      ASSERT_GE(found, version) << "round " << round << " key " << key << " is an older version";
      ASSERT_EQ(*page, page_of(key, found, bytes_of(found))) << "round " << round;
      version = found;
    }
    const auto wrong = (*pool)->pool().check(true);
    ASSERT_TRUE(wrong.ok());
    EXPECT_TRUE(wrong->empty()) << wrong->front();
  }
  std::printf("%lu pages acknowledged in %d rounds\n", acknowledged, rounds);
  EXPECT_GT(acknowledged, 100u);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace furrow::testing
