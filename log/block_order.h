// BlockOrder: where the blocks of a volume stand in its index: a permutation of their numbers, so
// that a few bits tell one from all others. Unlike those of a keyed hash, two never collide, and
// nothing has to be read to see whose an entry is. It is keyed, so that nobody can choose blocks
// that come to lie together. In memory alone: checksums are those of the key's hash.
//
// The numbers that it permutes are those that the volume may have while it is open, some times as
// many as it has at first: so nothing moves in the index when it grows.
//
// Any thread; grow() on one.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "log/format.h"

namespace furrow {

// A block is a page under its number: 8 bytes, big-endian.
inline Key block_key(std::uint64_t block) {
  Key key;
  key.length = 8;
  for (unsigned i = 0; i < 8; ++i) key.bytes[i] = static_cast<std::byte>(block >> (56 - 8 * i));
  return key;
}
inline std::uint64_t block_of(const Key& key) {
  std::uint64_t block = 0;
  for (unsigned i = 0; i < 8; ++i)
    block = block << 8 | std::to_integer<std::uint64_t>(key.bytes[i]);
  return block;
}

class BlockOrder {
 public:
  BlockOrder(const std::array<std::uint8_t, 16>& secret, std::uint64_t volume, std::uint64_t blocks)
      : blocks_(blocks),
        bits_(std::clamp(static_cast<unsigned>(std::bit_width(blocks - 1)) + kGrowthBits, kBitsMin,
                         kBitsMax)) {
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      const KeyHash hash = key_hash(secret, volume, block_key(~i));
      rounds_[i] = {hash.order | 1, hash.identity};
    }
  }

  unsigned bits() const { return bits_; }  // of an order; the rest is zero
  bool is_block(const Key& key) const {
    return key.length == 8 && block_of(key) < blocks_.load(std::memory_order_acquire);
  }
  // The volume has so many from now on, which are no fewer; up to blocks_max().
  void grow(std::uint64_t blocks) { blocks_.store(blocks, std::memory_order_release); }
  std::uint64_t blocks_max() const { return std::uint64_t{1} << bits_; }

  // Each round can be undone, so all together are a permutation of the numbers of bits_ bits.
  std::uint64_t order(std::uint64_t block) const {
    const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits_);
    for (const Round& round : rounds_) {
      block = (block * round.factor + round.term) & mask;
      block ^= block >> (bits_ + 1) / 2;
    }
    return block << (64 - bits_);
  }
  // `hash`: of the block's key. What comes back gives page_checksum() the same seed.
  KeyHash hash(const Key& key, const KeyHash& hash) const {
    const std::uint64_t at = order(block_of(key));
    return {at, std::rotr(hash.order ^ std::rotl(hash.identity, 32) ^ at, 32)};
  }

 private:
  static constexpr std::uint64_t kRounds = 4;
  // Of an index as small as any, so many bits tell all entries apart: those are for nothing.
  static constexpr unsigned kBitsMin = 22;
  static constexpr unsigned kBitsMax = 32;
  static_assert(std::uint64_t{kSizeMibMax} * (1u << 20) / kBlockPageBytes <= std::uint64_t{1}
                                                                                 << kBitsMax);
  // More would make the index of a disk that is much larger than its quota begin with more buckets
  // than it ever fills: of 1 TiB with 3 GB written it takes 0.9 bytes a block more with 3 of them.
  static constexpr unsigned kGrowthBits = 1;
  struct Round {
    std::uint64_t factor, term;  // factor: odd
  };
  std::atomic<std::uint64_t> blocks_;
  const unsigned bits_;
  std::array<Round, kRounds> rounds_;
};

}  // namespace furrow
