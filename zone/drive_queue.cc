#include "zone/drive_queue.h"

#include <algorithm>
#include <cerrno>

namespace furrow {

namespace {
bool writes(const Io& io) { return io.op == Io::Op::write || io.op == Io::Op::append; }
}  // namespace

DriveQueue::DriveQueue(DriveDevice& device, const Medium& medium, unsigned depth)
    : RingQueue(device.geometry(), device.table_, device.access_ != Access::exclusive, medium,
                depth),
      device_(device) {}

void DriveQueue::start_transfer(Io& io) {
  if (io.op == Io::Op::read) {
    to_ring(io);
  } else {
    io.as_append = may_append(io);
    behind_.push(io);  // perhaps not for long: see start_next_writes()
  }
}

// A write goes to the kernel when all before it in its zone, from whichever queue, have been
// acknowledged: when it begins where the readable data ends (or before, where something went past
// it: then the drive refuses it). A Zone Append goes when no such write is before it.
// `before`: what stays behind, in order.
bool DriveQueue::may_start(const Io& io, const List& before) const {
  if (io.as_append) {
    for (const Io* each = before.head; each != nullptr; each = each->next) {
      if (each->zone == io.zone) return false;
    }
    return std::ranges::find(writing_, io.zone) == writing_.end();
  }
  const std::uint64_t at = first_lba(io).value - geometry().zone_start(io.zone).value;
  return table().written_lbas(io.zone) >= at;
}

unsigned DriveQueue::start_next_writes() {
  unsigned ended = 0;
  List writes = behind_.take();
  List still;
  while (Io* io = writes.pop()) {
    if (table().fails(io->zone, first_lba(*io))) {
      ended += end_transfer(*io, {});
    } else if (may_start(*io, still)) {
      if (!io->as_append) writing_.push_back(io->zone);
      to_ring(*io);
    } else {
      still.push(*io);
    }
  }
  List added = behind_.take();  // by completions
  behind_ = still;
  while (Io* io = added.pop()) behind_.push(*io);
  return ended;
}

void DriveQueue::manage(Io& io) {
  const std::optional<Status> taken = table().take(io.op, io.zone);
  if (!taken) return try_later(io);
  if (!taken->ok()) return decide(io, *taken);
  ++away_;
  device_.take(io, *this);
}

void DriveQueue::transferred(Io& io, int error) {
  if (writes(io) && !io.as_append) std::erase(writing_, io.zone);
  if (io.op == Io::Op::flush) {
    if (error != 0) device_.flush_failed_.store(true);
    if (device_.flush_failed_.load()) {
      end_transfer(io, drive().transfer_error(error, "a flush failed: unflushed data may be lost"));
    } else {
      end_transfer(io, {});
    }
  } else if (error == 0) {
    end_transfer(io, {});
  } else {
    io.status = drive().transfer_error(error == kEnded ? EIO : error,
                                       io.op == Io::Op::read
                                           ? "reading the drive failed"
                                           : "writing the drive failed; the zone is sealed");
    ++away_;
    device_.take(io, *this);
  }
}

void DriveQueue::answer(Io& io) {
  Io* head = answered_.load(std::memory_order_relaxed);
  do {
    io.next = head;
  } while (!answered_.compare_exchange_weak(head, &io, std::memory_order_release,
                                            std::memory_order_relaxed));
}

unsigned DriveQueue::take_answers() {
  if (answered_.load(std::memory_order_relaxed) == nullptr) return 0;
  Io* io = answered_.exchange(nullptr, std::memory_order_acquire);
  unsigned count = 0;
  while (io != nullptr) {
    Io* next = io->next;  // before its completion: it may be submitted again, or be gone
    --away_;
    if (io->op == Io::Op::read || writes(*io)) {
      // Where the drive would have put a failed append nobody knows: the zone ends at its data.
      if (io->op == Io::Op::append && io->as_append) {
        io->appended_at.value =
            geometry().zone_start(io->zone).value + table().written_lbas(io->zone);
      }
      count += end_transfer(*io, io->status);
    } else {
      complete(*io, io->status);
      ++count;
    }
    io = next;
  }
  return count;
}

bool DriveQueue::must_look_again() const {
  return waits() || away_ != 0 || behind_.head != nullptr;
}

unsigned DriveQueue::do_poll() {
  const unsigned answers = take_answers();
  const unsigned ended = start_next_writes();
  return answers + ended + RingQueue::do_poll();
}

unsigned DriveQueue::do_wait(std::uint64_t timeout_us) {
  const unsigned done = take_answers() + start_next_writes();
  return done != 0 ? done + RingQueue::do_poll() : RingQueue::do_wait(timeout_us);
}

}  // namespace furrow
