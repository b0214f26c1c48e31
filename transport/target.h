// Target: a page server. Reactor threads that accept NVMe/TCP connections for the kv volumes of a
// pool, with a discovery controller on the same port.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/pool.h"
#include "zone/event_loop.h"
#include "zone/status.h"

namespace furrow::transport {

struct TargetOptions {
  std::string listen_host = "127.0.0.1";
  std::uint16_t listen_port = 4420;        // 0: any free one, see Target::port()
  std::string subsystem_nqn;               // default nqn.2026-11.io.furrow:POOLNAME
  std::vector<std::string> allowed_hosts;  // host NQNs; empty: every host
  unsigned cores = 1;                      // reactors; the first is the pool's home executor
  std::uint64_t spin_us = 50;              // ~0: poll always
  std::uint32_t in_capsule_bytes = 16384;
  std::uint32_t transfer_bytes_max = 1 << 20;  // MDTS
  std::uint32_t io_queue_entries_max = 1024;
  std::uint32_t connections_max = 1024;
  // A host that takes longer to send a command's data, or to read what it is sent, is cut: it would
  // keep page buffers from the others.
  std::uint32_t data_timeout_ms = 15000;
};

struct TargetStats {
  std::uint64_t connections = 0, connections_accepted = 0, connections_refused = 0;
  std::uint64_t commands = 0, protocol_errors = 0, keep_alive_expired = 0, system_calls = 0;
  std::uint64_t digest_errors = 0, timeouts = 0;  // of data; of set-up, data and ends
};

class Target {
 public:
  virtual ~Target() = default;  // after stop()
  // `home`: the pool's home executor, which becomes the first reactor; the caller runs it. Further
  // reactors get threads of their own. in_use: the port is taken.
  static Result<std::unique_ptr<Target>> start(Pool& pool, EventLoop& home,
                                               const TargetOptions& options);
  virtual std::uint16_t port() const = 0;
  virtual const std::string& subsystem_nqn() const = 0;
  // Stops accepting, completes what was accepted, closes the connections, then calls `stopped` on
  // the home executor. Connections that do not end within `drain_ms` are cut.
  virtual void stop(std::uint32_t drain_ms, std::function<void()> stopped) = 0;
  virtual TargetStats stats() const = 0;  // any thread
  virtual void namespaces_changed() = 0;  // home thread: tells hosts by AER after a volume change
};

}  // namespace furrow::transport
