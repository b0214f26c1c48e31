// Key: what a page is stored under. 1 to 16 bytes, any value (NVMe KV command set, section 3).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace furrow {

struct Key {
  static constexpr std::size_t kBytesMax = 16;

  std::array<std::byte, kBytesMax> bytes{};  // zero beyond `length`
  std::uint8_t length = 0;                   // 1..16 in a valid key; 0: "no key"

  // `text` that is empty or longer than 16 bytes gives a key that is not valid(), of no bytes and
  // length 0 or 17: every operation refuses it (but list, which begins behind that of length 0).
  static Key from(std::span<const std::byte> text) {
    Key key;
    if (text.size() > kBytesMax) key.length = kBytesMax + 1;
    if (text.empty() || text.size() > kBytesMax) return key;
    std::memcpy(key.bytes.data(), text.data(), text.size());
    key.length = static_cast<std::uint8_t>(text.size());
    return key;
  }
  static Key from(std::string_view text) { return from(std::as_bytes(std::span(text))); }

  bool valid() const { return length >= 1 && length <= kBytesMax; }
  std::span<const std::byte> view() const {  // of a valid one
    return {bytes.data(), valid() ? length : std::size_t{0}};
  }
  friend auto operator<=>(const Key&, const Key&) = default;
};

}  // namespace furrow
