// UnixListener: where a host under test connects to its FuzzPeers, on the same thread.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fuzz/require.h"

namespace furrow::fuzz {

class UnixListener {
 public:
  UnixListener() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    bytes_ = sizeof(sa_family_t);  // the kernel chooses a name that is in no file system
    require(bind(fd_, reinterpret_cast<sockaddr*>(&name), bytes_) == 0, "a socket can be bound");
    require(listen(fd_, 64) == 0, "a socket can listen");
    bytes_ = sizeof address_;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &bytes_);
  }
  ~UnixListener() { close(fd_); }
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  int take() { return accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }  // -1: nobody waits
  const sockaddr_storage& address() const { return address_; }
  socklen_t bytes() const { return bytes_; }

 private:
  int fd_;
  sockaddr_storage address_{};
  socklen_t bytes_ = 0;
};

}  // namespace furrow::fuzz
