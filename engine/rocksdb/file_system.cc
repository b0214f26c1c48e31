#include "engine/rocksdb/file_system.h"

#include <rocksdb/iostats_context.h>
#include <rocksdb/perf_level.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <set>

#include "engine/files/file_volume.h"
#include "engine/files/placement.h"
#include "engine/rocksdb/files.h"
#include "engine/rocksdb/io_status.h"
#include "engine/rocksdb/logger.h"
#include "log/codec.h"

namespace furrow {

namespace {

using rocksdb::FileAttributes;
using rocksdb::FileLock;
using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Volume and path: the file may be deleted meanwhile, by who held the lock before, and made anew.
using LockName = std::pair<std::string, std::string>;
struct FurrowLock final : public FileLock {
  LockName name;
};

// What this process has locked: nobody else has the pool open.
class Locks {
 public:
  bool lock(const LockName& name) {
    const std::lock_guard guard(mutex_);
    return locked_.insert(name).second;
  }
  void unlock(const LockName& name) {
    const std::lock_guard guard(mutex_);
    locked_.erase(name);
  }
  bool holds(const LockName& name) {
    const std::lock_guard guard(mutex_);
    return locked_.contains(name);
  }

 private:
  std::mutex mutex_;
  std::set<LockName> locked_;
};

Locks& locks() {
  static Locks* const all = new Locks();  // outlives every static object
  return *all;
}

std::string absolute_path(std::string_view name) {
  std::string path;
  for (const std::string_view part : FileTree::split(name)) path.append("/").append(part);
  return path.empty() ? "/" : path;
}

// All that RocksDB leaves to file systems to count (IOStatsContext), where time is asked for.
class OpenTimer {
 public:
  OpenTimer() {
    if (rocksdb::GetPerfLevel() >= rocksdb::kEnableTimeExceptForMutex) begin_ = Clock::now();
  }
  ~OpenTimer() {
    if (!begin_) return;
    const std::chrono::nanoseconds taken = Clock::now() - *begin_;
    rocksdb::get_iostats_context()->open_nanos += static_cast<std::uint64_t>(taken.count());
  }
  OpenTimer(const OpenTimer&) = delete;
  OpenTimer& operator=(const OpenTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> begin_;
};

class Directory final : public rocksdb::FSDirectory {
 public:
  Directory(std::shared_ptr<FileVolume> volume, std::string name, std::string id)
      : volume_(std::move(volume)), name_(std::move(name)), id_(std::move(id)) {}
  IOStatus Fsync(const IOOptions&, IODebugContext*) override {
    return io_status(volume_->sync_names(), name_);
  }
  IOStatus Close(const IOOptions&, IODebugContext*) override { return IOStatus::OK(); }
  std::size_t GetUniqueId(char* id, std::size_t bytes_max) const override {
    if (bytes_max < id_.size()) return 0;
    std::copy(id_.begin(), id_.end(), id);
    return id_.size();
  }

 private:
  const std::shared_ptr<FileVolume> volume_;
  const std::string name_, id_;
};

// What there must be room for when a WAL is made: what is written to it first.
constexpr std::uint64_t kWalBytesMin = FileVolume::kChunkBytesMax;
constexpr Status kNoRoom(Code::no_space, Origin::engine, "the volume is full");

class FurrowFileSystem final : public rocksdb::FileSystem {
 public:
  FurrowFileSystem(std::shared_ptr<FileVolume> volume, std::string uri)
      : volume_(std::move(volume)), uri_(std::move(uri)) {}

  static const char* kClassName() { return "furrow"; }
  const char* Name() const override { return kClassName(); }
  FileSystemUsage usage() const {
    const FilesWritten written = volume_->written();
    return {volume_->free_bytes(), written.appended_bytes, written.device_bytes,
            written.relocated_bytes};
  }
  std::string GetId() const override { return uri_; }

  // --- opening ---

