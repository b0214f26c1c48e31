// Establishes that RocksDB works on the FileSystem with what its users use: every compaction style,
// blob files, column families, transactions, checkpoints, backups, ingested files, the WAL recovery
// modes, direct reads and asynchronous iterators, and a full volume that recovers by itself. How:
// small databases with several thousand keys, every value checked, closed and opened again on a
// volume that was mounted anew.
#include <gtest/gtest.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <rocksdb/utilities/transaction_db.h>

#include <array>
#include <thread>

#include "engine/pool_impl.h"
#include "tests/engine/rocksdb/db_fixture.h"
#include "zone/event_loop.h"

namespace furrow::testing {
namespace {

TEST_F(DbTest, LevelledCompaction) { work_on(options()); }

TEST_F(DbTest, UniversalCompaction) {
  rocksdb::Options universal = options();
  universal.compaction_style = rocksdb::kCompactionStyleUniversal;
  work_on(universal);
}

TEST_F(DbTest, WithDirectIoAskedFor) {
  rocksdb::Options direct = options();
  direct.use_direct_reads = direct.use_direct_io_for_flush_and_compaction = true;
  work_on(direct);
}

TEST_F(DbTest, BlobFiles) {
  rocksdb::Options blobs = options();
  blobs.enable_blob_files = blobs.enable_blob_garbage_collection = true;
  blobs.min_blob_size = 100;
  blobs.blob_file_size = 512 << 10;
  work_on(blobs);
}

TEST_F(DbTest, FifoCompactionGivesItsRoomBack) {
  rocksdb::Options fifo = options();
  fifo.compaction_style = rocksdb::kCompactionStyleFIFO;
  fifo.compaction_options_fifo.max_table_files_size = 2 << 20;
  ASSERT_NO_FATAL_FAILURE(open(fifo));
  for (unsigned version = 0; version < 20; ++version) ASSERT_NO_FATAL_FAILURE(fill(version));
  // What is oldest goes: the last put are there, and of the others none but whole ones.
  for (unsigned i = 0; i < kKeys; ++i) {
    const unsigned key = i * 7919 % kKeys;
    std::string value;
    const rocksdb::Status status = db_->Get({}, db_key(key), &value);
    ASSERT_TRUE(status.ok() || (status.IsNotFound() && i < kKeys - 1000)) << status.ToString();
    ASSERT_TRUE(!status.ok() || db_version(key, value) >= 0);
    ASSERT_TRUE(i < kKeys - 1000 || db_version(key, value) == 19);
  }
  db_.reset();
  EXPECT_LT(files().store().usage().live_bytes, 16u << 20);
}

TEST_F(DbTest, ColumnFamiliesAndTransactions) {
  rocksdb::TransactionDB* opened = nullptr;
  ASSERT_TRUE(
      rocksdb::TransactionDB::Open(options(), rocksdb::TransactionDBOptions(), "/db", &opened)
          .ok());
  std::unique_ptr<rocksdb::TransactionDB> db(opened);
  rocksdb::ColumnFamilyHandle* other = nullptr;
  ASSERT_TRUE(db->CreateColumnFamily(options(), "other", &other).ok());
  for (unsigned i = 0; i < 500; ++i) {
    std::unique_ptr<rocksdb::Transaction> both(db->BeginTransaction(rocksdb::WriteOptions()));
    ASSERT_TRUE(both->Put(db_key(i), db_value(i, 1)).ok());
    ASSERT_TRUE(both->Put(other, db_key(i), db_value(i, 2)).ok());
    ASSERT_TRUE((i % 5 == 0 ? both->Rollback() : both->Commit()).ok());
  }
  delete other;
  db.reset();
  ASSERT_NO_FATAL_FAILURE(remount());
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* again = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options(), "/db", {{"default", options()}, {"other", options()}},
                                &families, &again)
                  .ok());
  for (unsigned i = 0; i < 500; ++i) {
    std::string one, two;
    EXPECT_EQ(again->Get({}, families[0], db_key(i), &one).ok(), i % 5 != 0);
    EXPECT_EQ(again->Get({}, families[1], db_key(i), &two).ok(), i % 5 != 0);
    EXPECT_TRUE(i % 5 == 0 || (one == db_value(i, 1) && two == db_value(i, 2)));
  }
  for (auto* family : families) delete family;
  delete again;
}

