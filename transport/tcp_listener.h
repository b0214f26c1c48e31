// TcpListener: a listening socket whose connections go to a function.
//
// Threads: its ring's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/socket_ring.h"
#include "zone/executor.h"
#include "zone/status.h"

namespace furrow::transport {

class TcpListener {
 public:
  // `host`: a numeric address or a name that resolves to one; port 0: any free one. Errors: in_use
  // (after 2 s: that of a process that was killed may be taken a moment longer), invalid_argument
  // (the address), permission (a port below 1024), io_error.
  static Result<std::unique_ptr<TcpListener>> open(const std::string& host, std::uint16_t port);
  ~TcpListener();  // after stop() has called back, or if start() never was

  // `accepted` owns the socket. `failed` (may be null) is told the errno of an accept that failed:
  // for want of descriptors or memory, in which case the connection waits, or for what became of
  // that connection. It is tried again soon.
  void start(SocketRing& ring, Executor& executor,
             std::function<void(int fd, std::string peer)> accepted,
             std::function<void(int error)> failed = nullptr);
  // Accepts no more; `stopped` is called when nothing is in flight (maybe from here).
  void stop(std::function<void()> stopped);
  std::uint16_t port() const { return port_; }
  const std::string& address() const { return address_; }  // numeric

 private:
  explicit TcpListener(int fd) : fd_(fd) {}
  struct AcceptOp : SocketRing::Op {
    TcpListener* self;
  };
  struct RetryTimer : Timer {
    TcpListener* self;
  };
  void accept();
  void on_accepted(int result);

  int fd_;
  std::uint16_t port_ = 0;
  std::string address_;
  SocketRing* ring_ = nullptr;
  Executor* executor_ = nullptr;
  AcceptOp accept_op_{};
  RetryTimer retry_{};  // an accept failed: try again soon
  bool stopping_ = false;
  std::function<void(int, std::string)> accepted_;
  std::function<void(int)> failed_;
  std::function<void()> stopped_;
};

// The numeric address of this end, as the peer reached it: "127.0.0.1", "::1"; "": it has none.
// IPv4 that came to an IPv6 socket is IPv4.
std::string local_name(int fd);

// "127.0.0.1:4420", "[::1]:4420"; "?" when the socket has no peer any longer.
std::string peer_name(int fd);

}  // namespace furrow::transport
