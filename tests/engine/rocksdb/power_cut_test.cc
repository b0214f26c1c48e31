// Establishes that a power cut takes nothing from a database that RocksDB acknowledged with a sync,
// and that the database opens, in whatever WAL recovery mode and with whatever options it was and
// is opened. How: rounds of random puts of one thread or several, each with keys of its own, some
// with a sync, on a device that loses its power at a random write (both crash models), and with it
// the staging memory. FURROW_TEST_SEED replays. (In one column family: with several, Debian's
// RocksDB 7.8.3 ends itself by an assertion about a log that it goes on to use after an error.)
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>
#include <vector>

#include "tests/engine/rocksdb/db_rig.h"
#include "tests/log/test_seed.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

constexpr auto kRounds = static_cast<unsigned>(rounds(12, 2));
constexpr unsigned kKeys = 500;

struct Versions {
  unsigned synced = 0;     // at least this one
  unsigned attempted = 0;  // at most
};

class DbPowerCutTest : public ::testing::Test, public DbRig {
 protected:
  rocksdb::Status open_db(Families& opened) {
    rocksdb::Options options = drawn_options(random_(), env());
    options.recycle_log_file_num = random_() % 3;
    return open_families(1, options, opened);
  }
  // Until the power is gone.
  void write(Families& opened) {
    const auto writers = static_cast<unsigned>(1 + random_() % 4);
    std::vector<std::jthread> threads;
    for (unsigned writer = 0; writer < writers; ++writer) {
      threads.emplace_back([&, writer, seed = random_()] {
        std::mt19937_64 random(seed);
        while (write_one(opened, writer, writers, random)) {
        }
      });
    }
  }
  // Of the keys every `writers`th. A sync covers what the same thread has put before.
  bool write_one(Families& opened, unsigned writer, unsigned writers, std::mt19937_64& random) {
    const unsigned key = static_cast<unsigned>(random() % (kKeys / writers)) * writers + writer;
    rocksdb::WriteOptions writing;
    writing.sync = random() % 12 == 0;
    const unsigned version = ++versions_[key].attempted;
    const rocksdb::Status status =
        opened.db->Put(writing, opened.of(key), db_key(key), db_value(key, version));
    if (!status.ok()) return false;
    for (unsigned its = writer; writing.sync && its < kKeys; its += writers) {
      versions_[its].synced = versions_[its].attempted;
    }
    return true;
  }
  void verify() {
    ASSERT_NO_FATAL_FAILURE(open_env());
    Families opened;
    const rocksdb::Status status = open_db(opened);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (unsigned key = 0; key < kKeys; ++key) {
      Versions& its = versions_[key];
      std::string value;
      const bool found = opened.db->Get({}, opened.of(key), db_key(key), &value).ok();
      const int version = found ? db_version(key, value) : 0;
      ASSERT_GE(version, static_cast<int>(its.synced)) << "key " << key;
      ASSERT_LE(version, static_cast<int>(its.attempted)) << "key " << key;
      its.synced = its.attempted = static_cast<unsigned>(version);
    }
    // What was read is what the next round counts on.
    ASSERT_TRUE(opened.db->FlushWAL(true).ok());
    rocksdb::WriteOptions synced;
    synced.sync = true;
    ASSERT_TRUE(opened.db->Put(synced, "round", "done").ok());
  }

  std::mt19937_64 random_{test_seed()};
  std::array<Versions, kKeys> versions_{};  // by key
};

TEST_F(DbPowerCutTest, TakesNothingThatWasSynced) {
  ASSERT_NO_FATAL_FAILURE(open_env(128 << 20));
  close_env();
  for (unsigned round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ASSERT_NO_FATAL_FAILURE(mount_until_cut(
        200 + random_() % 3000, round % 2 == 0 ? CrashModel::drive : CrashModel::emu, random_()));
    if (volume() != nullptr) {
      open_env_on_mount();
      if (Families opened; open_db(opened).ok()) {
        write(opened);
        volume()->abandon();
      }
      volume()->abandon();
      close_env();
    }
    forget_staged();
    ASSERT_NO_FATAL_FAILURE(verify());
    close_env();
  }
}

}  // namespace
}  // namespace furrow::testing
