#include "transport/tcp_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "zone/check.h"

namespace furrow::transport {

namespace {

constexpr std::uint64_t kRetryNs = 50'000'000;
constexpr int kBacklog = 256;

struct Name {
  std::string host;
  std::uint16_t port = 0;
  bool ipv6 = false;
};

Name name_of(const sockaddr_storage& address, socklen_t bytes) {
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host, sizeof host, service,
                  sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {"?", 0, false};
  }
  return {host, static_cast<std::uint16_t>(std::stoul(service)), address.ss_family == AF_INET6};
}

Status listen_error(int error) {
  switch (error) {
    case EADDRINUSE:
      return Status(Code::in_use, Origin::transport,
                    "the port is taken; is another server running? choose another with --listen",
                    error);
    case EACCES:
      return Status(Code::permission, Origin::transport,
                    "may not listen on this port; choose one above 1023", error);
    case EADDRNOTAVAIL:
      return Status(Code::invalid_argument, Origin::transport,
                    "this machine does not have the address to listen on", error);
    default:
      return Status(Code::io_error, Origin::transport, "cannot listen", error);
  }
}

int listen_on(const addrinfo& info) {
  const int fd = socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // after a restart: TIME_WAIT
  if (bind(fd, info.ai_addr, info.ai_addrlen) != 0 || listen(fd, kBacklog) != 0) {
    const int error = errno;
    close(fd);
    return -error;
  }
  return fd;
}

// The port of a process that was killed is taken until the kernel has ended what its rings were
// asked for, accepts among it, which comes after the process is gone. Whose a port is cannot be
// asked, so that each one that is taken is given that time.
int listen_patiently(const addrinfo& info) {
  constexpr auto kUntilFreeMax = std::chrono::seconds(2);
  constexpr auto kStep = std::chrono::milliseconds(5);
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const int fd = listen_on(info);
    if (fd != -EADDRINUSE || std::chrono::steady_clock::now() - start > kUntilFreeMax) return fd;
    std::this_thread::sleep_for(kStep);
  }
}

}  // namespace

std::string peer_name(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "?";
  const Name name = name_of(address, bytes);
  const std::string host = name.ipv6 ? "[" + name.host + "]" : name.host;
  return host + ":" + std::to_string(name.port);
}

std::string local_name(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return {};
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return {};
  constexpr std::string_view kMapped = "::ffff:";
  const std::string host = name_of(address, bytes).host;
  const bool mapped = host.starts_with(kMapped) && host.find('.') != std::string::npos;
  return mapped ? host.substr(kMapped.size()) : host;
}

Result<std::unique_ptr<TcpListener>> TcpListener::open(const std::string& host,
                                                       std::uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Status(Code::invalid_argument, Origin::transport,
                  "the address to listen on is neither an IP address nor a known host name");
  }
  const int fd = listen_patiently(*found);
  freeaddrinfo(found);
  if (fd < 0) return listen_error(-fd);
  std::unique_ptr<TcpListener> listener(new TcpListener(fd));
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return listen_error(errno);
  }
  const Name name = name_of(address, bytes);
  listener->address_ = name.host;
  listener->port_ = name.port;
  return listener;
}

TcpListener::~TcpListener() {
  FURROW_CHECK(!accept_op_.in_flight);
  if (executor_ != nullptr) executor_->stop(retry_);
  close(fd_);
}

void TcpListener::start(SocketRing& ring, Executor& executor,
                        std::function<void(int fd, std::string peer)> accepted,
                        std::function<void(int error)> failed) {
  ring_ = &ring;
  executor_ = &executor;
  accepted_ = std::move(accepted);
  failed_ = std::move(failed);
  accept_op_.self = retry_.self = this;
  accept_op_.done = [](SocketRing::Op& op, int result, bool) {
    static_cast<AcceptOp&>(op).self->on_accepted(result);
  };
  retry_.fire = [](Timer& timer) { static_cast<RetryTimer&>(timer).self->accept(); };
  accept();
}

void TcpListener::accept() { ring_->accept(accept_op_, fd_); }

void TcpListener::on_accepted(int result) {
  if (stopping_) {
    if (result >= 0) close(result);
    if (stopped_) std::exchange(stopped_, nullptr)();
    return;
  }
  if (result >= 0) {
    accepted_(result, peer_name(result));
  } else if (result != -ECONNABORTED && result != -EINTR && result != -EAGAIN) {
    executor_->start(retry_, kRetryNs);
    if (failed_) failed_(-result);
    return;
  }
  accept();
}

void TcpListener::stop(std::function<void()> stopped) {
  stopping_ = true;
  if (ring_ == nullptr || !accept_op_.in_flight) {
    if (executor_ != nullptr) executor_->stop(retry_);
    return stopped();
  }
  stopped_ = std::move(stopped);
  shutdown(fd_, SHUT_RDWR);  // hosts that are in the backlog are refused
  ring_->cancel(accept_op_);
}

}  // namespace furrow::transport
