// Chunks: where the index keeps the entries of a bucket, and ChunkStore, which allocates them with
// next to no slack. Private to log/index.cc.
//
// A chunk of class k holds up to 4k entries as columns of 64-bit words: k words of tags, 4k of
// positions, 2k of checksums, and one with the number of the bucket that it belongs to. Where all
// positions have the same bits above the LBA's 40 (`same`), these are not kept: 2k words have the
// LBAs' low 32 bits, k / 2 the high 8. Chunks of a
// class lie densely in extents of its own: when one is freed, the last one of its class moves into
// the hole (the bucket number says whose header then changes). So memory is taken only by chunks
// in use, the open end of each class, and a page or so of slack there.
//
// Threads: one owner changes; readers read words of any chunk at any time, also of freed ones, and
// find out afterwards, from the bucket's header, whether what they read was of use. For that to
// work without fences every word is loaded with acquire and stored with release order (plain moves
// on x86): a reader that sees a word's new content also sees the header change that came before.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "log/reserved_memory.h"
#include "zone/check.h"

namespace furrow {

struct ChunkEntry {
  std::uint16_t tag = 0;
  std::uint64_t position = 0;
  std::uint32_t checksum = 0;
};

// The columns of one chunk. `k` may be 0: then there is no memory behind it.
class Chunk {
 public:
  static constexpr unsigned kEntriesPerClass = 4;
  static constexpr std::uint64_t words(unsigned k, bool narrow = false) {
    return narrow ? 5 * std::uint64_t{k} + (k + 1) / 2 + 1 : 7 * std::uint64_t{k} + 1;
  }
  static constexpr unsigned class_of(unsigned entries) {
    return (entries + kEntriesPerClass - 1) / kEntriesPerClass;
  }

  // `same`: the bits above the LBA of every position; 0: they differ.
  Chunk(std::uint64_t* words, unsigned k, std::uint64_t same = 0)
      : words_(words), k_(k), same_(same) {}

  std::uint16_t tag(unsigned i) const {
    return static_cast<std::uint16_t>(load_word(words_[i / 4]) >> (i % 4 * 16));
  }
  std::uint64_t position(unsigned i) const {
    if (same_ == 0) return load_word(words_[k_ + i]);
    const std::uint64_t low = load_word(words_[k_ + i / 2]) >> (i % 2 * 32) & 0xffffffff;
    return same_ | (load_word(words_[5 * k_ + i / 8]) >> (i % 8 * 8) & 0xff) << 32 | low;
  }
  std::uint32_t checksum(unsigned i) const {
    return static_cast<std::uint32_t>(load_word(checksums()[i / 2]) >> (i % 2 * 32));
  }
  ChunkEntry entry(unsigned i) const { return {tag(i), position(i), checksum(i)}; }
  std::uint32_t bucket() const { return static_cast<std::uint32_t>(load_word(*bucket_word())); }

  void set(unsigned i, const ChunkEntry& entry) {
    set_lane(words_[i / 4], i % 4 * 16, 0xffff, entry.tag);
    set_place(i, entry.position, entry.checksum);
  }
  void set_place(unsigned i, std::uint64_t position, std::uint32_t checksum) {
    set_lane(checksums()[i / 2], i % 2 * 32, 0xffffffff, checksum);
    if (same_ == 0) return store_word(words_[k_ + i], position);
    FURROW_CHECK(position >> 40 << 40 == same_);
    set_lane(words_[k_ + i / 2], i % 2 * 32, 0xffffffff, position & 0xffffffff);
    set_lane(words_[5 * k_ + i / 8], i % 8 * 8, 0xff, position >> 32 & 0xff);
  }
  void set_bucket(std::uint32_t bucket) { store_word(*bucket_word(), bucket); }
  // The first `count` entries of a chunk of any class; lanes behind them may be copied along.
  void copy_from(const Chunk& from, unsigned count) {
    copy(words_, from.words_, (count + 3) / 4);
    copy(checksums(), from.checksums(), (count + 1) / 2);
    if (same_ == 0) return copy(words_ + k_, from.words_ + from.k_, count);
    copy(words_ + k_, from.words_ + from.k_, (count + 1) / 2);
    copy(words_ + 5 * k_, from.words_ + 5 * from.k_, (count + 7) / 8);
  }

