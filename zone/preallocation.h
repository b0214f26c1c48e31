// Preallocation: room that an emulated device takes in the file system ahead of a zone's writes, so
// that they do not keep reads waiting.
//
// ext4 writes to blocks that a file does not have under the file's exclusive lock, which every read
// of the file waits for, whichever zone it is in, and for the journal with it. Writes to blocks
// that it has, written or not, share the lock. So the first write to a zone takes blocks for what
// follows, up to kBytesMax of it, in one call; where the file system has little room left, it does
// not. On other file systems it does nothing: tmpfs would clear all of it at once.
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
  virtual ~Preallocation() = default;

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

 protected:
  // For a test to say.
  virtual std::uint64_t free_bytes() const;

 private:
  unsigned take(ZoneId zone, std::uint64_t first_lbas);

  const int fd_;
  const Superblock& superblock_;
  // Of each zone, LBAs from its start: how far it was asked for. Null: nothing is.
  std::unique_ptr<std::atomic<std::uint64_t>[]> zones_;
};

}  // namespace furrow::emu
