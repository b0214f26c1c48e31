// DbTest: the fixture of tests with small databases of kKeys keys, on a volume that remount()
// mounts anew.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/engine/rocksdb/db_rig.h"

namespace furrow::testing {

inline constexpr unsigned kKeys = 6000;

class DbTest : public ::testing::Test, public DbRig {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(open_env()); }
  void TearDown() override {
    db_.reset();
    close_env();
  }
  rocksdb::Options options() { return small_options(env()); }

  void open(const rocksdb::Options& options, const std::string& path = "/db") {
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(options, path, &db);
    ASSERT_TRUE(status.ok()) << status.ToString();
    db_.reset(db);
  }
  void remount() {
    db_.reset();
    close_env();
    ASSERT_NO_FATAL_FAILURE(open_env());
  }
  void fill(unsigned version) {
    for (unsigned i = 0; i < kKeys; ++i) {
      const unsigned key = i * 7919 % kKeys;
      const rocksdb::Status status =
          db_->Put(rocksdb::WriteOptions(), db_key(key), db_value(key, version));
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }
  void check(unsigned version, rocksdb::DB* db = nullptr) {
    rocksdb::ReadOptions reading;
    reading.verify_checksums = true;
    std::unique_ptr<rocksdb::Iterator> each((db ? db : db_.get())->NewIterator(reading));
    unsigned key = 0;
    for (each->SeekToFirst(); each->Valid(); each->Next(), ++key) {
      ASSERT_EQ(each->key().ToString(), db_key(key));
      ASSERT_EQ(each->value().ToString(), db_value(key, version));
    }
    ASSERT_TRUE(each->status().ok()) << each->status().ToString();
    ASSERT_EQ(key, kKeys);
  }
  void work_on(const rocksdb::Options& its_options) {
    ASSERT_NO_FATAL_FAILURE(open(its_options));
    for (unsigned version = 0; version < 3; ++version) ASSERT_NO_FATAL_FAILURE(fill(version));
    ASSERT_NO_FATAL_FAILURE(check(2));
    ASSERT_NO_FATAL_FAILURE(remount());
    rocksdb::Options again = its_options;
    again.env = env();
    ASSERT_NO_FATAL_FAILURE(open(again));
    ASSERT_NO_FATAL_FAILURE(check(2));
    ASSERT_TRUE(db_->CompactRange({}, nullptr, nullptr).ok());
    ASSERT_NO_FATAL_FAILURE(check(2));
  }

  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace furrow::testing
