// AdminHttp: httplib's server with bounds on what a connection can hold up. A connection has one
// request and a deadline for all of it, from accept to the last byte of the answer, and for its
// host to hang up; where there are too many, the oldest that has its answer, or else the oldest, is
// cut for the newest, so that slow hosts delay nobody; and the end waits for none of them.
//
// Threads: run() on one of its own, end() from any; the handlers run on that and on more threads of
// the server.
#pragma once

#include <httplib.h>

#include <chrono>
#include <list>
#include <mutex>

namespace furrow::tools {

class AdminHttp final : public httplib::Server {
 public:
  static constexpr std::size_t kConnectionsMax = 16;  // each has a thread, where it can be had
  static constexpr std::chrono::milliseconds kRequestMax{5000};

  // Of connections that wait to be accepted: httplib's own 5 are lost in a burst, and tried again
  // by their hosts after a second. After bind_to_port().
  void widen_backlog() { (void)::listen(svr_sock_, kBacklog); }
  // Accepts connections until end(), also after one that could not be; httplib's own loop ends with
  // that. Then waits for the handlers that run.
  void run();
  // Accepts no more and cuts the connections that there are; does not wait. A handler that runs
  // comes to its end, its answer goes nowhere. Before run(): that returns at once.
  void end();

 private:
  static constexpr int kBacklog = 256;
  struct Connection {
    int fd = -1;
    bool answered = false, cut = false;
    std::chrono::steady_clock::time_point deadline;
  };
  using Connections = std::list<Connection>;

  int next_socket();  // -1: there will be no more
  Connections::iterator take(int fd);
  void serve(Connections::iterator connection);
  static void cut(Connection& connection);
  void cut_one();

  std::mutex mutex_;         // of what follows; a socket is closed under it
  Connections connections_;  // the oldest first
  std::size_t whole_ = 0;    // of them that are not cut
  bool ending_ = false;
};

}  // namespace furrow::tools
