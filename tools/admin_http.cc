#include "tools/admin_http.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <thread>

#include "zone/threads.h"

namespace furrow::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAcceptAgain{10};

// A socket of which nothing is waited for beyond a point in time. httplib reads byte by byte.
class DeadlineStream final : public httplib::Stream {
 public:
  DeadlineStream(int fd, Clock::time_point deadline) : fd_(fd), deadline_(deadline) {}
  bool is_readable() const override { return wait(POLLIN); }
  bool is_writable() const override { return wait(POLLOUT); }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  socket_t socket() const override { return fd_; }
  void end();

 private:
  static constexpr std::size_t kRequestBytesMax = 16384;
  bool wait(short event) const;

  int fd_;
  Clock::time_point deadline_;
  std::array<char, 4096> buffer_;
  std::size_t from_ = 0, to_ = 0, read_ = 0;
};

bool DeadlineStream::wait(short event) const {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0) return false;
    pollfd socket{fd_, event, 0};
    const int ready = poll(&socket, 1, static_cast<int>(left));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

ssize_t DeadlineStream::read(char* to, size_t size) {
  if (from_ == to_) {
    if (read_ >= kRequestBytesMax || !wait(POLLIN)) return -1;
    const ssize_t got = recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got <= 0) return got;
    from_ = 0;
    to_ = static_cast<std::size_t>(got);
    read_ += to_;
  }
  const std::size_t taken = std::min(size, to_ - from_);
  std::memcpy(to, buffer_.data() + from_, taken);
  from_ += taken;
  return static_cast<ssize_t>(taken);
}

ssize_t DeadlineStream::write(const char* from, size_t size) {
  for (std::size_t sent = 0; sent < size;) {
    if (!wait(POLLOUT)) return -1;
    const ssize_t taken = send(fd_, from + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0) return -1;
    sent += static_cast<std::size_t>(taken);
  }
  return static_cast<ssize_t>(size);
}

// Nothing more is said. What its peer still sends, as a body that was refused, is let pass: closing
// before that would take the answer away.
void DeadlineStream::end() {
  (void)::shutdown(fd_, SHUT_WR);
  while (wait(POLLIN) && recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) > 0) {
  }
}

}  // namespace

// One thread more than there may be connections, so that one is there to accept the newest and cut
// another; fewer where the process may have no more, of which httplib's own pool would end it.
void AdminHttp::run() {
  run_on_threads(kConnectionsMax + 1, [this](unsigned) {
    for (int fd; (fd = next_socket()) >= 0;) serve(take(fd));
  });
  const std::lock_guard lock(mutex_);
  ::close(svr_sock_.exchange(INVALID_SOCKET));
}

// What is in the way of accepting, as that there are no descriptors, passes: hosts wait meanwhile.
int AdminHttp::next_socket() {
  for (;;) {
    const int fd = ::accept(svr_sock_, nullptr, nullptr);
    {
      const std::lock_guard lock(mutex_);
      if (ending_ && fd >= 0) ::close(fd);
      if (ending_) return -1;
    }
    if (fd >= 0) return fd;
    std::this_thread::sleep_for(kAcceptAgain);
  }
}

void AdminHttp::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  if (svr_sock_ != INVALID_SOCKET) (void)::shutdown(svr_sock_, SHUT_RDWR);  // next_socket() returns
  for (Connection& connection : connections_) cut(connection);
}

// Its thread sees the end of the stream, and closes it.
void AdminHttp::cut(Connection& connection) {
  connection.cut = true;
  (void)::shutdown(connection.fd, SHUT_RDWR);  // its peer may have gone
}

void AdminHttp::cut_one() {
  auto oldest = std::ranges::find_if(
      connections_, [](const Connection& each) { return each.answered && !each.cut; });
  if (oldest == connections_.end()) {
    oldest = std::ranges::find(connections_, false, &Connection::cut);
  }
  cut(*oldest);
  --whole_;
}

AdminHttp::Connections::iterator AdminHttp::take(int fd) {
  const std::lock_guard lock(mutex_);
  connections_.push_back({.fd = fd, .deadline = Clock::now() + kRequestMax});
  const auto connection = std::prev(connections_.end());
  if (++whole_ > kConnectionsMax) cut_one();
  if (ending_) cut(*connection);
  return connection;
}

void AdminHttp::serve(Connections::iterator connection) {
  DeadlineStream stream(connection->fd, connection->deadline);
  bool closed = false;
  // Ranges make an answer any number of times as long, and nobody needs a part of one.
  const auto take_whole = [](httplib::Request& request) { request.ranges.clear(); };
  (void)process_request(stream, true, closed, take_whole);  // false: its peer's trouble
  {
    const std::lock_guard lock(mutex_);
    connection->answered = true;
  }
  stream.end();
  const std::lock_guard lock(mutex_);
  if (!connection->cut) --whole_;
  (void)::shutdown(connection->fd, SHUT_RDWR);
  ::close(connection->fd);
  connections_.erase(connection);
}

}  // namespace furrow::tools