TEST_F(DbTest, CheckpointsAndBackups) {
  ASSERT_NO_FATAL_FAILURE(open(options()));
  ASSERT_NO_FATAL_FAILURE(fill(1));
  rocksdb::Checkpoint* made = nullptr;
  ASSERT_TRUE(rocksdb::Checkpoint::Create(db_.get(), &made).ok());
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  rocksdb::Status status = checkpoint->CreateCheckpoint("/checkpoint");
  ASSERT_TRUE(status.ok()) << status.ToString();
  rocksdb::BackupEngine* engine = nullptr;
  status = rocksdb::BackupEngine::Open(rocksdb::BackupEngineOptions("/backup"), env(), &engine);
  ASSERT_TRUE(status.ok()) << status.ToString();
  std::unique_ptr<rocksdb::BackupEngine> backups(engine);
  ASSERT_TRUE(backups->CreateNewBackup(db_.get(), true).ok());
  ASSERT_NO_FATAL_FAILURE(fill(2));
  db_.reset();
  status = backups->RestoreDBFromLatestBackup("/restored", "/restored");
  ASSERT_TRUE(status.ok()) << status.ToString();
  backups.reset();
  ASSERT_NO_FATAL_FAILURE(remount());
  for (const char* path : {"/checkpoint", "/restored"}) {
    ASSERT_NO_FATAL_FAILURE(open(options(), path));
    ASSERT_NO_FATAL_FAILURE(check(1));
  }
  ASSERT_NO_FATAL_FAILURE(open(options()));
  ASSERT_NO_FATAL_FAILURE(check(2));
}

