// Establishes what RocksDB counts on of its files beside their bytes: the reads of a batch are with
// the device together; an asynchronous one is begun without waiting for the device, beside others,
// and given up only when its memory is nobody's any more; who reads in order asks the device
// seldom, and finds what is added behind the end, or was changed; what goes wrong is told in
// RocksDB's terms; names are durable when a directory was synced, and files' ids differ; and where
// bytes are to be written as strictly as they come, a range that was asked for is durable. How: on
// devices whose reads are held, that list what they are asked for, or that flush not.
#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "engine/rocksdb/file_system.h"
#include "engine/rocksdb/io_status.h"
#include "tests/engine/files/files_rig.h"
#include "tests/engine/files/gated_device.h"
#include "tests/log/tap_device.h"

namespace furrow::testing::files_test {
namespace {

using rocksdb::FSReadRequest;
using rocksdb::IOStatus;

class GatedReadsTest : public ::testing::Test, public FilesRig {
 protected:
  static constexpr std::size_t kReads = 8, kApart = 100'000, kBytes = 5000;

  struct Asked {
    FSReadRequest request;
    std::string memory = std::string(kBytes, '\0');
    unsigned answers = 0;
    void* handle = nullptr;
    rocksdb::IOHandleDeleter deleter;
  };

  void SetUp() override {
    gate_ = mount_on<GatedDevice>(64 << 20);
    ASSERT_NE(gate_, nullptr);
    for (std::size_t i = 0; i < all_.size(); ++i) all_[i] = static_cast<char>(i * 31 + i / 4099);
    write("/f", all_);
    files_ = make_file_system(volume(), "furrow://test");
    ASSERT_TRUE(files_->NewRandomAccessFile("/f", {}, &file_, nullptr).ok());
    for (std::size_t i = 0; i < kReads; ++i) {
      asked_[i].request.offset = i * kApart;
      asked_[i].request.len = kBytes;
      asked_[i].request.scratch = asked_[i].memory.data();
    }
  }
  void TearDown() override {
    if (gate_ != nullptr) gate_->open();
    file_.reset();
    files_.reset();
    unmount();
  }
  IOStatus begin(Asked& asked) {
    const auto answer = [](const FSReadRequest& done, void* to) {
      auto& its = *static_cast<Asked*>(to);
      ++its.answers;
      its.request.status = done.status;
      its.request.result = done.result;
    };
    return file_->ReadAsync(asked.request, {}, answer, &asked, &asked.handle, &asked.deleter,
                            nullptr);
  }
  // All of them, whatever the device does.
  std::vector<void*> begin_all() {
    auto begun = std::async(std::launch::async, [this] {
      for (Asked& each : asked_) EXPECT_TRUE(begin(each).ok());
    });
    const bool waits = begun.wait_for(std::chrono::seconds(30)) != std::future_status::ready;
    EXPECT_FALSE(waits) << "for the device";
    if (waits) gate_->open();
    begun.wait();
    std::vector<void*> handles;
    for (const Asked& each : asked_) {
      EXPECT_NE(each.handle, nullptr);
      EXPECT_EQ(each.answers, 0u);
      handles.push_back(each.handle);
    }
    return handles;
  }
  static bool is_held(const std::future<void>& waiting) {
    return waiting.wait_for(std::chrono::milliseconds(30)) == std::future_status::timeout;
  }
  void expect_read(const FSReadRequest& request) {
    EXPECT_TRUE(request.status.ok()) << request.status.ToString();
    EXPECT_EQ(request.result, rocksdb::Slice(all_.data() + request.offset, kBytes));
  }

