// Establishes what RocksDB meets where it asks the FileSystem for more, or other things, than most
// databases do: mapped files, directories of their own for WALs and tables, tables that are deleted
// piece by piece, batches of keys, tables that a compaction reads without direct I/O, and a device
// that has no room for what its volume has. How: the databases of DbTest, also on a pool in a small
// file system that somebody else fills.
#include <gtest/gtest.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/sst_file_manager.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/checkpoint.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/engine/rocksdb/db_fixture.h"
#include "tests/log/tap_device.h"
#include "tests/zone/small_file_system.h"

namespace furrow::testing {
namespace {

using DbFilesTest = DbTest;

TEST_F(DbFilesTest, BlockBasedTablesDoWithoutMappedFiles) {
  rocksdb::Options mapped = options();
  mapped.allow_mmap_reads = mapped.allow_mmap_writes = true;
  work_on(mapped);
}

TEST_F(DbFilesTest, PlainTablesAreReadUnlessTheyAreToBeMapped) {
  rocksdb::Options plain = options();
  plain.table_factory.reset(rocksdb::NewPlainTableFactory());
  plain.prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(8));
  ASSERT_NO_FATAL_FAILURE(open(plain));
  ASSERT_NO_FATAL_FAILURE(fill(1));
  ASSERT_TRUE(db_->Flush({}).ok());
  // Some, as each is several reads of a few bytes.
  for (unsigned i = 0; i < kKeys; i += 23) {
    std::string value;
    ASSERT_TRUE(db_->Get({}, db_key(i), &value).ok()) << i;
    ASSERT_EQ(value, db_value(i, 1));
  }
  db_.reset();
  plain.allow_mmap_reads = true;
  rocksdb::DB* db = nullptr;
  rocksdb::Status status = rocksdb::DB::Open(plain, "/db", &db);
  db_.reset(db);
  std::string value;
  if (status.ok()) status = db_->Get({}, db_key(1), &value);
  EXPECT_TRUE(status.IsNotSupported()) << status.ToString();
  EXPECT_NE(status.ToString().find("without allow_mmap_reads"), std::string::npos);
}

// All ways to read.
TEST_F(DbFilesTest, AReadWithoutMemoryIsRefused) {
  write("/file", std::string(5000, 'x'));
  rocksdb::FileSystem& fs = *env()->GetFileSystem();
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  ASSERT_TRUE(fs.NewRandomAccessFile("/file", {}, &file, nullptr).ok());
  rocksdb::Slice got;
  EXPECT_TRUE(file->Read(0, 5000, {}, &got, nullptr, nullptr).IsNotSupported());
  EXPECT_TRUE(file->Read(0, 0, {}, &got, nullptr, nullptr).ok());
  std::string memory(5000, '\0');
  std::array<rocksdb::FSReadRequest, 2> requests;
  for (rocksdb::FSReadRequest& each : requests) each.offset = 0, each.len = memory.size();
  requests[0].scratch = nullptr;
  requests[1].scratch = memory.data();
  ASSERT_TRUE(file->MultiRead(requests.data(), requests.size(), {}, nullptr).ok());
  EXPECT_TRUE(requests[0].status.IsNotSupported());
  EXPECT_TRUE(requests[1].status.ok());
  EXPECT_EQ(requests[1].result, std::string(5000, 'x'));
  void* handle = nullptr;
  rocksdb::IOHandleDeleter deleter;
  rocksdb::IOStatus told;
  const auto tell = [](const rocksdb::FSReadRequest& done, void* to) {
    *static_cast<rocksdb::IOStatus*>(to) = done.status;
  };
  ASSERT_TRUE(file->ReadAsync(requests[0], {}, tell, &told, &handle, &deleter, nullptr).ok());
  EXPECT_EQ(handle, nullptr) << "it is answered";
  EXPECT_TRUE(told.IsNotSupported());
}

TEST_F(DbFilesTest, WalsAndTablesLieWhereTheyAreToldTo) {
  rocksdb::Options apart = options();
  apart.wal_dir = "/wal";
  apart.db_paths = {{"/first", 256 << 10}, {"/rest", 1 << 30}};
  const auto count = [this](const char* directory, std::string_view ending) {
    return std::ranges::count_if(
        names(directory), [ending](const std::string& name) { return name.ends_with(ending); });
  };
  ASSERT_NO_FATAL_FAILURE(work_on(apart));
  ASSERT_NO_FATAL_FAILURE(fill(3));
  ASSERT_NO_FATAL_FAILURE(check(3));
  EXPECT_GT(count("/wal", ".log"), 0);
  EXPECT_GT(count("/rest", ".sst"), 0);
  EXPECT_EQ(count("/db", ".log") + count("/db", ".sst"), 0);
  db_.reset();
  apart.env = env();
  ASSERT_TRUE(rocksdb::DestroyDB("/db", apart).ok());
  for (const char* const each : {"/wal", "/first", "/rest"}) {
    EXPECT_EQ(files().stat(each).status().code(), Code::not_found) << each;
  }
}

// Counts the files that are opened to be cut.
class Cuts final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "cuts"; }
  rocksdb::IOStatus ReopenWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* result,
                                       rocksdb::IODebugContext* debug) override {
    if (name.ends_with(".trash")) ++count_;
    return target()->ReopenWritableFile(name, options, result, debug);
  }
  unsigned count() const { return count_; }

 private:
  std::atomic<unsigned> count_{0};
};

