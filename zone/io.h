// Io: one operation on a zoned device. Intrusive: the caller owns it, and it must stay where it is
// from IoQueue::submit() until on_complete is called; nothing is allocated for it.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "zone/status.h"
#include "zone/types.h"

namespace furrow {

struct Io {
  enum class Op : std::uint8_t { read, write, append, reset, finish, open, close, flush };

  Op op = Op::read;
  // write: its user has another zone for it should it fail, so that it may be sent to the drive
  // before those in front of it are done, where there is a chance of its landing elsewhere.
  bool may_fail_over = false;
  bool as_append = false;  // the queue's, while submitted
  bool alone = false;      // likewise: a read that is not to be merged with others
  ZoneId zone;             // write, append and the zone management operations
  Lba lba;                 // read: first LBA (may cross zones of the same device not at all);
                           // write: must be the zone's write pointer
  std::uint32_t lba_count = 0;
  // The data: iov_count pieces whose lengths add up to lba_count LBAs; each piece's address and
  // length are multiples of the device's Geometry::lba_bytes. `iov` itself and the data stay lent
  // until on_complete. For one piece, set `one` through set_data().
  const iovec* iov = nullptr;
  std::uint32_t iov_count = 0;
  std::int32_t buffer_index = -1;  // the registered buffer that all the data lies in; -1: none
  // Called from IoQueue::poll() on the queue's thread, exactly once, when `status` and
  // `appended_at` are final. It may submit again, this Io included.
  void (*on_complete)(Io&) = nullptr;
  void* context = nullptr;  // the caller's

  Status status;    // result
  Lba appended_at;  // result of append: the first LBA written

  void set_data(void* data, std::uint32_t lbas, std::uint32_t lba_bytes, std::int32_t index = -1) {
    one = {data, std::size_t{lbas} * lba_bytes};
    iov = &one;
    iov_count = 1;
    lba_count = lbas;
    buffer_index = index;
  }

  iovec one{};
  Io* next = nullptr;              // the queue's, while submitted
  std::uint64_t scratch[2]{};      // the queue's, while submitted
  std::uint8_t interruptions = 0;  // likewise
};

}  // namespace furrow
