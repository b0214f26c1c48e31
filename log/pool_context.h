// What the parts of one opened pool share. Lives on the pool's home executor; what other threads
// may touch is said to be so.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "alloc/epoch.h"
#include "alloc/zone_allocator.h"
#include "log/batch_starts.h"
#include "log/block_map.h"
#include "log/block_order.h"
#include "log/expiry_runs.h"
#include "log/flusher.h"
#include "log/format.h"
#include "log/group_filter.h"
#include "log/hit_map.h"
#include "zone/device.h"
#include "zone/executor.h"

namespace furrow {

// What is remembered of a data zone beside the index.
struct ZoneDirectory {
  // Pages of one group that lie one behind the other.
  struct GroupRun {
    std::uint32_t first_lba;
    std::uint32_t last_lba;  // of the last page's first LBA
    std::uint64_t group;
  };
  BatchStarts batches;                                 // zone-relative: where batch headers are
  std::vector<GroupRun> groups;                        // ascending
  GroupFilter groups_had;                              // of these; any, while it is written
  std::uint64_t records = 0;                           // at least as many as are in the zone
  std::uint64_t tombstones = 0, group_tombstones = 0;  // of these
  std::uint64_t last_tombstone = 0;                    // the highest sequence of its tombstones
  std::uint64_t expiring = 0;                          // likewise: pages that expire
  std::uint32_t last_expiry_s = 0;  // Unix time, of its pages; ~0: one never does
  // Records at or behind it are void: torn at a crash, or (0) of a zone that was emptied.
  std::uint32_t end_lba = ~std::uint32_t{0};
  // Zone-relative, ascending: of pages and batch headers before that which a power cut has torn,
  // where an opening that could not read them has counted what stands behind them. They are void.
  std::vector<std::uint32_t> torn;
  bool durable = false;     // the metadata journal says that all below end_lba is
  bool unverified = false;  // the journal must not say so: the next opening is to look again
  bool evicted = false;     // of a cache: its pages count no more, which the journal says as well
  bool has_gap = false;     // a batch header that is damaged hides what it names
  bool given_up = false;    // what cannot be read of it may go
  bool to_empty = false;    // each opening finds anew what is torn in it

  // The batch header that describes the page at `lba`: the last one before it.
  std::uint32_t batch_of(std::uint32_t lba) const;
  void count(const PageRecord& record);  // is in the zone, at its lba
  bool counts(std::uint64_t lba) const;  // what is, or begins, there
  // Behind what is torn no deletion of a group does: it would take older versions of that along.
  bool counts(const PageRecord& record) const;
  void add_group(std::uint64_t group, std::uint32_t lba);
  bool has_group(std::uint64_t group) const;
  // Of the page at `lba`, which has one; 0: none such is known.
  std::uint64_t group_of(std::uint32_t lba) const;
  void truncate(std::uint32_t lba);  // what was to lie at or behind it was not written
  void compact();                    // the zone is not written any more
  std::uint64_t bytes() const {
    return sizeof *this + batches.bytes() + groups.capacity() * sizeof(GroupRun) +
           torn.capacity() * sizeof(std::uint32_t) + groups_had.bytes();
  }
};

// Asks that the journal says of a sealed zone that all in it is durable, which it is. Intrusive:
// the caller's again at on_noted.
struct DurableNote {
  ZoneId zone;
  bool aside = false;  // and that not all in it can be read: ZoneTrimRecord::aside
  void (*on_noted)(DurableNote&) = nullptr;
  Status status;
  DurableNote* next = nullptr;
};

struct PoolContext {
  PoolContext(ZonedDevice& its_device, Executor& its_home, IoQueue& its_queue,
              const Superblock& superblock)
      : device(its_device),
        geometry(its_device.geometry()),
        home(its_home),
        queue(its_queue),
        flusher(its_home, its_queue),
        allocator(geometry, superblock.metadata_zones),
        hits(geometry),
        expiries(geometry),
        tables(geometry.zone_count),
        pool(superblock.pool),
        hash_key(superblock.hash_key),
        segment_lbas(superblock.segment_lbas) {}

  ZonedDevice& device;
  const Geometry geometry;
  Executor& home;
  IoQueue& queue;  // the home executor's
  Flusher flusher;
  ZoneAllocator allocator;
  Epoch epoch;
  HitMap hits;          // any thread
  ExpiryRuns expiries;  // any thread looks up
  struct Blocks {       // of a block volume
    Blocks(const std::array<std::uint8_t, 16>& secret, std::uint64_t volume, std::uint64_t count)
        : order(secret, volume, count), map(count, order.blocks_max()) {}
    BlockOrder order;
    BlockMap map;
    void grow(std::uint64_t count) {  // home executor; up to order.blocks_max()
      map.grow(count);
      order.grow(count);
    }
  };
  std::map<std::uint64_t, std::unique_ptr<Blocks>> blocks;  // by the volume's id
  std::vector<ZoneDirectory> tables;
  const Uuid pool;
  const std::array<std::uint8_t, 16> hash_key;
  const std::uint64_t segment_lbas;
  std::uint64_t next_sequence = 1;
  // A change of the volumes failed, and its record may count: nothing is answered but behind a
  // flush, which takes it back.
  bool unsettled = false;
  bool device_full = false;         // the last write that ended was refused for want of space
  std::uint64_t failed_writes = 0;  // for any other reason, the first one in a zone alone
  Status write_failure;             // of the last of these
  // Nothing from this LBA of the zone on counts, nor must it come back at the next recovery: a
  // write failed there, or (0) the zone went bad after it was drained.
  std::function<void(ZoneId, std::uint32_t)> on_zone_cut;
  // Is all of that in the journal? Else tries again, and says why not. A stream does not go on in
  // another zone before: recovery verifies the newest zone only. Null: there is no journal.
  std::function<Status()> note_cuts;
  // Before a record is written that says that its page is damaged: an older program is to refuse
  // the pool. Null: there is no journal.
  std::function<Status()> may_say_damaged;
  // The answer comes from a later turn. Null: there is no journal, and nothing is noted.
  std::function<void(DurableNote&)> note_durable;

  ZoneStamp stamp(ZoneId zone) const { return {pool, zone, allocator.zone(zone).generation}; }
  Blocks* blocks_of(std::uint64_t volume) const {  // null: not a block volume
    const auto found = blocks.find(volume);
    return found == blocks.end() ? nullptr : found->second.get();
  }
  std::uint64_t device_lba(ZoneId zone, std::uint64_t relative) const {
    return geometry.zone_start(zone).value + relative;
  }
  std::uint32_t relative_lba(std::uint64_t lba) const {
    return static_cast<std::uint32_t>(lba % geometry.zone_size_lbas);
  }
  std::uint64_t page_lbas(std::uint32_t length) const { return geometry.lbas(length); }

  // The record is in the zone, at its lba. Of each zone one thread at a time.
  void note_record(ZoneId zone, const PageRecord& record);
  // What the zone held is gone.
  void forget(ZoneId zone);
  // Of the page at a device LBA, which expires: Unix time. Any thread, see ExpiryRuns.
  std::uint32_t expiry(std::uint64_t lba) const {
    return expiries.find(geometry.zone_of(Lba{lba}), relative_lba(lba));
  }
};

}  // namespace furrow
