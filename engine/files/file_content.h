// FileContent: the bytes of one file.
//
//   [ chunks that the device has ][ full chunks: on their way, then waiting ][ the tail: added to ]
//
// Bytes are gathered in staging memory and put as pages of up to chunk_bytes. A sync puts the tail
// as it is; it is put again under its key when it has grown, until it is long enough to be left
// alone. Each put is acknowledged by the device, so what is not staged any more outlives the
// process.
//
// Threads: any; each call blocks its caller only. Readers never wait for writers' device
// operations. Errors: no_space leaves what was appended where it is, and every later call tries
// again; any other failure of a put is reported by every later append and sync of this file, and by
// close(), after which it has what the device has, until it is cut to nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/blocking_pool.h"
#include "engine/files/file_format.h"
#include "engine/files/file_readers.h"
#include "engine/files/staging.h"

namespace furrow {

// What the files of a volume share.
struct FileServices {
  BlockingPool& pool;
  PageStore& store;
  Staging& staging;
  FileReaders& readers;
  std::uint32_t chunk_bytes;  // a multiple of the LBA
};

// A read that goes on by itself. In place until wait() has returned.
class AsyncRead {
 public:
  static constexpr std::size_t kPartsMax = 256;
  FileRead read;
  void wait();

 private:
  friend class FileContent;
  void make_room(std::size_t parts);
  ReadParts parts() { return {{ops_.get(), room_}, {known_.get(), room_}, {reads_.get(), room_}}; }
  std::size_t room_ = 0;
  std::unique_ptr<PageOp[]> ops_;
  std::unique_ptr<KnownPage[]> known_;
  std::unique_ptr<FileRead*[]> reads_;
  BlockingPool* pool_ = nullptr;  // once it is begun
  std::mutex mutex_;
  std::condition_variable done_;
  unsigned count_ = 0, left_ = 0;
};

class FileContent : public std::enable_shared_from_this<FileContent> {
 public:
  // What a page must have before it is left alone: less is added to, and put again.
  static constexpr std::uint32_t kSealBytes = 4096;

  FileContent(FileServices& services, std::uint64_t inode) : services_(services), inode_(inode) {}
  void begin_new() { open_ = appendable_ = true; }  // a file without a record yet
  ~FileContent();

  std::uint64_t size() const;
  std::uint64_t inode() const { return inode_; }
  std::uint64_t chunks() const;  // that it is kept in, or waits to be
  // What is put from now on is written with what lives as long. (Where that is apart, the first
  // append() begins to make the file's record durable, and the first put waits for it.)
  void set_lifetime(Lifetime lifetime) { lifetime_ = lifetime; }

  // Bytes at the end. What was appended outlives the process when this returns (unless staging is
  // private: then after write_out()). busy: begin_appending() comes first.
  Status append(std::span<const std::byte> bytes);
  // For who would rather try again later: append() of so many bytes may wait for the device.
  bool append_may_wait(std::size_t bytes) const;
  bool failed() const;  // a put has, and not for want of room
  // The device has all that was appended.
  Status write_out() { return put_tail(Durability::none); }
  Status sync() { return put_tail(Durability::flushed); }
  // The same, before the file takes another one's place: what is not durable yet, if anything. Of
  // one that a put has failed for, what it still has.
  Status make_whole();
  // Nothing more is added: the device has all, and the staging memory is given back.
  Status close();

  // What writes the file's record, durably.
  using Record = std::function<Status()>;
  // After append() said busy: from now on the file may be added to, and `record` says so.
  // unsupported: no more versions (see next_version()).
  Status begin_appending(const Record& record);
  // `bytes` come in place of those from `offset` on, as many as are there; durable when it returns,
  // and a crash before leaves all or nothing of it. Each chunk that changes is put again as a
  // whole.
  Status overwrite(std::uint64_t offset, std::span<const std::byte> bytes, const Record& record);
  // The part from `size` on goes. Durable when it returns; a crash before leaves it or takes it.
  // Not while anybody appends. To nothing: also of one that a put has failed for, which is
  // forgotten.
  Status cut(std::uint64_t size, const Record& record);
  // Goes up when pages are about to be removed that a read which began before may ask for: one that
  // failed is to be tried again then.
  std::uint64_t replacements() const { return replacements_; }