// RocksDB cuts a table again and again, unless it has another name as well, a checkpoint's say.
TEST_F(DbFilesTest, TablesAreDeletedPieceByPieceButForThoseOfCheckpoints) {
  const auto cuts = std::make_shared<Cuts>(env()->GetFileSystem());
  const std::unique_ptr<rocksdb::Env> counted = rocksdb::NewCompositeEnv(cuts);
  rocksdb::Options piecewise = options();
  piecewise.env = counted.get();
  piecewise.sst_file_manager.reset(rocksdb::NewSstFileManager(counted.get(), nullptr, "", 64 << 20,
                                                              true, nullptr, 1000, 32 << 10));
  ASSERT_NO_FATAL_FAILURE(open(piecewise));
  ASSERT_NO_FATAL_FAILURE(fill(1));
  ASSERT_TRUE(db_->Flush({}).ok());
  rocksdb::Checkpoint* made = nullptr;
  ASSERT_TRUE(rocksdb::Checkpoint::Create(db_.get(), &made).ok());
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  ASSERT_TRUE(checkpoint->CreateCheckpoint("/checkpoint").ok());
  ASSERT_NO_FATAL_FAILURE(fill(2));
  ASSERT_TRUE(db_->CompactRange({}, nullptr, nullptr).ok());
  rocksdb::SstFileManager& trash = *piecewise.sst_file_manager;
  for (unsigned tries = 0; trash.GetTotalTrashSize() != 0 && tries < 3000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(trash.GetTotalTrashSize(), 0u);
  EXPECT_GT(cuts->count(), 10u);
  EXPECT_FALSE(std::ranges::any_of(
      names("/db"), [](const std::string& name) { return name.ends_with(".trash"); }));
  ASSERT_NO_FATAL_FAILURE(check(2));
  db_.reset();
  piecewise.sst_file_manager.reset();
  ASSERT_NO_FATAL_FAILURE(open(options(), "/checkpoint"));
  ASSERT_NO_FATAL_FAILURE(check(1));
}

TEST_F(DbFilesTest, BatchesOfKeysAreReadTogether) {
  constexpr std::size_t kBatch = 100;
  for (const bool direct : {false, true}) {
    rocksdb::Options with = options();
    with.use_direct_reads = direct;
    db_.reset();
    ASSERT_NO_FATAL_FAILURE(open(with));
    ASSERT_NO_FATAL_FAILURE(fill(direct ? 2 : 1));
    ASSERT_TRUE(db_->Flush({}).ok());
    for (unsigned first = 0; first < kKeys; first += kBatch) {
      std::vector<std::string> asked;
      for (unsigned i = 0; i < kBatch; ++i) asked.push_back(db_key((first + i) * 13 % (kKeys + 9)));
      const std::vector<rocksdb::Slice> keys(asked.begin(), asked.end());
      std::vector<rocksdb::PinnableSlice> values(kBatch);
      std::vector<rocksdb::Status> statuses(kBatch);
      db_->MultiGet({}, db_->DefaultColumnFamily(), kBatch, keys.data(), values.data(),
                    statuses.data());
      for (unsigned i = 0; i < kBatch; ++i) {
        const unsigned key = (first + i) * 13 % (kKeys + 9);
        ASSERT_EQ(statuses[i].IsNotFound(), key >= kKeys) << statuses[i].ToString();
        if (key >= kKeys) continue;
        ASSERT_TRUE(statuses[i].ok()) << statuses[i].ToString();
        ASSERT_EQ(values[i].ToString(), db_value(key, direct ? 2 : 1));
      }
    }
  }
}

// Counts the reads of tables.
class TableReads final : public rocksdb::EventListener {
 public:
  bool ShouldBeNotifiedOnFileIO() override { return true; }
  void OnFileReadFinish(const rocksdb::FileOperationInfo& info) override {
    if (info.path.ends_with(".sst")) ++count_;
  }
  unsigned count() const { return count_; }

 private:
  std::atomic<unsigned> count_{0};
};

TEST_F(DbFilesTest, CompactionsReadAhead) {
  constexpr std::uint64_t kBlock = 4 << 10;
  rocksdb::Options with = options();
  with.disable_auto_compactions = true;
  const auto reads = std::make_shared<TableReads>();
  with.listeners.push_back(reads);
  ASSERT_NO_FATAL_FAILURE(open(with));
  ASSERT_NO_FATAL_FAILURE(fill(1));
  ASSERT_TRUE(db_->Flush({}).ok());
  std::uint64_t bytes = 0;
  ASSERT_TRUE(db_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &bytes));
  ASSERT_GT(bytes, 256 * kBlock);
  const unsigned before = reads->count();
  ASSERT_TRUE(db_->CompactRange({}, nullptr, nullptr).ok());
  EXPECT_LT(reads->count() - before, bytes / kBlock / 4) << "of " << bytes << " bytes";
  ASSERT_NO_FATAL_FAILURE(check(1));
}

