#include "transport/connection_budget.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "transport/fair_share.h"
#include "zone/check.h"

namespace furrow::transport {

AddressKey address_key(int fd) {
  sockaddr_storage peer{};
  socklen_t bytes = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return 0;
  return address_key(peer);
}

AddressKey address_key(const sockaddr_storage& peer) {
  // No IPv6 network begins with 0:ffff, so the two kinds cannot meet.
  constexpr AddressKey kIpv4 = 0x0000'ffff'0000'0000;
  if (peer.ss_family == AF_INET) {
    sockaddr_in ipv4;
    std::memcpy(&ipv4, &peer, sizeof ipv4);
    return kIpv4 | ntohl(ipv4.sin_addr.s_addr);
  }
  if (peer.ss_family != AF_INET6) return 0;
  sockaddr_in6 ipv6;
  std::memcpy(&ipv6, &peer, sizeof ipv6);
  const unsigned char* address = ipv6.sin6_addr.s6_addr;
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr);
  AddressKey key = 0;
  for (unsigned i = 0; i < (mapped ? 4 : 8); ++i) key = key << 8 | address[mapped ? 12 + i : i];
  if (mapped) return kIpv4 | key;
  return key == 0 ? kIpv4 : key;  // ::1: 0 is nobody's address, and 0.0.0.0 no peer's
}

ConnectionBudget::Verdict ConnectionBudget::decide(const Address& address) const {
  const std::uint32_t setting_up = setting_up_.load(std::memory_order_relaxed);
  if (connections_.load(std::memory_order_relaxed) >= limits_.connections_max) {
    return Verdict::target_full;
  }
  if (address.connections >= limits_.per_address_max) return Verdict::address_full;
  if (setting_up >= limits_.setting_up_max ||
      !within_share({limits_.setting_up_max, 1}, address.setting_up, 1,
                    limits_.setting_up_max - setting_up)) {
    return Verdict::setting_up_full;
  }
  return Verdict::taken;
}

ConnectionBudget::Verdict ConnectionBudget::take(AddressKey key) {
  const std::lock_guard lock(mutex_);
  const auto known = addresses_.find(key);
  const Verdict verdict = decide(known == addresses_.end() ? Address() : known->second);
  Address* const address = verdict == Verdict::taken ? &addresses_[key] : nullptr;
  counts_[static_cast<unsigned>(verdict)].fetch_add(1, std::memory_order_relaxed);
  if (address == nullptr) return verdict;
  ++address->connections;
  ++address->setting_up;
  ++connections_;
  ++setting_up_;
  return verdict;
}

void ConnectionBudget::live(AddressKey key) {
  const std::lock_guard lock(mutex_);
  --addresses_.at(key).setting_up;
  --setting_up_;
}

void ConnectionBudget::give(AddressKey key, bool was_live) {
  const std::lock_guard lock(mutex_);
  const auto known = addresses_.find(key);
  FURROW_CHECK(known != addresses_.end() && known->second.connections > 0);
  if (!was_live) {
    --known->second.setting_up;
    --setting_up_;
  }
  --connections_;
  if (--known->second.connections == 0) addresses_.erase(known);
}

}  // namespace furrow::transport
