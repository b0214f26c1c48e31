// GroupRemoval: deletes all pages of a group. A group tombstone is logged first, unless the volume
// has no record of the group; then those that the caller knows are taken out of the index or, where
// it does not know all, every run of the group's pages is looked up in the zones' tables, and their
// keys are read from the batch headers, several at a time.
//
// Threads: the home executor. Lives from start() to the op's on_done.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "log/header_reader.h"
#include "log/page_log.h"
#include "log/stream.h"

namespace furrow {

class GroupRemoval {
 public:
  // Frees itself when the operation has been answered.
  static void start(PageLog& log, RemoveGroupOp& op);

 private:
  static constexpr unsigned kReadsMax = 8;  // of headers, together: others need the reader as well

  struct Write : Append {
    GroupRemoval* removal = nullptr;
  };
  struct Read : HeaderRead {
    GroupRemoval* removal = nullptr;
    std::size_t batch = 0;
    unsigned side = 0;  // of the epoch, while it is being read
  };
  struct Flush : FlushWaiter {
    GroupRemoval* removal = nullptr;
  };
  struct Batch {
    ZoneId zone;
    std::uint64_t generation;
    std::uint64_t page_lba;  // pool-wide: a page in it
  };

  GroupRemoval(PageLog& log, RemoveGroupOp& op);
  bool group_is_known() const;
  void draw_sequence();
  void pass_marker();  // through the other streams, and then the tombstone is written
  bool goes_first(unsigned number) const;
  bool flushes() const;
  void write();
  void others_flushed(const Status& status);
  void written();
  std::optional<IndexEntry> find(const KnownPage& page) const;
  void remove_known(const KnownPage& page);
  void gather();
  void read_headers();
  void read_next(Read& read);
  void header_read(Read& read, const Result<BatchView>& view);
  void headers_read();
  void finish(Status status);

  PageLog& log_;
  RemoveGroupOp& op_;
  Stream* stream_;  // that the tombstone goes to
  unsigned next_stream_ = 0;
  Write write_, marker_;
  std::array<Read, kReadsMax> reads_;
  Flush before_, flush_;
  std::vector<Batch> batches_;
  std::size_t next_ = 0;
  unsigned reading_ = 0;
  bool logged_ = false;  // its tombstone is
  Status status_;
};

}  // namespace furrow
