// Pool: a formatted device that holds named volumes. Opened by one process at a time.
//
// Threads: format() runs anywhere. open() runs on the thread that will run the home executor, and
// so do all functions of a Pool but create_session(); they block until done. Page operations are
// asynchronous and go through a PageSession, one for each thread that submits.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "alloc/zone_allocator.h"
#include "engine/check_report.h"
#include "engine/page_op.h"
#include "log/format.h"
#include "log/scrubber.h"
#include "zone/device.h"
#include "zone/executor.h"
#include "zone/status.h"

namespace furrow {

enum class VolumeKind : std::uint8_t {
  kv = 1,
  fs = 2,  // files (engine/files); its pages are the file system's alone, it has no namespace
  block = kKindBlock,  // LBAs (engine/block); its pages are BlockSession's alone
  zoned = kKindZoned,  // zones (engine/zoned), one to one on zones of the device; it has no pages
};
enum class VolumeMode : std::uint8_t {
  cache = 1,  // evicts whole zones, first in first out; usage never exceeds the quota
  store = 2,  // drops nothing; a full volume says no_space
};

struct VolumeOptions {
  std::string name;  // 1-63 of [A-Za-z0-9._-]
  VolumeKind kind = VolumeKind::kv;
  VolumeMode mode = VolumeMode::cache;
  std::uint64_t quota_bytes = 0;             // of zones; 0: all that is free. At least three zones.
  std::uint32_t nsid = 0;                    // 0: a free one (create_volume())
  Durability durability = Durability::none;  // flushed: every put is
  // Up to 4 MiB; of kind block: kBlockPageBytes; of kind fs also 0: chunk_bytes_of().
  std::uint32_t value_bytes_max = 1 << 20;
  // Of kind block, whose mode is store; else 0.
  std::uint64_t block_bytes = 0;      // its size, a multiple of 1 MiB; may be more than the quota
  std::uint32_t block_lba_bytes = 0;  // 512 or 4096
  // Of kind zoned, whose mode is store, quota_bytes 0 (all that it has are its zones) and
  // value_bytes_max any; else 0.
  std::uint32_t zones = 0;
  // Its share of the zones that the device allows to be open and active (MOR, MAR), of which the
  // pool's own streams have no use then. 0: half of what is left of each, at most `zones`; or no
  // limit, where the device has none.
  std::uint32_t open_zones_max = 0, active_zones_max = 0;
};

// The largest page of a volume of kind fs that is not told one: what a zone has left behind its
// last page is lost, so a 64th of its capacity, and 64 to 256 KiB; but a quarter of it at most.
std::uint32_t chunk_bytes_of(const Geometry& geometry);

struct VolumeInfo {
  VolumeOptions options;
  std::uint64_t id = 0;  // never used twice in a pool
  Uuid uuid{};
};

// What Pool::resize_volume() is to change; 0: it stays.
struct ResizeOptions {
  std::uint64_t quota_bytes = 0;  // of zones; at least three
  std::uint64_t block_bytes = 0;  // of kind block: its size, a multiple of 1 MiB, not less than now
};

struct ResizeAnswer {
  Status status;
  // What the quota could be, as of now: from what the volume's live data need with the reserve (a
  // cache's: what is pinned) to what no other volume was promised.
  std::uint64_t quota_bytes_min = 0, quota_bytes_max = 0;
  std::uint64_t zones_to_free = 0;  // busy: so many first
};

struct VolumeUsage {
  std::uint64_t pages = 0;
  std::uint64_t live_bytes = 0;  // true lengths of the pages that are present
  std::uint64_t zones = 0;       // held
  std::uint64_t quota_zones = 0;
  std::uint64_t free_bytes = 0;  // of a store: for pages, of any size up to the largest
  // A zone that the opening could not read, or that is offline, may hold something of it. Of kind
  // block it is not served then, of kind fs not mounted.
  bool incomplete = false;
};

// Counters since open. All but the gauges of VolumeUsage only grow.
struct VolumeStats {
  std::uint64_t gets = 0, get_hits = 0, get_misses = 0, get_bytes = 0;
  std::uint64_t puts = 0, put_bytes = 0, removes = 0, exists = 0, lists = 0, flushes = 0;
  std::uint64_t corrupt_pages = 0;         // found by reads, or by collection: a wrong checksum
  std::uint64_t failed_reads = 0;          // of pages, or of a zoned volume, that the device failed
  std::uint64_t device_bytes_written = 0;  // pages, headers, summaries, padding, relocation
  std::uint64_t relocated_bytes = 0;       // by collection or re-admission
  std::uint64_t evicted_pages = 0, evicted_zones = 0, zones_reset = 0;
  std::uint64_t header_reads = 0;  // to confirm a tag match
  std::uint64_t index_bytes = 0;   // gauge: DRAM of the index and the per-zone tables
};

struct PoolInfo {
  std::string name;
  Uuid uuid{};
  std::uint32_t format_version = 0;
  Geometry geometry;
  std::uint64_t zones_unpromised = 0;  // that no volume has or may take: what a new one may have
  std::uint64_t zones_returning = 0;   // of deleted volumes: being reset, and promised next
  std::uint64_t zones_free = 0, zones_metadata = 0, zones_data = 0, zones_bad = 0;
  bool preallocated = false;  // ZonedDevice::preallocated()
  bool device_full = false;   // the device took no more at the last write, as on a full file system
  // Since open, of pages, for another reason than want of room: each has ended a zone.
  std::uint64_t failed_writes = 0;
  Status write_failure;  // of the last of these
  // Since open: pages that were damaged (VolumeStats::corrupt_pages), and failed reads, also of
  // volumes that were deleted.
  std::uint64_t media_errors = 0;
  bool flush_failed = false;           // the last one did: what was not flushed before may be lost
  bool device_gone = false;            // ZonedDevice::gone()
  std::uint64_t misplaced_writes = 0;  // ZonedDevice::misplaced_writes()
  std::uint64_t interruptions = 0;     // ZonedDevice::interruptions()
  std::uint64_t system_calls = 0;      // of the device queue for all that writes, since open
  std::uint64_t recovery_us = 0;       // how long the last open took
  std::uint64_t recovered_pages = 0;
  std::uint64_t opening_damage = 0;  // how many things Pool::opening_damage() tells
  ScrubStats scrub;
};

// A zone of OpenOptions::give_up.
struct ZoneGivenUp {
  std::uint32_t zone = 0;
  // ok: what it held is elsewhere, or was given up; busy: it is being emptied. Else it stays as it
  // is: zone_state: given up, and never used again, as it cannot be reset; no_space: its volume has
  // no room for what is left of it; io_error: of what could be read when the pool was opened some
  // cannot any more (try again); other errors of the device.
  Status status;
};

// What the pool uses a zone for.
struct PoolZone {
  ZoneUse use = ZoneUse::free;
  std::uint64_t volume = 0;      // whose it is: an id; 0: nobody's
  std::uint64_t live_bytes = 0;  // LBAs of pages that are present; 0 of a zone that is lent
};

// A thread's way into the pool's stores. Made and used on one executor's thread.
class PageSession {
 public:
  virtual ~PageSession() = default;  // nothing may be in flight
  // Starts an operation. Results come by op.on_result / op.on_released, from the executor's turn,
  // never from within submit(). Gets run here; what changes a key goes to the pool's home executor.
  virtual void submit(PageStore& store, PageOp& op) = 0;
  // For who gives the executor its turns and has nothing else to do: blocks until the device has
  // done something for this session, 0 when nothing of it is with the device, or for `timeout_us`.
  virtual unsigned wait(std::uint64_t timeout_us) = 0;
  virtual Status register_buffers(std::span<const iovec> buffers) = 0;
  // As of IoQueue: for who only waits.
  virtual void may_block() = 0;
  virtual std::uint64_t system_calls() const = 0;
};

// The pages of a volume. Owned by its pool.
class PageStore {
 public:
  virtual ~PageStore() = default;
  // Any thread. What it refers to stays as it is; after a resize the next call gives another.
  virtual const VolumeInfo& info() const = 0;
  virtual VolumeUsage usage() const = 0;
  virtual VolumeStats stats() const = 0;
};

class Pool {
 public:
  virtual ~Pool() = default;  // after quiesce(), on the home executor's thread

