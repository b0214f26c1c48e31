// ConnectionBudget: how many connections a target has, in all and of each address, and how many of
// them have not got through Connect yet. A host that connects and does nothing may not keep others
// out: connections that are being set up have a budget of their own, which addresses share
// (fair_share.h).
//
// Threads: any. Control plane: it takes a mutex and allocates for an address that it does not know.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace furrow::transport {

// Whom a connection counts for: an IPv4 address, or the 64 bits of an IPv6 network, as a host
// commonly has all of the addresses behind those.
using AddressKey = std::uint64_t;
AddressKey address_key(const sockaddr_storage& peer);  // 0: it has none (a Unix socket)
AddressKey address_key(int fd);                        // of a connected socket's peer

class ConnectionBudget {
 public:
  enum class Verdict : std::uint8_t { taken, target_full, address_full, setting_up_full };
  static constexpr unsigned kVerdicts = 4;

  struct Limits {
    std::uint32_t connections_max = 1024;
    std::uint32_t per_address_max = 256;
    std::uint32_t setting_up_max = 256;
  };

  // Call before the first take().
  void set_limits(const Limits& limits) { limits_ = limits; }
  const Limits& limits() const { return limits_; }

  // A place for a connection that is being set up; counts what it refuses.
  Verdict take(AddressKey address);
  void live(AddressKey address);                 // it got through Connect
  void give(AddressKey address, bool was_live);  // it is gone

  std::uint32_t connections() const { return connections_.load(std::memory_order_relaxed); }
  std::uint32_t setting_up() const { return setting_up_.load(std::memory_order_relaxed); }
  std::uint64_t count(Verdict verdict) const {
    return counts_[static_cast<unsigned>(verdict)].load(std::memory_order_relaxed);
  }

 private:
  struct Address {
    std::uint32_t connections = 0, setting_up = 0;
  };
  Verdict decide(const Address& address) const;

  Limits limits_;
  std::mutex mutex_;
  std::unordered_map<AddressKey, Address> addresses_;          // that have connections
  std::atomic<std::uint32_t> connections_{0}, setting_up_{0};  // written under the mutex
  std::atomic<std::uint64_t> counts_[kVerdicts]{};
};

}  // namespace furrow::transport
