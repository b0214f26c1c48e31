#include "zone/ring_queue.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>

#include "zone/aligned_buffer.h"
#include "zone/descriptors.h"
#include "zone/new_ring.h"

namespace furrow {

namespace {

constexpr unsigned kDepthMax = 4096;
// How many completions are taken before what they led to is submitted: one, as long as the disk is
// what bounds, which would else wait for the next request until all of them have been seen to;
// more, so that they share a system call, where many wait, as then this thread is what bounds.
constexpr unsigned kReapMax = 8;
unsigned reap_count(unsigned ready) { return std::clamp(ready / 4, 1u, kReapMax); }
constexpr std::uint64_t kCallBytesMax = 64 << 10;  // a small transfer, with may_block()
constexpr std::uint64_t kWaitMaxUs = std::uint64_t{3600} * 1'000'000;
constexpr std::uint64_t kTimerTag = 1;         // user_data of the timer: no Io's address
constexpr std::uint64_t kRecheckNs = 200'000;  // while something waits for another thread

}  // namespace

RingQueue::RingQueue(const Geometry& geometry, ZoneTable& table, bool read_only,
                     const Medium& medium, unsigned depth)
    : TableQueue(geometry, table, read_only),
      medium_(medium),
      depth_(depth),
      reads_at_once_(is_direct(medium.fd)),
      merged_(this->geometry(), medium.read.bytes, medium.read.pieces) {}

RingQueue::~RingQueue() {
  FURROW_CHECK(in_flight() == 0);
  // The kernel takes a ring apart at leisure; the file is to be free when the device is closed.
  if (!file_registered_) return;
  (void)io_uring_unregister_files(&ring_.get());
  if (plain_ring_.made()) (void)io_uring_unregister_files(&plain_ring_.get());
}

Status RingQueue::init_ring() {
  if (depth_ == 0 || depth_ > kDepthMax) {
    return zone_failure(Code::invalid_argument, "a queue's depth is 1 to 4096", 0);
  }
  const unsigned entries = std::bit_ceil(depth_ + 1);  // one for the timer
  Status status = ring_.init(entries, medium_.mode, medium_.ring_flags);
  if (status.ok() && ring_.polled()) {
    status = plain_ring_.init(entries, IoMode::regular, medium_.ring_flags);
  }
  if (!status.ok()) return status;
  file_registered_ = io_uring_register_files(&ring_.get(), &medium_.fd, 1) == 0;
  if (file_registered_ && ring_.polled()) {
    const int rc = io_uring_register_files(&plain_ring_.get(), &medium_.fd, 1);
    if (rc < 0) return ring_refused(-rc, Origin::zone);
  }
  return ring_.polled() ? try_polling() : Status();
}

// One read tells whether completions can be polled for.
Status RingQueue::try_polling() {
  AlignedBuffer lba(geometry().lba_bytes);
  Io io;
  io.set_data(lba.data(), 1, geometry().lba_bytes);
  bytes_done(io) = 0;
  transfer_bytes(io) = geometry().lba_bytes;
  push(*ring_.next_entry(), io);
  while (ring_.ready() == 0) (void)ring_.turn(true);
  io_uring_cqe* cqe = nullptr;
  FURROW_CHECK(io_uring_peek_cqe(&ring_.get(), &cqe) == 0);
  const int result = cqe->res;
  io_uring_cqe_seen(&ring_.get(), cqe);
  if (result != -EOPNOTSUPP && result != -EINVAL) return {};  // of other errors its user will hear
  return zone_failure(Code::unsupported,
                      "io_mode: completions cannot be polled for here; that takes direct I/O and a "
                      "driver with queues for it (nvme: its parameter poll_queues)",
                      -result);
}

Status RingQueue::register_buffers(std::span<const iovec> buffers) {
  if (in_flight() != 0) {
    return zone_failure(Code::busy, "buffers are registered while nothing is in flight", 0);
  }
  if (buffers_registered_) {
    io_uring_unregister_buffers(&ring_.get());
    if (plain_ring_has_data()) io_uring_unregister_buffers(&plain_ring_.get());
    buffers_registered_ = false;
    set_registered(0);
  }
  if (buffers.empty()) return {};
  const auto count = static_cast<unsigned>(buffers.size());
  int rc = io_uring_register_buffers(&ring_.get(), buffers.data(), count);
  if (rc >= 0 && plain_ring_has_data()) {
    rc = io_uring_register_buffers(&plain_ring_.get(), buffers.data(), count);
    if (rc < 0) io_uring_unregister_buffers(&ring_.get());
  }
  if (rc < 0) {
    return zone_failure(Code::unsupported,
                        "the kernel cannot pin the buffers; raise RLIMIT_MEMLOCK", -rc);
  }
  buffers_registered_ = true;
  set_registered(count);
  return {};
}

void RingQueue::push(io_uring_sqe& sqe, Io& io) {
  const bool fixed = prepare(sqe, io);
  if (file_registered_) {
    sqe.flags |= IOSQE_FIXED_FILE;
    sqe.fd = 0;
  } else {
    sqe.fd = medium_.fd;
  }
  sqe.user_data = reinterpret_cast<std::uintptr_t>(&io) | (fixed ? kFixedTag : 0);
}

bool RingQueue::prepare(io_uring_sqe& sqe, Io& io) {
  if (io.op == Io::Op::flush) {
    io_uring_prep_fsync(&sqe, 0, IORING_FSYNC_DATASYNC);
    return false;
  }
  const bool read = io.op == Io::Op::read;
  const Part part = next_request(io);
  const auto bytes = static_cast<unsigned>(part.bytes);
  if (part.count != 0) {
    io_uring_prep_rw(read ? IORING_OP_READV : IORING_OP_WRITEV, &sqe, 0, part.pieces, part.count,
                     part.offset);
  } else if (io.buffer_index >= 0) {
    io_uring_prep_rw(read ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED, &sqe, 0, part.data, bytes,
                     part.offset);
    sqe.buf_index = static_cast<std::uint16_t>(io.buffer_index);
    return true;
  } else {
    io_uring_prep_rw(read ? IORING_OP_READ : IORING_OP_WRITE, &sqe, 0, part.data, bytes,
                     part.offset);
  }
  return false;
}

int RingQueue::result_of(Io& io, const io_uring_cqe& cqe) {
  if (cqe.res < 0) return cqe.res;
  if (io.op == Io::Op::flush) return 0;
  return cqe.res == 0 ? -kEnded : cqe.res;
}

// The rest of a transfer: all pieces at once when it starts at one and goes to their end, as far as
// one request takes them, or else (a short transfer before, or a read that ends at the write
// pointer) the rest of one piece.
RingQueue::Part RingQueue::next_part(Io& io) const {
  const bool read = io.op == Io::Op::read;
  const Limit& limit = read ? medium_.read : medium_.write;
  const std::uint64_t done = bytes_done(io);
  const Lba first = first_lba(io);
  const ZoneId zone = read ? geometry().zone_of(first) : io.zone;
  const std::uint64_t lba_in_zone = first.value - geometry().zone_start(zone).value;
  Part part;
  part.offset = medium_.first_bytes + zone.value * medium_.stride_bytes +
                lba_in_zone * geometry().lba_bytes + done;
  const iovec* piece = io.iov;
  std::uint64_t skip = done;
  while (skip >= piece->iov_len) skip -= (piece++)->iov_len;
  const auto pieces = static_cast<std::uint32_t>(io.iov + io.iov_count - piece);
  if (pieces > 1 && skip == 0 &&
      transfer_bytes(io) == std::uint64_t{io.lba_count} * geometry().lba_bytes) {
    part.pieces = piece;
    const std::uint32_t most = std::min(pieces, limit.pieces);
    while (part.count < most && part.bytes + piece[part.count].iov_len <= limit.bytes) {
      part.bytes += piece[part.count++].iov_len;
    }
    if (part.count > 1) return part;
    part.count = 0;
  }
  part.data = static_cast<std::byte*>(piece->iov_base) + skip;
  part.bytes = std::min({transfer_bytes(io) - done, piece->iov_len - skip, limit.bytes});
  return part;
}

// Returns the number of events, of what it did itself.
unsigned RingQueue::fill_ring() {
  bool first = in_ring_ == 0;
  for (; backlog_.head != nullptr && in_ring_ < depth_; first = false) {
    Io& io = merged_.merge(*backlog_.pop(), backlog_);
    if (first && may_block_ && backlog_.head == nullptr && is_small(io)) {
      ++calls_;
      finish(io, call(io));
      return 1;
    }
    io_uring_sqe* sqe = ring_for(io).next_entry();
    if (sqe == nullptr) {
      backlog_.push_front(io);
      break;
    }
    push(*sqe, io);
    ++in_ring_;
  }
  const bool may_sleep = !ring_.polled();
  if (may_sleep && in_ring_ == 0 && must_look_again() && !timer_armed_) arm_timer();
  return 0;
}

bool RingQueue::is_small(const Io& io) const {
  return io.op == Io::Op::flush || transfer_bytes(io) <= kCallBytesMax;
}

int RingQueue::call(Io& io) {
  if (io.op == Io::Op::flush) return fdatasync(medium_.fd) == 0 ? 0 : -errno;
  const Part part = next_request(io);
  const iovec whole{part.data, part.bytes};
  const iovec* const pieces = part.count != 0 ? part.pieces : &whole;
  const auto count = static_cast<int>(std::max(part.count, 1u));
  const auto offset = static_cast<off_t>(part.offset);
  const ssize_t done = io.op == Io::Op::read ? call_read(pieces, count, offset)
                                             : pwritev(medium_.fd, pieces, count, offset);
  if (done < 0) return -errno;
  return done == 0 ? -kEnded : static_cast<int>(done);
}

// Direct I/O is tried without waiting for anything but the device: else a file system looks through
// the file's dirty pages, which those of a zone table are, before each read. EAGAIN: something else
// is to be waited for, as those that are where the read is.
ssize_t RingQueue::call_read(const iovec* pieces, int count, off_t offset) {
  if (reads_at_once_) {
    const ssize_t done = preadv2(medium_.fd, pieces, count, offset, RWF_NOWAIT);
    if (done >= 0 || (errno != EAGAIN && errno != EOPNOTSUPP)) return done;
    reads_at_once_ = errno == EAGAIN;
    ++calls_;
  }
  return preadv(medium_.fd, pieces, count, offset);
}

// So that a thread asleep on wake_fd() looks again at what waits for another thread.
void RingQueue::arm_timer() {
  io_uring_sqe* sqe = ring_.next_entry();
  if (sqe == nullptr) return;
  timer_.tv_nsec = kRecheckNs;
  io_uring_prep_timeout(sqe, &timer_, 0, 0);
  sqe->user_data = kTimerTag;
  timer_armed_ = true;
}

// What a ring could not take (out of memory, completions to reap first) it takes the next time:
// that is an event too, so that nobody goes to sleep over it.
unsigned RingQueue::do_poll() {
  unsigned count = settle();
  count += fill_ring();
  if (!ring_.turn(in_ring_ != 0)) ++count;
  if (!ring_.polled()) return count + reap(ring_);
  if (!plain_ring_.turn(in_ring_ != 0)) ++count;
  count += reap(plain_ring_);
  return count + reap(ring_);
}

unsigned RingQueue::do_wait(std::uint64_t timeout_us) {
  const unsigned count = settle();
  if (count != 0 || !settled() || in_flight() == 0 || ring_.ready() != 0) {
    return count + do_poll();
  }
  if (ring_.polled()) return poll_until(timeout_us);
  if (const unsigned done = fill_ring(); done != 0) return done;
  ring_.wait(timeout_us);
  return reap(ring_);
}

unsigned RingQueue::poll_until(std::uint64_t timeout_us) {
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::microseconds(std::min(timeout_us, kWaitMaxUs));
  for (;;) {
    const unsigned count = do_poll();
    if (count != 0 || std::chrono::steady_clock::now() >= until) return count;
  }
}

// Each completion of the kernel counts as an event, also one that only leads to the next step.
unsigned RingQueue::reap(IoRing& ring) {
  io_uring_cqe* cqes[kReapMax];
  const unsigned ready = io_uring_peek_batch_cqe(&ring.get(), cqes, reap_count(ring.ready()));
  for (unsigned i = 0; i < ready; ++i) {
    const std::uint64_t tag = cqes[i]->user_data;
    if (tag == kTimerTag) {
      timer_armed_ = false;
      continue;
    }
    --in_ring_;
    Io& io = *reinterpret_cast<Io*>(tag & ~kFixedTag);
    int result = result_of(io, *cqes[i]);
    // A call does without what the kernel lacked: of a thread that has ended since, a read that had
    // to wait for the page cache gets EFAULT too; ECANCELED is what would take a thread of the
    // kernel's where none can be had (ulimit -u, a container's number of tasks), as often as it is
    // tried. A block device's flush always takes one.
    const bool lacked = result == -ECANCELED || (result == -EFAULT && io.op == Io::Op::read);
    if (lacked && (medium_.calls || (io.op == Io::Op::flush && takes_calls()))) {
      ++calls_;
      result = call(io);
    }
    finish(io, result);
  }
  io_uring_cq_advance(&ring.get(), ready);
  return ready;
}

// ECANCELED: the thread that submitted it has ended before it was begun (as old kernels have it),
// or there is no thread for it.
void RingQueue::finish(Io& io, int result) {
  if (result == -EAGAIN || result == -EINTR || result == -ECANCELED) {
    backlog_.push(io);
  } else if (result < 0) {
    ended(io, -result);
  } else if (io.op == Io::Op::flush) {
    ended(io, 0);
  } else {
    bytes_done(io) += static_cast<std::uint64_t>(result);
    if (bytes_done(io) < transfer_bytes(io)) {
      backlog_.push(io);
    } else {
      ended(io, 0);
    }
  }
}

// Of reads that failed together each finds out by itself, unless that is of none of them.
void RingQueue::ended(Io& io, int error) {
  if (!merged_.is_merged(io)) return transferred(io, error);
  List members = merged_.take_apart(io);
  while (Io* member = members.pop()) {
    member->alone = error != 0;
    if (error == 0) bytes_done(*member) = transfer_bytes(*member);
    if (error == 0 || !is_of_data(error)) {
      transferred(*member, error);
    } else {
      backlog_.push(*member);
    }
  }
}

}  // namespace furrow
