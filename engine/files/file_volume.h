// FileVolume: the files and directories of a volume of kind fs.
//
//   auto volume = furrow::FileVolume::mount(pool, store);
//   auto file = (*volume)->create("/db/000001.log");
//   furrow::Status synced = (*file)->append(bytes), ... (*file)->sync();
//
// Names are paths from the root; "." and ".." and repeated slashes are understood, and a relative
// path starts at the root. A change of names is with the device when its call returns (it outlives
// the process), and in the order of the calls; sync_names() makes all of them durable.
//
// Threads: any; each call blocks its caller only. No lock is held while the device works but that
// of a file, by who changes it. Errors: not_found, exists, invalid_argument (a directory where a
// file is meant, or the other way round, a directory that is not empty, a name that is too long),
// no_space, corrupt, io_error.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/blocking_pool.h"
#include "engine/files/file_content.h"
#include "engine/files/file_tree.h"

namespace furrow {

struct FileInfo {
  std::string name;
  bool directory = false;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::uint64_t modified_s = 0;  // Unix time
  std::uint32_t links = 0;       // names
  std::uint64_t chunks = 0;      // of a file
};

struct FilesUsage {
  std::uint64_t files = 0, directories = 0;  // the root is one
  std::uint64_t bytes = 0, chunks = 0;       // of all files
  std::uint64_t record_bytes = 0;  // of files and directories, each of which has one record
  std::uint64_t free_bytes = 0;    // what may still be written, about
  FilesWritten written;
  std::uint64_t restored_bytes = 0;  // that a killed process left staged, by this mount
};

// What cannot be read of a volume, or could not be found.
struct FileLoss {
  std::string what;  // a path, or in words
  Status why;
};

class FileVolume;

// An open file. What was appended may be lost by a kill if it is not closed and the system has no
// shared memory (see Staging).
class OpenFile {
 public:
  ~OpenFile();  // close()
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  Status append(std::span<const std::byte> bytes);
  Status flush();  // outlives the process
  Status sync();   // and a power cut
  // As pwrite: bytes that are there are replaced, durably when it returns, and whole or not at all;
  // what is left out before `offset` is zeroes. Replacing puts each chunk that changes again: bytes
  // that are as they were cost a read, and are as durable as they were. Not while anybody else adds
  // to the file. too_large: files are not that long.
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // Shorter: durably when it returns, and the old or the new size after a crash. Longer: zeroes are
  // added, as by append().
  Status truncate(std::uint64_t bytes);
  // As content().read(), also while others overwrite or cut what is read.
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> memory) const;
  // As of now, instead of the last write's time; the record says so when it is written.
  void set_modified(std::uint64_t unix_s);
  // Writers: the record is brought up to date. Again, or after reading alone: does nothing; what is
  // written after it takes another.
  Status close();

  FileContent& content() { return *node_->file; }
  const FileContent& content() const { return *node_->file; }
  std::uint64_t inode() const { return node_->inode; }

 private:
  friend class FileVolume;
  OpenFile(std::shared_ptr<FileVolume> volume, std::shared_ptr<FileNode> node);
  Status add_zeroes(std::uint64_t size);
  Status record(Durability durability);
  std::shared_ptr<FileVolume> volume_;
  std::shared_ptr<FileNode> node_;
  bool changed_ = false;  // since it was closed
};

class FileVolume : public std::enable_shared_from_this<FileVolume> {
 public:
  // A chunk of a file, and the most that a page of such a volume needs to hold. What is left of a
  // segment behind its last page is lost, and admission counts on that: half a chunk, on average.
  static constexpr std::uint32_t kChunkBytesMax = 256 << 10;

