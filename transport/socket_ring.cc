#include "transport/socket_ring.h"

#include <array>
#include <cerrno>
#include <utility>

#include "zone/check.h"
#include "zone/new_ring.h"

namespace furrow::transport {

namespace {

constexpr unsigned kEntries = 512;       // submissions collected for one system call
constexpr unsigned kLooksMax = 1000;     // for what is expected soon
constexpr unsigned kCompletions = 8192;  // beyond it the kernel keeps them for us
}  // namespace

Result<std::unique_ptr<SocketRing>> SocketRing::create() {
  std::unique_ptr<SocketRing> ring(new SocketRing);
  // Not DEFER_TASKRUN: with it the ring's descriptor does not become readable for a thread that
  // sleeps in poll(2), as an idle event loop does.
  io_uring_params params{};
  params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE;
  params.cq_entries = kCompletions;
  const int error = io_uring_queue_init_params(kEntries, &ring->ring_, &params);
  if (error < 0) return ring_refused(-error, Origin::transport);
  ring->open_ = true;
  tell_sanitizer(ring->ring_);
  const Status usable = try_ring(ring->ring_, Origin::transport);
  if (!usable.ok()) return usable;
  return ring;
}

SocketRing::~SocketRing() {
  FURROW_CHECK(in_flight_ == 0);
  if (open_) io_uring_queue_exit(&ring_);
}

io_uring_sqe* SocketRing::entry() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {  // full: push what is there
    enter();
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

io_uring_sqe* SocketRing::entry(Op& op) {
  FURROW_CHECK(!op.in_flight);
  op.in_flight = true;
  ++in_flight_;
  return entry();
}

void SocketRing::receive(Op& op, int fd, std::span<std::byte> into, Input when) {
  op.into = {into.data(), into.size()};
  op.message = nullptr;
  receive(op, fd, when);
}

void SocketRing::receive(Op& op, int fd, msghdr* into, Input when) {
  op.message = into;
  receive(op, fd, when);
}

void SocketRing::receive(Op& op, int fd, Input when) {
  FURROW_CHECK(!op.in_flight);
  op.in_flight = true;
  ++in_flight_;
  op.fd = fd;
  op.wait_first = when != Input::now;
  op.sleeps = sleeps_;
  const bool look_for = when == Input::soon && looking_pays_ && looked_for_ == nullptr;
  if (!look_for && when == Input::soon) stop_looking();
  if (!look_for) return queue(op);
  looked_for_ = &op;
  looks_left_ = kLooksMax;
}

void SocketRing::queue(Op& op) {
  op.next = nullptr;
  *last_receive_ = &op;
  last_receive_ = &op.next;
}

// From now on the kernel does.
void SocketRing::stop_looking() {
  if (looked_for_ != nullptr) queue(*std::exchange(looked_for_, nullptr));
}

bool SocketRing::before_sleep() {
  ++sleeps_;
  if (looked_for_ != nullptr) looking_pays_ = false;
  stop_looking();
  start_receives();
  if (io_uring_sq_ready(&ring_) != 0) enter();
  return io_uring_sq_ready(&ring_) == 0;
}

unsigned SocketRing::look() {
  if (looked_for_ == nullptr) return 0;
  Op& op = *looked_for_;
  msghdr one{};
  one.msg_iov = &op.into;
  one.msg_iovlen = 1;
  msghdr& message = op.message != nullptr ? *op.message : one;
  count_call();
  const ssize_t count = recvmsg(op.fd, &message, MSG_DONTWAIT);
  const int result = count < 0 ? -errno : static_cast<int>(count);
  if (result == -EAGAIN || result == -EINTR) {
    if (--looks_left_ == 0) stop_looking();
    return first_receive_ != nullptr ? 1 : 0;
  }
  looked_for_ = nullptr;
  op.in_flight = false;
  --in_flight_;
  std::size_t room = 0;
  for (const iovec& piece : std::span(message.msg_iov, message.msg_iovlen)) room += piece.iov_len;
  op.done(op, result, result > 0 && static_cast<std::size_t>(result) == room);
  return 1;
}

void SocketRing::start_receives() {
  for (Op* op = first_receive_; op != nullptr; op = op->next) {
    io_uring_sqe* sqe = entry();
    if (op->message != nullptr) {
      io_uring_prep_recvmsg(sqe, op->fd, op->message, 0);
    } else {
      io_uring_prep_recv(sqe, op->fd, op->into.iov_base, op->into.iov_len, 0);
    }
    if (op->wait_first) sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    io_uring_sqe_set_data(sqe, op);
  }
  first_receive_ = nullptr;
  last_receive_ = &first_receive_;
}

void SocketRing::send(Op& op, int fd, const msghdr* from) {
  io_uring_sqe* sqe = entry(op);
  // MSG_WAITALL: the kernel goes on by itself when the socket's buffer has room again.
  io_uring_prep_sendmsg(sqe, fd, from, MSG_NOSIGNAL | MSG_WAITALL);
  io_uring_sqe_set_data(sqe, &op);
}

int SocketRing::send_now(int fd, const msghdr* from) {
  const bool more =
      to_run_ != nullptr || first_receive_ != nullptr || io_uring_sq_ready(&ring_) != 0;
  if (more) return -EAGAIN;
  count_call();
  const ssize_t count = sendmsg(fd, from, MSG_NOSIGNAL | MSG_DONTWAIT);
  return count < 0 ? -errno : static_cast<int>(count);
}

void SocketRing::accept(Op& op, int listen_fd) {
  io_uring_sqe* sqe = entry(op);
  io_uring_prep_accept(sqe, listen_fd, nullptr, nullptr, SOCK_CLOEXEC);
  io_uring_sqe_set_data(sqe, &op);
}

void SocketRing::connect(Op& op, int fd, const sockaddr* address, socklen_t bytes) {
  io_uring_sqe* sqe = entry(op);
  io_uring_prep_connect(sqe, fd, address, bytes);
  io_uring_sqe_set_data(sqe, &op);
}

void SocketRing::cancel(Op& op) {
  if (!op.in_flight) return;
  if (looked_for_ == &op) stop_looking();
  start_receives();  // `op` may be one that the kernel has not seen yet
  io_uring_sqe* sqe = entry();
  io_uring_prep_cancel(sqe, &op, 0);
  io_uring_sqe_set_data(sqe, nullptr);
}

void SocketRing::defer(Deferred& work) {
  if (work.queued) return;
  work.queued = true;
  work.next = nullptr;
  *last_deferred_ = &work;
  last_deferred_ = &work.next;
}

// What is deferred meanwhile waits for the next poll.
unsigned SocketRing::run_deferred() {
  FURROW_CHECK(to_run_ == nullptr);
  to_run_ = std::exchange(first_deferred_, nullptr);
  last_deferred_ = &first_deferred_;
  unsigned count = 0;
  while (to_run_ != nullptr) {
    Deferred& work = *to_run_;
    to_run_ = work.next;  // before run(): it may be deferred again, or be gone
    work.queued = false;
    work.run(work);
    ++count;
  }
  return count;
}

void SocketRing::count_call() {
  system_calls_.store(system_calls() + 1, std::memory_order_relaxed);
}

void SocketRing::enter() {
  count_call();
  check_entered(io_uring_submit_and_get_events(&ring_));
}

unsigned SocketRing::reap() {
  struct Ended {
    Op* op;
    int result;
    bool more;
  };
  std::array<Ended, 256> ended;
  unsigned seen = 0, count = 0, head = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(&ring_, head, cqe) {
    if (seen == ended.size()) break;
    auto* op = static_cast<Op*>(io_uring_cqe_get_data(cqe));
    ++seen;
    if (op != nullptr)
      ended[count++] = {op, cqe->res, (cqe->flags & IORING_CQE_F_SOCK_NONEMPTY) != 0};
  }
  io_uring_cq_advance(&ring_, seen);
  in_flight_ -= count;
  for (unsigned i = 0; i < count; ++i) {
    ended[i].op->in_flight = false;
    if (ended[i].op->sleeps == sleeps_) looking_pays_ = true;
  }
  for (unsigned i = 0; i < count; ++i)
    ended[i].op->done(*ended[i].op, ended[i].result, ended[i].more);
  return seen;
}

unsigned SocketRing::poll() {
  unsigned events = run_deferred();
  start_receives();
  const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
  if (io_uring_sq_ready(&ring_) != 0 ||
      (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) {
    enter();
  }
  events += reap();
  events += look();
  return events + (first_deferred_ != nullptr ? 1 : 0) + io_uring_sq_ready(&ring_);
}

}  // namespace furrow::transport
