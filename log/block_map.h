// BlockMap: which parts of a block volume may hold something, a bit for each 256 blocks (1 MiB), so
// that discarding what was never written costs next to nothing. In memory alone: recovery sets the
// bits of all pages that it finds.
//
// A write notes its part when it is done; who empties a part clears its bit first and then removes
// what is there: so a part whose bit is clear holds nothing but what is still being written.
//
// Memory is taken as parts are noted. Threads: any; grow() on one.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "log/reserved_memory.h"

namespace furrow {

class BlockMap {
 public:
  static constexpr std::uint64_t kPartBlocks = 256;

  // `blocks_max`: that it may grow to.
  BlockMap(std::uint64_t blocks, std::uint64_t blocks_max)
      : memory_(bytes_for(parts_for(blocks_max)), bytes_for(parts_for(blocks_max))),
        parts_(parts_for(blocks)) {}

  static constexpr std::uint64_t part_of(std::uint64_t block) { return block / kPartBlocks; }
  void grow(std::uint64_t blocks) { parts_.store(parts_for(blocks), std::memory_order_release); }

  // Always a change of the word: it orders what was written before a clear() that follows it.
  void note(std::uint64_t block) {
    const std::uint64_t part = part_of(block);
    if (part < parts()) word(part).fetch_or(bit(part), std::memory_order_acq_rel);
  }
  void clear(std::uint64_t part) { word(part).fetch_and(~bit(part), std::memory_order_acq_rel); }
  // The first part from `part` on, below `end`, that may hold something; `end`: none.
  std::uint64_t next(std::uint64_t part, std::uint64_t end) const {
    end = std::min(end, parts());
    while (part < end) {
      const std::uint64_t bits = word(part).load(std::memory_order_acquire) >> part % 64
                                                                                   << part % 64;
      if (bits != 0) {
        return std::min(end, part / 64 * 64 + static_cast<unsigned>(std::countr_zero(bits)));
      }
      part = (part / 64 + 1) * 64;
    }
    return end;
  }
  std::uint64_t bytes() const { return bytes_for(parts()); }

 private:
  static constexpr std::uint64_t parts_for(std::uint64_t blocks) {
    return part_of(blocks + kPartBlocks - 1);
  }
  static constexpr std::uint64_t bytes_for(std::uint64_t parts) { return (parts + 63) / 64 * 8; }
  static constexpr std::uint64_t bit(std::uint64_t part) { return std::uint64_t{1} << part % 64; }

  std::uint64_t parts() const { return parts_.load(std::memory_order_acquire); }
  std::atomic_ref<std::uint64_t> word(std::uint64_t part) const {
    return std::atomic_ref<std::uint64_t>(memory_.words()[part / 64]);
  }

  const ReservedMemory memory_;
  std::atomic<std::uint64_t> parts_;
};

}  // namespace furrow
