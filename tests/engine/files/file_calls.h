// FileCalls: what a FilesModel calls, of a mounted volume: FileVolume itself (direct_calls()), or
// RocksDB's FileSystem on it (tests/engine/rocksdb/rocksdb_calls.h). Errors as of FileVolume. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/files/file_volume.h"

namespace furrow::testing {

// A file that is open for writing; closed with it.
class FileInUse {
 public:
  virtual ~FileInUse() = default;
  virtual std::uint64_t inode() const = 0;
  virtual std::uint64_t size() const = 0;
  virtual void set_lifetime(Lifetime lifetime) = 0;
  virtual Status append(std::string_view bytes) = 0;
  virtual Status write_at(std::uint64_t offset, std::string_view bytes) = 0;
  virtual Status truncate(std::uint64_t bytes) = 0;
  virtual Status sync() = 0;
  virtual Status close() = 0;
};

enum class ReadWay : std::uint8_t { one_by_one, together, by_themselves, from_the_beginning };

class FileCalls {
 public:
  using Opened = Result<std::unique_ptr<FileInUse>>;
  using Existing = FileVolume::Existing;

  virtual ~FileCalls() = default;

  virtual Opened create(const std::string& path, Existing existing) = 0;
  virtual Opened open(const std::string& path) = 0;  // one that is there
  virtual Status remove(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status link(const std::string& from, const std::string& to) = 0;
  virtual Status make_directory(const std::string& path) = 0;
  virtual Status remove_directory(const std::string& path) = 0;
  virtual Status sync_names() = 0;
  // Of a FileInfo: name, directory, inode and bytes.
  virtual Result<FileInfo> stat(const std::string& path) = 0;
  virtual Result<std::vector<FileInfo>> list(const std::string& path) = 0;  // by name
  virtual Result<std::string> contents(const std::string& path) = 0;
  // Of each read: `bytes`. A failure of any is the answer.
  virtual Status read(const std::string& path, std::span<FileRead> reads, ReadWay way) = 0;
  // `old` is renamed, removed, and another made in its place.
  virtual Opened reuse(const std::string& path, const std::string& old) = 0;
};

std::unique_ptr<FileCalls> direct_calls(FileVolume& volume);

}  // namespace furrow::testing
