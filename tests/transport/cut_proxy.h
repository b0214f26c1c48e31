// CutProxy: stands between a host and a server on loopback and hands their bytes on. cut() takes
// all connections from the host and keeps those to the server, with what is on its way there, as a
// network may.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/transport/loopback_listener.h"

namespace furrow::transport {

class CutProxy {
 public:
  explicit CutProxy(std::uint16_t server_port) : server_port_(server_port) {
    thread_ = std::thread([this] { run(); });
  }
  ~CutProxy() {
    stop_ = true;
    thread_.join();
    for (const Pair& pair : pairs_) {
      if (pair.host >= 0) close(pair.host);
      close(pair.server);
    }
  }
  std::uint16_t port() const { return listener_.port(); }
  std::size_t connections() {  // that hosts made, since the start
    const std::lock_guard lock(mutex_);
    return pairs_.size();
  }
  void cut() {
    const std::lock_guard lock(mutex_);
    for (Pair& pair : pairs_) {
      if (pair.host >= 0) close(pair.host);
      pair.host = -1;
    }
  }

 private:
  struct Pair {
    int host = -1, server = -1;
  };
  void run() {
    while (!stop_) {
      pollfd coming{listener_.fd(), POLLIN, 0};
      const bool any = poll(&coming, 1, 1) == 1;
      const std::lock_guard lock(mutex_);
      if (any) take();
      for (Pair& pair : pairs_) {
        if (pair.host < 0) continue;
        const bool open = pass(pair.host, pair.server) && pass(pair.server, pair.host);
        if (open) continue;
        close(pair.host);
        pair.host = -1;
        (void)shutdown(pair.server, SHUT_RDWR);
      }
    }
  }
  void take() {
    Pair pair{accept(listener_.fd(), nullptr, nullptr),
              socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const sockaddr_in to = loopback_address(server_port_);
    if (connect(pair.server, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      close(pair.host);
      pair.host = -1;
    }
    pairs_.push_back(pair);
  }
  // False: one side has ended.
  static bool pass(int from, int to) {
    std::array<std::byte, 64 << 10> bytes;
    const ssize_t got = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t more =
          send(to, bytes.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
      if (more <= 0) return false;
      sent += more;
    }
    return got != 0;
  }

  const std::uint16_t server_port_;
  const LoopbackListener listener_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // of the pairs
  std::vector<Pair> pairs_;
  std::thread thread_;
};

}  // namespace furrow::transport
