// Establishes what RocksDB meets where it asks the FileSystem for more, or other things, than most
// databases do: mapped files, and a device that has no room for what its volume has. How: the
// databases of DbTest, also on a pool in a small file system that somebody else fills.
#include <gtest/gtest.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/engine/rocksdb/db_fixture.h"
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

}  // namespace
}  // namespace furrow::testing
