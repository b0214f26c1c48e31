// SocketRing: the sockets of one thread on one io_uring. What all connections want sent or received
// in a turn goes to the kernel in one system call.
//
// Where only a few commands go back and forth, arming a receive costs more than that saves. There
// output is sent by a call of its own, and poll() looks for input: a call that finds nothing is
// cheaper than being told.
//
// Threads: used by one thread at a time.
// Ownership: an Op, and the memory it names, belong to the caller and stay in place from the call
// until Op::done.
#pragma once

#include <liburing.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "zone/poller.h"
#include "zone/status.h"

namespace furrow::transport {

class SocketRing final : public Poller {
 public:
  struct Op {
    // `result`: bytes, a descriptor, or -errno. `more`: the socket has more to read already.
    void (*done)(Op&, int result, bool more) = nullptr;
    bool in_flight = false;
    // The ring's, of a receive: while it waits for the next poll(), or is looked for by each.
    Op* next = nullptr;
    int fd = -1;
    bool wait_first = false;
    iovec into{};
    msghdr* message = nullptr;
    std::uint64_t sleeps = 0;  // of the ring's thread, when it was asked for
  };
  // When there is something to read.
  enum class Input : std::uint8_t {
    now,    // perhaps already
    later,  // not yet: do not even try before the socket says so
    soon,   // not yet, but the peer is at it
  };
  // Work for the beginning of the next poll(), when this turn's handlers have all had their say:
  // that is how the output of a whole turn becomes one send.
  struct Deferred {
    void (*run)(Deferred&) = nullptr;
    Deferred* next = nullptr;
    bool queued = false;
  };

  // io_error (with errno): the kernel refuses an io_uring.
  static Result<std::unique_ptr<SocketRing>> create();
  ~SocketRing() override;  // nothing may be in flight
  SocketRing(const SocketRing&) = delete;
  SocketRing& operator=(const SocketRing&) = delete;

  // Receives are handed to the kernel behind what the same poll() sends: the peer waits for that.
  // One that expects its input soon is looked for by each poll(), until the thread sleeps, another
  // one does, or it was not there for long; after a sleep that is not worth it until input has come
  // without one again.
  void receive(Op& op, int fd, std::span<std::byte> into, Input when);
  void receive(Op& op, int fd, msghdr* into, Input when);
  void send(Op& op, int fd, const msghdr* from);
  // By a call of its own, at once: bytes, or -errno; -EAGAIN: the socket has no room, or there is
  // more for the kernel, with which it costs less. From within deferred work.
  int send_now(int fd, const msghdr* from);
  void accept(Op& op, int listen_fd);
  void connect(Op& op, int fd, const sockaddr* address, socklen_t bytes);
  // `op` ends soon, with -ECANCELED if it had not ended by itself.
  void cancel(Op& op);
  void defer(Deferred& work);

  unsigned poll() override;
  bool before_sleep() override;
  int wake_fd() const override { return ring_.ring_fd; }
  bool busy() const override { return in_flight_ != 0; }

  std::uint64_t system_calls() const {  // any thread
    return system_calls_.load(std::memory_order_relaxed);
  }

 private:
  SocketRing() = default;
  io_uring_sqe* entry();
  io_uring_sqe* entry(Op& op);
  void receive(Op& op, int fd, Input when);
  void queue(Op& op);
  void start_receives();
  unsigned look();
  void stop_looking();
  unsigned run_deferred();
  void count_call();
  void enter();
  unsigned reap();

  io_uring ring_{};
  bool open_ = false;
  Deferred* first_deferred_ = nullptr;
  Deferred** last_deferred_ = &first_deferred_;
  Deferred* to_run_ = nullptr;  // of run_deferred(), behind what runs
  Op* first_receive_ = nullptr;
  Op** last_receive_ = &first_receive_;
  Op* looked_for_ = nullptr;
  unsigned looks_left_ = 0;
  bool looking_pays_ = true;
  std::uint64_t sleeps_ = 0;
  std::uint64_t in_flight_ = 0;
  std::atomic<std::uint64_t> system_calls_{0};  // written by the ring's thread only
};

}  // namespace furrow::transport
