// Structure check: whether what a pool keeps in memory adds up, and agrees with its device:
//
// - each page of the index lies in a zone of its volume, below the write pointer and whatever a cut
//   made void, and no two overlap;
// - a zone's live LBAs are those of the index's pages in it; a zone that is free, or about to be
//   reset, has none;
// - each zone is accounted for: a volume holds as many as say so and no more than its quota, a free
//   one is empty, one that is not written to any more takes none of the device's active zones;
// - a volume's counts of pages and bytes are the index's, and a store's free bytes are what these
//   pages leave, or less;
// - no more zones are open or active than MOR and MAR say.
//
// For any moment between two turns of the executor.
#pragma once

#include <string>

#include "engine/pool.h"
#include "tests/sim/sim_device.h"

namespace furrow::sim {

// What is wrong first; empty: nothing. `faults`: the device fails operations, so that zones may not
// have the states that they should.
std::string check_structure_of(const Pool& pool, const SimDevice& device, bool faults);

// No store could write anything to this volume: it holds as many zones as it may, none of them is
// open, and each has a page, or what says that an older one elsewhere does not count.
bool is_wedged(const Pool& pool, std::uint64_t volume);

// What a store's free bytes are made of: pages, and tombstones of a record's cost each, take from
// what is usable. Nothing may run.
struct StoreRoom {
  std::uint64_t usable_bytes = 0;
  std::uint64_t apart_bytes = 0;     // of these, while lifetimes are kept apart
  std::uint64_t record_bytes = 0;    // of a page beside its LBAs, and of a tombstone
  std::uint64_t tombstones_max = 0;  // that may be counted now
  std::uint64_t streams = 0;         // of users' pages
};
StoreRoom room_of(PageStore& store);
// It holds all that it may, and no zone is promised to nobody.
bool has_all_zones(PageStore& store);

// Collection lets zones alone that cannot be read; and has done so for long.
bool leaves_zones_alone(PageStore& store);
bool unreadable_for_long(PageStore& store);

// Pages that were damaged have been copied, and are so there as well.
bool has_damaged_copies(PageStore& store);

// The volume that holds a zone, by its id; 0: none.
std::uint64_t owner_of(const Pool& pool, ZoneId zone);

}  // namespace furrow::sim