  // The volume of kind fs of that name; empty: the pool's only one.
  static Result<PageStore*> find(Pool& pool, std::string_view name);
  // Files that have lost their record, as what could not be read of the pool was given up. take_in:
  // from this mount on they are in the root, as `lost+found.INODE`, and losses() names them. For
  // that every key of the volume is read; who does not ask for it leaves them as they are, where
  // they take room and nobody sees them.
  enum class Strays : std::uint8_t { leave, take_in };
  // `store`: of the pool. A volume is mounted once at a time.
  static Result<std::shared_ptr<FileVolume>> mount(std::shared_ptr<BlockingPool> pool,
                                                   PageStore& store, Strays strays = Strays::leave);
  // For a volume that cannot be mounted, as a record of it cannot be read: what is left of it, for
  // reading alone. Nothing is written, so the pool may have been opened for reading. Files that
  // have lost their record are in the root, as `lost+found.INODE`. Errors: unsupported (a newer
  // version), io_error.
  static Result<std::shared_ptr<const FileVolume>> salvage(std::shared_ptr<BlockingPool> pool,
                                                           PageStore& store);
  // Of salvage(); and see Strays.
  const std::vector<FileLoss>& losses() const { return losses_; }
  // All files are closed: gives what is staged to the device and makes it durable.
  ~FileVolume();
  // Called once all of it is gone, by the thread that was the last to let go of it, or of a file.
  void when_unmounted(std::function<void()> call) { when_unmounted_ = std::move(call); }

  Result<std::unique_ptr<OpenFile>> open_file(std::string_view path);
  enum class Existing : std::uint8_t { truncate, keep, refuse };
  Result<std::unique_ptr<OpenFile>> create(std::string_view path, Existing existing);
  // The file itself goes when nobody has it open any more.
  Status remove(std::string_view path);
  // Replaces a file that is there, when the device has all of the one that takes its place,
  // durably: after any crash it is one of the two, whole.
  Status rename(std::string_view from, std::string_view to);
  Status link(std::string_view from, std::string_view to);
  Status make_directory(std::string_view path);  // not the directories that it is in
  Status remove_directory(std::string_view path);
  Status sync_names();

  Result<FileInfo> stat(std::string_view path) const;
  Result<std::vector<FileInfo>> list(std::string_view path) const;  // by name
  // A file's bytes, for reading.
  Result<std::shared_ptr<const FileContent>> content(std::string_view path) const;
  FilesUsage usage() const;          // looks at every file
  std::uint64_t free_bytes() const;  // the medium may have room for less than all zones
  FilesWritten written() const;
  const VolumeInfo& info() const { return store_.info(); }
  // Of the volume on this device: a copy of the pool has the same volumes.
  const std::string& identity() const { return identity_; }
  PageStore& store() { return store_; }
  const PageStore& store() const { return store_; }
  const Geometry& geometry() const { return pool_->geometry(); }
  bool survives_kill() const { return staging_.survives_kill(); }

  // The process ends as if it was killed: nothing is written any more. For tests.
  void abandon();

 private:
  friend class OpenFile;
  using Lock = std::unique_lock<std::mutex>;
  FileVolume(std::shared_ptr<BlockingPool> pool, PageStore& store, const FilesSuper& before,
             Staging::Use use);

  // Mounting, before anybody else has it.
  static Result<FilesSuper> read_super(BlockingPool& pool, PageStore& store, KnownPage& page);
  std::uint32_t slots_max() const;
  Status load(Strays strays);
  Status load_records();
  Status load_slots(std::uint32_t first, std::span<AlignedBuffer> memory);
  Status load_record(std::uint32_t slot, const PageOp& op);
  Status add_root();
  Status connect();
  void rescue(const std::shared_ptr<FileNode>& node);
  Status drop_lost();
  Status restore_staged();
  void record_found();
  Status write_super(std::uint32_t slots, Durability durability);
  void save_written(Lock& lock);
  Status salvage();
  void find_slots();
  Status find_strays();
  Status record_strays();
  Status lost(std::string what, const Status& why);
  static Status unreadable(const Status& why);

  // The names that a call changes, and what they name; others that change one of them wait until it
  // ends, so that what fails can be undone. Made and ended with the lock held.
  class Claim {
   public:
    Claim(FileVolume& volume, Lock& lock, std::span<const std::string_view> paths);
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    const Status& status() const { return status_; }  // of finding the places
    const FileTree::Place& operator[](std::size_t i) const { return places_[i]; }

