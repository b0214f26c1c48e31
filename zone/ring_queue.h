// RingQueue: the part of an IoQueue that emu: and zbd: share: a TableQueue whose transfers go to a
// file or block device by one io_uring, its file and buffers registered. Many submissions are
// pushed by one system call, made in poll(), or by none (see IoMode).
#pragma once

#include <limits>

#include "zone/io_ring.h"
#include "zone/merged_reads.h"
#include "zone/table_queue.h"

namespace furrow {

class RingQueue : public TableQueue {
 public:
  ~RingQueue() override;

  Status register_buffers(std::span<const iovec> buffers) override;
  std::uint64_t system_calls() const override {
    return calls_ + ring_.system_calls() + plain_ring_.system_calls();
  }
  void may_block() override { may_block_ = medium_.calls; }
  int wake_fd() const override { return ring_.wake_fd(); }

 protected:
  // Among the errors of transferred(): no errno.
  static constexpr int kEnded = 1 << 20;

  // What one request of the kernel's may be.
  struct Limit {
    std::uint64_t bytes = std::numeric_limits<int>::max();
    std::uint32_t pieces = 1024;  // IOV_MAX
  };
  // Where the zones lie in the file.
  struct Medium {
    int fd = -1;
    std::uint64_t first_bytes = 0;   // offset of the first zone
    std::uint64_t stride_bytes = 0;  // from one zone's start to the next one's
    Limit read{};
    Limit write{};
    unsigned ring_flags = 0;  // of io_uring_setup()
    bool calls = false;       // preadv(), pwritev() and fdatasync() do the same
    IoMode mode = IoMode::regular;
    bool polls_writes = true;  // in a polled mode
  };
  RingQueue(const Geometry& geometry, ZoneTable& table, bool read_only, const Medium& medium,
            unsigned depth);
  // Before any other use. Errors: invalid_argument (the depth), unsupported (no io_uring, or not in
  // this mode), io_error.
  Status init_ring();

  // System calls that a back end has made by itself.
  void made_calls(unsigned count) { calls_ += count; }

  // A transfer or flush that start_transfer() or start_flush() was given, for the kernel.
  void to_ring(Io& io) { backlog_.push(io); }
  void start_transfer(Io& io) override { to_ring(io); }
  void start_flush(Io& io) override { to_ring(io); }
  unsigned do_poll() override;
  unsigned do_wait(std::uint64_t timeout_us) override;

  // The next request of a transfer: whole pieces, or (count 0) one run of memory.
  struct Part {
    const iovec* pieces = nullptr;
    std::uint32_t count = 0;
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in the file
  };
  Part next_part(Io& io) const;
  // In the user data of an entry that uses a registered buffer, beside the Io's address.
  static constexpr std::uint64_t kFixedTag = 2;
  static_assert(alignof(Io) > (kFixedTag | 1));

 private:
  // Fills the entry for the next request of a transfer, or a flush; all but its file and user data.
  // Does it use the registered buffer?
  virtual bool prepare(io_uring_sqe& sqe, Io& io);
  // What that is to be: next_part(), and zeroes behind it where the back end wants them.
  virtual Part next_request(Io& io) { return next_part(io); }
  // What came of it: how many bytes, 0 for a flush; or an error below 0, as transferred() has it.
  // -EAGAIN: try again.
  virtual int result_of(Io& io, const io_uring_cqe& cqe);
  // The kernel has done all of it (`error` 0), or failed it: an errno; kEnded: the file ended
  // before the transfer did; or what result_of() makes of it. Leads to end_transfer().
  virtual void transferred(Io& io, int error) = 0;
  // Is such an error one of the data that was asked for, and not of whatever is asked just now?
  virtual bool is_of_data(int) const { return true; }
  // Something waits that no completion of the ring will tell of: look again soon.
  virtual bool must_look_again() const { return waits(); }

  Status try_polling();
  // What is not polled for goes by a ring of its own.
  IoRing& ring_for(const Io& io) {
    const bool polled_for =
        io.op == Io::Op::read || (io.op != Io::Op::flush && medium_.polls_writes);
    return ring_.polled() && !polled_for ? plain_ring_ : ring_;
  }
  bool plain_ring_has_data() const { return ring_.polled() && !medium_.polls_writes; }
  unsigned poll_until(std::uint64_t timeout_us);
  unsigned fill_ring();
  bool is_small(const Io& io) const;
  // Else what it takes are NVMe's own commands.
  bool takes_calls() const { return (medium_.ring_flags & IORING_SETUP_SQE128) == 0; }
  int call(Io& io);
  ssize_t call_read(const iovec* pieces, int count, off_t offset);
  void push(io_uring_sqe& sqe, Io& io);
  void arm_timer();
  unsigned reap(IoRing& ring);
  void finish(Io& io, int result);
  void ended(Io& io, int error);

  const Medium medium_;
  const unsigned depth_;
  IoRing ring_;
  IoRing plain_ring_;  // made only if ring_ is polled
  bool file_registered_ = false;
  bool buffers_registered_ = false;
  unsigned in_ring_ = 0;  // Ios that the kernel has, or that are prepared for it
  bool timer_armed_ = false;
  bool may_block_ = false;
  bool reads_at_once_;  // see call_read()
  __kernel_timespec timer_{};
  std::uint64_t calls_ = 0;  // beside the rings'
  List backlog_;             // not yet in the ring
  MergedReads merged_;
};

}  // namespace furrow