TEST_F(DbTest, FilesAreIngested) {
  {
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options());
    ASSERT_TRUE(writer.Open("/ready.sst").ok());
    for (unsigned i = 0; i < kKeys; ++i) ASSERT_TRUE(writer.Put(db_key(i), db_value(i, 5)).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  ASSERT_NO_FATAL_FAILURE(open(options()));
  for (unsigned i = 0; i < kKeys; i += 3) ASSERT_TRUE(db_->Put({}, db_key(i), "old").ok());
  rocksdb::IngestExternalFileOptions linked;
  linked.move_files = true;
  linked.write_global_seqno = true;  // into the file itself, in its middle
  const rocksdb::Status status = db_->IngestExternalFile({"/ready.sst"}, linked);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_NO_FATAL_FAILURE(check(5));
  ASSERT_NO_FATAL_FAILURE(remount());
  ASSERT_NO_FATAL_FAILURE(open(options()));
  ASSERT_NO_FATAL_FAILURE(check(5));
}

// The database does nothing in the background meanwhile: a follower of one that flushes or compacts
// may miss something, on any file system.
TEST_F(DbTest, OneProcessMayOpenItForReadingAsWell) {
  rocksdb::Options quiet = options();
  quiet.write_buffer_size = 64 << 20;
  quiet.disable_auto_compactions = true;
  ASSERT_NO_FATAL_FAILURE(open(quiet));
  ASSERT_NO_FATAL_FAILURE(fill(1));
  ASSERT_TRUE(db_->Flush({}).ok());
  rocksdb::DB* raw = nullptr;
  ASSERT_TRUE(rocksdb::DB::OpenForReadOnly(options(), "/db", &raw).ok());
  std::unique_ptr<rocksdb::DB> reader(raw);
  ASSERT_NO_FATAL_FAILURE(check(1, reader.get()));
  EXPECT_TRUE(reader->Put({}, "key", "value").IsNotSupported());
  rocksdb::Options following = options();
  following.max_open_files = -1;
  ASSERT_TRUE(rocksdb::DB::OpenAsSecondary(following, "/db", "/follower", &raw).ok());
  const std::unique_ptr<rocksdb::DB> follower(raw);
  ASSERT_NO_FATAL_FAILURE(fill(2));
  ASSERT_TRUE(follower->TryCatchUpWithPrimary().ok());
  ASSERT_NO_FATAL_FAILURE(check(2, follower.get()));
}

TEST_F(DbTest, WalsAreUsedAgain) {
  rocksdb::Options with = options();
  with.recycle_log_file_num = 2;
  with.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;  // else none is
  ASSERT_NO_FATAL_FAILURE(work_on(with));
}

TEST_F(DbTest, EveryWalRecoveryModeReadsWhatWasLeft) {
  using Mode = rocksdb::WALRecoveryMode;
  unsigned version = 0;
  for (const Mode mode : {Mode::kTolerateCorruptedTailRecords, Mode::kAbsoluteConsistency,
                          Mode::kPointInTimeRecovery, Mode::kSkipAnyCorruptedRecords}) {
    rocksdb::Options with = options();
    with.wal_recovery_mode = mode;
    with.avoid_flush_during_shutdown = true;
    ASSERT_NO_FATAL_FAILURE(open(with));
    for (unsigned i = 0; i < 100; ++i) {
      ASSERT_TRUE(db_->Put({}, db_key(i), db_value(i, version)).ok());
    }
    ASSERT_NO_FATAL_FAILURE(remount());
    with.env = env();
    ASSERT_NO_FATAL_FAILURE(open(with));
    for (unsigned i = 0; i < 100; ++i) {
      std::string value;
      ASSERT_TRUE(db_->Get({}, db_key(i), &value).ok());
      ASSERT_EQ(value, db_value(i, version));
    }
    db_.reset();
    ++version;
  }
}

TEST_F(DbTest, IteratorsReadAhead) {
  rocksdb::Options direct = options();
  direct.use_direct_reads = true;
  ASSERT_NO_FATAL_FAILURE(open(direct));
  ASSERT_NO_FATAL_FAILURE(fill(1));
  ASSERT_TRUE(db_->CompactRange({}, nullptr, nullptr).ok());
  rocksdb::ReadOptions ahead;
  ahead.async_io = true;
  ahead.readahead_size = 128 << 10;
  std::unique_ptr<rocksdb::Iterator> each(db_->NewIterator(ahead));
  for (unsigned i = 0; i < 300; ++i) {
    const unsigned key = i * 7919 % kKeys;
    each->Seek(db_key(key));
    for (unsigned n = key; n < std::min(key + 20, kKeys); ++n, each->Next()) {
      ASSERT_TRUE(each->Valid()) << each->status().ToString();
      ASSERT_EQ(each->value().ToString(), db_value(n, 1));
    }
  }
}

TEST_F(DbTest, ThreadsWriteAndRead) {
  ASSERT_NO_FATAL_FAILURE(open(options()));
  ASSERT_NO_FATAL_FAILURE(fill(0));
  std::atomic<bool> wrong{false};
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      rocksdb::WriteOptions writing;
      writing.sync = t == 0;
      for (unsigned i = 0; i < (t == 0 ? 100u : kKeys); ++i) {
        const unsigned key = (i * 7919 + t * 131) % kKeys;
        std::string value;
        const bool good =
            t < 2 ? db_->Put(writing, db_key(key), db_value(key, 9)).ok()
                  : db_->Get({}, db_key(key), &value).ok() && db_version(key, value) >= 0;
        if (!good) wrong = true;
      }
    });
  }
  threads.clear();
  EXPECT_FALSE(wrong);
}

