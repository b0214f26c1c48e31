// tcp_pingpong: the bare round trip that a get at depth 1 is compared with. One connection on
// loopback, a request of 72 bytes answered by 4 KiB and 24 bytes (an NVMe/TCP command capsule; one
// C2HData PDU), both sides polling without sleeping: on non-blocking sockets, or with --io_uring as
// Furrow polls, with one system call for what is sent and the receive that follows it.
//
// Serves on one thread and asks on another; run it under taskset to choose the cores.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "bench/report.h"
#include "tools/command.h"

DEFINE_double(seconds, 5, "how long to measure");
DEFINE_uint32(request_bytes, 72, "bytes of a request");
DEFINE_uint32(response_bytes, 4096 + 24, "bytes of a response");
DEFINE_bool(io_uring, false, "poll an io_uring instead of the sockets");
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

bool pin(int core) {
  if (core == -1) return true;
  if (core < 0 || core >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

// Tried by a thread that has nothing else to do.
bool may_pin(int core) {
  bool may = false;
  std::thread([&] { may = pin(core); }).join();
  return may;
}

// One end of the connection.
class End {
 public:
  virtual ~End() = default;
  // Sends all of `out` (null: nothing), then waits for all of `in`; false: the peer is gone, an
  // error, or `stop` is set.
  virtual bool exchange(const std::vector<char>* out, std::vector<char>& in) = 0;
};

class SocketEnd final : public End {
 public:
  SocketEnd(const Socket& socket, const std::atomic<bool>& stop) : fd_(socket.fd()), stop_(stop) {}

  bool exchange(const std::vector<char>* out, std::vector<char>& in) override {
    return (out == nullptr || move_all(out->size(),
                                       [&](std::size_t done) {
                                         return send(fd_, out->data() + done, out->size() - done,
                                                     MSG_NOSIGNAL | MSG_DONTWAIT);
                                       })) &&
           move_all(in.size(), [&](std::size_t done) {
             return recv(fd_, in.data() + done, in.size() - done, MSG_DONTWAIT);
           });
  }

 private:
  // Tries again for as long as the socket is not ready.
  template <class Call>
  bool move_all(std::size_t bytes, Call call) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t moved = call(done);
      if (moved > 0) {
        done += static_cast<std::size_t>(moved);
      } else if (moved == 0 || (errno != EAGAIN && errno != EINTR) || stop_.load()) {
        return false;
      }
    }
    return true;
  }

  const int fd_;
  const std::atomic<bool>& stop_;
};

class RingEnd final : public End {
 public:
  RingEnd(const Socket& socket, const std::atomic<bool>& stop) : fd_(socket.fd()), stop_(stop) {
    io_uring_params params{};
    params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    made_ = io_uring_queue_init_params(8, &ring_, &params) == 0;
  }
  ~RingEnd() override {
    if (made_) io_uring_queue_exit(&ring_);
  }

  bool exchange(const std::vector<char>* out, std::vector<char>& in) override {
    if (!made_) return false;
    if (out != nullptr) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      io_uring_prep_send(sqe, fd_, out->data(), out->size(), MSG_NOSIGNAL | MSG_WAITALL);
      io_uring_sqe_set_data64(sqe, kSend);
    }
    for (std::size_t done = 0; done < in.size();) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      io_uring_prep_recv(sqe, fd_, in.data() + done, in.size() - done, 0);
      sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
      io_uring_sqe_set_data64(sqe, kReceive);
      (void)io_uring_submit_and_get_events(&ring_);
      const int received = wait_for_receive();
      if (received <= 0) return false;
      done += static_cast<std::size_t>(received);
    }
    return true;
  }

 private:
  static constexpr std::uint64_t kSend = 1, kReceive = 2;

  int wait_for_receive() {
    while (!stop_.load(std::memory_order_relaxed)) {
      if ((IO_URING_READ_ONCE(*ring_.sq.kflags) & IORING_SQ_TASKRUN) != 0) {
        (void)io_uring_get_events(&ring_);
      }
      io_uring_cqe* cqe = nullptr;
      while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
        const std::uint64_t what = io_uring_cqe_get_data64(cqe);
        const int result = cqe->res;
        io_uring_cqe_seen(&ring_, cqe);
        if (what == kReceive || result < 0) return result;
      }
    }
    return 0;
  }

  const int fd_;
  const std::atomic<bool>& stop_;
  io_uring ring_{};
  bool made_ = false;
};

std::unique_ptr<End> make_end(const Socket& socket, const std::atomic<bool>& stop) {
  if (FLAGS_io_uring) return std::make_unique<RingEnd>(socket, stop);
  return std::make_unique<SocketEnd>(socket, stop);
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
  (void)pin(FLAGS_server_core);
  std::vector<char> request(FLAGS_request_bytes), response(FLAGS_response_bytes, 'r');
  const std::unique_ptr<End> end = make_end(socket, stop);
  for (bool more = end->exchange(nullptr, request); more;) more = end->exchange(&response, request);
}

int main_of_pingpong(int argc, char** argv) {
  const auto arguments = tools::parse_flags(argc, argv);
  if (!arguments.empty()) return tools::report_usage("there are no arguments");
  if (FLAGS_request_bytes == 0 || FLAGS_response_bytes == 0 || !(FLAGS_seconds > 0)) {
    return tools::report_usage("sizes and --seconds must not be 0");
  }
  for (const int core : {FLAGS_server_core, FLAGS_client_core}) {
    if (!may_pin(core)) return tools::report_usage(fmt::format("there is no core {} here", core));
  }
  const Result<Pair> pair = connect_pair();
  if (!pair) return tools::report("tcp_pingpong", pair.status());

  std::atomic<bool> stop{false};
  std::thread server([&] { serve(pair->server, stop); });
  (void)pin(FLAGS_client_core);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration<double>(FLAGS_seconds);
  Histogram histogram;
  std::vector<char> request(FLAGS_request_bytes, 'q'), response(FLAGS_response_bytes);
  const std::unique_ptr<End> client = make_end(pair->client, stop);
  auto now = start;
  while (now < end && client->exchange(&request, response)) {
    const auto asked = std::exchange(now, Clock::now());
    histogram.record(static_cast<std::uint64_t>((now - asked).count()));
  }
  stop.store(true);
  server.join();
  if (histogram.count() == 0) {
    return tools::report("tcp_pingpong", Status(Code::io_error, Origin::tool,
                                                "nothing went to and fro; is io_uring available?"));
  }
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
