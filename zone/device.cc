#include "zone/device.h"

#include "zone/zone_state_machine.h"

namespace furrow {

namespace {

constexpr Status bad(const char* hint, std::uint16_t nvme = nvme_status::kInvalidField) {
  return Status(Code::invalid_argument, Origin::zone, hint, 0, nvme);
}

Status check_data(const Io& io, const Geometry& geometry) {
  if (io.lba_count == 0) return bad("an operation transfers at least one LBA");
  if (io.iov == nullptr || io.iov_count == 0) return bad("the operation has no data buffer");
  const std::uint64_t mask = geometry.lba_bytes - 1;
  std::uint64_t misaligned = 0;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < io.iov_count; ++i) {
    misaligned |= reinterpret_cast<std::uintptr_t>(io.iov[i].iov_base) | io.iov[i].iov_len;
    if (io.iov[i].iov_base == nullptr) return bad("a piece of the data has no address");
    bytes += io.iov[i].iov_len;
  }
  if ((misaligned & mask) != 0) return bad("data is not aligned to the LBA size");
  if (bytes != std::uint64_t{io.lba_count} * geometry.lba_bytes) {
    return bad("the data's pieces do not add up to the LBA count");
  }
  return {};
}

Status check_range(const Io& io, const Geometry& geometry) {
  const std::uint64_t zone = io.lba.value / geometry.zone_size_lbas;
  if (zone >= geometry.zone_count) {
    return bad("the LBA range ends beyond the device", nvme_status::kLbaOutOfRange);
  }
  const std::uint64_t offset = io.lba.value - zone * geometry.zone_size_lbas;
  if (io.op == Io::Op::write) {
    // One that runs past its zone's capacity is the state machine's to refuse.
    if (zone != io.zone.value) return bad("the write's LBA is not in its zone");
  } else if (offset + io.lba_count > geometry.zone_size_lbas) {
    if (zone + 1 == geometry.zone_count) {
      return bad("the LBA range ends beyond the device", nvme_status::kLbaOutOfRange);
    }
    return bad("the read crosses the end of its zone", nvme_status::kZoneBoundary);
  }
  return {};
}

Status check_arguments(const Io& io, const Geometry& geometry) {
  Status status;
  switch (io.op) {
    case Io::Op::read:
    case Io::Op::write:
    case Io::Op::append:
      status = check_data(io, geometry);
      if (!status.ok()) return status;
      if (io.op != Io::Op::append) return check_range(io, geometry);
      if (geometry.append_lbas_max == 0) {
        return Status(Code::unsupported, Origin::zone, "this device has no Zone Append");
      }
      [[fallthrough]];
    case Io::Op::reset:
    case Io::Op::finish:
    case Io::Op::open:
    case Io::Op::close:
      if (io.zone.value >= geometry.zone_count) {
        return bad("the device has no such zone", nvme_status::kLbaOutOfRange);
      }
      return {};
    case Io::Op::flush:
      return {};
  }
  return bad("unknown operation");
}

}  // namespace

void IoQueue::submit(Io& io) {
  ++in_flight_;
  io.next = nullptr;
  io.status = check_arguments(io, geometry_);
  if (io.status.ok()) {
    do_submit(io);
    return;
  }
  if (refused_tail_ == nullptr) {
    refused_head_ = &io;
  } else {
    refused_tail_->next = &io;
  }
  refused_tail_ = &io;
}

unsigned IoQueue::complete_refused() {
  Io* io = refused_head_;
  refused_head_ = refused_tail_ = nullptr;
  unsigned count = 0;
  while (io != nullptr) {
    Io* next = io->next;  // before complete(): the Io may be submitted again, or be gone
    complete(*io, io->status);
    io = next;
    ++count;
  }
  return count;
}

unsigned IoQueue::poll() {
  const unsigned refused = refused_head_ == nullptr ? 0 : complete_refused();
  return refused + do_poll();
}

unsigned IoQueue::wait(std::uint64_t timeout_us) {
  if (refused_head_ != nullptr) return poll();
  return do_wait(timeout_us);
}

void IoQueue::complete(Io& io, Status status) {
  FURROW_CHECK(in_flight_ > 0);
  --in_flight_;
  io.status = status;
  io.on_complete(io);
}

}  // namespace furrow
