// RocksDB's kinds of files, each on an OpenFile.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <string>

#include "engine/files/file_volume.h"

namespace furrow {

std::unique_ptr<rocksdb::FSSequentialFile> make_sequential_file(std::unique_ptr<OpenFile> file,
                                                                const std::string& name);
// `direct`: RocksDB aligns what it reads, and nothing is copied. `id`: GetUniqueId().
std::unique_ptr<rocksdb::FSRandomAccessFile> make_random_access_file(std::unique_ptr<OpenFile> file,
                                                                     const std::string& name,
                                                                     const std::string& id,
                                                                     std::uint32_t alignment,
                                                                     bool direct);
std::unique_ptr<rocksdb::FSWritableFile> make_writable_file(std::unique_ptr<OpenFile> file,
                                                            const std::string& name,
                                                            const std::string& id,
                                                            const rocksdb::FileOptions& options);
std::unique_ptr<rocksdb::FSRandomRWFile> make_random_rw_file(std::unique_ptr<OpenFile> file,
                                                             const std::string& name);

// FileSystem::Poll and AbortIO, for the handles that ReadAsync of these files gave.
rocksdb::IOStatus poll_reads(std::vector<void*>& handles);
rocksdb::IOStatus abort_reads(std::vector<void*>& handles);

}  // namespace furrow
