// Listing: keys in listing order, from the index's buckets and the batch headers that hold the
// keys.
//
// Threads: the home executor. Lives from start() to the op's on_done.
#pragma once

#include <array>
#include <vector>

#include "log/header_reader.h"
#include "log/page_log.h"

namespace furrow {

class Listing : private Task {
 public:
  static constexpr unsigned kBucketsPerTurn = 256;  // looked at before others have a turn

  static void start(PageLog& log, ListOp& op);  // frees itself when the op has been answered

 private:
  static constexpr unsigned kLanes = 16;             // half of what HeaderReader reads at a time
  static constexpr std::uint32_t kEntriesMin = 256;  // of a group of buckets
  struct Lane : HeaderRead {
    Listing* listing = nullptr;
    std::size_t entry = 0;
  };
  struct Found {
    KeyHash hash;
    Key key;
  };

  Listing(PageLog& log, ListOp& op);
  void walk();
  void find_entries();
  void read_on(Lane& lane);
  void header_read(Lane& lane, const Result<BatchView>& view);
  bool end_buckets();
  void finish();

  PageLog& log_;
  ListOp& op_;
  KeyHash after_;
  bool from_start_ = false;
  std::uint64_t next_ = 0;  // a hash in the next bucket, 0 behind the last one
  unsigned looked_ = 0;     // buckets, this turn
  std::vector<IndexEntry> entries_, of_bucket_;
  std::vector<Found> found_;
  std::array<Lane, kLanes> lanes_;
  std::size_t next_entry_ = 0;
  unsigned reading_ = 0;
  unsigned epoch_side_ = 0;
  Status status_;
};

}  // namespace furrow