// The pool is twice as large as the file system that it is in.
struct SmallPlace {
  test::SmallFileSystem place{"tmpfs", "size=64m"};
};
class FullHostTest : public SmallPlace, public ::testing::Test, public DbRig {
 protected:
  FullHostTest() : DbRig(place.file("")) {}
  void SetUp() override {
    if (!place.mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
    ASSERT_NO_FATAL_FAILURE(open_env(128 << 20));
  }
  void TearDown() override {
    db_.reset();
    close_env();
  }
  std::uint64_t free_bytes() {
    std::uint64_t bytes = 0;
    EXPECT_TRUE(env()->GetFreeSpace("/", &bytes).ok());
    return bytes;
  }
  std::uint64_t host_free_bytes() { return std::filesystem::space(place.file("")).available; }
  // Until there is no room; how many.
  unsigned put_all() {
    rocksdb::Status status;
    unsigned keys = 0;
    for (; keys < 400'000; ++keys) {
      status = db_->Put(rocksdb::WriteOptions(), db_key(keys), db_value(keys, 1));
      if (!status.ok()) break;
    }
    EXPECT_NE(status.ToString().find("is full"), std::string::npos) << keys << status.ToString();
    return keys;
  }

  std::unique_ptr<rocksdb::DB> db_;
};

TEST_F(FullHostTest, FreeSpaceIsWhatTheHostHasRoomFor) {
  constexpr std::uint64_t kNotForPages = 12 << 20;  // metadata, collection's zone, headers
  EXPECT_LT(free_bytes(), host_free_bytes());
  EXPECT_GT(free_bytes() + kNotForPages, host_free_bytes());
  write("/ours", std::string(40 << 20, 'x'));
  EXPECT_LT(free_bytes(), host_free_bytes());
  EXPECT_GT(free_bytes() + kNotForPages, host_free_bytes());
  const std::uint64_t before = free_bytes();
  place.fill_up("others");
  EXPECT_EQ(free_bytes(), 0u);
  // What the pool's file has is free for the pool. (The removal may have taken of what is kept for
  // such: that is made good first, when zones are given back to the host.)
  ASSERT_TRUE(files().remove("/ours").ok());
  for (unsigned tries = 0; free_bytes() == 0 && tries < 600; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_GT(free_bytes() + kNotForPages, 40u << 20);
  EXPECT_LT(free_bytes(), 40u << 20);
  std::filesystem::remove(place.file("others"));
  EXPECT_GT(free_bytes(), before);
}

TEST_F(FullHostTest, RocksDbGoesOnWhenTheHostHasRoom) {
  rocksdb::DB* db = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(small_options(env()), "/db", &db).ok());
  db_.reset(db);
  place.fill_up("others");
  std::filesystem::resize_file(place.file("others"), 20 << 20);
  const unsigned keys = put_all();
  EXPECT_LT(free_bytes(), 4u << 20);
  std::filesystem::remove(place.file("others"));
  rocksdb::Status status;
  for (unsigned tries = 0; tries < 600; ++tries) {
    status = db_->Put({}, "after", "it goes on");
    if (status.ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (unsigned i = 0; i < keys; ++i) {
    std::string value;
    ASSERT_TRUE(db_->Get({}, db_key(i), &value).ok()) << i;
    ASSERT_EQ(value, db_value(i, 1));
  }
}

class FullTapTest : public DbTest {
 protected:
  void SetUp() override {
    tap_ = mount_on<TapDevice>(64 << 20);
    ASSERT_NE(tap_, nullptr);
    open_env_on_mount();
  }
  TapDevice* tap_ = nullptr;
};

// A memtable is full, and its successor is to have an old WAL's file.
TEST_F(FullTapTest, AWalIsUsedAgainWhenThereIsRoom) {
  rocksdb::Options with = options();
  with.recycle_log_file_num = 2;
  with.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;  // else none is
  ASSERT_NO_FATAL_FAILURE(open(with));
  for (unsigned i = 0; i < 300; ++i) {
    ASSERT_TRUE(db_->Put({}, db_key(i), db_value(i, 1)).ok());
    if (i % 100 != 50) continue;
    ASSERT_TRUE(db_->Flush({}).ok());
  }
  tap_->set_short_of_room(true);
  EXPECT_FALSE(db_->Flush({}).ok());
  tap_->set_short_of_room(false);
  rocksdb::Status status;
  for (unsigned tries = 0; tries < 600; ++tries) {
    status = db_->Put({}, "after", "it goes on");
    if (status.ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(status.ok()) << status.ToString();
  for (unsigned i = 0; i < 300; ++i) {
    std::string value;
    ASSERT_TRUE(db_->Get({}, db_key(i), &value).ok()) << i;
    ASSERT_EQ(value, db_value(i, 1));
  }
}

}  // namespace
}  // namespace furrow::testing
