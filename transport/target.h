// Target: a page server. Reactor threads that accept NVMe/TCP connections for the volumes of a
// pool, with a discovery controller on the same port.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/pool.h"
#include "transport/options_check.h"
#include "transport/refusal_log.h"
#include "zone/event_loop.h"
#include "zone/status.h"

namespace furrow::transport {

struct TargetOptions {
  std::string listen_host = "127.0.0.1";
  std::uint16_t listen_port = 4420;        // 0: any free one, see Target::port()
  std::string subsystem_nqn;               // default nqn.2026-11.io.furrow:POOLNAME
  std::vector<std::string> allowed_hosts;  // host NQNs; empty: every host
  unsigned cores = 1;                      // reactors; the first is the pool's home executor
  // The processor of each reactor, in turn, on which its thread stays (of the home executor, once
  // its loop runs); empty: the system moves them.
  std::vector<unsigned> cpus;
  std::uint64_t spin_us = 50;  // ~0: poll always
  std::uint32_t in_capsule_bytes = 16384;
  // MDTS, at least: start() raises it to the power of two that the pool's largest values need.
  std::uint32_t transfer_bytes_max = 1 << 20;
  std::uint32_t io_queue_entries_max = 1024;
  // The bounds of what hosts can cost: see memory_bytes_max() and ARCHITECTURE.md.
  std::uint32_t connections_max = 1024;
  std::uint32_t connections_per_address_max = 256;  // of an IPv4 address or IPv6 /64 network
  std::uint32_t controllers_per_host_max = 64;      // of a host NQN; at most 256, all hosts'
  std::uint32_t queue_entries_total_max = 64u << 10;
  std::uint32_t setup_timeout_ms = 10000;  // from accept to ICReq, and from there to Connect
  // A host that takes longer to send a command's data, or to read what it is sent, is cut: it would
  // keep page buffers from the others.
  std::uint32_t data_timeout_ms = 15000;
  std::uint32_t idle_ms =
      120'000;  // of a controller without I/O queues and keep-alive; 0: for ever
  // Page buffers of a reactor. More where transfers may be over 1 MiB: else there were not enough
  // of the largest size for the shares that hosts have of them (fair_share.h).
  std::uint64_t buffer_bytes_max = 64ull << 20;
  RefusalLog log;  // on the home thread; may be null
};

// What Target::start() would refuse with invalid_argument, before there is a pool.
OptionsCheck check(const TargetOptions& options);

// What all hosts together can make a target allocate, in bytes, once transfer_bytes_max is what it
// was raised to: for each reactor its page buffers (buffer_bytes_max or, of transfers over 1 MiB,
// 32 times such a one and 64 KiB, if that is more), buffer_bytes_max again for in-capsule data that
// waits for one, 16 MiB for admin commands' data, 8 MiB of rings and 1.5 MiB for disks; 160 KiB for
// each connection; two slots of 2.5 KiB for each entry of a queue (a command that is worked on, one
// whose answer is on its way); 24 KiB for each of 256 controllers; 12 MiB for namespaces'
// reservations.
std::uint64_t memory_bytes_max(const TargetOptions& options);

// The file descriptors that a target with such options may hold, with what a pool and a program
// around it need.
std::uint64_t descriptors_max(const TargetOptions& options);

struct TargetStats {
  std::uint64_t connections = 0, connections_accepted = 0, connections_refused = 0;
  std::uint64_t commands_failed = 0;  // for another reason than that a page is there, or not
  std::uint64_t commands = 0, protocol_errors = 0, keep_alive_expired = 0, system_calls = 0;
  std::uint64_t digest_errors = 0, timeouts = 0;  // of data; of set-up, data and ends
  // Of connections_refused, by reason: connections_max, connections_per_address_max, too many that
  // are not through Connect yet.
  std::uint64_t refused_full = 0, refused_address = 0, refused_setting_up = 0;
  std::uint64_t accept_errors = 0;  // tries to accept without descriptors or memory for it
  // Connect commands refused: all; for controllers_per_host_max; for controllers or queue entries
  // that are used up.
  std::uint64_t connects_refused = 0, refused_host = 0, refused_controllers = 0;
  std::uint64_t idle_expired = 0;      // controllers ended by idle_ms
  std::uint64_t buffer_waits = 0;      // commands that waited for a page buffer
  std::uint64_t stashes_refused = 0;   // Stores failed (to be tried again) for want of memory
  std::uint64_t payloads_refused = 0;  // admin commands, the same
  struct Reactor {
    std::uint64_t connections = 0, io_queues = 0;  // now
  };
  std::vector<Reactor> reactors;
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
  // Home thread; as of Subsystem.
  virtual void namespaces_changed(std::function<void()> served) = 0;
  void namespaces_changed() {
    namespaces_changed([] {});
  }
  virtual void withdraw_namespace(std::uint32_t nsid, std::function<void()> idle) = 0;
  virtual void give_back_namespace(std::uint32_t nsid) = 0;
};

}  // namespace furrow::transport