// On zones enough for all lifetimes: what lies where is read from the medium.
class LifetimesDbTest : public DbTest {
 protected:
  using BytesByStream = std::array<std::uint64_t, kStreamMax + 1>;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(300 << 20, 1 << 20));
    ASSERT_NO_FATAL_FAILURE(open_env());
  }
  rocksdb::Options of_style(rocksdb::CompactionStyle style) {
    rocksdb::Options with = options();
    with.compaction_style = style;
    with.compaction_options_universal.size_ratio = 50;
    return with;
  }
  std::uint64_t table_bytes() {
    std::vector<rocksdb::LiveFileMetaData> tables;
    db_->GetLiveFilesMetaData(&tables);
    std::uint64_t bytes = 0;
    for (const auto& table : tables) bytes += table.size;
    return bytes;
  }
  BytesByStream bytes_by_stream() {
    db_.reset();
    close_env();
    EventLoop loop;
    auto device = open_device(uri(), Access::inspect);
    EXPECT_TRUE(device.ok());
    Pool::OpenOptions inspect;
    inspect.read_only = true;
    auto pool = Pool::open(**device, loop, inspect);
    EXPECT_TRUE(pool.ok()) << pool.status().describe();
    const PoolContext& context = static_cast<const PoolImpl&>(**pool).context();
    BytesByStream bytes{};
    for (const ZoneAllocator::Zone& zone : context.allocator.zones()) {
      if (zone.owner != 0) bytes.at(zone.stream) += zone.live_lbas * context.geometry.lba_bytes;
    }
    return bytes;
  }
};

TEST_F(LifetimesDbTest, LevelsThatLiveLongHaveZonesOfTheirOwn) {
  rocksdb::Options with = of_style(rocksdb::kCompactionStyleLevel);
  with.level_compaction_dynamic_level_bytes = false;
  with.disable_auto_compactions = true;
  with.level0_slowdown_writes_trigger = with.level0_stop_writes_trigger = 1000;
  constexpr std::array<std::uint8_t, 5> kStreams = {kUserStream, kUserStream, kLongStream,
                                                    kExtremeStream, kExtremeStream};
  for (int level = 1; level < 5; ++level) {
    SCOPED_TRACE(level);
    with.env = env();
    ASSERT_NO_FATAL_FAILURE(open(with));
    for (unsigned version = 0; version < 2; ++version) ASSERT_NO_FATAL_FAILURE(fill(version));
    ASSERT_TRUE(db_->Flush({}).ok());
    std::vector<rocksdb::LiveFileMetaData> tables;
    db_->GetLiveFilesMetaData(&tables);
    std::vector<std::string> names;
    for (const auto& table : tables) names.push_back(table.name);
    rocksdb::CompactionOptions as_it_is;
    as_it_is.compression = rocksdb::kNoCompression;
    ASSERT_TRUE(db_->CompactFiles(as_it_is, names, level).ok());
    const std::uint64_t size = table_bytes();
    ASSERT_GT(size, 1u << 20);
    const BytesByStream bytes = bytes_by_stream();
    EXPECT_GT(bytes[kStreams[static_cast<unsigned>(level)]], size - size / 10);
    if (level > 1) {
      EXPECT_LT(bytes[kUserStream], size / 4);
    }
    ASSERT_NO_FATAL_FAILURE(open_env());
    ASSERT_TRUE(rocksdb::DestroyDB("/db", options()).ok());
  }
}

TEST_F(LifetimesDbTest, WithoutHintsWhatCompactionsWriteIsApart) {
  ASSERT_NO_FATAL_FAILURE(open(of_style(rocksdb::kCompactionStyleUniversal)));
  for (unsigned version = 0; version < 3; ++version) ASSERT_NO_FATAL_FAILURE(fill(version));
  ASSERT_TRUE(db_->Flush({}).ok());
  ASSERT_TRUE(db_->CompactRange({}, nullptr, nullptr).ok());
  const std::uint64_t size = table_bytes();
  ASSERT_GT(size, 1u << 20);
  const BytesByStream bytes = bytes_by_stream();
  EXPECT_GT(bytes[kLongStream], size - size / 10);
  EXPECT_LT(bytes[kUserStream], size / 4);
}

