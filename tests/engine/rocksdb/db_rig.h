// A RocksDB on a mounted volume, small enough that everything happens often.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <memory>
#include <string>

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
  std::string value = std::to_string(number) + "/" + std::to_string(version) + "/";
  const std::size_t bytes = 20 + (number * 37 + version * 101) % 680;
  while (value.size() < bytes) value.push_back(static_cast<char>('a' + value.size() * 7 % 26));
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

class DbRig : public FilesRig {
 public:
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
