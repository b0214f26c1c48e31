#include "zone/drive_queue.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace furrow {

namespace {

constexpr unsigned kInterruptionsMax = 8;  // of one transfer; then it fails
constexpr const char* kReadFailed = "reading the drive failed";
constexpr const char* kWriteFailed = "writing the drive failed; the zone is sealed";

bool writes(const Io& io) { return io.op == Io::Op::write || io.op == Io::Op::append; }
bool transfers(const Io& io) {
  return writes(io) || io.op == Io::Op::read || io.op == Io::Op::flush;
}

}  // namespace

DriveQueue::DriveQueue(DriveDevice& device, const Medium& medium, unsigned depth)
    : RingQueue(device.geometry(), device.table_, device.access_ != Access::exclusive, medium,
                depth),
      device_(device) {}

void DriveQueue::start_flush(Io& io) {
  io.interruptions = 0;
  to_ring(io);
}

void DriveQueue::start_transfer(Io& io) {
  io.interruptions = 0;
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

void DriveQueue::send_write(Io& io) {
  if (!io.as_append) writing_.push_back(io.zone);
  ++writes_sent_;
  to_ring(io);
}

unsigned DriveQueue::start_next_writes() {
  if (disturbed_) return 0;
  unsigned ended = 0;
  List writes = behind_.take();
  List still;
  while (Io* io = writes.pop()) {
    if (table().fails(io->zone, first_lba(*io))) {
      ended += end_transfer(*io, {});
    } else if (may_start(*io, still)) {
      send_write(*io);
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
  ask(io);
}

void DriveQueue::ask(Io& io) {
  ++away_;
  device_.take(io, *this);
}

// What failed, or was interrupted (its status is ok then), the device's thread asks the drive
// about.
void DriveQueue::transferred(Io& io, int error) {
  if (writes(io)) {
    --writes_sent_;
    if (!io.as_append) std::erase(writing_, io.zone);
  }
  const bool flush = io.op == Io::Op::flush;
  if (error == kInterrupted) {
    drive().note_interruption();
    disturbed_ = true;
  } else if (error == 0) {
    if (!flush || !device_.in_doubt()) {
      end_transfer(io, flush ? device_.flushed() : Status());
      return;
    }
    error = kInterrupted;  // or it came after what it was to make durable was lost
  }
  io.status = Status();
  if (error == kInterrupted && ++io.interruptions <= kInterruptionsMax) {
    if (writes(io)) return interrupted_.push_back(&io);
  } else {
    const int known = error == kEnded ? EIO : error == kInterrupted ? EINTR : error;
    io.status = drive().transfer_error(known, flush        ? DriveDevice::kFlushFailed
                                              : writes(io) ? kWriteFailed
                                                           : kReadFailed);
    if (flush) device_.flush_failed_.store(true);
  }
  ask(io);
}

bool DriveQueue::is_free(ZoneId zone, std::uint64_t offset) {
  const bool free = offset >= table().written_lbas(zone);
  if (!free) device_.lost_.store(true);
  return free;
}

void DriveQueue::ask_about_interrupted() {
  if (!disturbed_ || writes_sent_ != 0 || zones_asked_about_ != 0) return;
  disturbed_ = !interrupted_.empty();
  std::ranges::sort(interrupted_, {},
                    [](const Io* io) { return std::pair(io->zone.value, first_lba(*io).value); });
  const Io* before = nullptr;
  for (Io* io : interrupted_) {
    if (before == nullptr || before->zone != io->zone) {
      ++zones_asked_about_;
      ask(*io);
    }
    before = io;
  }
}

// `first`: of its zone's, with what is to become of all of them.
unsigned DriveQueue::go_on_after_interruption(const Io& first) {
  const Status status = first.status;
  const auto in_zone = [zone = first.zone](const Io* io) { return io->zone == zone; };
  std::vector<Io*> ios;
  std::ranges::copy_if(interrupted_, std::back_inserter(ios), in_zone);
  std::erase_if(interrupted_, in_zone);
  --zones_asked_about_;
  unsigned count = 0;
  for (Io* io : ios) {
    io->status = status;
    if (status.ok()) {
      send_write(*io);
    } else {
      count += fail(*io);
    }
  }
  return count;
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
    count += take_answer(*io);
    io = next;
  }
  return count;
}

unsigned DriveQueue::take_answer(Io& io) {
  if (!transfers(io)) {
    complete(io, io.status);
    return 1;
  }
  if (std::ranges::find(interrupted_, &io) != interrupted_.end()) {
    return go_on_after_interruption(io);
  }
  if (!io.status.ok()) return fail(io);
  to_ring(io);  // a read or flush, again
  return 0;
}

unsigned DriveQueue::fail(Io& io) {
  // Where the drive would have put a failed append nobody knows: the zone ends at its data.
  if (io.op == Io::Op::append && io.as_append) {
    io.appended_at.value = geometry().zone_start(io.zone).value + table().written_lbas(io.zone);
  }
  return end_transfer(io, io.status);
}

bool DriveQueue::must_look_again() const {
  return waits() || away_ != 0 || behind_.head != nullptr || disturbed_;
}

unsigned DriveQueue::go_on() {
  const unsigned answers = take_answers();
  ask_about_interrupted();
  return answers + start_next_writes();
}

unsigned DriveQueue::do_poll() {
  const unsigned done = go_on();
  return done + RingQueue::do_poll();
}

unsigned DriveQueue::do_wait(std::uint64_t timeout_us) {
  const unsigned done = go_on();
  return done != 0 ? done + RingQueue::do_poll() : RingQueue::do_wait(timeout_us);
}

}  // namespace furrow