  // Calls found(i) for each of the first `count` entries that has the tag.
  template <class Found>
  void scan(unsigned count, std::uint16_t tag, Found&& found) const {
    constexpr std::uint64_t kLanes = 0x0001000100010001, kLow = 0x7fff * kLanes;
    const std::uint64_t pattern = tag * kLanes;
    const unsigned words = class_of(count);
    for (unsigned line = 8; line < words; line += 8) __builtin_prefetch(words_ + line);
    for (unsigned w = 0; w < words; ++w) {
      // A lane of `differs` is zero where the tag matches; its top bit of `hits` is set then.
      const std::uint64_t differs = load_word(words_[w]) ^ pattern;
      std::uint64_t hits = ~(((differs & kLow) + kLow) | differs | kLow);
      for (; hits != 0; hits &= hits - 1) {
        const unsigned i = w * 4 + static_cast<unsigned>(std::countr_zero(hits)) / 16;
        if (i < count) found(i);
      }
    }
  }

  static void copy(std::uint64_t* to, const std::uint64_t* from, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) store_word(to[i], load_word(from[i]));
  }

 private:
  std::uint64_t* checksums() const { return words_ + (same_ == 0 ? 5 : 3) * k_; }
  std::uint64_t* bucket_word() const {
    return words_ + words(static_cast<unsigned>(k_), same_ != 0) - 1;
  }
  static void set_lane(std::uint64_t& word, unsigned shift, std::uint64_t mask,
                       std::uint64_t value) {
    store_word(word, (load_word(word) & ~(mask << shift)) | value << shift);
  }
  std::uint64_t* words_;
  std::uint64_t k_;
  std::uint64_t same_;
};

class ChunkStore {
 public:
  using Ref = std::uint32_t;  // a chunk's offset, in units that make the whole reservation fit
  static constexpr std::uint64_t kExtentBytes = 256 << 10;
  static constexpr unsigned kClassMax = kExtentBytes / 8 / 7 - 1;
  static_assert(Chunk::words(kClassMax) * 8 <= kExtentBytes);

  // `same`: of all chunks.
  explicit ChunkStore(std::uint64_t bytes_max, std::uint64_t same = 0);

  Chunk chunk(Ref ref, unsigned k) const {
    return {memory_.words() + (std::uint64_t{ref} << unit_shift_), k, same_};
  }
  const void* address(Ref ref) const {
    return memory_.words() + (std::uint64_t{ref} << unit_shift_);
  }

  // A chunk with undefined contents. Throws std::bad_alloc beyond what the constructor promised.
  Ref allocate(unsigned k);

  // Frees a chunk that no header names any more. When another one moved into its place, the
  // caller writes the new place into that one's bucket header, and only then calls trim().
  struct Moved {
    std::uint32_t bucket;
    Ref to;
  };
  std::optional<Moved> free(unsigned k, Ref ref);
  void trim(unsigned k);
  void clear();  // no header names a chunk any more, nor will

  // DRAM in use, this object included. Any thread.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Class {
    std::vector<std::uint32_t> extents;
    std::uint64_t slots = 0;          // in use: the first ones
    std::uint64_t slots_touched = 0;  // whose pages were not given back
    std::uint64_t bytes = 0;          // of those pages
  };
  std::uint64_t slot_words(unsigned k) const {
    const std::uint64_t unit = std::uint64_t{1} << unit_shift_;
    return (Chunk::words(k, same_ != 0) + unit - 1) / unit * unit;
  }
  std::uint64_t slots_per_extent(unsigned k) const { return kExtentBytes / 8 / slot_words(k); }
  std::uint64_t touched_bytes(unsigned k, std::uint64_t slots) const;
  void count_touched(Class& of_size, unsigned k);
  Ref slot_ref(unsigned k, std::uint64_t slot) const;
  std::uint32_t take_extent();

  const std::uint64_t same_;
  unsigned unit_shift_ = 0;  // words in a unit, as a power of two
  ReservedMemory memory_;
  std::vector<Class> classes_;  // by k, as many as are needed
  std::vector<std::uint32_t> free_extents_;
  std::uint32_t extents_used_ = 0;  // ever
  std::uint64_t touched_bytes_ = 0;
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace furrow
