// Little-endian loads and stores, and a writer and a reader that never leave their span. Pure.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "zone/check.h"

namespace furrow {

template <std::unsigned_integral T>
T load_le(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (std::endian::native == std::endian::big) {
    T swapped = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) {
      swapped = static_cast<T>(swapped << 8) | static_cast<T>(value >> (8 * i) & 0xff);
    }
    value = swapped;
  }
  return value;
}

template <std::unsigned_integral T>
void store_le(std::byte* to, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

// Writes fields one after another. Room is the caller's duty: too little is our own mistake.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> out) : out_(out) {}

  template <std::unsigned_integral T>
  void put(T value) {
    store_le(take(sizeof value), value);
  }
  void put_bytes(std::span<const std::byte> bytes) {
    std::byte* to = take(bytes.size());
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  }
  void put_zeroes(std::size_t count) {
    std::byte* to = take(count);
    if (count != 0) std::memset(to, 0, count);
  }
  std::size_t position() const { return at_; }
  void zero_rest() { put_zeroes(out_.size() - at_); }

 private:
  std::byte* take(std::size_t count) {
    FURROW_CHECK(count <= out_.size() - at_);
    std::byte* to = out_.data() + at_;
    at_ += count;
    return to;
  }
  std::span<std::byte> out_;
  std::size_t at_ = 0;
};

// Reads fields one after another. Past the end it gives zeroes and ok() stays false from then on,
// so that a decoder may check once.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}

  template <std::unsigned_integral T>
  T take() {
    const std::span<const std::byte> bytes = take_bytes(sizeof(T));
    return bytes.empty() ? T{0} : load_le<T>(bytes.data());
  }
  template <std::size_t N>
  void take_into(std::array<std::uint8_t, N>& to) {
    const std::span<const std::byte> bytes = take_bytes(N);
    if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), N);
  }
  std::span<const std::byte> take_bytes(std::size_t count) {  // empty when there are not as many
    if (count > in_.size() - at_) {
      ok_ = false;
      at_ = in_.size();
      return {};
    }
    const auto bytes = in_.subspan(at_, count);
    at_ += count;
    return bytes;
  }
  bool ok() const { return ok_; }

 private:
  std::span<const std::byte> in_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace furrow