   private:
    bool find(std::span<const std::string_view> paths);
    FileVolume& volume_;
    Status status_;
    std::vector<FileTree::Place> places_;
  };
  bool is_changing(const FileTree::Place& place) const;
  bool is_unsettled(const FileTree::Place& place) const;
  bool is_changing_within(const FileNode& directory) const;
  bool is_empty(const FileNode& directory) const;
  Result<std::shared_ptr<FileNode>> make_node(Lock& lock, std::string_view path, bool directory);
  Result<std::uint32_t> take_slot(Lock& lock);
  // Grows over mounts: 2^24 of them, with 2^40 numbers each.
  std::uint64_t next_number() { return mount_ << 40 | ++numbers_; }
  Status record(Lock& lock, const std::shared_ptr<FileNode>& node, Durability durability);
  Status put_record(const FileNode& node, const FileRecord& record, Durability durability,
                    KnownPage& recorded);
  Status unlink(Lock& lock, const FileTree::Place& place);
  Status settle(Lock& lock, const FileTree::Place& place);
  Status drop_names(Lock& lock, const std::shared_ptr<FileNode>& node);
  static bool is_nobodys(const FileNode& node);
  bool is_there(const KnownPage& page);
  Status destroy(Lock& lock, const std::shared_ptr<FileNode>& node);
  void destroy_left(Lock& lock);
  void unpin(Lock& lock, const std::shared_ptr<FileNode>& node);
  Status make_whole(Lock& lock, const std::shared_ptr<FileNode>& node);
  Status rename(Lock& lock, const FileTree::Place& source, const FileTree::Place& target);
  Status rename_refusal(const FileTree::Place& source, const FileTree::Place& target) const;
  void take_back(Lock& lock, const std::shared_ptr<FileNode>& node);
  Status settle_names(Lock& lock);
  void restore_link(const std::shared_ptr<FileNode>& parent, const std::shared_ptr<FileNode>& node,
                    const std::vector<FileLink>& before, const std::string& name);
  std::unique_ptr<OpenFile> handle(const std::shared_ptr<FileNode>& node);
  void release(const std::shared_ptr<FileNode>& node);
  FileInfo info_of(const FileNode& node, std::string_view name) const;

  std::shared_ptr<BlockingPool> pool_;
  PageStore& store_;
  const std::uint64_t mount_;
  const std::uint64_t token_;
  const Staging::Use use_;
  std::vector<FileLoss> losses_;
  const std::uint32_t chunk_bytes_;
  const std::string identity_;
  Staging staging_;
  FileReaders readers_;
  FileServices services_;
  std::atomic<std::uint64_t> appended_bytes_{0};
  std::uint64_t restored_bytes_ = 0;  // by mounting

  mutable std::mutex mutex_;  // of all that follows; taken before a FileContent's
  std::condition_variable changed_;
  FileTree tree_;
  std::set<std::pair<std::uint64_t, std::string>> changing_;  // directory and name, see Claim
  // Likewise, names that a file's record still claims, though another file has them since: that
  // record is written, or the file deleted, before the other one loses the name, which would be the
  // first one's again.
  std::multimap<std::pair<std::uint64_t, std::string>, std::shared_ptr<FileNode>> claimed_;
  std::vector<std::shared_ptr<FileNode>> left_;          // to be deleted, which has failed so far
  std::vector<std::shared_ptr<FileNode>> names_unsure_;  // the medium may say others than they have
  KnownPage super_page_;
  std::uint64_t numbers_ = 0;  // of inodes and links, drawn by this mount
  const FilesWritten written_before_;
  const VolumeStats stats_before_;    // of the volume since its pool was opened, mounted or not
  std::uint32_t slots_ = 0;           // that the super page allows
  bool growing_ = false;              // the super page is being written
  const FileNode* moving_ = nullptr;  // a directory: nothing in it gets a name, or loses one
  std::uint64_t saved_bytes_ = 0;     // of what the device was given, when it was written
  std::uint32_t next_slot_ = 0;
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> freed_slots_;  // by deletions that a power cut may undo
  std::atomic<bool> abandoned_{false};
  std::function<void()> when_unmounted_;
};

}  // namespace furrow