  // Says which files are a database's own WALs, see is_wal(). (A field that is not ours otherwise,
  // and that wrappers pass on: nothing is allocated.)
  FileOptions OptimizeForLogWrite(const FileOptions& options,
                                  const rocksdb::DBOptions& db) const override {
    FileOptions optimized = FileSystem::OptimizeForLogWrite(options, db);
    optimized.fallocate_with_keep_size = false;
    return optimized;
  }
  // RocksDB leaves reading ahead to the kernel, unless it reads directly. Nobody else does it here:
  // a compaction would read block after block. As far as RocksDB does for direct reads.
  FileOptions OptimizeForCompactionTableRead(const FileOptions& options,
                                             const rocksdb::ImmutableDBOptions& db) const override {
    constexpr std::size_t kReadAhead = 2 << 20;
    FileOptions optimized = FileSystem::OptimizeForCompactionTableRead(options, db);
    if (optimized.compaction_readahead_size == 0) optimized.compaction_readahead_size = kReadAhead;
    return optimized;
  }
  IOStatus NewSequentialFile(const std::string& name, const FileOptions&,
                             std::unique_ptr<rocksdb::FSSequentialFile>* result,
                             IODebugContext*) override {
    const OpenTimer timer;
    auto file = volume_->open_file(name);
    if (file.ok()) *result = make_sequential_file(std::move(*file), name);
    return io_status(file.status(), name);
  }
  IOStatus NewRandomAccessFile(const std::string& name, const FileOptions& options,
                               std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
                               IODebugContext*) override {
    const OpenTimer timer;
    auto file = volume_->open_file(name);
    if (!file.ok()) return io_status(file.status(), name);
    const std::string id = unique_id((*file)->inode());
    const std::uint32_t alignment = volume_->geometry().lba_bytes;
    *result =
        make_random_access_file(std::move(*file), name, id, alignment, options.use_direct_reads);
    return IOStatus::OK();
  }
  IOStatus NewWritableFile(const std::string& name, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* result,
                           IODebugContext*) override {
    return open_writable(name, options, FileVolume::Existing::truncate, result);
  }
  IOStatus ReopenWritableFile(const std::string& name, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* result,
                              IODebugContext*) override {
    return open_writable(name, options, FileVolume::Existing::keep, result);
  }
  // The old log would become the new one, to be written from its beginning: an empty one is as
  // good, and what the old one took comes back at once.
  IOStatus ReuseWritableFile(const std::string& name, const std::string& old_name,
                             const FileOptions& options,
                             std::unique_ptr<rocksdb::FSWritableFile>* result,
                             IODebugContext* debug) override {
    Status status = volume_->rename(old_name, name);
    if (status.ok()) status = volume_->remove(name);
    if (status.code() == Code::no_space) return wal_refusal(name, status);
    if (!status.ok()) return io_status(status, old_name);
    return NewWritableFile(name, options, result, debug);
  }
  IOStatus NewRandomRWFile(const std::string& name, const FileOptions&,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* result,
                           IODebugContext*) override {
    const OpenTimer timer;
    auto file = volume_->open_file(name);
    if (file.ok()) *result = make_random_rw_file(std::move(*file), name);
    return io_status(file.status(), name);
  }
  // A LOG that is rolled and cannot be made ends the process (an assertion of RocksDB 7.8): where
  // there is no room, it is made later.
  IOStatus NewLogger(const std::string& name, const IOOptions&,
                     std::shared_ptr<rocksdb::Logger>* result, IODebugContext*) override {
    auto file = volume_->create(name, FileVolume::Existing::truncate);
    if (!file.ok() && file.status().code() != Code::no_space) return io_status(file.status(), name);
    *result = make_logger(file.ok() ? std::move(*file) : nullptr, volume_, name);
    return IOStatus::OK();
  }
  IOStatus NewDirectory(const std::string& name, const IOOptions&,
                        std::unique_ptr<rocksdb::FSDirectory>* result, IODebugContext*) override {
    const Result<FileInfo> info = volume_->stat(name);
    if (!info.ok()) return io_status(info.status(), name);
    if (!info->directory) return IOStatus::IOError(name, "it is not a directory");
    *result = std::make_unique<Directory>(volume_, name, unique_id(info->inode));
    return IOStatus::OK();
  }

  // --- names ---

