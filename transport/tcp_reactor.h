// TcpReactor: the NVMe/TCP connections of one executor.
//
// Threads: its executor's; made before that runs. The counters may be read by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/connection.h"
#include "transport/connection_budget.h"
#include "transport/socket_ring.h"
#include "transport/tcp_connection.h"
#include "zone/executor.h"
#include "zone/status.h"

namespace furrow::transport {

class TcpReactor {
 public:
  // `limits` and `budget` outlive it. Errors: those of SocketRing::create.
  static Result<std::unique_ptr<TcpReactor>> create(Executor& executor, ConnectionHandler& handler,
                                                    const TcpLimits& limits,
                                                    ConnectionBudget& budget);
  ~TcpReactor();  // no connection is left

  // Takes over a connected socket, for which the budget has been taken at `address`. Where there is
  // no memory for it, it is closed.
  void adopt(int fd, std::string peer, AddressKey address);
  // An end in order takes three steps, each once all reactors have done the one before, so that a
  // host gets every answer before it sees that one of its connections has ended: no more commands
  // are accepted and those that were are answered; then the I/O queues end; then all.
  void stop_accepting(std::function<void()> answered);
  void end_queues(std::function<void()> ended);
  // Ends every connection, now or when its commands are answered; `empty` is called when the last
  // is gone (from here when there is none). Connections adopted later end at once.
  void drain(std::function<void()> empty);
  void cut();

  SocketRing& ring() { return *ring_; }
  Executor& executor() { return executor_; }
  const TcpStats& stats() const { return stats_; }
  // Any thread. Set-up ends with Connect, which says whether it is an I/O queue.
  struct Load {
    std::atomic<std::uint32_t> connections{0}, setting_up{0}, io_queues{0};
  };
  const Load& load() const { return load_; }
  std::uint64_t system_calls() const { return ring_->system_calls(); }

 private:
  TcpReactor(Executor& executor, ConnectionHandler& handler, const TcpLimits& limits,
             ConnectionBudget& budget, std::unique_ptr<SocketRing> ring);
  struct Held {
    std::unique_ptr<TcpConnection> connection;
    AddressKey address = 0;
  };
  TcpConnection* make_connection(int fd, std::string peer, AddressKey address);
  Held& find(const TcpConnection& connection);
  void gone(TcpConnection& connection);
  void step(std::function<void()> done, bool (*is_done)(const TcpConnection&));
  void look_at_step();

  Executor& executor_;
  ConnectionHandler& handler_;
  const TcpLimits& limits_;
  ConnectionBudget& budget_;
  std::unique_ptr<SocketRing> ring_;
  std::vector<Held> connections_;
  std::function<void()> step_done_;
  bool (*is_done_)(const TcpConnection&) = nullptr;  // as far as the step goes
  bool draining_ = false;
  TcpStats stats_;
  Load load_;
};

}  // namespace furrow::transport
