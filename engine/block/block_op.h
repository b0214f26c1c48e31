// BlockOp: one operation on a volume of kind block. Intrusive: the caller owns it; it stays in
// place from submit until on_done. Nothing is allocated for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/page_op.h"
#include "zone/executor.h"
#include "zone/status.h"

namespace furrow {

class BlockSession;

struct BlockOp {
  enum class Kind : std::uint8_t {
    read,  // what was never written, or was discarded, reads as zeroes
    write,
    flush,  // all that was answered before it is durable when it is
    discard,
    write_zeroes,       // as discard: afterwards all of the range reads as zeroes
    compare,            // `equal` says whether the range holds `data`
    compare_and_write,  // writes `data` if the range holds `expected`, else nothing: `equal` says.
                        // Within one 4 KiB block
  };

  Kind kind = Kind::read;
  // Of all that changes blocks, or of what was read or compared; flushed: FUA.
  Durability durability = Durability::none;
  std::int32_t buffer_index = -1;  // of `data`, as registered with the page session; -1: none
  std::uint64_t lba = 0;           // in the volume's LBAs (VolumeOptions::block_lba_bytes)
  std::uint64_t count = 0;         // LBAs, 1 at least; flush: ignored
  // count LBAs; discard, write_zeroes and flush have none. Where it is aligned to the device's LBA,
  // the device reads and writes this memory itself.
  std::byte* data = nullptr;
  const std::byte* expected = nullptr;  // compare_and_write: count LBAs
  // On the thread that submitted, whenever more of it could be begun: is it still wanted? If not,
  // no further block changes, and it fails with `aborted` when those that were begun have ended.
  // Null: always.
  bool (*wanted)(const BlockOp&) = nullptr;

  // Results. Codes: invalid_argument (range, not a block volume), no_space, corrupt (a damaged
  // block was not served), io_error, aborted, permission (opened read-only), not_found (the volume
  // was deleted). Of a failed operation that changes blocks each 4 KiB block is as it was before or
  // as it should be.
  Status status;
  bool equal = false;                   // compare_and_write: also where it failed after that
  void (*on_done)(BlockOp&) = nullptr;  // on the thread that submitted, never from within submit()
  void* context = nullptr;              // the caller's

  // From here on: the session's, while submitted.
  struct Internal {
    Task task;  // must be first: a Task& is an Internal&
    BlockOp* self = nullptr;
    BlockSession* session = nullptr;
    BlockOp* next = nullptr;
    PageStore* volume = nullptr;
    std::uint64_t next_block = 0, end_block = 0;  // to be begun
    std::uint64_t part = 0;                       // of the map: looked up, or being emptied
    std::uint64_t emptying = 0;                   // of its 64, aligned: which no other one empties
    unsigned running = 0;                         // blocks that were
    bool waiting = false;                         // in the session's queue
    bool paused = false;                          // goes there when these have ended
    bool flushing = false;                        // what was removed, also by others before
  } internal;
};

}  // namespace furrow
