// What the index packs into 64-bit words: bucket headers and positions; and where a hash's bucket
// is. Private to log/. Pure.
#pragma once

#include <bit>
#include <cstdint>

#include "log/index.h"
#include "log/index_chunks.h"
#include "zone/check.h"

namespace furrow {

// Bucket header: what readers load first and compare last.
// {chunk: 32 bits, entries: 14, version: 18}; an odd version: the owner is changing the chunk.
class BucketHeader {
 public:
  static constexpr unsigned kCountBits = 14, kVersionBits = 18;
  static constexpr unsigned kCountMax = (1u << kCountBits) - 1;

  BucketHeader() = default;
  explicit BucketHeader(std::uint64_t word) : word_(word) {}
  BucketHeader(ChunkStore::Ref chunk, unsigned count, std::uint64_t version)
      : word_(chunk | std::uint64_t{count} << 32 | version << (32 + kCountBits)) {}

  ChunkStore::Ref chunk() const { return static_cast<ChunkStore::Ref>(word_); }
  unsigned count() const { return static_cast<unsigned>(word_ >> 32) & kCountMax; }
  std::uint64_t version() const { return word_ >> (32 + kCountBits); }
  bool changing() const { return (version() & 1) != 0; }
  std::uint64_t word() const { return word_; }
  // The versions wrap: a reader would have to sleep through exactly 2^17 changes of one bucket.
  BucketHeader begin_change() const { return {chunk(), count(), version() + 1}; }
  BucketHeader next(ChunkStore::Ref new_chunk, unsigned new_count) const {
    return {new_chunk, new_count, (version() | 1) + 1};
  }

 private:
  std::uint64_t word_ = 0;
};
constexpr unsigned kBucketEntriesMax = BucketHeader::kCountMax;
static_assert(Chunk::class_of(kBucketEntriesMax) <= ChunkStore::kClassMax);

// Position: {lba: 40, length - 1: 22, pinned: 1, expires: 1}.
constexpr unsigned kLbaBits = 40, kLengthBits = 22;
constexpr std::uint64_t kLbaMask = (std::uint64_t{1} << kLbaBits) - 1;
constexpr std::uint64_t kLengthMask = (std::uint64_t{1} << kLengthBits) - 1;

inline std::uint64_t pack(const IndexEntry& entry) {
  FURROW_CHECK(entry.lba <= kLbaMask && entry.length - 1 <= kLengthMask);
  return entry.lba | std::uint64_t{entry.length - 1} << kLbaBits |
         std::uint64_t{entry.pinned} << 62 | std::uint64_t{entry.expires} << 63;
}

inline IndexEntry unpack(std::uint64_t position, std::uint32_t checksum) {
  return {position & kLbaMask, static_cast<std::uint32_t>(position >> kLbaBits & kLengthMask) + 1,
          checksum, (position >> 62 & 1) != 0, position >> 63 != 0};
}

inline std::uint64_t reverse_bits(std::uint64_t x) {
  x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
  x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
  x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
  return __builtin_bswap64(x);
}

// Linear hashing on the reversed bits: the next bit of the hash then decides between bucket b and
// b + 2^bits, while each bucket is a range of the hash's high bits.
struct Place {
  std::uint32_t bucket;
  unsigned bits;  // of the hash, that all entries of the bucket share
};
inline Place place_of(std::uint64_t order, std::uint64_t buckets) {
  const std::uint64_t reversed = reverse_bits(order);
  const auto bits = static_cast<unsigned>(std::bit_width(buckets)) - 1;
  const std::uint64_t low = reversed & (std::bit_floor(buckets) - 1);
  if (low + std::bit_floor(buckets) >= buckets) return {static_cast<std::uint32_t>(low), bits};
  const std::uint64_t half = reversed & std::bit_floor(buckets);
  return {static_cast<std::uint32_t>(low + half), bits + 1};
}

}  // namespace furrow
