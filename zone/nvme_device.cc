#include "zone/nvme_device.h"

#include <linux/nvme_ioctl.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "zone/drive_facts.h"
#include "zone/drive_queue.h"

namespace furrow::nvme {

namespace {

// Opcodes of the NVM (3.2, 3.3) and Zoned Namespace (3.4.1) command sets.
constexpr std::uint8_t kFlush = 0x00, kWrite = 0x01, kRead = 0x02, kZoneAppend = 0x7D;
constexpr std::size_t kEntryBytes = 128;

// Of the errors that the kernel fails a command with, and not the drive: it was not begun (and is
// tried again at once), or the drive is gone. Others it has for what it could not finish when a
// controller was reset, or held back for that: EINTR, and Linux 6.1 also EFAULT.
bool says_all(int error) {
  return error == EAGAIN || error == ECANCELED || error == ENODEV || error == ENXIO;
}

class NvmeQueue final : public DriveQueue {
 public:
  NvmeQueue(DriveDevice& device, const NvmeDrive& drive, Placement& placement, IoMode mode,
            unsigned depth)
      : DriveQueue(device,
                   {.fd = drive.fd(),
                    .first_bytes = 0,
                    .stride_bytes = drive.geometry().zone_size_lbas * drive.geometry().lba_bytes,
                    .read = {drive.limits().bytes, drive.limits().pieces},
                    .write = {drive.limits().bytes, drive.limits().pieces},
                    .ring_flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32,
                    .mode = mode},
                   depth),
        placement_(placement),
        pieces_max_(drive.limits().pieces),
        nsid_(drive.nsid()) {}
  using DriveQueue::init_ring;

 private:
  bool prepare(io_uring_sqe& sqe, Io& io) override;
  int result_of(Io& io, const io_uring_cqe& cqe) override;
  // One that takes several commands cannot: each would have a place of its own.
  bool may_append(const Io& io) const override {
    if (!drive().appends() || io.iov_count > pieces_max_ ||
        io.lba_count > geometry().append_lbas_max)
      return false;
    return io.op == Io::Op::append || (io.may_fail_over && placement_.in_order());
  }

  Placement& placement_;
  const std::uint32_t pieces_max_;
  const std::uint32_t nsid_;
  bool fixed_buffers_ = true;
};

bool NvmeQueue::prepare(io_uring_sqe& sqe, Io& io) {
  bool fixed = false;
  nvme_uring_cmd command{};
  command.nsid = nsid_;
  command.opcode = kFlush;
  auto* entry = static_cast<std::byte*>(static_cast<void*>(&sqe));
  std::memset(entry, 0, kEntryBytes);
  sqe.opcode = IORING_OP_URING_CMD;
  sqe.cmd_op = NVME_URING_CMD_IO;
  if (io.op != Io::Op::flush) {
    const Part part = next_part(io);
    const bool append = io.op != Io::Op::read && io.as_append;
    command.opcode = io.op == Io::Op::read ? kRead : append ? kZoneAppend : kWrite;
    if (part.count != 0) {
      sqe.cmd_op = NVME_URING_CMD_IO_VEC;
      command.addr = reinterpret_cast<std::uintptr_t>(part.pieces);
      command.data_len = part.count;
    } else {
      command.addr = reinterpret_cast<std::uintptr_t>(part.data);
      command.data_len = static_cast<std::uint32_t>(part.bytes);
      // A write that the kernel gave back to be tried again would have lost its turn.
      const bool in_turn = append && io.op == Io::Op::write;
      fixed = fixed_buffers_ && io.buffer_index >= 0 && !in_turn;
      if (fixed) {
        sqe.uring_cmd_flags = IORING_URING_CMD_FIXED;
        sqe.buf_index = static_cast<std::uint16_t>(io.buffer_index);
      }
    }
    const std::uint64_t lba =
        append ? geometry().zone_start(io.zone).value : part.offset / geometry().lba_bytes;
    command.cdw10 = static_cast<std::uint32_t>(lba);
    command.cdw11 = static_cast<std::uint32_t>(lba >> 32);
    command.cdw12 = static_cast<std::uint32_t>(part.bytes / geometry().lba_bytes - 1);
  }
  std::memcpy(entry + offsetof(io_uring_sqe, cmd), &command, sizeof command);
  return fixed;
}

int NvmeQueue::result_of(Io& io, const io_uring_cqe& cqe) {
  const std::uint64_t start = geometry().zone_start(io.zone).value;
  const bool append = (io.op == Io::Op::write || io.op == Io::Op::append) && io.as_append;
  if (append && cqe.res != 0) {
    placement_.not_placed(io.zone, first_lba(io).value - start, io.lba_count);
  }
  // Passthrough in older kernels takes only some registered buffers: in pages of 4 KiB, whole ones.
  // What says so of others has no path to the drive (multipath), as while its controller is reset.
  if (cqe.res == -EINVAL) {
    const bool fixed = (cqe.user_data & kFixedTag) != 0;
    fixed_buffers_ = !fixed;
    return fixed ? -EAGAIN : -kInterrupted;
  }
  if (cqe.res < 0) return says_all(-cqe.res) ? cqe.res : -kInterrupted;
  if (cqe.res > 0) return is_interruption(cqe.res) ? -kInterrupted : -(cqe.res | kStatusFlag);
  if (io.op == Io::Op::flush) return 0;
  const auto bytes = static_cast<int>(next_part(io).bytes);
  if (!append) return bytes;
  const Lba at{cqe.big_cqe[0]};
  const std::uint64_t offset = at.value - start;
  if (!is_free(io.zone, offset)) return -EIO;
  if (io.op == Io::Op::write && disturbed() && at != io.lba) return -EIO;
  if (io.op == Io::Op::write || at == first_lba(io)) {
    return placement_.check(io.zone, first_lba(io).value - start, offset) ? bytes : -EIO;
  }
  // Where it went, in the order of the drive. Outside of what is ours: another program's work.
  if (offset + io.lba_count > table().admitted_lbas(io.zone)) return -EIO;
  io.appended_at = at;
  return bytes;
}

}  // namespace

Result<std::unique_ptr<ZonedDevice>> NvmeDevice::open(const DriveOptions& options, Access access,
                                                      std::string uri) {
  // 6.1 polls for a passthrough command by a bio that may be gone; 6.12 by a request that another
  // ring's poll of the same hardware queue may just have ended (nvme_poll of no queue).
  if (is_polled(options.io_mode)) {
    return zone_failure(Code::unsupported,
                        "io_mode: nvme: is not polled, as Linux panics (6.1 soon, 6.12 rarely); "
                        "regular and sqpoll are there, and all modes for zbd:");
  }
  Result<std::unique_ptr<NvmeDrive>> drive = NvmeDrive::open(options.path, access);
  if (!drive) return drive.status();
  std::unique_ptr<NvmeDevice> device(
      new NvmeDevice(std::move(*drive), options.io_mode, access, std::move(uri)));
  const Status status = device->start();
  if (!status.ok()) return status;
  return std::unique_ptr<ZonedDevice>(std::move(device));
}

Result<std::unique_ptr<IoQueue>> NvmeDevice::create_queue(unsigned depth) {
  auto queue = std::make_unique<NvmeQueue>(*this, *drive_, placement_, io_mode_, depth);
  const Status status = queue->init_ring();
  if (!status.ok()) return status;
  return std::unique_ptr<IoQueue>(std::move(queue));
}

}  // namespace furrow::nvme
