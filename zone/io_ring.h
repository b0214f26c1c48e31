// IoRing: an io_uring in one of four modes, and what each asks of its user: to enter the kernel for
// what is prepared or not, to look for completions there or not, to sleep or not. One thread at a
// time.
//
//   regular        submissions enter the kernel; completions are interrupts
//   sqpoll         a thread of the kernel takes submissions: no system call while it is awake
//   iopoll         completions are polled for, by the submitting thread, without interrupts
//   sqpoll_iopoll  both: the kernel's thread polls for completions too
#pragma once

#include <liburing.h>

#include <cstdint>

#include "zone/device_uri.h"
#include "zone/status.h"

namespace furrow {

class IoRing {
 public:
  IoRing() = default;
  ~IoRing();
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  // Once. `flags`: more of io_uring_setup(). Errors: unsupported, io_error.
  Status init(unsigned entries, IoMode mode, unsigned flags);
  bool made() const { return made_; }
  io_uring& get() { return ring_; }
  bool polled() const { return is_polled(mode_); }  // nothing to sleep on, then
  int wake_fd() const { return polled() ? -1 : ring_.ring_fd; }

  io_uring_sqe* next_entry();  // null: the ring is full
  // Hands over what is prepared, and lets completions in; `in_kernel`: there may be some. False:
  // not all was taken; look again.
  bool turn(bool in_kernel);
  // The same, and sleeps until a completion is there. Not if polled().
  void wait(std::uint64_t timeout_us);
  unsigned ready() const { return io_uring_cq_ready(&ring_); }
  std::uint64_t system_calls() const { return system_calls_; }

 private:
  bool has_thread() const { return mode_ == IoMode::sqpoll || mode_ == IoMode::sqpoll_iopoll; }
  unsigned flags() const { return IO_URING_READ_ONCE(*ring_.sq.kflags); }
  void wake_thread();

  io_uring ring_{};
  IoMode mode_ = IoMode::regular;
  bool made_ = false;
  unsigned prepared_ = 0;  // for the kernel's thread, and not told to it
  std::uint64_t system_calls_ = 0;
};

}  // namespace furrow
