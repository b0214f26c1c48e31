// A host of Key Value commands without a wire, for their tests.
#pragma once

#include <cstring>
#include <random>
#include <string>

#include "fake_host.h"

namespace furrow::test {

// A world with an I/O queue, and commands in short.
class Kv : public World {
 public:
  explicit Kv(transport::SubsystemOptions options = World::small_buffers())
      : World(options), admin_queue(admin()), queue(io(last_cntlid)) {}

  static nv::Sqe command(std::uint8_t opcode, const std::string& key, std::uint32_t cdw10 = 0,
                         std::uint8_t options = 0, std::uint32_t nsid = 1) {
    nv::Sqe out = sqe(opcode, nsid);
    std::uint32_t words[4]{};
    std::memcpy(words, key.data(), std::min<std::size_t>(key.size(), 16));
    out.cdw2 = words[0];
    out.cdw3 = words[1];
    out.cdw14 = words[2];
    out.cdw15 = words[3];
    out.cdw10 = cdw10;
    out.cdw11 = static_cast<std::uint32_t>(key.size()) | std::uint32_t{options} << 8;
    out.cdw12 = 7;  // clients in the field set it: not looked at
    return out;
  }
  CommandPtr store(const std::string& key, const Bytes& value, std::uint8_t options = 0) {
    const auto length = static_cast<std::uint32_t>(value.size());
    return call(queue, command(nv::kv::kStore, key, length, options), value, length);
  }
  CommandPtr retrieve(const std::string& key, std::uint32_t host_bytes, std::uint8_t options = 0) {
    return call(queue, command(nv::kv::kRetrieve, key, host_bytes, options), {}, host_bytes);
  }
  CommandPtr simple(std::uint8_t opcode, const std::string& key) {
    return call(queue, command(opcode, key));
  }
  CommandPtr list(const std::string& from, std::uint32_t host_bytes) {
    return call(queue, command(nv::kv::kList, from, host_bytes), {}, host_bytes);
  }
  FakeStore& pages() { return pool.store(1); }

  FakeConnection& admin_queue;
  FakeConnection& queue;
};

inline Bytes pattern(std::size_t bytes, unsigned seed = 1) {
  Bytes out(bytes);
  std::mt19937 random(seed);
  for (auto& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

}  // namespace furrow::test
