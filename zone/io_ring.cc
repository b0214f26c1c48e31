#include "zone/io_ring.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "zone/new_ring.h"

namespace furrow {

namespace {

constexpr unsigned kThreadIdleMs = 20;  // after which the kernel's thread sleeps

unsigned flags_of(IoMode mode) {
  switch (mode) {
    case IoMode::regular:
      break;
    case IoMode::sqpoll:
      return IORING_SETUP_SQPOLL;
    case IoMode::iopoll:
      return IORING_SETUP_IOPOLL;
    case IoMode::sqpoll_iopoll:
      return IORING_SETUP_SQPOLL | IORING_SETUP_IOPOLL;
  }
  return 0;
}

bool is_lasting(int result) {
  switch (result) {
    case -EINTR:
    case -EAGAIN:
    case -EBUSY:
    case -ENOMEM:
    case -ETIME:
      return false;
    default:
      return result < 0;
  }
}

[[noreturn]] void fail_for_good(int error) {
  throw std::system_error(error, std::generic_category(),
                          error == EBADR
                              ? "io_uring_enter: the kernel has lost what it was to answer"
                              : "io_uring_enter: the kernel takes no more I/O from this process");
}

}  // namespace

void check_entered(int result) noexcept {
  if (is_lasting(result)) fail_for_good(-result);
}

Status try_ring(io_uring& ring, Origin origin) {
  const int result = io_uring_get_events(&ring);
  return is_lasting(result) ? ring_refused(-result, origin) : Status();
}

IoRing::~IoRing() {
  if (made_) io_uring_queue_exit(&ring_);
}

// Completions are run when this thread next enters the kernel, without an interrupt to it, and a
// flag says when that is worth it. (The kernel's thread has no use for that.) Not SINGLE_ISSUER: a
// queue may move from thread to thread.
Status IoRing::init(unsigned entries, IoMode mode, unsigned flags) {
  mode_ = mode;
  io_uring_params params{};
  params.flags = flags | flags_of(mode);
  params.sq_thread_idle = kThreadIdleMs;
  io_uring_params cooperative = params;
  cooperative.flags |= IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  int rc = has_thread() ? -EINVAL : io_uring_queue_init_params(entries, &ring_, &cooperative);
  if (rc == -EINVAL) rc = io_uring_queue_init_params(entries, &ring_, &params);  // before 5.19
  if (rc == -EPERM && has_thread()) {
    return {Code::unsupported, Origin::zone,
            "io_mode: a kernel thread that submits needs CAP_SYS_NICE before Linux 5.11; "
            "io_mode=regular does without",
            EPERM};
  }
  if (rc < 0) return ring_refused(-rc, Origin::zone);
  made_ = true;
  tell_sanitizer(ring_);
  return try_ring(ring_, Origin::zone);
}

io_uring_sqe* IoRing::next_entry() {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry != nullptr) ++prepared_;
  return entry;
}

void IoRing::wake_thread() {
  if (prepared_ == 0) return;
  prepared_ = 0;
  if ((flags() & IORING_SQ_NEED_WAKEUP) != 0) ++system_calls_;
  check_entered(io_uring_submit(&ring_));
}

bool IoRing::turn(bool in_kernel) {
  if (has_thread()) {
    wake_thread();
    if ((flags() & IORING_SQ_CQ_OVERFLOW) == 0) return true;
    ++system_calls_;
    check_entered(io_uring_get_events(&ring_));
    return true;
  }
  if (io_uring_sq_ready(&ring_) != 0) {
    check_entered(io_uring_submit_and_get_events(&ring_));
    ++system_calls_;
    return io_uring_sq_ready(&ring_) == 0;
  }
  const bool called = (flags() & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
  if (polled() ? in_kernel : called) {
    check_entered(io_uring_get_events(&ring_));
    ++system_calls_;
  }
  return true;
}

void IoRing::wait(std::uint64_t timeout_us) {
  const std::uint64_t limit_ns = std::min(timeout_us, std::uint64_t{3600} * 1'000'000) * 1000;
  __kernel_timespec timeout{static_cast<std::int64_t>(limit_ns / 1'000'000'000u),
                            static_cast<long long>(limit_ns % 1'000'000'000u)};
  io_uring_cqe* cqe = nullptr;
  prepared_ = 0;
  check_entered(io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &timeout, nullptr));
  ++system_calls_;
}

}  // namespace furrow
