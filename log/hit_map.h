// HitMap: which pages were read since they were written. A cache's eviction asks it and writes
// those again. A hint, in memory alone.
//
// A bit stands for a granule: one or more neighbouring LBAs of a zone, as many as are chosen when
// the zone is opened (granule_for()). The page that starts in a granule owns its bit. Pages share
// one only where each is shorter than the granule and they lie side by side, which means that they
// were written together: a read of one keeps its neighbours as well, and a page that is written
// clears what was noted of the one before it. What a read keeps too much is less than a granule,
// less than half a page of the volume's mean size.
//
// Memory is taken where bits were set, in pages of the kernel's. So that coarse granules leave
// whole ones untouched, bits are not kept zone by zone: in a block of zones, the first granules of
// all of them come first, then the second ones.
//
// Threads: any. Granules are chosen by the owner of the zones, of a zone that nobody reads.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

#include "zone/check.h"
#include "zone/types.h"

namespace furrow {

class HitMap {
 public:
  explicit HitMap(const Geometry& geometry)
      : zone_lbas_(geometry.zone_size_lbas),
        zones_(geometry.zone_count),
        block_shift_(block_shift(geometry.zone_size_lbas)),
        shifts_(geometry.zone_count),
        words_((zone_lbas_ * zones_ + 63) / 64) {
    void* map = mmap(nullptr, words_ * 8, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FURROW_CHECK(map != MAP_FAILED);
    bits_ = static_cast<std::atomic<std::uint64_t>*>(map);
  }
  ~HitMap() { munmap(bits_, words_ * 8); }
  HitMap(const HitMap&) = delete;
  HitMap& operator=(const HitMap&) = delete;

  // In LBAs, for pages of this many in the mean: 2 to 4 bits a page, and one each where pages are
  // of 4 LBAs or less.
  static std::uint64_t granule_for(std::uint64_t page_lbas) {
    return std::bit_ceil((std::max<std::uint64_t>(page_lbas, 1) + 3) / 4);
  }
  // A power of two. What was noted of the zone is lost.
  void set_granule(ZoneId zone, std::uint64_t lbas) {
    const auto shift = static_cast<std::uint8_t>(std::countr_zero(lbas));
    shifts_[zone.value].store(shift, std::memory_order_relaxed);
  }
  // That all the zone's bits can take.
  std::uint64_t bytes(ZoneId zone) const { return (zone_lbas_ >> shift_of(zone.value)) / 8; }

  void set(std::uint64_t lba) {
    const std::uint64_t at = place(lba);
    std::atomic<std::uint64_t>& word = bits_[at / 64];
    const std::uint64_t bit = std::uint64_t{1} << at % 64;
    // Look first: a hot page's cache line then stays shared between cores.
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  bool test(std::uint64_t lba) const {
    const std::uint64_t at = place(lba);
    return (bits_[at / 64].load(std::memory_order_relaxed) >> at % 64 & 1) != 0;
  }
  void clear(std::uint64_t lba) {
    if (!test(lba)) return;  // so that only what is read takes memory
    const std::uint64_t at = place(lba);
    bits_[at / 64].fetch_and(~(std::uint64_t{1} << at % 64), std::memory_order_relaxed);
  }

 private:
  // Zones of a block, so that it has 2^20 bits: at 32 LBAs a granule, a page of the kernel's.
  static unsigned block_shift(std::uint64_t zone_lbas) {
    const std::uint64_t zones = (1u << 20) / std::max<std::uint64_t>(zone_lbas, 1);
    return static_cast<unsigned>(std::bit_width(std::max<std::uint64_t>(zones, 8)) - 1);
  }
  unsigned shift_of(std::uint64_t zone) const {
    return shifts_[zone].load(std::memory_order_relaxed);
  }
  std::uint64_t place(std::uint64_t lba) const {
    const std::uint64_t zone = lba / zone_lbas_;
    const std::uint64_t granule = lba % zone_lbas_ >> shift_of(zone);
    const std::uint64_t first = zone >> block_shift_ << block_shift_;  // of its block
    const std::uint64_t width = std::min(zones_ - first, std::uint64_t{1} << block_shift_);
    return first * zone_lbas_ + granule * width + (zone - first);
  }

  const std::uint64_t zone_lbas_;
  const std::uint64_t zones_;
  const unsigned block_shift_;
  std::vector<std::atomic<std::uint8_t>> shifts_;  // of each zone: the granule's binary logarithm
  const std::uint64_t words_;
  std::atomic<std::uint64_t>* bits_;
};

}  // namespace furrow
