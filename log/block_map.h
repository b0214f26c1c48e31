// BlockMap: which parts of a block volume may hold something, two bits for each 256 blocks (1 MiB),
// so that discarding what was never written costs next to nothing. In memory alone: recovery notes
// the parts of all pages that it finds.
//
// A write notes its part when it is done; who empties a part takes that back first, then removes
// what is there, and says when that is done, or notes the part again where it failed. One at a time
// does so: others look at what is there themselves. So a part that is passed over holds nothing but
// what is still being written.
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
  // Before what is in it is removed. False: another one is at it.
  bool begin_emptying(std::uint64_t part) {
    const std::uint64_t emptying = bit(part) << kPartsPerWord;
    if ((word(part).fetch_or(emptying, std::memory_order_acq_rel) & emptying) != 0) return false;
    word(part).fetch_and(~bit(part), std::memory_order_acq_rel);
    return true;
  }
  void end_emptying(std::uint64_t part) {
    word(part).fetch_and(~(bit(part) << kPartsPerWord), std::memory_order_acq_rel);
  }
  // The first part from `part` on, below `end`, that may hold something, or is being emptied;
  // `end`: none.
  std::uint64_t next(std::uint64_t part, std::uint64_t end) const {
    end = std::min(end, parts());
    while (part < end) {
      // Both bits at one moment: a part that is noted again is not being emptied any more.
      const std::uint64_t both = word(part).load(std::memory_order_acquire);
      const auto either = static_cast<std::uint32_t>(both | both >> kPartsPerWord);
      const std::uint32_t bits = either >> part % kPartsPerWord << part % kPartsPerWord;
      if (bits != 0) {
        const auto first = static_cast<unsigned>(std::countr_zero(bits));
        return std::min(end, part / kPartsPerWord * kPartsPerWord + first);
      }
      part = (part / kPartsPerWord + 1) * kPartsPerWord;
    }
    return end;
  }
  std::uint64_t bytes() const { return bytes_for(parts()); }

 private:
  static constexpr std::uint64_t kPartsPerWord = 32;

  static constexpr std::uint64_t parts_for(std::uint64_t blocks) {
    return part_of(blocks + kPartBlocks - 1);
  }
  static constexpr std::uint64_t bytes_for(std::uint64_t parts) {
    return (parts + kPartsPerWord - 1) / kPartsPerWord * sizeof(std::uint64_t);
  }
  // That it may hold something; as far above, that it is being emptied.
  static constexpr std::uint64_t bit(std::uint64_t part) {
    return std::uint64_t{1} << part % kPartsPerWord;
  }

  std::uint64_t parts() const { return parts_.load(std::memory_order_acquire); }
  std::atomic_ref<std::uint64_t> word(std::uint64_t part) const {
    return std::atomic_ref<std::uint64_t>(memory_.words()[part / kPartsPerWord]);
  }

  const ReservedMemory memory_;
  std::atomic<std::uint64_t> parts_;
};

}  // namespace furrow
