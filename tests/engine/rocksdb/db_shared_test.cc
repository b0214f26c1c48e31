// Establishes what databases and their neighbours in one volume have of each other: synced writes
// of several databases that come at a time share the device's flushes; and collection moves what a
// database that is open has, tables, blob files, its MANIFEST and its WAL, under it. How: databases
// on a device whose flush is held meanwhile, and one beside files that come and go until no zone is
// what it was.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/engine/rocksdb/db_fixture.h"
#include "tests/log/tap_device.h"

namespace furrow::testing {
namespace {

class DbFlushesTest : public ::testing::Test, public DbRig {
 protected:
  static constexpr unsigned kWriters = 6, kSyncs = 10;  // of each

  void SetUp() override {
    tap_ = mount_on<TapDevice>(128 << 20);
    ASSERT_NE(tap_, nullptr);
    open_env_on_mount();
  }
  void TearDown() override { close_env(); }
  void wait_until_held() {
    for (std::size_t held = 0; held == 0; std::this_thread::yield()) {
      mounted_pool().call([&](Pool&) { held = tap_->held(Io::Op::flush); });
    }
  }
  // The same number of flushes, for each round, whoever puts.
  template <class Put>
  void expect_shared(const Put& put) {
    tap_->forget_events();
    std::atomic<unsigned> failed{0};
    for (unsigned i = 0; i < kSyncs; ++i) {
      std::vector<std::jthread> threads;
      mounted_pool().call([this](Pool&) { tap_->hold(Io::Op::flush); });
      for (unsigned writer = 0; writer < kWriters; ++writer) {
        threads.emplace_back([&, writer] {
          if (!put(writer, i).ok()) ++failed;
        });
      }
      wait_until_held();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for the others to come
      mounted_pool().call([this](Pool&) { tap_->let_go(Io::Op::flush); });
    }
    EXPECT_EQ(failed, 0u);
    EXPECT_GE(tap_->count(Io::Op::flush), kSyncs);
    EXPECT_LE(tap_->count(Io::Op::flush), 3 * kSyncs) << "for " << kWriters * kSyncs << " syncs";
  }
  static rocksdb::WriteOptions synced() {
    rocksdb::WriteOptions options;
    options.sync = true;
    return options;
  }

  TapDevice* tap_ = nullptr;
};

TEST_F(DbFlushesTest, SeveralDatabasesShareThem) {
  std::vector<std::unique_ptr<rocksdb::DB>> dbs;
  for (unsigned i = 0; i < kWriters; ++i) {
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(small_options(env()), "/db" + std::to_string(i), &db).ok());
    dbs.emplace_back(db);
    ASSERT_TRUE(db->Put(synced(), "first", "its WAL is there").ok());
  }
  expect_shared([&](unsigned writer, unsigned i) {
    return dbs[writer]->Put(synced(), db_key(i), db_value(i, writer));
  });
}

TEST_F(DbFlushesTest, ColumnFamiliesShareThem) {
  Families opened;
  rocksdb::Options options = small_options(env());
  options.create_missing_column_families = true;
  ASSERT_TRUE(open_families(kWriters, options, opened).ok());
  ASSERT_TRUE(opened.db->Put(synced(), "first", "its WAL is there").ok());
  expect_shared([&](unsigned writer, unsigned i) {
    return opened.db->Put(synced(), opened.handles[writer], db_key(i), db_value(i, writer));
  });
}

class DbCollectedTest : public DbTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(open_env(64 << 20)); }
  // All keys, a part of them in each zone.
  void fill_scattered(unsigned version) {
    constexpr unsigned kParts = 10;
    for (unsigned part = 0; part < kParts; ++part) {
      for (unsigned key = part; key < kKeys; key += kParts) {
        ASSERT_TRUE(db_->Put({}, db_key(key), db_value(key, version)).ok());
      }
      ASSERT_TRUE(db_->Flush({}).ok());
      write("/goes" + std::to_string(part), std::string(3'500'000, 'x'));
    }
    for (unsigned part = 0; part < kParts; ++part) {
      ASSERT_TRUE(files().remove("/goes" + std::to_string(part)).ok());
    }
  }
};

TEST_F(DbCollectedTest, WhatAnOpenDatabaseHasIsMovedUnderIt) {
  rocksdb::Options blobs = options();
  blobs.enable_blob_files = true;
  blobs.min_blob_size = 300;
  blobs.disable_auto_compactions = true;
  blobs.write_buffer_size = 16 << 20;
  ASSERT_NO_FATAL_FAILURE(open(blobs));
  for (const unsigned version : {1u, 2u}) {
    const std::uint64_t before = files().usage().written.relocated_bytes;
    ASSERT_NO_FATAL_FAILURE(fill_scattered(version));
    ASSERT_TRUE(db_->Put({}, db_key(0), db_value(0, version)).ok());  // in the WAL alone
    ASSERT_NO_FATAL_FAILURE(collect(zone_lives()));
    EXPECT_GT(files().usage().written.relocated_bytes - before, 1u << 20);
    // Also by the next one, which reads the MANIFEST and the WAL that were added to and moved.
    ASSERT_NO_FATAL_FAILURE(check(version));
    ASSERT_NO_FATAL_FAILURE(remount());
    blobs.env = env();
    ASSERT_NO_FATAL_FAILURE(open(blobs));
    ASSERT_NO_FATAL_FAILURE(check(version));
  }
  std::uint64_t blob_files = 0;
  ASSERT_TRUE(db_->GetIntProperty("rocksdb.num-blob-files", &blob_files));
  EXPECT_GT(blob_files, 0u);
}

TEST_F(DbCollectedTest, TablesThatGoInTheirOrderAreNotMoved) {
  rocksdb::Options fifo = options();
  fifo.compaction_style = rocksdb::kCompactionStyleFIFO;
  fifo.compaction_options_fifo.max_table_files_size = 8 << 20;
  fifo.write_buffer_size = 4 << 20;
  ASSERT_NO_FATAL_FAILURE(open(fifo));
  for (unsigned version = 0; version < 80; ++version) ASSERT_NO_FATAL_FAILURE(fill(version));
  const FilesWritten all = files().usage().written;
  EXPECT_GT(all.device_bytes, 256u << 20);
  EXPECT_LT(all.relocated_bytes, all.device_bytes / 100);
}

}  // namespace
}  // namespace furrow::testing
