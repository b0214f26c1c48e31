// MergedReads: reads of a queue that lie one right behind the other, as the pages of a batch do,
// made one for the kernel: their data goes to the memory of each, and a disk or drive has one
// command for many. One thread.
#pragma once

#include <array>
#include <memory>

#include "zone/io_list.h"

namespace furrow {

class MergedReads {
 public:
  static constexpr std::uint64_t kBytesMax = 256 << 10;
  static constexpr std::uint32_t kPiecesMax = 32;
  static constexpr unsigned kCount = 32;  // at a time; what comes beyond goes by itself

  // At most as much as one request of the kernel's may be.
  MergedReads(const Geometry& geometry, std::uint64_t bytes_max, std::uint32_t pieces_max);

  // `first`, or what stands for it and for those at the front of `behind` that go on where it ends;
  // these are taken from there then. All of each is read, also what a request before has read.
  Io& merge(Io& first, IoList& behind);
  bool is_merged(const Io& io) const { return io.on_complete == never_completed; }
  // Of one that is: what it stood for, in order. It is gone.
  IoList take_apart(Io& merged);

 private:
  struct Merged {
    Io io;  // must be first: an Io& is a Merged&
    std::array<iovec, kPiecesMax> pieces;
    IoList members;
  };
  static void never_completed(Io&);
  bool fits(const Io& io) const;
  bool goes_on(const Io& last, const Io& next, std::uint64_t bytes, std::uint32_t pieces) const;

  const Geometry& geometry_;
  const std::uint64_t bytes_max_;
  const std::uint32_t pieces_max_;
  std::unique_ptr<Merged[]> all_;
  IoList free_;
};

}  // namespace furrow
