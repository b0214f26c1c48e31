#include "zone/zbd_queue.h"

namespace furrow::zbd {

Result<std::unique_ptr<IoQueue>> ZbdQueue::create(ZbdDevice& device, unsigned depth) {
  std::unique_ptr<ZbdQueue> queue(new ZbdQueue(device, depth));
  const Status status = queue->init_ring();
  if (!status.ok()) return status;
  return std::unique_ptr<IoQueue>(std::move(queue));
}

ZbdQueue::ZbdQueue(ZbdDevice& device, unsigned depth)
    : RingQueue(device.geometry(), device.table_, device.access_ == Access::inspect,
                {.fd = device.drive_->fd(),
                 .first_bytes = 0,
                 .stride_bytes = device.geometry().zone_size_lbas * device.geometry().lba_bytes,
                 .write_bytes_max = device.drive_->write_bytes_max(),
                 .write_pieces_max = device.drive_->write_pieces_max()},
                depth),
      device_(device) {}

void ZbdQueue::start_transfer(Io& io) {
  if (io.op == Io::Op::read) {
    to_ring(io);
  } else {
    behind_.push(io);  // perhaps not for long: see start_next_writes()
  }
}

// A write goes to the kernel when all before it in its zone, from whichever queue, have been
// acknowledged: when it begins where the readable data ends.
unsigned ZbdQueue::start_next_writes() {
  unsigned ended = 0;
  List writes = behind_.take();
  while (Io* io = writes.pop()) {
    const std::uint64_t at = first_lba(*io).value - geometry().zone_start(io->zone).value;
    if (table().fails(io->zone, first_lba(*io))) {
      ended += end_transfer(*io, {});
    } else if (table().written_lbas(io->zone) == at) {
      to_ring(*io);
    } else {
      behind_.push(*io);
    }
  }
  return ended;
}

void ZbdQueue::manage(Io& io) {
  const std::optional<Status> taken = table().take(io.op, io.zone);
  if (!taken) return try_later(io);
  if (!taken->ok()) return decide(io, *taken);
  ++away_;
  device_.start(io, *this);
}

void ZbdQueue::transferred(Io& io, int error) {
  if (io.op == Io::Op::flush) {
    if (error != 0) device_.flush_failed_.store(true);
    if (device_.flush_failed_.load()) {
      end_transfer(io, drive_error(error, "a flush failed: unflushed data may be lost"));
    } else {
      end_transfer(io, {});
    }
  } else if (error == 0) {
    end_transfer(io, {});
  } else {
    io.status = drive_error(error == kEnded ? EIO : error,
                            io.op == Io::Op::read ? "reading the drive failed"
                                                  : "writing the drive failed; the zone is sealed");
    ++away_;
    device_.start(io, *this);
  }
}

void ZbdQueue::answer(Io& io) {
  Io* head = answered_.load(std::memory_order_relaxed);
  do {
    io.next = head;
  } while (!answered_.compare_exchange_weak(head, &io, std::memory_order_release,
                                            std::memory_order_relaxed));
}

unsigned ZbdQueue::take_answers() {
  if (answered_.load(std::memory_order_relaxed) == nullptr) return 0;
  Io* io = answered_.exchange(nullptr, std::memory_order_acquire);
  unsigned count = 0;
  while (io != nullptr) {
    Io* next = io->next;  // before its completion: it may be submitted again, or be gone
    --away_;
    if (io->op == Io::Op::read || io->op == Io::Op::write || io->op == Io::Op::append) {
      count += end_transfer(*io, io->status);
    } else {
      complete(*io, io->status);
      ++count;
    }
    io = next;
  }
  return count;
}

bool ZbdQueue::must_look_again() const { return waits() || away_ != 0 || behind_.head != nullptr; }

unsigned ZbdQueue::do_poll() {
  const unsigned answers = take_answers();
  const unsigned ended = start_next_writes();
  return answers + ended + RingQueue::do_poll();
}

unsigned ZbdQueue::do_wait(std::uint64_t timeout_us) {
  const unsigned done = take_answers() + start_next_writes();
  return done != 0 ? done + RingQueue::do_poll() : RingQueue::do_wait(timeout_us);
}

}  // namespace furrow::zbd
