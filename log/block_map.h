// BlockMap: which parts of a block volume may hold something, a bit for each 256 blocks (1 MiB), so
// that discarding what was never written costs next to nothing. In memory alone: recovery sets the
// bits of all pages that it finds.
//
// A write notes its part when it is done; who empties a part clears its bit first and then removes
// what is there: so a part whose bit is clear holds nothing but what is still being written.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

namespace furrow {

class BlockMap {
 public:
  static constexpr std::uint64_t kPartBlocks = 256;

  explicit BlockMap(std::uint64_t blocks)
      : parts_(part_of(blocks + kPartBlocks - 1)),
        words_(std::make_unique<std::atomic<std::uint64_t>[]>((parts_ + 63) / 64)) {}

  static constexpr std::uint64_t part_of(std::uint64_t block) { return block / kPartBlocks; }

  // Always a change of the word: it orders what was written before a clear() that follows it.
  void note(std::uint64_t block) {
    const std::uint64_t part = part_of(block);
    if (part < parts_) words_[part / 64].fetch_or(bit(part), std::memory_order_acq_rel);
  }
  void clear(std::uint64_t part) {
    words_[part / 64].fetch_and(~bit(part), std::memory_order_acq_rel);
  }
  // The first part from `part` on, below `end`, that may hold something; `end`: none.
  std::uint64_t next(std::uint64_t part, std::uint64_t end) const {
    end = std::min(end, parts_);
    while (part < end) {
      const std::uint64_t word =
          words_[part / 64].load(std::memory_order_acquire) >> part % 64 << part % 64;
      if (word != 0) {
        return std::min(end, part / 64 * 64 + static_cast<unsigned>(std::countr_zero(word)));
      }
      part = (part / 64 + 1) * 64;
    }
    return end;
  }
  std::uint64_t bytes() const { return (parts_ + 63) / 64 * 8; }

 private:
  static constexpr std::uint64_t bit(std::uint64_t part) { return std::uint64_t{1} << part % 64; }

  const std::uint64_t parts_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace furrow
