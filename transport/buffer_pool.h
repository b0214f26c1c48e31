// BufferPool: the page buffers of one reactor, in one aligned slab that the device can be told of
// (registered) once. Three sizes; a command takes the smallest that fits, is free, and is within
// its connection's share (fair_share.h). Of the last quarter, which is for connections that have
// none, half is for hosts that have none, and half of that for addresses.
//
// Threads: one. Nothing is allocated after construction.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "zone/aligned_buffer.h"

namespace furrow::transport {

class BufferPool {
 public:
  static constexpr std::uint32_t kSmallBytes = 16u << 10;
  static constexpr std::uint32_t kMediumBytes = 64u << 10;
  static constexpr std::uint32_t kLargeExtraBytes = 64u << 10;  // room for List's scratch
  static constexpr unsigned kClasses = 3;
  static constexpr std::uint32_t kBuffersMin = 4;                         // of a class
  static constexpr std::uint64_t kHostReserve = 8, kAddressReserve = 16;  // parts: an eighth ..

  struct Buffer {
    std::byte* data = nullptr;  // null: none is free
    std::uint32_t bytes = 0;
  };
  // How many of each size somebody holds.
  using Held = std::array<std::uint32_t, kClasses>;
  // For whom a buffer is; null: not known, not limited.
  struct Holders {
    Held* connection = nullptr;
    Held* host = nullptr;     // all its connections
    Held* address = nullptr;  // all connections of hosts there
  };

  // `bytes_max`: of the slab (a quarter small, a quarter medium, the rest large; at least
  // kBuffersMin of each). `transfer_bytes_max`: the longest transfer of a command.
  BufferPool(std::uint64_t bytes_max, std::uint32_t transfer_bytes_max);

  std::uint32_t bytes_max() const { return classes_[kClasses - 1].buffer_bytes; }
  unsigned class_of(std::uint32_t bytes) const;  // bytes <= bytes_max()
  // A buffer of class `wanted` or larger, of one that all holders may have more of; counted there.
  Buffer take(unsigned wanted, const Holders& holders);
  void give(std::byte* data, const Holders& holders);
  bool all_free() const;
  iovec slab() { return {slab_.data(), slab_.size()}; }

 private:
  struct Class {
    std::uint32_t buffer_bytes = 0;
    std::uint32_t count = 0;
    std::byte* begin = nullptr;
    std::vector<std::byte*> free;
  };
  static bool may_have(const Class& size, unsigned index, const Holders& holders);
  std::array<Class, kClasses> classes_;
  AlignedBuffer slab_;
};

}  // namespace furrow::transport
