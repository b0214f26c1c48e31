// The RocksDB FileSystem on a Furrow volume of kind fs (RocksDB 7.8).
//
//   std::unique_ptr<rocksdb::FileSystem> files;
//   auto status = furrow::open_file_system("furrow://emu:/var/lib/furrow/pool.img", &files);
//   std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(std::move(files));
//   options.env = env.get();
//
// furrow://DEVICE-URI, with `volume=NAME` (else the only volume of kind fs) and `create=SIZE` (make
// what is missing: an emulated device of that size, a pool, and a volume where the pool has none at
// all) as parameters. Several FileSystems of one process share a mount. Errors: NotSupported names
// the other process that has the pool, which is used by one at a time (read-only opens included);
// InvalidArgument: the URI, or one that asks for the device otherwise than the mount has it;
// IOError: the rest.
//
// Threads: as RocksDB's FileSystem: any.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace rocksdb {
class ObjectLibrary;
}

namespace furrow {

class FileVolume;

// Of a volume: since it was made, in bytes; of a mount that is killed, what it wrote last is not
// counted.
struct FileSystemUsage {
  std::uint64_t free = 0;       // as GetFreeSpace
  std::uint64_t appended = 0;   // to files
  std::uint64_t device = 0;     // given to the device for that
  std::uint64_t relocated = 0;  // of these, what collection has moved
};

rocksdb::Status open_file_system(const std::string& uri,
                                 std::unique_ptr<rocksdb::FileSystem>* result);
// The same on a volume that is mounted already.
std::unique_ptr<rocksdb::FileSystem> make_file_system(std::shared_ptr<FileVolume> volume,
                                                      const std::string& uri);

// Nothing: it is none of ours.
std::optional<FileSystemUsage> usage_of(const rocksdb::FileSystem& files);

}  // namespace furrow

// Makes furrow:// known to `library` for FileSystem and Env, as RocksDB's plugins do; the shared
// object does it by itself for the default library. Returns how many kinds of objects it makes.
extern "C" int register_furrow(rocksdb::ObjectLibrary& library, const std::string& arg);
