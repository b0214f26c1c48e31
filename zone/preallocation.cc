#include "zone/preallocation.h"

#include <linux/magic.h>

#include <algorithm>

#include "zone/emu_file.h"

namespace furrow::emu {

Preallocation::Preallocation(int fd, const Superblock& superblock, bool wanted)
    : fd_(fd), superblock_(superblock) {
  if (!wanted || file_system_type(fd) != EXT4_SUPER_MAGIC) return;
  zones_ = std::make_unique<std::atomic<std::uint64_t>[]>(superblock.geometry.zone_count);
}

std::uint64_t Preallocation::free_bytes() const { return file_system_free_bytes(fd_); }

// What fails is not tried again: the writes find out by themselves. Two threads may take the same.
unsigned Preallocation::take(ZoneId zone, std::uint64_t first_lbas) {
  const Geometry& geometry = superblock_.geometry;
  const std::uint64_t until =
      std::min(geometry.zone_capacity_lbas, first_lbas + kBytesMax / geometry.lba_bytes);
  zones_[zone.value].store(until, std::memory_order_relaxed);
  const std::uint64_t bytes = (until - first_lbas) * geometry.lba_bytes;
  constexpr unsigned kToAsk = 2;  // the file system, and who this is
  if (free_bytes() / kSpareFactor < bytes) return kToAsk;
  (void)allocate(fd_, superblock_.offset_of(zone, first_lbas), bytes);
  return kToAsk + 1;
}

}  // namespace furrow::emu
