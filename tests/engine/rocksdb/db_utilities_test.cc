// Establishes that what RocksDB's users build on it works on the FileSystem: transactions that were
// prepared before an end and are committed or rolled back after it, optimistic ones, and backups
// that lie in another file system than the database, in either direction. How: the databases of
// DbTest.
#include <gtest/gtest.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/optimistic_transaction_db.h>
#include <rocksdb/utilities/transaction_db.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/rocksdb/db_fixture.h"

namespace furrow::testing {
namespace {

class DbUtilitiesTest : public DbTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(DbTest::SetUp());
    std::string name = (std::filesystem::temp_directory_path() / "furrow-db.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    elsewhere_ = name;
  }
  void TearDown() override {
    DbTest::TearDown();
    std::filesystem::remove_all(elsewhere_);
  }
  std::unique_ptr<rocksdb::TransactionDB> open_transactions() {
    rocksdb::Options keep = options();
    keep.avoid_flush_during_shutdown = true;  // what was prepared is in the WAL alone
    rocksdb::TransactionDB* db = nullptr;
    const rocksdb::Status status =
        rocksdb::TransactionDB::Open(keep, rocksdb::TransactionDBOptions(), "/db", &db);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return std::unique_ptr<rocksdb::TransactionDB>(db);
  }
  // A database in `env` is backed up to `backups`, goes on, and is restored as `restored`.
  void back_up_and_restore(rocksdb::Env* env, const std::string& path, rocksdb::Env* backups,
                           const std::string& backup_path, const std::string& restored) {
    rocksdb::Options its = options();
    its.env = env;
    ASSERT_NO_FATAL_FAILURE(open(its, path));
    ASSERT_NO_FATAL_FAILURE(fill(1));
    rocksdb::BackupEngineOptions where(backup_path, backups);
    rocksdb::BackupEngine* made = nullptr;
    rocksdb::Status status = rocksdb::BackupEngine::Open(where, env, &made);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const std::unique_ptr<rocksdb::BackupEngine> engine(made);
    ASSERT_TRUE(engine->CreateNewBackup(db_.get(), true).ok());
    ASSERT_NO_FATAL_FAILURE(fill(2));
    status = engine->CreateNewBackup(db_.get(), true);  // shares what has not changed
    ASSERT_TRUE(status.ok()) << status.ToString();
    db_.reset();
    for (const rocksdb::BackupID backup : {1u, 2u}) {
      status = engine->VerifyBackup(backup, true);
      EXPECT_TRUE(status.ok()) << status.ToString();
      const std::string to = restored + std::to_string(backup);
      status = engine->RestoreDBFromBackup(backup, to, to);
      ASSERT_TRUE(status.ok()) << status.ToString();
      its.create_if_missing = false;
      ASSERT_NO_FATAL_FAILURE(open(its, to));
      ASSERT_NO_FATAL_FAILURE(check(backup));
      db_.reset();
    }
  }

  std::string elsewhere_;  // a directory of the machine's own
};

TEST_F(DbUtilitiesTest, TransactionsThatWerePreparedOutliveTheEnd) {
  std::unique_ptr<rocksdb::TransactionDB> db = open_transactions();
  for (const std::string name : {"kept", "dropped", "unprepared"}) {
    std::unique_ptr<rocksdb::Transaction> one(db->BeginTransaction(rocksdb::WriteOptions()));
    ASSERT_TRUE(one->SetName(name).ok());
    for (unsigned i = 0; i < 200; ++i) {
      ASSERT_TRUE(one->Put(name + db_key(i), db_value(i, 1)).ok());
    }
    ASSERT_TRUE(name == "unprepared" || one->Prepare().ok());
  }
  std::string value;
  ASSERT_TRUE(db->Get({}, "kept" + db_key(1), &value).IsNotFound()) << "not committed yet";
  db.reset();
  ASSERT_NO_FATAL_FAILURE(remount());

  db = open_transactions();
  std::vector<rocksdb::Transaction*> prepared;
  db->GetAllPreparedTransactions(&prepared);
  ASSERT_EQ(prepared.size(), 2u);
  for (rocksdb::Transaction* one : prepared) {
    ASSERT_TRUE((one->GetName() == "kept" ? one->Commit() : one->Rollback()).ok());
    delete one;
  }
  db.reset();
  ASSERT_NO_FATAL_FAILURE(remount());

  db = open_transactions();
  db->GetAllPreparedTransactions(&prepared);
  EXPECT_TRUE(prepared.empty());
  for (unsigned i = 0; i < 200; ++i) {
    ASSERT_TRUE(db->Get({}, "kept" + db_key(i), &value).ok());
    ASSERT_EQ(value, db_value(i, 1));
    ASSERT_TRUE(db->Get({}, "dropped" + db_key(i), &value).IsNotFound());
    ASSERT_TRUE(db->Get({}, "unprepared" + db_key(i), &value).IsNotFound());
  }
}

TEST_F(DbUtilitiesTest, OptimisticTransactionsCommitOrAreTold) {
  rocksdb::OptimisticTransactionDB* opened = nullptr;
  ASSERT_TRUE(rocksdb::OptimisticTransactionDB::Open(options(), "/db", &opened).ok());
  std::unique_ptr<rocksdb::OptimisticTransactionDB> db(opened);
  for (unsigned i = 0; i < 300; ++i) {
    std::unique_ptr<rocksdb::Transaction> one(db->BeginTransaction(rocksdb::WriteOptions()));
    std::string value;
    ASSERT_TRUE(one->GetForUpdate({}, db_key(i), &value).IsNotFound());
    ASSERT_TRUE(one->Put(db_key(i), db_value(i, 1)).ok());
    const bool in_between = i % 3 == 0;
    ASSERT_TRUE(!in_between || db->Put({}, db_key(i), db_value(i, 2)).ok());
    const rocksdb::Status status = one->Commit();
    ASSERT_EQ(status.IsBusy(), in_between) << status.ToString();
    ASSERT_TRUE(in_between || status.ok()) << status.ToString();
  }
  db.reset();
  ASSERT_NO_FATAL_FAILURE(remount());
  ASSERT_NO_FATAL_FAILURE(open(options()));
  for (unsigned i = 0; i < 300; ++i) {
    std::string value;
    ASSERT_TRUE(db_->Get({}, db_key(i), &value).ok());
    ASSERT_EQ(db_version(i, value), i % 3 == 0 ? 2 : 1);
  }
}

TEST_F(DbUtilitiesTest, BackupsInAnotherFileSystem) {
  back_up_and_restore(env(), "/db", rocksdb::Env::Default(), elsewhere_ + "/backup", "/restored");
}

TEST_F(DbUtilitiesTest, BackupsOfAnotherFileSystem) {
  back_up_and_restore(rocksdb::Env::Default(), elsewhere_ + "/db", env(), "/backup",
                      elsewhere_ + "/restored");
}

}  // namespace
}  // namespace furrow::testing
