#include "zone/emu_queue.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

namespace furrow::emu {

namespace {

Status transfer_error(const Io& io, int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return zone_failure(Code::no_space, "the file system under the emulated device is full",
                          error);
    default:
      return zone_failure(Code::io_error,
                          io.op == Io::Op::read ? "reading the emulated device's file failed"
                                                : "writing the emulated device's file failed",
                          error);
  }
}

}  // namespace

Result<std::unique_ptr<IoQueue>> EmuQueue::create(EmuDevice& device, unsigned depth) {
  std::unique_ptr<EmuQueue> queue(new EmuQueue(device, depth));
  const Status status = queue->init_ring();
  if (!status.ok()) return status;
  return std::unique_ptr<IoQueue>(std::move(queue));
}

EmuQueue::EmuQueue(EmuDevice& device, unsigned depth)
    : RingQueue(device.geometry(), device.table_, device.access_ != Access::exclusive,
                {.fd = device.file_.fd.get(),
                 .first_bytes = device.superblock_.data_offset,
                 .stride_bytes = device.superblock_.stride_bytes,
                 .calls = device.io_mode_ == IoMode::regular,
                 .mode = device.io_mode_},
                depth),
      device_(device) {}

RingQueue::Part EmuQueue::next_request(Io& io) {
  Part part = next_part(io);
  if (io.op == Io::Op::read) return part;
  const std::uint64_t in_zone = first_lba(io).value - geometry().zone_start(io.zone).value;
  made_calls(device_.preallocation_.before_write(io.zone, in_zone, io.lba_count));
  if (with_zeroes_ != nullptr || bytes_done(io) != 0 || part.bytes != transfer_bytes(io) ||
      part.count > kPiecesMax) {
    return part;
  }
  const std::uint32_t lbas = device_.zero_ahead_.begin(io.zone, first_lba(io), io.lba_count);
  if (lbas == 0) return part;
  if (zeroes_.size() == 0) zeroes_ = AlignedBuffer(kAheadBytes);
  with_zeroes_ = &io;
  if (part.count == 0) {
    pieces_[part.count++] = {part.data, part.bytes};
  } else {
    std::copy_n(part.pieces, part.count, pieces_.begin());
  }
  zeroes_bytes_ = std::uint64_t{lbas} * geometry().lba_bytes;
  pieces_[part.count++] = {zeroes_.data(), zeroes_bytes_};
  part.pieces = pieces_.data();
  part.bytes += zeroes_bytes_;
  return part;
}

bool EmuQueue::make_room(Io& io) {
  if (io.op == Io::Op::read) return false;
  const std::uint64_t offset = next_part(io).offset;
  const std::uint64_t end = device_.superblock_.offset_of(io.zone, geometry().zone_capacity_lbas);
  return device_.ballast_.move(offset, transfer_bytes(io) - bytes_done(io), end);
}

// A write that crosses what the process's files may be (ulimit -f) is cut off there, and direct I/O
// then refused if that is within a block.
bool EmuQueue::crosses_limit(Io& io, std::uint64_t zeroes_bytes) const {
  if (io.op != Io::Op::write && io.op != Io::Op::append) return false;
  rlimit limit{};
  const std::uint64_t bytes = transfer_bytes(io) - bytes_done(io) + zeroes_bytes;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && next_part(io).offset + bytes > limit.rlim_cur;
}

void EmuQueue::start_flush(Io& io) {
  bytes_done(io) = device_.zero_ahead_.flush_begins();  // it has none
  to_ring(io);
}

bool EmuQueue::data_tells(const Io& io) const {
  const std::uint64_t end =
      first_lba(io).value - geometry().zone_start(io.zone).value + io.lba_count;
  if (!device_.may_tell() || !device_.zero_ahead_.data_tells(io.zone, end)) return false;
  const iovec& last = io.iov[io.iov_count - 1];
  const std::span bytes(static_cast<const std::byte*>(last.iov_base), last.iov_len);
  return !all_zeroes(bytes.last(geometry().lba_bytes));
}

// A flush writes back the dirty pages of the whole file, the zone table's among them, and then
// the device's cache, whichever way the data was written.
void EmuQueue::transferred(Io& io, int error) {
  const bool with_zeroes = &io == with_zeroes_;
  if (with_zeroes) {
    device_.zero_ahead_.ended(io.zone, bytes_done(io) == transfer_bytes(io) + zeroes_bytes_);
    with_zeroes_ = nullptr;
  }
  if (error == EINVAL && crosses_limit(io, with_zeroes ? zeroes_bytes_ : 0)) error = EFBIG;
  if (io.op == Io::Op::flush) {
    if (error != 0) device_.flush_failed_.store(true);
    const bool failed = device_.flush_failed_.load();
    if (!failed) device_.zero_ahead_.flush_ended(bytes_done(io));
    end_transfer(io, failed ? zone_failure(Code::io_error,
                                           "a flush failed: unflushed data may be lost", error)
                            : Status());
  } else if ((error == ENOSPC || error == EDQUOT) && (with_zeroes || make_room(io))) {
    to_ring(io);  // without zeroes, which are not worth what room there is kept
  } else if (error == kEnded) {
    end_transfer(io, zone_failure(Code::io_error, "the emulated device's file was truncated", 0));
  } else {
    end_transfer(io, error == 0 ? Status() : transfer_error(io, error));
  }
}

}  // namespace furrow::emu