  // Of the part that `offset` is in, its end: a read of a whole part is verified by its checksum.
  std::uint64_t part_end(std::uint64_t offset) const;

  // Any number of reads, in flight together.
  void read(std::span<FileRead> reads) const;
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> memory) const;
  // The same, of one read, on the pool's own thread, whatever the caller does meanwhile: it holds
  // nothing that others wait for. False: it is not begun, as it has more than AsyncRead::kPartsMax
  // parts.
  bool start(AsyncRead& read) const;

  // For the record: chunks, version, and whether more may come.
  void describe(FileRecord& record) const;
  // Mount: the chunks that a record lists; then those that follow are looked for; then what was
  // left in the staging memory is added.
  void load(const FileRecord& record);
  // The chunks that a power cut may have taken although the record lists them; and what it left.
  std::vector<KnownPage> unsure() const;
  void drop_from(std::size_t chunk);
  bool may_have_more() const { return open_; }
  Status find_more();
  bool found_more() const { return found_more_; }  // or restore() has added something
  // `look`: it is read from where it was left, and put nowhere.
  Status restore(const Staging::Left& left, Staging::Use use);
  // Of a file without a record: by offset, none over another. What is between them cannot be read.
  struct Found {
    std::uint64_t offset = 0;
    std::uint32_t length = 0, checksum = 0;
    std::uint16_t version = 0;
  };
  void load_found(std::span<const Found> chunks);

  // Until the device has answered all that was given to it: the staging memory may go then.
  void quiesce() const;

  // All pages that the file has, for its removal; it is not used any more. Nothing: there may be
  // more than it knows of, as when it is asked again.
  std::optional<std::vector<KnownPage>> retire();
  // The removal is done, until when a kill leaves the file as it was; or it has failed, and the
  // file is as it was.
  void end_retirement(bool removed);
  // Staging memory is short: the tail is put and left alone.
  Status give_up_tail();

 private:
  struct Chunk {
    std::uint64_t offset;
    std::uint32_t length, checksum;
    std::uint16_t version;
  };
  using Lock = std::unique_lock<std::mutex>;
  static constexpr std::size_t kWritingMax = 12;
  // Full chunks wait for each other, as each wakes the pool's thread.
  static constexpr std::size_t kTogether = 8;
  // Chunks that were put in another's place have versions of their own, from here on: they are only
  // found by the record.
  static constexpr std::uint16_t kReplacements = 0xff00;
  static constexpr std::uint16_t kVersionMax = kReplacements - 1;

  void wait(Lock& lock, bool (FileContent::*until)() const) const;
  bool nothing_in_flight() const { return in_flight_ == 0 && tail_at_rest(); }
  bool nobody_appends() const { return appending_ == 0 && nothing_in_flight(); }
  bool tail_at_rest() const { return !putting_ && !flushing_; }
  bool is_written(std::uint64_t end) const {
    return writing_.empty() || writing_.front()->offset >= end;
  }
  std::uint64_t puts_at_rest() const { return nothing_in_flight() ? puts_ : flushed_; }
  bool failed_and_at_rest() const;
  bool may_write_more() const { return !full_.ok() || writing_.size() < kWritingMax; }
  bool may_end_tail() const { return tail_at_rest() && may_write_more(); }
  Status put_again(Lock& lock);
  Status take_tail(Lock& lock);
  Result<std::size_t> append_across(Lock& lock, std::span<const std::byte> bytes);
  Status free_slot(Lock& lock);
  void begin_flush();
  void submit_put(Staging::Slot& slot, Durability durability);
  void submit_tail(Lock& lock, Durability durability);
  void send_full_tail(Lock& lock);
  void end_tail();
  void submit_held();
  void submit_piece(Staging::Slot& slot);
  void piece_written(Staging::Slot& slot);
  void tail_written();
  Status put_tail(Durability durability);
  Status finish();  // the tail is put and left alone
  Status flush(Lock& lock, std::uint64_t covered);
  void seal_tail();
  void release_tail();
  std::vector<Staging::Slot*> retired_slots() const;
  Status run(PageOp& op) const;