  IOStatus FileExists(const std::string& name, const IOOptions&, IODebugContext*) override {
    return volume_->stat(name).ok() ? IOStatus::OK() : IOStatus::NotFound(name);
  }
  IOStatus GetChildren(const std::string& name, const IOOptions&, std::vector<std::string>* result,
                       IODebugContext*) override {
    result->clear();
    const Result<std::vector<FileInfo>> all = volume_->list(name);
    if (!all.ok()) return IOStatus::NotFound(name, all.status().describe());
    for (const FileInfo& info : *all) result->push_back(info.name);
    return IOStatus::OK();
  }
  IOStatus GetChildrenFileAttributes(const std::string& name, const IOOptions&,
                                     std::vector<FileAttributes>* result,
                                     IODebugContext*) override {
    result->clear();
    const Result<std::vector<FileInfo>> all = volume_->list(name);
    if (!all.ok()) return IOStatus::NotFound(name, all.status().describe());
    for (const FileInfo& info : *all) result->push_back({info.name, info.bytes});
    return IOStatus::OK();
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions&, IODebugContext*) override {
    return io_status(volume_->remove(name), name);
  }
  IOStatus Truncate(const std::string& name, std::size_t size, const IOOptions&,
                    IODebugContext*) override {
    auto file = volume_->open_file(name);
    Status status = file.ok() ? (*file)->truncate(size) : file.status();
    if (status.ok()) status = (*file)->close();
    return io_status(status, name);
  }
  IOStatus CreateDir(const std::string& name, const IOOptions&, IODebugContext*) override {
    return io_status(volume_->make_directory(name), name);
  }
  // With the directories that it is in: there is no shell to make them with.
  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions&, IODebugContext*) override {
    std::string path;
    for (const std::string_view part : FileTree::split(name)) {
      path.append("/").append(part);
      const Status status = volume_->make_directory(path);
      if (!status.ok() && status.code() != Code::exists) return io_status(status, name);
    }
    const Result<FileInfo> info = volume_->stat(name);
    if (info.ok() && !info->directory) return IOStatus::IOError(name, "it is not a directory");
    return io_status(info.status(), name);
  }
  IOStatus DeleteDir(const std::string& name, const IOOptions&, IODebugContext*) override {
    return io_status(volume_->remove_directory(name), name);
  }
  IOStatus GetFileSize(const std::string& name, const IOOptions&, std::uint64_t* bytes,
                       IODebugContext*) override {
    const Result<FileInfo> info = volume_->stat(name);
    *bytes = info.ok() ? info->bytes : 0;
    return io_status(info.status(), name);
  }
  IOStatus GetFileModificationTime(const std::string& name, const IOOptions&, std::uint64_t* time_s,
                                   IODebugContext*) override {
    const Result<FileInfo> info = volume_->stat(name);
    *time_s = info.ok() ? info->modified_s : 0;
    return io_status(info.status(), name);
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions&,
                      IODebugContext*) override {
    return io_status(volume_->rename(from, to), from);
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions&,
                    IODebugContext*) override {
    return io_status(volume_->link(from, to), from);
  }
  IOStatus NumFileLinks(const std::string& name, const IOOptions&, std::uint64_t* count,
                        IODebugContext*) override {
    const Result<FileInfo> info = volume_->stat(name);
    *count = info.ok() ? info->links : 0;
    return io_status(info.status(), name);
  }
  IOStatus AreFilesSame(const std::string& first, const std::string& second, const IOOptions&,
                        bool* same, IODebugContext*) override {
    const Result<FileInfo> one = volume_->stat(first), other = volume_->stat(second);
    if (!one.ok()) return io_status(one.status(), first);
    if (!other.ok()) return io_status(other.status(), second);
    *same = one->inode == other->inode;
    return IOStatus::OK();
  }
  IOStatus IsDirectory(const std::string& name, const IOOptions&, bool* directory,
                       IODebugContext*) override {
    const Result<FileInfo> info = volume_->stat(name);
    *directory = info.ok() && info->directory;
    return io_status(info.status(), name);
  }
  IOStatus GetAbsolutePath(const std::string& name, const IOOptions&, std::string* path,
                           IODebugContext*) override {
    *path = absolute_path(name);
    return IOStatus::OK();
  }
  IOStatus GetTestDirectory(const IOOptions& options, std::string* path,
                            IODebugContext* debug) override {
    const char* const asked = std::getenv("TEST_TMPDIR");
    const bool given = asked != nullptr && *asked != '\0';
    *path = given ? std::string(asked) : "/tmp/rocksdbtest-" + std::to_string(geteuid());
    return CreateDirIfMissing(*path, options, debug);
  }

