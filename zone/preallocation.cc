#include "zone/preallocation.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>

namespace furrow::emu {

namespace {

bool is_ext4(int fd) {
  struct statfs system {};
  return fstatfs(fd, &system) == 0 && system.f_type == EXT4_SUPER_MAGIC;
}

}  // namespace

Preallocation::Preallocation(int fd, const Superblock& superblock, bool wanted)
    : fd_(fd), root_(geteuid() == 0), superblock_(superblock) {
  if (!wanted || !is_ext4(fd)) return;
  zones_ = std::make_unique<std::atomic<std::uint64_t>[]>(superblock.geometry.zone_count);
}

bool Preallocation::has_room(std::uint64_t bytes) const {
  struct statfs system {};
  if (fstatfs(fd_, &system) != 0) return false;
  const auto blocks = static_cast<std::uint64_t>(root_ ? system.f_bfree : system.f_bavail);
  return blocks / kSpareFactor >= bytes / static_cast<std::uint64_t>(system.f_bsize);
}

// What fails is not tried again: the writes find out by themselves. Two threads may take the same.
unsigned Preallocation::take(ZoneId zone, std::uint64_t first_lbas) {
  const Geometry& geometry = superblock_.geometry;
  const std::uint64_t until =
      std::min(geometry.zone_capacity_lbas, first_lbas + kBytesMax / geometry.lba_bytes);
  zones_[zone.value].store(until, std::memory_order_relaxed);
  const std::uint64_t bytes = (until - first_lbas) * geometry.lba_bytes;
  if (!has_room(bytes)) return 1;
  (void)fallocate(fd_, FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(superblock_.offset_of(zone, first_lbas)),
                  static_cast<off_t>(bytes));
  return 2;
}

}  // namespace furrow::emu
