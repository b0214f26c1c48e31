// ZonedOp: one operation on a volume of kind zoned. Intrusive: the caller owns it; it stays in
// place from submit until on_done. Nothing is allocated for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/page_op.h"
#include "log/flusher.h"
#include "zone/executor.h"
#include "zone/io.h"
#include "zone/status.h"
#include "zone/zone_state_machine.h"

namespace furrow {

class PageStoreImpl;
class ZonedSession;
class ZonedVolume;
struct ZonedOp;

// One zone's part of an operation; the volume's.
struct ZonedStep {
  ZonedOp* op = nullptr;
  ZonedVolume* volume = nullptr;
  std::uint32_t zone = 0;
  Io io;
  ZonedStep* next = nullptr;  // while it waits for its zone, or is free
};

struct ZonedOp {
  enum class Kind : std::uint8_t {
    read,    // what is behind the write pointer reads as zeroes
    write,   // at the zone's write pointer
    append,  // `lba` is the zone's first; `appended_at` says where the data is
    open,
    close,
    finish,
    reset,
    set_offline,  // of a read-only zone, until the pool is opened again
    flush,        // all that was answered before it is durable when it is
  };

  Kind kind = Kind::read;
  bool all = false;  // zone management: of all zones in the states that the action is for
  // Write, append, or what was read: flushed is FUA. What finish and reset have done is always
  // durable.
  Durability durability = Durability::none;
  std::int32_t buffer_index = -1;  // of `data`, as registered with the page session; -1: none
  // In LBAs of the device; zone i begins at i x ZonedVolume::geometry().zone_size_lbas. Of zone
  // management: the zone's first LBA; with `all` ignored.
  std::uint64_t lba = 0;
  std::uint64_t count = 0;  // LBAs of read, write and append, 1 at least
  // Of these: count LBAs, at an address that is a multiple of the LBA size. The device reads and
  // writes this memory itself.
  std::byte* data = nullptr;
  // On the pool's home executor, while zones of `all` are left: is it still wanted? If not, none of
  // them changes, and it fails with `aborted`. Null: always.
  bool (*wanted)(const ZonedOp&) = nullptr;

  // Results. What the zone's state does not allow has its NVMe status (Status::nvme(): boundary,
  // full, read-only, offline, invalid write, too many active or open, invalid transition, LBA out
  // of range, invalid field). Other codes: invalid_argument (no data, not a zoned volume),
  // io_error, permission (opened read-only), not_found (the volume was deleted), aborted.
  Status status;
  std::uint64_t appended_at = 0;
  void (*on_done)(ZonedOp&) = nullptr;  // on the thread that submitted, never from within submit()
  void* context = nullptr;              // the caller's

  // From here on: the session's and the volume's, while submitted.
  struct Internal {
    Task task;  // must be first: a Task& is an Internal&
    ZonedOp* self = nullptr;
    ZonedSession* session = nullptr;
    PageStoreImpl* store = nullptr;
    ZonedStep step;  // `io` is a read's as well
    struct Flush : FlushWaiter {
      ZonedOp* op = nullptr;
    } flush;
    std::uint32_t next_zone = 0;  // of `all`
    unsigned running = 0;         // zones of `all`
    ZonedOp* next = nullptr;      // of `all`, while another has its turn
  } internal;
};

}  // namespace furrow