// Nobody says how long they live.
TEST_F(LifetimesDbTest, FilesWithoutHintsLieByWhatIsKnownOfThem) {
  using rocksdb::Env;
  using rocksdb::Temperature;
  struct File {
    const char* name;
    Env::IOPriority priority;
    bool allocated;
    Temperature temperature;
    std::uint8_t stream;
  };
  constexpr File kFiles[] = {
      {"/1.log", Env::IO_TOTAL, true, Temperature::kUnknown, kShortStream},
      {"/MANIFEST-000002", Env::IO_TOTAL, true, Temperature::kUnknown, kLongStream},
      {"/OPTIONS-000003", Env::IO_TOTAL, false, Temperature::kUnknown, kLongStream},
      {"/4.sst", Env::IO_HIGH, false, Temperature::kUnknown, kUserStream},  // a flush,
      {"/5.sst", Env::IO_USER, false, Temperature::kUnknown, kUserStream},  // that writers wait for
      {"/6.sst", Env::IO_LOW, true, Temperature::kUnknown, kLongStream},    // a compaction,
      {"/7.sst", Env::IO_USER, true, Temperature::kUnknown, kLongStream},   // that they wait for
      {"/8.sst", Env::IO_LOW, true, Temperature::kCold, kExtremeStream},    // the last level
      {"/9.blob", Env::IO_HIGH, false, Temperature::kUnknown, kUserStream},
      {"/10.blob", Env::IO_LOW, false, Temperature::kUnknown, kLongStream},
  };
  constexpr std::size_t kBytes = 1 << 20;
  BytesByStream expected{};
  for (const File& each : kFiles) {
    rocksdb::FileOptions options;
    options.temperature = each.temperature;
    std::unique_ptr<rocksdb::FSWritableFile> file;
    ASSERT_TRUE(env()->GetFileSystem()->NewWritableFile(each.name, options, &file, nullptr).ok());
    file->SetIOPriority(each.priority);
    if (each.allocated) file->SetPreallocationBlockSize(4 << 20);
    ASSERT_TRUE(file->Append(std::string(kBytes, 'x'), {}, nullptr).ok());
    ASSERT_TRUE(file->Close({}, nullptr).ok());
    expected.at(each.stream) += kBytes;
  }
  const BytesByStream bytes = bytes_by_stream();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_GE(bytes[i], expected[i]) << "stream " << i;
    EXPECT_LT(bytes[i], expected[i] + kBytes / 4) << "stream " << i;
  }
}

// As few zones as a pool may have open, each smaller or larger than a file; all of it is written
// several times, so that zones are freed beside RocksDB.
class LimitsDbTest : public DbTest, public ::testing::WithParamInterface<unsigned> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_device(48 << 20, GetParam(), 3));
    ASSERT_NO_FATAL_FAILURE(open_env());
  }
};

TEST_P(LimitsDbTest, FillsAndCompacts) {
  rocksdb::Options large = options();
  large.write_buffer_size = large.target_file_size_base = 2 << 20;
  for (const bool small_files : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(work_on(small_files ? options() : large));
    for (unsigned version = 3; version < 12; ++version) ASSERT_NO_FATAL_FAILURE(fill(version));
    ASSERT_NO_FATAL_FAILURE(check(11));
    db_.reset();
    ASSERT_TRUE(rocksdb::DestroyDB("/db", options()).ok());
  }
  const VolumeStats stats = files().store().stats();
  EXPECT_GT(stats.device_bytes_written, 48u << 20);
  EXPECT_GT(stats.zones_reset, (48u << 20) / GetParam()) << "as many as there are";
}

INSTANTIATE_TEST_SUITE_P(ZonesOf, LimitsDbTest, ::testing::Values(1 << 20, 4 << 20));

