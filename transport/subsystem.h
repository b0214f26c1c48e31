// Subsystem: the NVM subsystem that a pool's volumes are served by, and the discovery subsystem
// beside it. It knows controllers, namespaces, identities and limits; it knows no socket: a
// transport feeds it capsules through the ConnectionHandler of each reactor.
//
//   Subsystem (one)          identity, controllers, namespaces: a short mutex, control plane only
//   SubsystemReactor (each)  its page session, its buffers, the connections that live there
//
// A page command touches its reactor only: no lock, no allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/pool.h"
#include "transport/connection.h"
#include "transport/options_check.h"
#include "zone/executor.h"
#include "zone/status.h"

namespace furrow::transport {

struct SubsystemOptions {
  std::string nqn;                             // empty: nqn.2026-11.io.furrow:POOLNAME
  std::vector<std::string> allowed_hosts;      // host NQNs; empty: every host
  std::uint32_t in_capsule_bytes = 16384;      // IOCCSZ says so; a multiple of 16
  std::uint32_t transfer_bytes_max = 1 << 20;  // MDTS: 4 KiB times a power of two
  std::uint32_t io_queue_entries_max = 1024;   // CAP.MQES + 1
  std::uint16_t io_queues_max = 64;            // of a controller
  std::uint16_t controllers_max = 256;
  std::uint32_t controllers_per_host_max = 64;  // of one host NQN; at most controllers_max
  // Of all queues together: commands in flight cost memory from Connect on (the bounds: target.h).
  std::uint32_t queue_entries_total_max = 64u << 10;
  // A controller without I/O queues and without a keep-alive time ends after so much silence; one
  // that serves I/O queues may be silent for ever, TCP's keep-alive finds dead machines. 0: never.
  std::uint32_t idle_ms = 120'000;
  std::uint64_t buffer_bytes_max = 64ull << 20;  // page buffers of one reactor
  unsigned device_depth = 256;                   // device reads in flight of one reactor
};

// What Subsystem::create() would refuse with invalid_argument.
OptionsCheck check(const SubsystemOptions& options);

// Counters since creation.
struct SubsystemStats {
  std::uint64_t admin_commands = 0, io_commands = 0, commands_failed = 0;
  std::uint64_t host_reads = 0, host_writes = 0;    // Retrieve, Store that succeeded
  std::uint64_t bytes_read = 0, bytes_written = 0;  // of values
  std::uint64_t connects_refused = 0, keep_alive_expired = 0;
  // Of connects_refused: the host has controllers_per_host_max; controllers_max or
  // queue_entries_total_max is reached.
  std::uint64_t hosts_refused = 0, full_refused = 0;
  std::uint64_t idle_expired = 0;      // controllers ended by idle_ms
  std::uint64_t buffer_waits = 0;      // commands that waited for a page buffer
  std::uint64_t payloads_refused = 0;  // admin commands, for want of memory
  std::uint64_t controllers = 0;       // gauge
};

// The handler of one reactor. Lives on its executor: made and destroyed when that executor does not
// run, or on its thread. Serves both the NVM subsystem and the discovery subsystem, on any number
// of listening ports.
class SubsystemReactor : public ConnectionHandler {
 public:
  // May it be destroyed: no connection is open and no request is in its hands?
  virtual bool idle() const = 0;
};

class Subsystem {
 public:
  virtual ~Subsystem() = default;  // after all its reactors
  // `pool` and `home` (the pool's home executor) outlive it. Call on the home thread, or before it
  // runs. invalid_argument: an NQN or a limit is impossible (the hint says which).
  static Result<std::unique_ptr<Subsystem>> create(Pool& pool, Executor& home,
                                                   const SubsystemOptions& options);

  // A reactor on `executor`. Call on its thread (which may be the home thread), before it serves
  // connections. Errors: those of Pool::create_session.
  virtual Result<std::unique_ptr<SubsystemReactor>> create_reactor(Executor& executor) = 0;

  // A listening port, as the discovery log page tells it: a numeric IPv4 or IPv6 address and the
  // port. Any thread; changes GENCTR and tells discovery hosts by AER.
  virtual void add_port(const std::string& address, std::uint16_t port) = 0;
  virtual void remove_port(const std::string& address, std::uint16_t port) = 0;

  // Home thread, after volumes were created, resized or deleted: takes a new snapshot of the pool's
  // stores for all reactors and sends the Namespace Attribute Changed event. `served` is called on
  // the home executor when every reactor has it, whatever commands are under way.
  virtual void namespaces_changed(std::function<void()> served) = 0;
  void namespaces_changed() {
    namespaces_changed([] {});
  }
  // Home thread, before a volume is deleted: from now on its namespace is inactive, whatever else
  // changes; `idle` is called on the home executor when no command uses the store any longer.
  virtual void withdraw_namespace(std::uint32_t nsid, std::function<void()> idle) = 0;
  // Home thread, where the volume is not deleted after all: its namespace is active again, with its
  // features and reservations.
  virtual void give_back_namespace(std::uint32_t nsid) = 0;

  // Any thread. Every later Connect is answered with Controller Busy (the host retries elsewhere or
  // later). The transport then closes the connections that are open.
  virtual void refuse_connects() = 0;

  virtual const std::string& nqn() const = 0;
  virtual const SubsystemOptions& options() const = 0;  // as adjusted
  virtual SubsystemStats stats() const = 0;             // any thread
};

}  // namespace furrow::transport
