#include "zone/table_queue.h"

#include <algorithm>
#include <cstring>

namespace furrow {

void zero_data(const Io& io, std::uint64_t from) {
  for (std::uint32_t i = 0; i < io.iov_count; ++i) {
    const std::uint64_t length = io.iov[i].iov_len;
    const std::uint64_t skip = std::min(from, length);
    std::memset(static_cast<std::byte*>(io.iov[i].iov_base) + skip, 0, length - skip);
    from -= skip;
  }
}

void TableQueue::do_submit(Io& io) {
  if (io.buffer_index >= registered_) {
    return decide(io, Status(Code::invalid_argument, Origin::zone, "no such registered buffer"));
  }
  switch (io.op) {
    case Io::Op::read:
      submit_read(io);
      return;
    case Io::Op::flush:
      if (read_only_) break;
      start_flush(io);
      return;
    case Io::Op::write:
    case Io::Op::append:
      if (read_only_) break;
      submit_write(io);
      return;
    default:
      if (read_only_) break;
      if (is_behind(io)) return try_later(io);
      manage(io);
      return;
  }
  decide(io, Status(Code::permission, Origin::zone, "the device was opened read-only"));
}

void TableQueue::manage(Io& io) {
  const Status status = table_.manage(io.op, io.zone);
  if (status.ok() && io.op == Io::Op::reset) zone_was_reset(io.zone);
  decide(io, status);
}

bool TableQueue::is_behind(const Io& io) const {
  for (const Io* before = later_.head; before != nullptr; before = before->next) {
    if (before->zone == io.zone) return true;
  }
  return false;
}

void TableQueue::submit_read(Io& io) {
  const std::uint64_t zone = io.lba.value / geometry().zone_size_lbas;
  const ZoneId id{static_cast<std::uint32_t>(zone)};
  if (table_.offline(id)) return decide(io, zone_status(nvme_status::kZoneOffline));
  const std::uint64_t offset = io.lba.value - geometry().zone_start(id).value;
  const std::uint64_t written = table_.written_lbas(id);
  const std::uint64_t readable =
      std::min<std::uint64_t>(io.lba_count, written > offset ? written - offset : 0);
  io.alone = false;
  bytes_done(io) = 0;
  transfer_bytes(io) = readable * geometry().lba_bytes;
  if (readable < io.lba_count) zero_data(io, transfer_bytes(io));
  if (readable == 0) return decide(io, {});
  start_transfer(io);
}

void TableQueue::submit_write(Io& io) {
  if (is_behind(io)) return try_later(io);
  const ZoneTable::Admission admission = table_.admit(io);
  if (admission.later) return try_later(io);
  if (admission.status != nvme_status::kSuccess) return decide(io, zone_status(admission.status));
  if (io.op == Io::Op::append) io.appended_at = admission.lba;
  bytes_done(io) = 0;
  transfer_bytes(io) = std::uint64_t{io.lba_count} * geometry().lba_bytes;
  if (admission.held) return held_.push(io);
  start_transfer(io);
}

void TableQueue::decide(Io& io, Status status) {
  io.status = status;
  decided_.push(io);
}

bool TableQueue::try_end(Io& io) {
  const std::optional<Status> end =
      table_.end_write(io.zone, first_lba(io), io.lba_count, data_tells(io));
  if (end) complete(io, *end);
  return end.has_value();
}

unsigned TableQueue::abort_lists(Status status) {
  unsigned count = 0;
  for (List* list : {&decided_, &waiting_, &held_, &later_}) {
    List taken = list->take();
    while (Io* io = taken.pop()) {
      complete(*io, status);
      ++count;
    }
  }
  return count;
}

unsigned TableQueue::end_transfer(Io& io, Status status) {
  if (io.op != Io::Op::write && io.op != Io::Op::append) {
    complete(io, status);
    return 1;
  }
  if (!status.ok()) {
    table_.fail_write(io.zone, first_lba(io), status.hint());
    complete(io, status);
    return 1 + settle_waiting();
  }
  if (!try_end(io)) {
    waiting_.push(io);
    return 0;
  }
  return 1 + (waiting_.head == nullptr ? 0 : settle_waiting());
}

// Passes over the waiting writes until one pass completes none. They are few: as many as are in
// flight at a time, and only those that overtook another.
unsigned TableQueue::settle_waiting() {
  unsigned count = 0;
  for (bool progress = true; progress && waiting_.head != nullptr;) {
    progress = false;
    List taken = waiting_.take();
    while (Io* io = taken.pop()) {
      if (try_end(*io)) {
        progress = true;
        ++count;
      } else {
        waiting_.push(*io);
      }
    }
  }
  return count;
}

unsigned TableQueue::settle() {
  if (later_.head != nullptr) {  // first: what this decides is completed below
    List later = later_.take();
    while (Io* io = later.pop()) do_submit(*io);
  }
  unsigned count = 0;
  List decided = decided_.take();  // what completions submit now is for the next poll
  while (Io* io = decided.pop()) {
    complete(*io, io->status);
    ++count;
  }
  if (held_.head != nullptr) {
    List held = held_.take();
    while (Io* io = held.pop()) {
      if (table_.held(io->zone)) {
        held_.push(*io);
      } else {
        start_transfer(*io);
      }
    }
  }
  if (waiting_.head != nullptr) count += settle_waiting();
  return count;
}

}  // namespace furrow