  friend class AsyncRead;
  static void settle(const ReadParts& parts, unsigned count);
  struct Cursor {  // of reads that are being gathered
    std::size_t read = 0;
    std::size_t bytes = 0;  // of that read
  };
  unsigned gather(std::span<FileRead> reads, Cursor& at, const ReadParts& parts) const;
  void run(FileReaders::Reader& reader, std::span<FileRead> reads, Cursor& at) const;
  std::size_t parts_of(const FileRead& read) const;
  bool gather_part(FileRead& read, std::size_t done, const ReadParts& parts, unsigned& count,
                   std::size_t& bytes) const;
  // A chunk that comes in another's place.
  struct Replacement {
    std::size_t index;  // in chunks_
    Chunk chunk;
  };
  struct Versions {  // of what is put next, and what the record says of it
    std::uint16_t version = 0;
    bool open = false, appendable = false;
  };
  Versions versions() const { return {version_, open_, appendable_}; }
  void restore(const Versions& before);
  static bool takes_back(const Record& record);
  void note_strays();
  Status begin_changing(const Record& record);
  Status next_version();
  Status settle();
  Result<bool> holds(std::uint64_t offset, std::span<const std::byte> bytes) const;
  Result<Chunk> put_replacement(const Chunk& old, std::uint32_t length, std::uint64_t offset,
                                std::span<const std::byte> bytes);
  Status put_replacements(std::uint64_t offset, std::span<const std::byte> bytes,
                          std::vector<Replacement>& put);
  Status make_durable();
  void forget_failure();
  Status list_cut(std::vector<Chunk> after, const std::vector<Chunk>& before, const Record& record,
                  bool& listed);
  void swap_in(std::vector<Replacement>& replacements);
  void remove_all(std::span<const Chunk> chunks);
  KnownPage known(const Chunk& chunk) const {
    return {chunk_key(inode_, chunk.version, chunk.offset), chunk.length, chunk.checksum};
  }
  std::uint64_t chunks_end() const {
    return chunks_.empty() ? 0 : chunks_.back().offset + chunks_.back().length;
  }
  // Of a file that a put has failed for: what is known to be with the device.
  std::uint64_t end() const {
    return !error_.ok() ? chunks_end() : sealed_end() + (tail_ != nullptr ? tail_->length : 0);
  }
  std::uint64_t sealed_end() const {  // where the tail begins
    return writing_.empty() ? chunks_end() : writing_.back()->offset + writing_.back()->length;
  }

  FileServices& services_;
  const std::uint64_t inode_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Chunk> chunks_;
  std::vector<Staging::Slot*> writing_;  // full, by offset; few
  std::size_t held_ = 0;                 // of these, the last: not given to the device yet
  unsigned in_flight_ = 0;               // of these, the others
  unsigned appending_ = 0;               // calls of append()
  Status full_;                          // some of these were refused for want of room
  Status tail_refusal_;                  // and so was the tail, the last time
  Staging::Slot* tail_ = nullptr;
  struct Retired {  // of a file that is being removed: what it had of these
    std::vector<Staging::Slot*> writing;
    std::size_t held = 0;
    Status full;
    Staging::Slot* tail = nullptr;
  } retired_;
  bool putting_ = false;       // the tail
  std::uint64_t puts_ = 1;     // begun; 1: the file's record
  std::uint64_t flushed_ = 0;  // of these, known to be durable
  std::uint64_t covered_ = 0;  // by the put of the tail that runs, if it is a durable one
  bool open_ = false;          // chunks may have been put that the record does not list
  bool appendable_ = false;    // the record says so
  bool strays_ = false;        // pages may have been put that are no part of the file
  bool found_more_ = false;    // mount: than the record lists
  bool unsure_ = false;        // mount: a power cut may have taken what the record lists
  std::atomic<Lifetime> lifetime_{Lifetime::medium_term};
  struct RecordFlush {
    PageOp op;
    std::shared_ptr<FileContent> keep;
  };
  std::unique_ptr<RecordFlush> record_flush_;  // begun, once
  bool flushing_ = false;
  std::uint16_t version_ = 0;
  Status error_;
  std::mutex changing_;  // held by who overwrites, cuts, closes, or begins to append; taken first
  std::uint16_t replacement_ = kReplacements;  // version of the latest one
  std::atomic<std::uint64_t> replacements_{0};
};

}  // namespace furrow
