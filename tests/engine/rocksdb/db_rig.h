// A RocksDB on a mounted volume, small enough that everything happens often.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/rocksdb/file_system.h"
#include "tests/engine/files/files_rig.h"

namespace furrow::testing {

// "key 000017" -> a value that says which key and version it belongs to, 20 to 700 bytes.
inline std::string db_key(unsigned number) {
  char text[32];
  std::snprintf(text, sizeof text, "key %06u", number);
  return text;
}
inline std::string db_value(unsigned number, unsigned version) {
  static const std::string letters = [] {
    std::string made(700, '\0');
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<char>('a' + i * 7 % 26);
    return made;
  }();
  std::string value = std::to_string(number) + "/" + std::to_string(version) + "/";
  const std::size_t bytes = 20 + (number * 37 + version * 101) % 680;
  if (value.size() < bytes) value.append(letters, value.size(), bytes - value.size());
  return value;
}
// -1: it is none of ours.
inline int db_version(unsigned number, const std::string& value) {
  const std::string prefix = std::to_string(number) + "/";
  if (!value.starts_with(prefix)) return -1;
  const int version = std::atoi(value.c_str() + prefix.size());
  return value == db_value(number, static_cast<unsigned>(version)) ? version : -1;
}

inline rocksdb::Options small_options(rocksdb::Env* env) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.env = env;
  options.write_buffer_size = 256 << 10;
  options.target_file_size_base = 256 << 10;
  options.max_bytes_for_level_base = 1 << 20;
  options.level0_file_num_compaction_trigger = 2;
  options.max_background_jobs = 2;
  options.compression = rocksdb::kNoCompression;
  return options;
}

// What a program may ask for, drawn. A database of one of these is opened with any other. (But for
// recycle_log_file_num where there are several column families: RocksDB 7.8.3 crashes there, in
// MarkLogsSynced(), on a Posix file system as well.)
inline rocksdb::Options drawn_options(std::uint64_t seed, rocksdb::Env* env) {
  using Mode = rocksdb::WALRecoveryMode;
  constexpr Mode kModes[] = {Mode::kPointInTimeRecovery, Mode::kTolerateCorruptedTailRecords,
                             Mode::kSkipAnyCorruptedRecords};
  std::mt19937_64 random(seed);
  const auto coin = [&] { return random() % 2 == 0; };
  rocksdb::Options options = small_options(env);
  options.create_missing_column_families = true;
  options.wal_recovery_mode = kModes[random() % std::size(kModes)];
  options.avoid_flush_during_recovery = coin();
  options.avoid_flush_during_shutdown = coin();
  options.use_direct_reads = coin();
  options.use_direct_io_for_flush_and_compaction = coin();
  options.enable_pipelined_write = coin();
  options.bytes_per_sync = coin() ? 64 << 10 : 0;
  options.wal_bytes_per_sync = coin() ? 32 << 10 : 0;
  options.max_open_files = coin() ? 20 : -1;
  options.enable_blob_files = coin();
  options.min_blob_size = 300;
  options.blob_file_size = 128 << 10;
  options.enable_blob_garbage_collection = coin();
  return options;
}

// A database and its column families, of which each key is in one.
struct Families {
  ~Families() {
    for (rocksdb::ColumnFamilyHandle* const each : handles) delete each;
  }
  rocksdb::ColumnFamilyHandle* of(unsigned key) const { return handles[key % handles.size()]; }

  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
};
inline rocksdb::Status open_families(unsigned count, const rocksdb::Options& options,
                                     Families& opened, const std::string& path = "/db") {
  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, options}};
  while (families.size() < count) {
    families.emplace_back("more " + std::to_string(families.size()), options);
  }
  const rocksdb::Status status = rocksdb::DB::Open(options, path, families, &opened.handles, &db);
  opened.db.reset(db);
  return status;
}

class DbRig : public FilesRig {
 public:
  using FilesRig::FilesRig;
  void open_env(std::uint64_t size_bytes = 256 << 20) {
    ASSERT_NO_FATAL_FAILURE(mount(size_bytes));
    open_env_on_mount();
  }
  void open_env_on_mount() {
    env_ = rocksdb::NewCompositeEnv(make_file_system(volume(), "furrow://test"));
  }
  void close_env() {
    env_.reset();
    unmount();
  }
  rocksdb::Env* env() { return env_.get(); }

 private:
  std::unique_ptr<rocksdb::Env> env_;
};

}  // namespace furrow::testing
