// EmuQueue: the IoQueue of an emulated device: one io_uring, its file and buffers registered.
// Many submissions are pushed by one system call, made in poll().
#pragma once

#include <liburing.h>

#include <memory>

#include "zone/emu_device.h"
#include "zone/table_queue.h"

namespace furrow::emu {

class EmuQueue final : public TableQueue {
 public:
  static Result<std::unique_ptr<IoQueue>> create(EmuDevice& device, unsigned depth);
  ~EmuQueue() override;

  Status register_buffers(std::span<const iovec> buffers) override;
  std::uint64_t system_calls() const override { return system_calls_; }
  int wake_fd() const override { return ring_.ring_fd; }

 private:
  EmuQueue(EmuDevice& device, unsigned depth);
  Status init_ring();

  void start_transfer(Io& io) override { backlog_.push(io); }
  void start_flush(Io& io) override { backlog_.push(io); }
  void zone_was_reset(ZoneId zone) override { device_.reclaimer_.add(zone); }
  unsigned do_poll() override;
  unsigned do_wait(std::uint64_t timeout_us) override;

  void fill_ring();
  void prepare(io_uring_sqe& sqe, Io& io);
  void prepare_transfer(io_uring_sqe& sqe, Io& io);
  void arm_timer();
  unsigned reap();
  void finish(Io& io, int result);
  void finish_flush(Io& io, int result);

  EmuDevice& device_;
  const unsigned depth_;
  io_uring ring_{};
  bool ring_made_ = false;
  bool file_registered_ = false;
  bool buffers_registered_ = false;
  unsigned in_ring_ = 0;  // Ios that the kernel has, or that are prepared for it
  bool timer_armed_ = false;
  __kernel_timespec timer_{};
  std::uint64_t system_calls_ = 0;
  List backlog_;  // not yet in the ring
};

}  // namespace furrow::emu