  // Begins no more background work; true when nothing runs. What waits for a zone that only that
  // work would have freed is answered with aborted. For an orderly close: end the sessions,
  // then give the home executor turns until this is true, then destroy the pool. (A process that
  // just ends loses nothing either: the next open recovers.) It flushes; info() then tells whether
  // the device could (flush_failed).
  virtual bool quiesce() = 0;

  // Can a device of this shape hold a pool? invalid_argument, too_many_zones: no.
  static Status suits(const Geometry& geometry);
  // And, where it can, could `first` be its first volume? invalid_argument, unsupported, no_space:
  // no. (On a device that has lost zones, a quota may still turn out to be too large.)
  static Status suits(const Geometry& geometry, const VolumeOptions& first);

  // True: nothing was ever kept here. The device is empty, or has what a format() that was cut off
  // left, so that a new pool loses nothing. Errors: of reading.
  static Result<bool> is_blank(ZonedDevice& device);

  // Writes a new, empty pool. in_use / foreign as of the device; invalid_argument: too few zones
  // (a pool needs two metadata zones and three for a volume).
  static Status format(ZonedDevice& device, std::string_view name, Executor& executor);

  // Opens and recovers. `device` and `home` outlive the pool. foreign: not a pool; corrupt: no
  // superblock is whole, or no checkpoint; unsupported: a newer version or an unknown incompatible
  // feature; too_many_zones: the device's MOR or MAR is smaller than what the volumes need, unless
  // it is opened read-only.
  struct OpenOptions {
    bool read_only = false;  // inspection: nothing is written, stores answer reads only
    // With read_only: a pool that has lost every checkpoint, too, as repair() would make it.
    bool as_repaired = false;
    unsigned recovery_threads = 0;  // 0: one a core
    // As recovery_threads: no threads at all, everything in a fixed order (simulation).
    static constexpr unsigned kCallingThread = ~0u;
    // Which zone a store collects: greedy, or cost_benefit. (A cache evicts first in, first out.)
    // Not kept in the pool: each opening may choose anew. invalid_argument: fifo.
    VictimPolicy victim_policy = VictimPolicy::greedy;
    // Stores write pages of different lifetimes (PageOp) to different zones where they have enough
    // of them for that: short ones apart from 16 zones of quota on, long ones from twice as many as
    // this on, and the longest from four times as many.
    std::uint64_t lifetime_zones = 32;
    // The home executor's thread may wait for a flush when nothing else runs
    // (IoQueue::may_block()).
    bool may_block = false;
    // Verification in the background: bytes a second that it reads at most, 0: none; and the pause
    // from the end of one pass to the begin of the next. Not of a pool opened read-only.
    std::uint64_t scrub_bytes_per_s = 0;
    std::uint64_t scrub_pause_s = 3600;
    // What it finds, on the home executor's thread; may be empty.
    std::function<void(const ScrubFinding&)> on_scrub_finding = {};
    // Zones of which something cannot be read (`unreadable` in a CheckReport), and is given up, for
    // good. One of which nobody can tell whose it is is reset. What can be read of a store's is
    // written to other zones, and the zone is reset: how far that is, given_up() says.
    std::vector<std::uint32_t> give_up = {};
  };
  static Result<std::unique_ptr<Pool>> open(ZonedDevice& device, Executor& home,
                                            const OpenOptions& options);

