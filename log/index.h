// Index: from a key's hash to where its page is, in about 15 bytes a page, all included.
//
// Buckets are ranges of the high bits of KeyHash::order and split in place one after another
// (linear hashing), so the table grows a bucket at a time and can be walked in listing order. An
// entry is 14 bytes: device LBA (40 bits), length - 1 (22), two flags, checksum (32), tag (16). The
// tag is the 16 bits of the hash below the initial bits, which entries_max sets; splits beyond
// those use the tag's own bits, so nothing is read from the medium to grow. Where all pages have
// one length, and no flags, an entry is 11 bytes (Shape).
//
// Two keys may share bucket and tag: find() returns every candidate, and the caller tells them
// apart by checksum and batch header. Of an index as full as entries_max said, one look-up in 65 to
// 130 gives a candidate that is another key.
//
// Threads: one owner changes the index; any number of threads call find() at the same time without
// locks (a version in each bucket; a reader retries when a change passed under it). Memory is taken
// as entries come and given back as they go; std::bad_alloc when even the address space is gone, or
// beyond twice entries_max (or entries_limit).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace furrow {

struct IndexEntry {
  std::uint64_t lba = 0;     // pool-wide, < 2^40
  std::uint32_t length = 1;  // 1..2^22
  std::uint32_t checksum = 0;
  bool pinned = false;
  bool expires = false;  // its expiry is in the zone's table
  friend bool operator==(const IndexEntry&, const IndexEntry&) = default;
};

class Index {
 public:
  // `entries_max`: what the volume could hold at most (capacity / LBA); sets the initial number of
  // buckets and the address space reserved (not the memory used).
  // `same_length`: of all pages, which are neither pinned nor expire; 0: any. `order_bits`: no two
  // entries are equal in the first so many bits of their order: then there is one candidate of an
  // order at most, and it is no other key's. 0: they may be. 28 at most beyond those of
  // entries_max.
  // `entries_limit`: what it may come to hold later, more than entries_max: address space for
  // them. The more, the more often candidates are other keys, until an index is made for them.
  struct Shape {
    std::uint32_t same_length = 0;
    unsigned order_bits = 0;
    std::uint64_t entries_limit = 0;
  };
  explicit Index(std::uint64_t entries_max) : Index(entries_max, Shape()) {}
  Index(std::uint64_t entries_max, const Shape& shape);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // Any thread. Writes the candidates of `order` number skip, skip+1, ... to `out`; returns how
  // many there are from `skip` on (which may be more than fit). Their order may change with any
  // change of the index: who comes back for more must be ready to meet one twice, or to start over.
  unsigned find(std::uint64_t order, unsigned skip, std::span<IndexEntry> out) const;

  // The owner's thread.
  void insert(std::uint64_t order, const IndexEntry& entry);
  // Removes, or moves, the entry of `order` at `lba`; false: there is none.
  bool erase(std::uint64_t order, std::uint64_t lba);
  bool replace(std::uint64_t order, std::uint64_t lba, const IndexEntry& entry);

  // Removes the entries that `goes` names from the bucket that holds `from`, appends them to
  // `erased`, and returns the first hash behind that bucket (0: it was the last). A walk from 0 by
  // what is returned asks about every entry that was there when it began, about some twice.
  std::uint64_t erase_in_bucket(std::uint64_t from,
                                const std::function<bool(const IndexEntry&)>& goes,
                                std::vector<IndexEntry>& erased);

  // All of it, at once, for good: nothing is inserted any more.
  void clear();

  // Puts into `out` (emptied first) the entries of the bucket that holds `from`, in no order, and
  // returns the first hash behind that bucket (0: it was the last). Any thread. For listing: names
  // what to read from the medium. Walking from 0 by what is returned gives each entry that stays
  // once, whatever splits or merges meanwhile; called with another `from`, it leaves out most of
  // what lies before `from`, not all.
  std::uint64_t bucket_entries(std::uint64_t from, std::vector<IndexEntry>& out) const;

  // Fills an empty index, faster than inserts: begin_load(), then Loaders.
  struct Loaded {
    std::uint64_t order;
    IndexEntry entry;
  };
  // The owner's thread. `entries`: how many will come, at least one.
  void begin_load(std::uint64_t entries);
  // Takes entries in ascending order of their hashes. Several threads may have one each, and nobody
  // anything else: no two Loaders may be given hashes that are equal in the first kLoadRangeBits.
  static constexpr unsigned kLoadRangeBits = 6;
  class Loader {
   public:
    explicit Loader(Index& index) : index_(index), waiting_(kWaitingMax) {}
    void add(const Loaded& loaded) {
      if (count_ == waiting_.size()) flush(false);
      waiting_[count_++] = loaded;
    }
    void finish() { flush(true); }  // nothing counts before this

   private:
    static constexpr std::size_t kWaitingMax = 2048;
    void flush(bool all);
    Index& index_;
    std::vector<Loaded> waiting_;  // what may not be a whole bucket yet
    std::size_t count_ = 0;        // of it
  };
  void load(std::span<const Loaded> sorted);  // all of it, with one Loader

  std::uint64_t size() const;   // entries; any thread
  std::uint64_t bytes() const;  // DRAM used, everything included; any thread

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace furrow
