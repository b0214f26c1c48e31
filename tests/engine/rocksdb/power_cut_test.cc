// Establishes that a power cut takes nothing from databases that RocksDB acknowledged with a sync,
// that what was written as a batch to two column families is in both or in neither, and that the
// databases open, in whatever WAL recovery mode and with whatever options each was and is opened.
// How: rounds of random puts of one thread or several, each with keys of its own, some with a sync,
// to two databases, on a device that loses its power at a random write (both crash models), and
// with it the staging memory. FURROW_TEST_SEED replays. (The database of two column families never
// flushes: Debian's RocksDB 7.8.3 ends itself by an assertion about a log that a flush there goes
// on to use after an error.)
#include <gtest/gtest.h>
#include <rocksdb/write_batch.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/engine/rocksdb/db_rig.h"
#include "tests/log/test_seed.h"
#include "tests/rounds.h"

namespace furrow::testing::db_power_cut_test {
namespace {

constexpr auto kRounds = static_cast<unsigned>(rounds(9, 2));

struct Versions {
  unsigned synced = 0;     // at least this one
  unsigned attempted = 0;  // at most
};
using AllVersions = std::vector<Versions>;  // by key

struct Databases {
  Families single, pair;
};

class DbPowerCutTest : public ::testing::Test, public DbRig {
 protected:
  rocksdb::Status open_both(Databases& opened) {
    rocksdb::Options options = drawn_options(random_(), env());
    options.recycle_log_file_num = random_() % 3;
    const rocksdb::Status status = open_families(1, options, opened.single, "/single");
    if (!status.ok()) return status;
    options = drawn_options(random_(), env());
    options.write_buffer_size = 64 << 20;
    return open_families(2, options, opened.pair, "/pair");
  }
  // Until the power is gone.
  void write(Databases& opened) {
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
  bool write_one(Databases& opened, unsigned writer, unsigned writers, std::mt19937_64& random) {
    if (random() % 4 != 0) {
      const auto put = [&](const rocksdb::WriteOptions& writing, unsigned key, unsigned version) {
        return opened.single.db->Put(writing, db_key(key), db_value(key, version));
      };
      return write_one(singles_, writer, writers, random, put);
    }
    const auto put = [&](const rocksdb::WriteOptions& writing, unsigned key, unsigned version) {
      rocksdb::WriteBatch both;
      for (auto* const family : opened.pair.handles) {
        EXPECT_TRUE(both.Put(family, db_key(key), db_value(key, version)).ok());
      }
      return opened.pair.db->Write(writing, &both);
    };
    return write_one(pairs_, writer, writers, random, put);
  }
  // Of the keys every `writers`th. A sync covers what the same thread has put before.
  template <class Put>
  bool write_one(AllVersions& all, unsigned writer, unsigned writers, std::mt19937_64& random,
                 const Put& put) {
    const auto key = static_cast<unsigned>(random() % (all.size() / writers)) * writers + writer;
    rocksdb::WriteOptions writing;
    writing.sync = random() % 12 == 0;
    if (!put(writing, key, ++all[key].attempted).ok()) return false;
    if (!writing.sync) return true;
    ++syncs_;
    for (std::size_t its = writer; its < all.size(); its += writers) {
      all[its].synced = all[its].attempted;
    }
    return true;
  }
  void verify() {
    ASSERT_NO_FATAL_FAILURE(open_env());
    Databases opened;
    const rocksdb::Status status = open_both(opened);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_NO_FATAL_FAILURE(verify(opened.single, singles_));
    ASSERT_NO_FATAL_FAILURE(verify(opened.pair, pairs_));
  }
  static void verify(const Families& opened, AllVersions& all) {
    for (unsigned key = 0; key < all.size(); ++key) {
      Versions& its = all[key];
      const int version = version_in(opened, opened.handles.front(), key);
      for (auto* const family : opened.handles) {
        ASSERT_EQ(version_in(opened, family, key), version) << "a part of a batch, key " << key;
      }
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
  static int version_in(const Families& opened, rocksdb::ColumnFamilyHandle* family, unsigned key) {
    std::string value;
    return opened.db->Get({}, family, db_key(key), &value).ok() ? db_version(key, value) : 0;
  }

  std::mt19937_64 random_{test_seed()};
  AllVersions singles_ = AllVersions(400), pairs_ = AllVersions(100);
  std::atomic<unsigned> syncs_{0};  // that were acknowledged
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
      if (Databases opened; open_both(opened).ok()) {
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
  EXPECT_GT(syncs_, 20 * kRounds);
}

}  // namespace
}  // namespace furrow::testing::db_power_cut_test
