#include "transport/tcp_reactor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "zone/check.h"

namespace furrow::transport {

namespace {

void set_up_socket(int fd) {
  const int on = 1;
  // Failure costs latency only: the socket works without it.
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A machine that vanished says no more. A host with a keep-alive time ends by that; one without
  // would hold its queue and its place among the connections for ever, or, where it has not
  // acknowledged what it was sent and is not probed for that, a quarter of an hour.
  const int idle_s = 60, interval_s = 10, probes = 6;
  const unsigned unacknowledged_ms = 120'000;
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

}  // namespace

Result<std::unique_ptr<TcpReactor>> TcpReactor::create(Executor& executor,
                                                       ConnectionHandler& handler,
                                                       const TcpLimits& limits,
                                                       ConnectionBudget& budget) {
  Result<std::unique_ptr<SocketRing>> ring = SocketRing::create();
  if (!ring.ok()) return ring.status();
  return std::unique_ptr<TcpReactor>(
      new TcpReactor(executor, handler, limits, budget, std::move(*ring)));
}

TcpReactor::TcpReactor(Executor& executor, ConnectionHandler& handler, const TcpLimits& limits,
                       ConnectionBudget& budget, std::unique_ptr<SocketRing> ring)
    : executor_(executor),
      handler_(handler),
      limits_(limits),
      budget_(budget),
      ring_(std::move(ring)) {
  executor_.add(*ring_);
}

TcpReactor::~TcpReactor() {
  FURROW_CHECK(connections_.empty());
  executor_.remove(*ring_);
}

void TcpReactor::adopt(int fd, std::string peer, AddressKey address) {
  set_up_socket(fd);
  TcpConnection* const connection = make_connection(fd, std::move(peer), address);
  if (connection == nullptr) return;
  ++load_.connections;
  ++load_.setting_up;
  try {
    connection->start();
    if (draining_) connection->cut();
  } catch (const std::bad_alloc&) {
    connection->cut();
  }
}

// Null: there is no memory for it, and the socket is closed.
TcpConnection* TcpReactor::make_connection(int fd, std::string peer, AddressKey address) {
  TcpConnection::Environment environment{*ring_, executor_, handler_, limits_, stats_};
  environment.context = this;
  environment.on_live = [](TcpConnection& connection) {
    TcpReactor& self = *static_cast<TcpReactor*>(connection.context());
    self.budget_.live(self.find(connection).address);
    --self.load_.setting_up;
    if (connection.is_io_queue()) ++self.load_.io_queues;
  };
  environment.on_gone = [](TcpConnection& connection) {
    static_cast<TcpReactor*>(connection.context())->gone(connection);
  };
  environment.on_answered = [](TcpConnection& connection) {
    static_cast<TcpReactor*>(connection.context())->look_at_step();
  };
  const std::size_t before = connections_.size();
  try {
    connections_.push_back({nullptr, address});
    connections_.back().connection =
        std::make_unique<TcpConnection>(environment, fd, std::move(peer), address);
  } catch (const std::bad_alloc&) {
    connections_.resize(before);
    close(fd);
    budget_.give(address, false);
    return nullptr;
  }
  return connections_.back().connection.get();
}

TcpReactor::Held& TcpReactor::find(const TcpConnection& connection) {
  const auto found = std::find_if(connections_.begin(), connections_.end(), [&](const Held& held) {
    return held.connection.get() == &connection;
  });
  FURROW_CHECK(found != connections_.end());
  return *found;
}

void TcpReactor::gone(TcpConnection& connection) {
  Held& held = find(connection);
  budget_.give(held.address, connection.was_live());
  --load_.connections;
  if (!connection.was_live()) {
    --load_.setting_up;
  } else if (connection.is_io_queue()) {
    --load_.io_queues;
  }
  std::swap(held, connections_.back());
  connections_.pop_back();
  look_at_step();
}

void TcpReactor::stop_accepting(std::function<void()> answered) {
  draining_ = true;
  for (const Held& held : connections_) held.connection->stop_accepting();
  step(std::move(answered), [](const TcpConnection& connection) { return connection.answered(); });
}

void TcpReactor::end_queues(std::function<void()> ended) {
  for (const Held& held : connections_) {
    if (held.connection->is_io_queue()) held.connection->drain();
  }
  step(std::move(ended), [](const TcpConnection& connection) { return !connection.is_io_queue(); });
}

void TcpReactor::drain(std::function<void()> empty) {
  draining_ = true;
  for (const Held& held : connections_) held.connection->drain();
  step(std::move(empty), [](const TcpConnection&) { return false; });
}

void TcpReactor::step(std::function<void()> done, bool (*is_done)(const TcpConnection&)) {
  step_done_ = std::move(done);
  is_done_ = is_done;
  look_at_step();
}

void TcpReactor::look_at_step() {
  if (!step_done_) return;
  for (const Held& held : connections_) {
    if (!is_done_(*held.connection)) return;
  }
  std::exchange(step_done_, nullptr)();
}

void TcpReactor::cut() {
  for (const Held& held : connections_) held.connection->cut();
}

}  // namespace furrow::transport
