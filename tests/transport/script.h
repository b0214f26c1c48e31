// The scripts of the transport's fuzz targets: an input is read as a sequence of choices and
// numbers, so that whatever libFuzzer makes of it is a conversation that begins well and goes
// wrong where the script says so. Past its end a script says 0, which means "as it should be".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/fuzz/require.h"

namespace furrow::fuzz {

// Bytes that cost no memory to compare: byte i of a page made from `seed`.
inline std::byte pattern(std::uint32_t seed, std::size_t i) {
  return static_cast<std::byte>(seed * 31 + i * 7 + (i >> 8));
}
inline Bytes patterned(std::uint32_t seed, std::size_t bytes) {
  Bytes page(bytes);
  for (std::size_t i = 0; i < bytes; ++i) page[i] = pattern(seed, i);
  return page;
}

class ScriptReader {
 public:
  ScriptReader(const std::uint8_t* data, std::size_t size) : left_(data, size) {}
  bool empty() const { return left_.empty(); }
  // While it holds back, a script says 0 and loses nothing.
  void hold_back(bool held_back) { held_back_ = held_back; }

  std::uint8_t u8() {
    if (left_.empty() || held_back_) return 0;
    const std::uint8_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  std::uint16_t u16() {
    const std::uint8_t low = u8();
    return static_cast<std::uint16_t>(low | u8() << 8);
  }
  std::uint32_t u32() {
    const std::uint32_t low = u16();
    return low | std::uint32_t{u16()} << 16;
  }
  // Below `count`.
  unsigned choice(unsigned count) { return u8() % count; }
  // One time in four or less: something is to go wrong here.
  bool wrong() { return u8() >= 0xC0; }
  // Small numbers, powers of two and what lies beside them, or any.
  std::uint32_t number() {
    const std::uint8_t tag = u8();
    if (tag < 0x80) return tag;
    if (tag < 0xA0) return 1u << (tag & 31);
    if (tag < 0xC0) return (1u << (tag & 31)) - 1;
    if (tag < 0xE0) return (1u << (tag & 31)) + 1;
    return tag < 0xF0 ? u16() : u32();
  }
  Bytes bytes(std::size_t count) {
    const std::size_t taken = held_back_ ? 0 : std::min(count, left_.size());
    const auto* begin = reinterpret_cast<const std::byte*>(left_.data());
    Bytes out(begin, begin + taken);
    left_ = left_.subspan(taken);
    return out;
  }

 private:
  std::span<const std::uint8_t> left_;
  bool held_back_ = false;
};

// Writes what ScriptReader reads: for seeds.
class ScriptWriter {
 public:
  ScriptWriter& u8(unsigned value) {
    out_.push_back(static_cast<std::uint8_t>(value));
    return *this;
  }
  ScriptWriter& number(std::uint32_t value) {
    if (value < 0x80) return u8(value);
    if ((value & (value - 1)) == 0) return u8(0x80 + static_cast<unsigned>(__builtin_ctz(value)));
    u8(0xF0);
    for (unsigned i = 0; i < 4; ++i) u8(value >> 8 * i & 0xFF);
    return *this;
  }
  const std::vector<std::uint8_t>& bytes() const { return out_; }

 private:
  std::vector<std::uint8_t> out_;
};

}  // namespace furrow::fuzz
