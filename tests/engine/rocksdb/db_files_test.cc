// Establishes what RocksDB meets where it asks the FileSystem for more, or other things, than most
// databases do: mapped files. How: the databases of DbTest.
#include <gtest/gtest.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>

#include <array>

#include "tests/engine/rocksdb/db_fixture.h"

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
  for (unsigned i = 0; i < kKeys; ++i) {
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

}  // namespace
}  // namespace furrow::testing
