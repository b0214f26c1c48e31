// tcp_pingpong: the bare round trip that a get at depth 1 is compared with. One connection on
// loopback, a request of 72 bytes answered by 4 KiB and 24 bytes (an NVMe/TCP command capsule; one
// C2HData PDU), both sides on non-blocking sockets that they poll without sleeping.
//
// Serves on one thread and asks on another; run it under taskset to choose the cores.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/report.h"
#include "tools/command.h"

DEFINE_double(seconds, 5, "how long to measure");
DEFINE_uint32(request_bytes, 72, "bytes of a request");
DEFINE_uint32(response_bytes, 4096 + 24, "bytes of a response");
DEFINE_int32(server_core, -1, "core of the answering thread; -1: any");
DEFINE_int32(client_core, -1, "core of the asking thread; -1: any");

namespace furrow::bench {
namespace {

Status socket_error(const char* hint) { return {Code::io_error, Origin::tool, hint, errno}; }

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

void pin(int core) {
  if (core < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
    fmt::print(stderr, "tcp_pingpong: there is no core {}\n", core);
  }
}

// Moves all bytes, trying again for as long as the socket is not ready; false: the peer is gone or
// `stop` is set.
template <class Call>
bool move_all(Call call, std::vector<char>& bytes, const std::atomic<bool>& stop) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t moved = call(bytes.data() + done, bytes.size() - done);
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
    } else if (moved == 0 || (errno != EAGAIN && errno != EINTR) || stop.load()) {
      return false;
    }
  }
  return true;
}

bool send_all(const Socket& socket, std::vector<char>& bytes, const std::atomic<bool>& stop) {
  return move_all(
      [&](char* data, std::size_t size) {
        return send(socket.fd(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      },
      bytes, stop);
}

bool receive_all(const Socket& socket, std::vector<char>& bytes, const std::atomic<bool>& stop) {
  return move_all(
      [&](char* data, std::size_t size) { return recv(socket.fd(), data, size, MSG_DONTWAIT); },
      bytes, stop);
}

struct Pair {
  Socket client, server;
};

Result<Pair> connect_pair() {
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Pair pair{Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), Socket()};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (bind(listener.fd(), raw, length) != 0 || listen(listener.fd(), 1) != 0 ||
      getsockname(listener.fd(), raw, &length) != 0 ||
      connect(pair.client.fd(), raw, length) != 0) {
    return socket_error("cannot connect over loopback");
  }
  pair.server = Socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  const int yes = 1;
  for (const Socket* end : {&pair.client, &pair.server}) {
    if (setsockopt(end->fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0) {
      return socket_error("cannot set TCP_NODELAY");
    }
  }
  return pair;
}

void serve(const Socket& socket, const std::atomic<bool>& stop) {
  pin(FLAGS_server_core);
  std::vector<char> request(FLAGS_request_bytes), response(FLAGS_response_bytes, 'r');
  while (receive_all(socket, request, stop) && send_all(socket, response, stop)) {
  }
}

int main_of_pingpong(int argc, char** argv) {
  tools::parse_flags(argc, argv);
  if (FLAGS_request_bytes == 0 || FLAGS_response_bytes == 0 || FLAGS_seconds <= 0) {
    return tools::report_usage("sizes and --seconds must not be 0");
  }
  const Result<Pair> pair = connect_pair();
  if (!pair) return tools::report("tcp_pingpong", pair.status());

  std::atomic<bool> stop{false};
  std::thread server([&] { serve(pair->server, stop); });
  pin(FLAGS_client_core);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration<double>(FLAGS_seconds);
  Histogram histogram;
  std::vector<char> request(FLAGS_request_bytes, 'q'), response(FLAGS_response_bytes);
  auto now = start;
  while (now < end && send_all(pair->client, request, stop) &&
         receive_all(pair->client, response, stop)) {
    const auto asked = std::exchange(now, Clock::now());
    histogram.record(static_cast<std::uint64_t>((now - asked).count()));
  }
  stop.store(true);
  server.join();
  const double seconds = std::chrono::duration<double>(now - start).count();
  Json json{{"request_bytes", FLAGS_request_bytes},
            {"response_bytes", FLAGS_response_bytes},
            {"round_trips_per_s", rounded(static_cast<double>(histogram.count()) / seconds, 0)}};
  add_latencies(json, "round_trip", histogram);
  return tools::print(json);
}

}  // namespace
}  // namespace furrow::bench

int main(int argc, char** argv) { return furrow::bench::main_of_pingpong(argc, argv); }
