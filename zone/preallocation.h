// Preallocation: room that an emulated device takes in the file system ahead of a zone's writes, so
// that they do not keep reads waiting.
//
// ext4 writes to blocks that a file does not have under the file's exclusive lock, which every read
// of the file waits for, whichever zone it is in, and for the journal with it. Writes to blocks
// that it has, written or not, share the lock. So the first write to a zone takes blocks for what
// follows, up to kBytesMax of it, in one call; where the file system has little room left, it does
// not. Other file systems have no such lock: there it does nothing.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "zone/emu_layout.h"

namespace furrow::emu {

class Preallocation {
 public:
  static constexpr std::uint64_t kBytesMax = 64 << 20;
  static constexpr std::uint64_t kSpareFactor = 16;  // so many times as much is to be free

  // Both outlive it. `wanted`: false: it does nothing.
  Preallocation(int fd, const Superblock& superblock, bool wanted);

  // A write is about to go to the medium. Blocks where it has to take room. Returns how many system
  // calls it made.
  unsigned before_write(ZoneId zone, std::uint64_t first_lbas, std::uint64_t lba_count) {
    if (zones_ == nullptr) return 0;
    std::atomic<std::uint64_t>& until = zones_[zone.value];
    if (first_lbas + lba_count <= until.load(std::memory_order_relaxed)) return 0;
    return take(zone, first_lbas);
  }
  // The zone is empty again, and what it has may be given back.
  void forget(ZoneId zone) {
    if (zones_ != nullptr) zones_[zone.value].store(0, std::memory_order_relaxed);
  }

 private:
  unsigned take(ZoneId zone, std::uint64_t first_lbas);
  bool has_room(std::uint64_t bytes) const;

  const int fd_;
  const bool root_;  // may have what the file system keeps back
  const Superblock& superblock_;
  // Of each zone, LBAs from its start: how far it was asked for. Null: nothing is.
  std::unique_ptr<std::atomic<std::uint64_t>[]> zones_;
};

}  // namespace furrow::emu
