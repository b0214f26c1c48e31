// KvListBuilder: makes the payload of a List command in the command's own buffer: u32 count, then
// for each key u16 length and the key, padded up to 4 bytes. The keys that the engine returns land
// behind the payload, in the same buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "transport/connection.h"

namespace furrow::transport {

class KvListBuilder {
 public:
  static constexpr std::uint32_t kPayloadBytesMin = 4;  // an empty list
  static constexpr std::uint32_t kKeysAtATime = 512;

  static constexpr std::uint32_t entry_bytes(const Key& key) {
    return (2u + key.length + 3u) & ~3u;
  }
  // For a host's buffer of `payload_bytes`.
  static constexpr std::uint32_t buffer_bytes(std::uint32_t payload_bytes) {
    return state_offset(payload_bytes) + static_cast<std::uint32_t>(sizeof(State)) +
           kKeysAtATime * static_cast<std::uint32_t>(sizeof(Key));
  }
  static void begin(std::byte* buffer, std::uint32_t payload_bytes) {
    new (buffer + state_offset(payload_bytes)) State{kPayloadBytesMin, 0};
    std::byte* keys = buffer + state_offset(payload_bytes) + sizeof(State);
    for (std::uint32_t i = 0; i < kKeysAtATime; ++i) new (keys + i * sizeof(Key)) Key;
  }

  // After begin(): of a request whose CDW10 is payload_bytes.
  explicit KvListBuilder(Request& request)
      : payload_(request.buffer),
        payload_bytes_(request.command.cdw10),
        state_(std::launder(
            reinterpret_cast<State*>(request.buffer + state_offset(request.command.cdw10)))) {}

  void lend_keys(PageOp& op) const {
    op.keys = std::launder(reinterpret_cast<Key*>(reinterpret_cast<std::byte*>(state_ + 1)));
    op.keys_max = kKeysAtATime;
    op.keys_count = 0;
  }
  // False: it does not fit any more.
  bool add(const Key& key) {
    const std::uint32_t bytes = entry_bytes(key);
    if (payload_bytes_ - state_->used < bytes) return false;
    std::byte* entry = payload_ + state_->used;
    std::memset(entry, 0, bytes);
    const std::uint16_t length = key.length;
    std::memcpy(entry, &length, sizeof(length));
    std::memcpy(entry + sizeof(length), key.bytes.data(), key.length);
    state_->used += bytes;
    ++state_->count;
    return true;
  }
  // The keys that `op` returned. True: there may be more, and room for them (a store may return
  // fewer than was asked for; it returns none at the end).
  bool add_all(const PageOp& op) {
    for (std::uint32_t i = 0; i < op.keys_count; ++i) {
      if (!add(op.keys[i])) return false;
    }
    return op.keys_count != 0;
  }
  // Writes the count; returns the payload's length.
  std::uint32_t finish() {
    std::memcpy(payload_, &state_->count, sizeof(state_->count));
    return state_->used;
  }

 private:
  struct State {
    std::uint32_t used, count;
  };
  static constexpr std::uint32_t state_offset(std::uint32_t payload_bytes) {
    return (payload_bytes + 63) & ~63u;
  }

  std::byte* payload_;
  std::uint32_t payload_bytes_;
  State* state_;
};

}  // namespace furrow::transport