  // Writes what is damaged and still known (`repairable` in a CheckReport) again: a zone that it is
  // in to an empty one, from what its headers and summaries say of each other, the metadata ring
  // zone by zone. Nothing is reset before all that it held is durable elsewhere. Of a pool that is
  // not open. Errors: those of open(); what could not be done is in the report. `recovery_threads`:
  // as in OpenOptions.
  static Result<RepairReport> repair(ZonedDevice& device, Executor& home,
                                     unsigned recovery_threads = 0);

  virtual PoolInfo info() const = 0;
  // PoolInfo's, for who waits and asks often: info() looks at every zone.
  virtual std::uint64_t zones_returning() const = 0;
  virtual std::vector<PoolZone> zones() const = 0;  // by number
  // What was found damaged or lost when the pool was opened, in words: of the metadata, zones,
  // and batch headers of whose pages nothing else tells. Not pages, which are verified when read.
  virtual std::vector<std::string> opening_damage() const = 0;
  // busy: there is room, or are zones that may be open, when zones of volumes that were deleted
  // have been reset; give the home executor turns, and try again. Of no NSID it gets the lowest
  // free one; since a volume was deleted, the lowest above its: hosts may know that one still.
  virtual Result<PageStore*> create_volume(const VolumeOptions& options) = 0;
  // busy: something that changes the volume runs, or of a zoned volume anything; stop its clients,
  // or try again. Gets may run, on any thread: they find their page or nothing. What is submitted
  // to its PageStore afterwards is answered with not_found: it stays until the pool is closed, as
  // one of the 64 that a pool may have, or until forget_deleted(). When it returns the deletion is
  // durable; the zones are reset in the background (PoolInfo::zones_returning), after a stop in
  // between by the next opening.
  virtual Status delete_volume(std::string_view name) = 0;
  // Ends the PageStores of volumes that were deleted. All that was submitted to them has been
  // answered and released, and nobody uses them any more, on any thread.
  virtual void forget_deleted() = 0;
  // Another quota, or a larger disk, durable when it returns; the volume may be in use. A smaller
  // quota takes zones that are free: `busy` says that zones are being freed (a cache evicts, a
  // store collects), while the user gets none. Then give the home executor turns, and call it again
  // until the answer is another one, or call it off with the quota that the volume has. no_space:
  // the quota is out of the bounds that the answer has; unsupported: of a kind zoned, a disk that
  // is to get smaller, or a growth for which the pool is to be opened again (the quota beyond 64
  // times what it was when it was opened, a disk beyond twice that and 16 GiB); not_found,
  // permission, invalid_argument. A file volume that is mounted goes by its quota from the next
  // mount on.
  virtual ResizeAnswer resize_volume(std::string_view name, const ResizeOptions& options) = 0;
  // What hosts have reserved of a volume's namespace, as far as it is to outlive the process; not
  // `persists`: nothing. keep_reservations() has it replaced, and calls `kept` when that is
  // durable, on the home executor, at once or in a later turn; one after another. At an error it is
  // as before or as wanted; where a crash comes between, with more than ten hosts that were not
  // kept before, nothing may be left. Without `persists` it is forgotten. no_space: the device's
  // zones are too small for metadata with so many hosts; not_found, permission, invalid_argument
  // (nobody registered holds it, or hosts do not ascend).
  virtual ReservationRecord reservations(std::uint64_t volume) const = 0;
  virtual void keep_reservations(const ReservationRecord& wanted,
                                 std::function<void(const Status&)> kept) = 0;
  virtual std::vector<PageStore*> stores() const = 0;
  virtual PageStore* find(std::string_view name) const = 0;  // null: none
  virtual PageStore* find_nsid(std::uint32_t nsid) const = 0;

  // On `executor`'s thread, from where the session will be used. `depth`: device reads in flight at
  // a time. Any number of threads may do so at once.
  virtual Result<std::unique_ptr<PageSession>> create_session(Executor& executor,
                                                              unsigned depth) = 0;
  // Verifies everything reachable without writing: metadata, zone headers, summaries, batch headers
  // and, unless told not to, every page; what is being written meanwhile is left out. io_error: the
  // device cannot be asked; unsupported: a structure is of a newer version, and is no damage.
  virtual Result<CheckReport> check(const CheckOptions& options) = 0;
  // In the order of OpenOptions::give_up. Give the home executor turns until none is busy.
  virtual std::vector<ZoneGivenUp> given_up() const = 0;
};

}  // namespace furrow