  // --- the rest ---

  IOStatus LockFile(const std::string& name, const IOOptions&, FileLock** lock,
                    IODebugContext*) override {
    *lock = nullptr;
    const LockName held(volume_->identity(), absolute_path(name));
    if (!locks().lock(held)) {
      return IOStatus::IOError("lock hold by current process", name);
    }
    const auto file = volume_->create(name, FileVolume::Existing::keep);
    if (!file.ok()) {
      locks().unlock(held);
      return io_status(file.status(), name);
    }
    auto* const made = new FurrowLock();
    made->name = held;
    *lock = made;
    return IOStatus::OK();
  }
  IOStatus UnlockFile(FileLock* lock, const IOOptions&, IODebugContext*) override {
    auto* const ours = static_cast<FurrowLock*>(lock);
    locks().unlock(ours->name);
    delete ours;
    return IOStatus::OK();
  }
  IOStatus GetFreeSpace(const std::string&, const IOOptions&, std::uint64_t* bytes,
                        IODebugContext*) override {
    *bytes = volume_->free_bytes();
    return IOStatus::OK();
  }
  IOStatus Poll(std::vector<void*>& handles, std::size_t) override { return poll_reads(handles); }
  IOStatus AbortIO(std::vector<void*>& handles) override { return abort_reads(handles); }

 private:
  IOStatus open_writable(const std::string& name, const FileOptions& options,
                         FileVolume::Existing existing,
                         std::unique_ptr<rocksdb::FSWritableFile>* result) {
    const OpenTimer timer;
    const bool wal = existing == FileVolume::Existing::truncate && is_wal(name, options);
    if (wal && volume_->free_bytes() < kWalBytesMin) return wal_refusal(name, kNoRoom);
    auto file = volume_->create(name, existing);
    if (wal && file.status().code() == Code::no_space) return wal_refusal(name, file.status());
    if (!file.ok()) return io_status(file.status(), name);
    const std::string id = unique_id((*file)->inode());
    *result = make_writable_file(std::move(*file), name, id, options);
    return IOStatus::OK();
  }
  // A database's own: copies, as of checkpoints and backups, have the same names. Wrappers that do
  // not pass OptimizeForLogWrite() on have their WALs known by the lock of the directory.
  bool is_wal(const std::string& name, const FileOptions& options) const {
    if (file_kind(name) != FileKind::wal) return false;
    if (!options.fallocate_with_keep_size) return true;
    const std::string path = absolute_path(name);
    return locks().holds({volume_->identity(), path.substr(0, path.rfind('/')) + "/LOCK"});
  }
  // A WAL that cannot be made ends the database until it is opened again, if NoSpace is the reason,
  // and one that cannot be written to before anything else is in memory ends the process (RocksDB
  // 7.8). Another error that may pass is tried again each second.
  static IOStatus wal_refusal(const std::string& name, const Status& status) {
    IOStatus passing = IOStatus::IOError(name, status.describe());
    passing.SetRetryable(true);
    return passing;
  }
  // 24 bytes: none is the beginning of another.
  std::string unique_id(std::uint64_t inode) const {
    const Uuid& uuid = volume_->info().uuid;
    std::string id(uuid.size() + sizeof inode, '\0');
    std::copy(uuid.begin(), uuid.end(), id.begin());
    store_le(reinterpret_cast<std::byte*>(id.data() + uuid.size()), inode);
    return id;
  }

  const std::shared_ptr<FileVolume> volume_;
  const std::string uri_;
};

}  // namespace

std::optional<FileSystemUsage> usage_of(const rocksdb::FileSystem& files) {
  const auto* const ours = files.CheckedCast<FurrowFileSystem>();
  if (ours == nullptr) return std::nullopt;
  return ours->usage();
}

std::unique_ptr<rocksdb::FileSystem> make_file_system(std::shared_ptr<FileVolume> volume,
                                                      const std::string& uri) {
  return std::make_unique<FurrowFileSystem>(std::move(volume), uri);
}

}  // namespace furrow