// Most of the room is somebody else's file; then that goes.
class FullDbTest : public DbTest {
 protected:
  // Somebody else takes all but so much.
  void leave(std::uint64_t free_bytes) {
    auto other = files().create("/other", FileVolume::Existing::keep);
    ASSERT_TRUE(other.ok());
    Status filling;
    const std::string piece(64 << 10, 'x');
    while (filling.ok() && files().free_bytes() > free_bytes + piece.size()) {
      filling = (*other)->append(bytes_of(piece));
      if (filling.ok()) filling = (*other)->content().write_out();
    }
    ASSERT_TRUE(filling.ok() && (*other)->close().ok()) << filling.describe();
  }
  // Puts until there is no room; how many.
  unsigned fill_up(const rocksdb::WriteOptions& writing) {
    leave(8 << 20);
    unsigned written = 0;
    rocksdb::Status status;
    while (status.ok() && written < 200'000) {
      status = db_->Put(writing, db_key(written), db_value(written, 1));
      if (status.ok()) ++written;
    }
    EXPECT_TRUE(is_full(status)) << written << " keys: " << status.ToString();
    return written;
  }
  // (Where it is a WAL that there is no room for, RocksDB is told in other words.)
  static bool is_full(const rocksdb::Status& status) {
    return status.IsNoSpace() || status.ToString().find("the volume is full") != std::string::npos;
  }
  void goes_on(const rocksdb::WriteOptions& writing) {
    rocksdb::Status status;
    for (unsigned tries = 0; tries < 600; ++tries) {
      status = db_->Put(writing, "after", "it goes on");
      if (status.ok()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  void make_a_wal_when_there_is_room(const rocksdb::Options& its) {
    ASSERT_NO_FATAL_FAILURE(open(its));
    for (unsigned i = 0; i < 100; ++i) ASSERT_TRUE(db_->Put({}, db_key(i), db_value(i, 1)).ok());
    ASSERT_NO_FATAL_FAILURE(leave(64 << 10));
    const rocksdb::Status status = db_->Flush({});
    EXPECT_TRUE(is_full(status)) << status.ToString();
    EXPECT_FALSE(db_->Put({}, "before", "no room").ok());
    ASSERT_NO_FATAL_FAILURE(check_written(100));
    ASSERT_TRUE(files().remove("/other").ok());
    ASSERT_NO_FATAL_FAILURE(goes_on(rocksdb::WriteOptions()));
    ASSERT_NO_FATAL_FAILURE(check_written(100));
  }
  void check_written(unsigned written) {
    for (unsigned i = 0; i < written; ++i) {
      std::string value;
      ASSERT_TRUE(db_->Get({}, db_key(i), &value).ok()) << i;
      ASSERT_EQ(value, db_value(i, 1));
    }
  }
};

// RocksDB asks now and then whether there is room, and goes on by itself.
TEST_F(FullDbTest, WhatAFlushHasNoRoomForIsWrittenWhenThereIs) {
  ASSERT_NO_FATAL_FAILURE(open(options()));
  rocksdb::WriteOptions writing;
  writing.disableWAL = true;
  const unsigned written = fill_up(writing);
  ASSERT_TRUE(files().remove("/other").ok());
  ASSERT_NO_FATAL_FAILURE(goes_on(writing));
  ASSERT_NO_FATAL_FAILURE(check_written(written));
}

// Nothing is flushed before: it is the WAL that has no room.
TEST_F(FullDbTest, WhatTheWalHasNoRoomForIsRefusedUntilThereIs) {
  rocksdb::Options in_memory = options();
  in_memory.write_buffer_size = 64 << 20;
  ASSERT_NO_FATAL_FAILURE(open(in_memory));
  const unsigned written = fill_up(rocksdb::WriteOptions());
  EXPECT_TRUE(db_->Put({}, "before", "no room").IsNoSpace());
  ASSERT_NO_FATAL_FAILURE(check_written(written));
  ASSERT_TRUE(files().remove("/other").ok());
  ASSERT_NO_FATAL_FAILURE(goes_on(rocksdb::WriteOptions()));
  ASSERT_NO_FATAL_FAILURE(check_written(written));
  ASSERT_NO_FATAL_FAILURE(remount());
  ASSERT_NO_FATAL_FAILURE(open(options()));
  ASSERT_NO_FATAL_FAILURE(check_written(written));
  std::string value;
  EXPECT_TRUE(db_->Get({}, "after", &value).ok());
  EXPECT_TRUE(db_->Get({}, "before", &value).IsNotFound());
}

// A memtable is full, or a flush asked for, and its successor's WAL cannot be made.
TEST_F(FullDbTest, AWalThatThereIsNoRoomForIsMadeWhenThereIs) {
  make_a_wal_when_there_is_room(options());
}

// A file system of somebody's around it that keeps to itself which files are WALs.
class ForgetfulFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "forgetful"; }
  rocksdb::FileOptions OptimizeForLogWrite(const rocksdb::FileOptions& options,
                                           const rocksdb::DBOptions& db) const override {
    return FileSystem::OptimizeForLogWrite(options, db);
  }
};

TEST_F(FullDbTest, AWalIsKnownByTheDatabasesLock) {
  const auto forgetful = std::make_shared<ForgetfulFileSystem>(env()->GetFileSystem());
  const std::unique_ptr<rocksdb::Env> around = rocksdb::NewCompositeEnv(forgetful);
  rocksdb::Options its = options();
  its.env = around.get();
  make_a_wal_when_there_is_room(its);
  db_.reset();
}

// Not as a WAL of the database's own that there is no room for.
TEST_F(FullDbTest, ACheckpointOfAWalFindsNoSpace) {
  rocksdb::Options in_memory = options();
  in_memory.write_buffer_size = 64 << 20;
  ASSERT_NO_FATAL_FAILURE(open(in_memory));
  ASSERT_NO_FATAL_FAILURE(fill(1));
  ASSERT_NO_FATAL_FAILURE(leave(64 << 10));
  rocksdb::Checkpoint* made = nullptr;
  ASSERT_TRUE(rocksdb::Checkpoint::Create(db_.get(), &made).ok());
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  const rocksdb::Status full = checkpoint->CreateCheckpoint("/checkpoint", 64 << 20);
  EXPECT_TRUE(full.IsNoSpace()) << full.ToString();
  EXPECT_FALSE(files().stat("/checkpoint").ok());
  ASSERT_TRUE(files().remove("/other").ok());
  EXPECT_TRUE(checkpoint->CreateCheckpoint("/checkpoint", 64 << 20).ok());
}

TEST_F(FullDbTest, ACompactionGoesOnWhenThereIsRoom) {
  rocksdb::Options manual = options();
  manual.disable_auto_compactions = true;
  ASSERT_NO_FATAL_FAILURE(open(manual));
  for (const unsigned version : {0u, 1u}) ASSERT_NO_FATAL_FAILURE(fill(version));
  ASSERT_TRUE(db_->Flush({}).ok());
  ASSERT_NO_FATAL_FAILURE(leave(1 << 20));  // less than it writes
  const rocksdb::Status status = db_->CompactRange({}, nullptr, nullptr);
  EXPECT_TRUE(status.IsNoSpace()) << status.ToString();
  ASSERT_NO_FATAL_FAILURE(check_written(kKeys));
  ASSERT_TRUE(files().remove("/other").ok());
  rocksdb::Status again;
  for (unsigned tries = 0; tries < 600; ++tries) {
    again = db_->CompactRange({}, nullptr, nullptr);
    if (again.ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(again.ok()) << again.ToString();
  ASSERT_NO_FATAL_FAILURE(goes_on(rocksdb::WriteOptions()));
  ASSERT_NO_FATAL_FAILURE(check_written(kKeys));
}

// The same, of one that is closed while there is no room.
TEST_F(FullDbTest, OpenedAgainItHasAllThatWasAcknowledged) {
  rocksdb::Options in_memory = options();
  in_memory.write_buffer_size = 64 << 20;
  ASSERT_NO_FATAL_FAILURE(open(in_memory));
  const unsigned written = fill_up(rocksdb::WriteOptions());
  db_.reset();
  ASSERT_TRUE(files().remove("/other").ok());
  ASSERT_NO_FATAL_FAILURE(remount());
  ASSERT_NO_FATAL_FAILURE(open(options()));
  ASSERT_NO_FATAL_FAILURE(check_written(written));
  EXPECT_TRUE(db_->Put({}, "after", "it goes on").ok());
}

}  // namespace
}  // namespace furrow::testing
