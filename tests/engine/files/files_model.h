// FilesModel: random calls on a file volume, one after another, all drawn from a source of random
// numbers; what is read between them; and what must be there when it is mounted again:
//   names   after a power cut those of one moment, not before the last that was made durable, as
//           calls are ordered; after a kill or an unmount those that were there;
//   bytes   after a power cut a beginning, with all that a sync or a change made durable; after a
//           kill or an unmount all;
//   space   once all is removed, no page is left but the first one and the root's record.
// Of what cannot be read, or is damaged, the rest is so. It outlives mounts. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/files/file_volume.h"
#include "tests/engine/files/file_calls.h"

namespace furrow::testing {

class FilesModel {
 public:
  struct Plan {
    bool faults = false;      // the device fails now and then
    bool unreadable = false;  // it fails reads alone, for a while: they say io_error
    bool full = false;        // there may be no room
    bool more = false;        // also reads, zeroes behind the end, and what else a database does
    unsigned bytes_max = 150'000;  // of one call; a few are so long
  };
  FilesModel(std::function<std::uint64_t()> random, Plan plan)
      : random_(std::move(random)), plan_(plan) {}

  // Mounted, until let_go(). `calls`: on that volume.
  void attach(FileVolume& volume, std::unique_ptr<FileCalls> calls) {
    volume_ = &volume;
    files_ = std::move(calls);
    gone_ = false;
  }
  // The power is gone, or the volume about to be unmounted: closes what is open.
  void let_go() {
    for (auto& [inode, body] : bodies_) body.file.reset();
    files_.reset();
  }
  bool step();  // false: the power is gone
  // After the mount that follows. `may_lose`: the power was cut, or the device failed to flush.
  void verify(bool may_lose);
  void remove_all();
  void fill(std::uint64_t left_bytes);                     // a new volume, by one large file
  const std::string& failure() const { return failure_; }  // the first; empty: none
  // While it is not mounted: a page is damaged, as which it was `bytes`. Reading it is an error
  // from now on. Where it is a record's, or the first page: perhaps mounting is, until mended().
  void strike(const Key& key, std::span<const std::byte> bytes);
  bool may_be_refused() const { return !struck_records_.empty(); }
  void mended() { struck_records_.clear(); }
  // Instead of verify(), of what was not mounted for that: nothing else is lost.
  void verify_salvaged(const FileVolume& salvaged, bool may_lose);

 private:
  using Names = std::map<std::string, std::uint64_t>;  // inodes by path; 0: any
  struct Body {
    std::string bytes;
    std::size_t synced = 0;
    std::optional<std::string> instead;  // or these: a change that was not acknowledged
    std::size_t unanswered = 0;          // of these bytes, the last: of an append that was cut off
    bool dirty = false;                  // a sync certainly has something to do, so it flushes
    bool failed = false;                 // the device failed a call: nothing more is asked of it
    std::unique_ptr<FileInUse> file;
  };

  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }
  std::string random_path();
  std::string random_text();
  Body* random_open();

  bool step_names(unsigned which);
  bool step_bytes(unsigned which, Body& body);
  bool create();
  bool reopen();
  bool reuse();
  bool look();
  bool append(Body& body);
  bool grow(Body& body);
  bool write_behind_end(Body& body);
  bool overwrite(Body& body);
  bool overwrite_at(Body& body, std::size_t at, const std::string& text);
  bool cut(Body& body);
  bool cut_to(Body& body, std::size_t size);
  bool sync(Body& body);
  bool close(Body& body);
  bool sync_names();
  // After a call that would turn the names into `next`. False: the power is gone.
  bool named(const Status& status, Names next);
  // After a call that would add `text`, or some of it, at the end.
  bool appended(const Status& status, Body& body, const std::string& text);
  // After a call that would turn the bytes into `next`. `damage`: it said so of what it read.
  bool changed(const Status& status, Body& body, const std::string& next, bool damage = false);
  bool goes_on(const Status& status, Body* body);

  static bool is_refusal(const Status& status);
  bool rename(const std::string& from, const std::string& to);
  Names renamed(const std::string& from, const std::string& to) const;

  Names names_now();
  void list(const std::string& directory, Names& names);
  void list(const FileVolume& volume, const std::string& directory, Names& names);
  static std::string found(std::uint64_t inode);
  static Names names_without(const FileRecord& lost, const Names& names);
  static bool same(const Names& model, const Names& there);
  static std::string text_of(const Names& names);
  static std::string text_of(const Result<std::string>& bytes);
  // A file, as far as it can be read.
  struct Seen {
    std::string bytes;
    std::vector<std::pair<std::size_t, std::size_t>> holes;  // from, to: not known
  };
  bool may_fail(const Status& status) const;
  bool reads_damage(const Status& status, std::uint64_t inode, std::size_t from,
                    std::size_t to) const;
  bool has_damage(const std::string& path, std::uint64_t inode) const;
  Seen see(const std::string& path, std::uint64_t inode);
  Seen see_parts(const FileContent& content, const std::string& path, std::uint64_t inode);
  static bool begins_so(const std::string& wanted, const Seen& seen);
  static std::vector<std::pair<std::size_t, std::size_t>> damaged_parts(
      const FileContent& content, std::uint64_t inode, const std::set<ChunkName>& struck);
  bool change_damaged();
  void adopt(const Seen& seen, std::uint64_t inode, Body& next);
  void verify_failed(const Body& failed);
  void verify_bytes(bool may_lose, const std::string& path, const Seen& seen, const Body& body);
  void relieve();
  void expect(bool so, const std::string& text);

  const std::function<std::uint64_t()> random_;
  const Plan plan_;
  FileVolume* volume_ = nullptr;
  std::unique_ptr<FileCalls> files_;
  Names names_;
  std::vector<Names> moments_{Names()};  // since names were made durable
  std::vector<Names> unanswered_;        // or one of these: of a call that was cut off
  std::map<std::uint64_t, Body> bodies_;
  bool gone_ = false;                       // the power
  std::set<ChunkName> struck_;              // pages of files that are damaged
  std::vector<FileRecord> struck_records_;  // inode 0: the first page
  std::string failure_;
};

}  // namespace furrow::testing
