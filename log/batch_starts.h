// BatchStarts: where the batch headers of a zone are, in as few bits as these need: 6 each where
// every page of 4 KiB on LBAs of 512 has one to itself, 4 on LBAs of 4096, and two more wherever
// batches are four times as long.
//
// Elias-Fano, 128 starts a block, counted from the block's first one: of each start so many low
// bits as the mean distance has, less one, stand one behind the other; what is above these grows by
// one to two a start in the mean, and stands as so many zeroes before a one. A directory of the
// blocks finds one by a binary search, and within it the ones are walked. The last block stands as
// plain LBAs until it is full, so that a zone that is written to needs nothing else.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace furrow {

class BatchStarts {
 public:
  void push_back(std::uint32_t lba);  // higher than any before it
  void truncate(std::uint32_t lba);   // forgets those from there on
  // None is to come for now: gives back what only more of them would take.
  void compact();

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  std::optional<std::uint32_t> last_before(std::uint64_t lba) const;
  // Those in [from, to), ascending.
  template <class Visit>
  void for_each(std::uint64_t from, std::uint64_t to, Visit visit) const {
    const auto visit_one = [&](std::uint32_t lba) {
      if (lba >= to) return false;
      if (lba >= from) visit(lba);
      return true;
    };
    for (std::size_t i = block_of(from); i < blocks_.size(); ++i) {
      if (!walk(i, visit_one)) return;
    }
    for (auto at = std::ranges::lower_bound(tail_, from); at != tail_.end(); ++at) {
      if (!visit_one(*at)) return;
    }
  }
  std::uint64_t bytes() const {
    return blocks_.capacity() * sizeof(Block) + words_.capacity() * sizeof(std::uint64_t) +
           tail_.capacity() * sizeof(std::uint32_t);
  }

 private:
  static constexpr std::size_t kBlock = 128;  // starts of one, but for the last
  static constexpr unsigned kBeginBits = 27;
  struct Block {
    std::uint32_t first;               // of its starts
    std::uint32_t begin : kBeginBits;  // in words_: the low bits, then the rest from a new word on
    std::uint32_t low_bits : 32 - kBeginBits;
  };
  static std::size_t words_for(std::size_t bits) { return (bits + 63) / 64; }

  void encode_tail();
  void decode_last_block();  // is the tail, of which there is none, from then on
  // The last one that begins at `lba` or before it; else the first.
  std::size_t block_of(std::uint64_t lba) const {
    const auto behind = std::ranges::upper_bound(blocks_, lba, {}, &Block::first);
    return behind == blocks_.begin() ? 0 : static_cast<std::size_t>(behind - blocks_.begin()) - 1;
  }
  std::uint64_t low(const Block& block, std::size_t i) const {
    const std::size_t bit = i * block.low_bits, word = block.begin + bit / 64, shift = bit % 64;
    std::uint64_t bits = words_[word] >> shift;
    if (shift + block.low_bits > 64) bits |= words_[word + 1] << (64 - shift);
    return bits & ((std::uint64_t{1} << block.low_bits) - 1);
  }
  // Of the block's starts, until `visit` answers false; false: it did.
  template <class Visit>
  bool walk(std::size_t number, Visit visit) const {
    const Block& block = blocks_[number];
    const std::size_t count = std::min(kBlock, size_ - number * kBlock);
    const std::size_t highs = block.begin + words_for(count * block.low_bits);
    std::size_t word = highs;
    std::uint64_t ones = words_[word];
    for (std::size_t i = 0; i < count; ++i) {
      while (ones == 0) ones = words_[++word];
      const auto bit = static_cast<std::size_t>(std::countr_zero(ones));
      const std::uint64_t high = (word - highs) * 64 + bit - i;  // zeroes before it
      ones &= ones - 1;
      const std::uint64_t distance = high << block.low_bits | low(block, i);
      if (!visit(static_cast<std::uint32_t>(block.first + distance))) return false;
    }
    return true;
  }

  std::vector<Block> blocks_;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> tail_;  // of what is not in blocks; empty: it has been compacted
  std::size_t size_ = 0;
};

}  // namespace furrow