  GatedDevice* gate_ = nullptr;
  std::string all_ = std::string(kReads * kApart, '\0');
  std::unique_ptr<rocksdb::FileSystem> files_;
  std::unique_ptr<rocksdb::FSRandomAccessFile> file_;
  Asked asked_[kReads];
};

TEST_F(GatedReadsTest, ThoseOfABatchAreInFlightTogether) {
  std::vector<FSReadRequest> batch;
  for (const Asked& each : asked_) batch.push_back(each.request);
  gate_->close(false);
  auto reading = std::async(std::launch::async, [&] {
    EXPECT_TRUE(file_->MultiRead(batch.data(), batch.size(), {}, nullptr).ok());
  });
  EXPECT_TRUE(gate_->wait_until_asked(kReads));
  EXPECT_TRUE(is_held(reading));
  gate_->open();
  reading.wait();
  for (const FSReadRequest& each : batch) expect_read(each);
}

TEST_F(GatedReadsTest, AsynchronousOnesAreBegunWithoutWaiting) {
  gate_->close(false);
  std::vector<void*> handles = begin_all();
  ASSERT_FALSE(HasFailure());
  EXPECT_TRUE(gate_->wait_until_asked(kReads));
  auto polling = std::async(std::launch::async,
                            [&] { EXPECT_TRUE(files_->Poll(handles, handles.size()).ok()); });
  EXPECT_TRUE(is_held(polling));
  gate_->open();
  polling.wait();
  EXPECT_TRUE(files_->AbortIO(handles).ok()) << "which are answered, and are not once more";
  for (Asked& each : asked_) {
    EXPECT_EQ(each.answers, 1u);
    expect_read(each.request);
    each.deleter(each.handle);
  }
}

TEST_F(GatedReadsTest, ThoseThatAreGivenUpAreWaitedFor) {
  gate_->close(false);
  std::vector<void*> handles = begin_all();
  ASSERT_FALSE(HasFailure());
  auto giving_up =
      std::async(std::launch::async, [&] { EXPECT_TRUE(files_->AbortIO(handles).ok()); });
  EXPECT_TRUE(is_held(giving_up)) << "the device may still write to their memory";
  gate_->open();
  giving_up.wait();
  for (Asked& each : asked_) {
    EXPECT_EQ(each.answers, 1u);
    EXPECT_TRUE(each.request.status.IsAborted()) << each.request.status.ToString();
    each.deleter(each.handle);
  }
}

// Their memory is its owner's again as soon as they are gone.
TEST_F(GatedReadsTest, ThoseThatNobodyAsksForAreWaitedFor) {
  gate_->close(false);
  (void)begin_all();
  ASSERT_FALSE(HasFailure());
  auto ending = std::async(std::launch::async, [&] {
    for (Asked& each : asked_) each.deleter(each.handle);
  });
  EXPECT_TRUE(is_held(ending));
  gate_->open();
  ending.wait();
  for (const Asked& each : asked_) EXPECT_EQ(each.answers, 0u);
}

class ReadAheadTest : public ::testing::Test, public FilesRig {
 protected:
  std::string read(std::size_t n) {
    std::string memory(n, '\0');
    rocksdb::Slice got;
    const IOStatus status = reader_->Read(n, {}, &got, memory.data(), nullptr);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return got.ToString();
  }
  std::unique_ptr<rocksdb::FSSequentialFile> reader_;
};

TEST_F(ReadAheadTest, SmallReadsInOrderAskTheDeviceSeldom) {
  TapDevice* const tap = mount_on<TapDevice>(64 << 20);
  ASSERT_NE(tap, nullptr);
  std::string all(4'000'000, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 31 + i / 4099);
  write("/f", all);
  const auto fs = make_file_system(volume(), "furrow://test");
  ASSERT_TRUE(fs->NewSequentialFile("/f", {}, &reader_, nullptr).ok());
  const std::size_t before = tap->count(Io::Op::read);
  std::string found;
  for (std::string piece; !(piece = read(4096)).empty();) {
    found += piece;
    if (found.size() == 1 << 20) {  // what is skipped is not read
      EXPECT_TRUE(reader_->Skip(1 << 20).ok());
      found.append(all, 1 << 20, 1 << 20);
    }
  }
  EXPECT_TRUE(found == all);
  EXPECT_LE(tap->count(Io::Op::read) - before, 64u);  // chunks have 64 KiB here
  reader_.reset();
}

// As a database does that follows another one's log.
TEST_F(ReadAheadTest, WhatIsAppendedBehindTheEndIsReadThen) {
  ASSERT_NO_FATAL_FAILURE(mount(64 << 20));
  const auto fs = make_file_system(volume(), "furrow://test");
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_TRUE(fs->NewWritableFile("/log", {}, &file, nullptr).ok());
  ASSERT_TRUE(fs->NewSequentialFile("/log", {}, &reader_, nullptr).ok());
  std::string all, found;
  for (unsigned i = 0; i < 300; ++i) {
    const std::string bytes(1 + i * 37 % 3000, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(file->Append(bytes, {}, nullptr).ok());
    all += bytes;
    for (std::string piece; i % 3 != 0 && !(piece = read(1000)).empty();) found += piece;
  }
  found += read(all.size());
  EXPECT_TRUE(found == all);
  ASSERT_TRUE(file->Close({}, nullptr).ok());
  reader_.reset();
}

// What lies before it is read, and so is what a reader of parts makes of its own checksums.
TEST_F(ReadAheadTest, DamageAheadIsNoErrorOfWhatIsReadBefore) {
  ASSERT_NO_FATAL_FAILURE(mount(64 << 20));
  constexpr std::size_t kPiece = 8192, kDamaged = 90 * kPiece + 5000;
  std::string all(1 << 20, '\0'), found;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 31 + i / 4099);
  all.replace(kDamaged, 20, "what will be damaged");
  write("/f", all);
  unmount();
  const std::vector<std::size_t> at = places(read_file(), all.substr(kDamaged, 20));
  ASSERT_EQ(at.size(), 1u);
  ASSERT_NO_FATAL_FAILURE(damage(at[0]));
  ASSERT_NO_FATAL_FAILURE(mount(64 << 20));
  const auto fs = make_file_system(volume(), "furrow://test");
  ASSERT_TRUE(fs->NewSequentialFile("/f", {}, &reader_, nullptr).ok());
  for (std::string piece; !HasFailure() && !(piece = read(kPiece)).empty();) found += piece;
  ASSERT_EQ(found.size(), all.size());
  found[kDamaged] = all[kDamaged];
  EXPECT_TRUE(found == all);
  reader_.reset();
}

TEST_F(ReadAheadTest, AReadThatFailsIsNoProgress) {
  ASSERT_NO_FATAL_FAILURE(mount(64 << 20));
  constexpr std::size_t kPiece = 20'000, kChunk = 64 << 10;
  std::string all(4 * kChunk, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 31 + i / 4099);
  all.replace(kChunk + 100, 20, "what will be damaged");
  write("/f", all);
  unmount();
  const std::vector<std::size_t> at = places(read_file(), "what will be damaged");
  ASSERT_EQ(at.size(), 1u);
  ASSERT_NO_FATAL_FAILURE(damage(at[0]));
  ASSERT_NO_FATAL_FAILURE(mount(64 << 20));
  const auto fs = make_file_system(volume(), "furrow://test");
  ASSERT_TRUE(fs->NewSequentialFile("/f", {}, &reader_, nullptr).ok());
  std::string found = read(kPiece);
  found += read(kPiece);  // and more ahead
  std::string memory(3 * kChunk, '\0');
  rocksdb::Slice got;
  EXPECT_TRUE(reader_->Read(memory.size(), {}, &got, memory.data(), nullptr).IsCorruption());
  found += read(kPiece);
  EXPECT_TRUE(found == all.substr(0, found.size()));
  EXPECT_EQ(found.size(), 3 * kPiece);
  reader_.reset();
}

TEST_F(ReadAheadTest, WhatWasReadAheadIsForgottenWhenThatIsAskedFor) {
  ASSERT_NO_FATAL_FAILURE(mount(64 << 20));
  write("/f", std::string(100'000, 'a'));
  const auto fs = make_file_system(volume(), "furrow://test");
  ASSERT_TRUE(fs->NewSequentialFile("/f", {}, &reader_, nullptr).ok());
  (void)read(1000);
  (void)read(1000);  // and more
  const std::string changed(98'000, 'b');
  ASSERT_TRUE((*files().open_file("/f"))->write_at(2000, bytes_of(changed)).ok());
  ASSERT_TRUE(reader_->InvalidateCache(0, 0).ok());
  EXPECT_EQ(read(1000), std::string(1000, 'b'));
  reader_.reset();
}

// What RocksDB, and who uses it, decides by.
TEST(IoStatusTest, WhatWentWrongIsToldInRocksDBsTerms) {
  const auto of = [](Code code) { return io_status({code, Origin::engine, "why"}, "/file"); };
  EXPECT_TRUE(of(Code::ok).ok());
  EXPECT_TRUE(of(Code::not_found).IsPathNotFound());
  EXPECT_TRUE(of(Code::no_space).IsNoSpace());
  EXPECT_TRUE(of(Code::no_space).GetRetryable());
  EXPECT_TRUE(of(Code::unsupported).IsNotSupported());
  EXPECT_TRUE(of(Code::corrupt).IsCorruption());
  for (const Code code : {Code::io_error, Code::invalid_argument, Code::exists, Code::too_large}) {
    EXPECT_TRUE(of(code).IsIOError());
    EXPECT_FALSE(of(code).IsPathNotFound());
    EXPECT_FALSE(of(code).GetRetryable());
  }
  EXPECT_NE(of(Code::corrupt).ToString().find("/file: "), std::string::npos);
}

class NamesTest : public ::testing::Test, public FilesRig {};

TEST_F(NamesTest, AreDurableWhenADirectoryWasSynced) {
  FaultDevice* const fault = mount_on<FaultDevice>(64 << 20, FaultOptions());
  ASSERT_NE(fault, nullptr);
  const auto fs = make_file_system(volume(), "furrow://test");
  std::unique_ptr<rocksdb::FSDirectory> directory;
  ASSERT_TRUE(fs->NewDirectory("/", {}, &directory, nullptr).ok());
  write("/f", "text");
  fault->fail_flushes(100);
  EXPECT_TRUE(directory->Fsync({}, nullptr).IsIOError());
  fault->fail_flushes(0);
  EXPECT_TRUE(directory->Fsync({}, nullptr).ok());
}

// As one cache of blocks may be many databases'.
TEST_F(NamesTest, FilesOfTwoVolumesHaveIdsOfTheirOwn) {
  FilesRig other;
  std::string ids[2];
  for (FilesRig* const rig : {static_cast<FilesRig*>(this), &other}) {
    ASSERT_NO_FATAL_FAILURE(rig->mount());
    rig->write("/f", "text");
    const auto fs = make_file_system(rig->volume(), "furrow://test");
    std::unique_ptr<rocksdb::FSRandomAccessFile> file;
    ASSERT_TRUE(fs->NewRandomAccessFile("/f", {}, &file, nullptr).ok());
    std::string& id = ids[rig == &other ? 1 : 0];
    id.resize(64);
    id.resize(file->GetUniqueId(id.data(), id.size()));
    EXPECT_FALSE(id.empty());
  }
  EXPECT_EQ(files().stat("/f")->inode, other.files().stat("/f")->inode);
  EXPECT_NE(ids[0], ids[1]);
}

// Versions of what is in it are not used up with each time, and no id is another file's.
TEST_F(NamesTest, AFileThatIsUsedAgainIsANewOne) {
  ASSERT_NO_FATAL_FAILURE(mount());
  const auto fs = make_file_system(volume(), "furrow://test");
  write("/1.log", "text");
  const std::uint64_t inode = files().stat("/1.log")->inode;
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_TRUE(fs->ReuseWritableFile("/2.log", "/1.log", {}, &file, nullptr).ok());
  EXPECT_EQ(file->GetFileSize({}, nullptr), 0u);
  EXPECT_EQ(names("/"), std::vector<std::string>{"2.log"});
  EXPECT_NE(files().stat("/2.log")->inode, inode);
}

// What a full volume has no room for is a WAL that is begun: one that is there is opened.
TEST_F(NamesTest, AWalIsOpenedAgainWithoutRoom) {
  ASSERT_NO_FATAL_FAILURE(mount(32 << 20));
  const auto fs = make_file_system(volume(), "furrow://test");
  write("/1.log", "text");
  auto filler = make("/filler");
  const std::string part(64 << 10, 'x');
  while (filler->append(bytes_of(part)).ok()) {
  }
  std::unique_ptr<rocksdb::FSWritableFile> file;
  const auto wal = fs->OptimizeForLogWrite({}, {});
  const IOStatus begun = fs->NewWritableFile("/2.log", wal, &file, nullptr);
  EXPECT_TRUE(begun.IsIOError() && begun.GetRetryable()) << begun.ToString();
  EXPECT_FALSE(begun.IsNoSpace()) << begun.ToString();
  ASSERT_TRUE(fs->ReopenWritableFile("/1.log", {}, &file, nullptr).ok());
  EXPECT_EQ(file->GetFileSize({}, nullptr), 4u);
}

// Nor does RocksDB end where it would use one again.
TEST_F(NamesTest, AWalIsNotUsedAgainWithoutRoom) {
  TapDevice* const tap = mount_on<TapDevice>(64 << 20);
  ASSERT_NE(tap, nullptr);
  const auto fs = make_file_system(volume(), "furrow://test");
  write("/1.log", "text");
  tap->set_short_of_room(true);
  std::unique_ptr<rocksdb::FSWritableFile> file;
  const IOStatus begun = fs->ReuseWritableFile("/2.log", "/1.log", {}, &file, nullptr);
  EXPECT_TRUE(begun.IsIOError() && begun.GetRetryable()) << begun.ToString();
  EXPECT_FALSE(begun.IsNoSpace()) << begun.ToString();
  EXPECT_EQ(names("/"), std::vector<std::string>{"1.log"});
}

// The zeroes wait in memory, as somebody has the file open, until it is closed.
TEST_F(NamesTest, ATruncateWhoseZeroesAreNotTakenFails) {
  FaultDevice* const fault = mount_on<FaultDevice>(64 << 20, FaultOptions());
  ASSERT_NE(fault, nullptr);
  const auto fs = make_file_system(volume(), "furrow://test");
  auto file = make("/f");
  ASSERT_TRUE(file->append(bytes_of("text")).ok());
  const Geometry& shape = files().geometry();
  const Lba first = shape.zone_start(ZoneId{zone_lives().begin()->first});
  fault->fail_writes(first, shape.zone_count * shape.zone_size_lbas - first.value);
  EXPECT_TRUE(fs->Truncate("/f", 100, {}, nullptr).IsIOError());
}

// Whichever way the bytes came.
TEST_F(NamesTest, ASyncOrACloseThatFailsSaysSo) {
  FaultDevice* const fault = mount_on<FaultDevice>(64 << 20, FaultOptions());
  ASSERT_NE(fault, nullptr);
  const auto fs = make_file_system(volume(), "furrow://test");
  const std::string text(5000, 'x');
  const Geometry& shape = files().geometry();
  const auto fail_writes = [&] {
    const Lba first = shape.zone_start(ZoneId{zone_lives().begin()->first});
    fault->fail_writes(first, shape.zone_count * shape.zone_size_lbas - first.value);
  };
  for (const bool sync : {true, false}) {
    std::unique_ptr<rocksdb::FSWritableFile> writer;
    ASSERT_TRUE(fs->NewWritableFile("/1.sst", {}, &writer, nullptr).ok());
    ASSERT_TRUE(writer->Append(text, {}, nullptr).ok());
    write("/2", "");
    std::unique_ptr<rocksdb::FSRandomRWFile> changer;
    ASSERT_TRUE(fs->NewRandomRWFile("/2", {}, &changer, nullptr).ok());
    ASSERT_TRUE(changer->Write(0, text, {}, nullptr).ok());
    sync ? fault->fail_flushes(1000) : fail_writes();
    EXPECT_TRUE((sync ? writer->Sync({}, nullptr) : writer->Close({}, nullptr)).IsIOError());
    EXPECT_TRUE((sync ? changer->Sync({}, nullptr) : changer->Close({}, nullptr)).IsIOError());
    fault->fail_flushes(0);
  }
}

class RangeSyncTest : public ::testing::Test, public FilesRig {};

TEST_F(RangeSyncTest, IsDurableWhereThatIsAskedFor) {
  TapDevice* const tap = mount_on<TapDevice>(64 << 20);
  ASSERT_NE(tap, nullptr);
  const auto fs = make_file_system(volume(), "furrow://test");
  for (const bool strict : {false, true}) {
    rocksdb::FileOptions options;
    options.strict_bytes_per_sync = strict;
    std::unique_ptr<rocksdb::FSWritableFile> file;
    ASSERT_TRUE(fs->NewWritableFile("/1.sst", options, &file, nullptr).ok());
    ASSERT_TRUE(file->Append(std::string(5000, 'x'), {}, nullptr).ok());
    const std::size_t writes = tap->count(Io::Op::write), flushes = tap->count(Io::Op::flush);
    ASSERT_TRUE(file->RangeSync(0, 5000, {}, nullptr).ok());
    EXPECT_EQ(tap->count(Io::Op::write) > writes, strict);
    EXPECT_EQ(tap->count(Io::Op::flush) > flushes, strict);
  }
}

}  // namespace
}  // namespace furrow::testing::files_test
