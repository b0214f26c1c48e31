// The keys and pages of a crash test: a page's bytes and length follow from its key and version,
// and the version stands in front, so that a reader can tell which one it got. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "log/key.h"

namespace furrow::crash {

constexpr std::uint32_t kPageBytesMax = 32 << 10;

// Lengths of 8 to 16 bytes: what is stored of a key depends on it.
inline Key key_of(std::uint64_t number) {
  std::array<std::byte, 16> bytes{};
  std::memcpy(bytes.data(), &number, sizeof number);
  return Key::from(std::span<const std::byte>(bytes.data(), 8 + number % 9));
}

inline std::uint32_t page_bytes_of(std::uint64_t version) {
  const auto mixed = static_cast<std::uint32_t>(version * 0x9E3779B97F4A7C15u >> 33);
  // Most pages are small, some are large.
  const std::uint32_t limit = mixed % 8 == 0 ? kPageBytesMax : kPageBytesMax / 4;
  return 16 + mixed / 8 % (limit - 16);
}

inline void fill_page(std::uint64_t key, std::uint64_t version, std::span<std::byte> page) {
  std::uint64_t word = key * 0x9E3779B97F4A7C15u ^ version * 0xC2B2AE3D27D4EB4Fu;
  for (std::size_t at = 0; at < page.size(); at += sizeof word) {
    const std::uint64_t bytes = at == 0 ? version : word;
    std::memcpy(page.data() + at, &bytes, std::min(sizeof bytes, page.size() - at));
    word = word * 6364136223846793005u + 1442695040888963407u;
  }
}

inline std::uint64_t version_in(std::span<const std::byte> page) {
  std::uint64_t version = 0;
  std::memcpy(&version, page.data(), std::min(sizeof version, page.size()));
  return version;
}

// Is it the whole page of (key, the version that it begins with)?
inline bool is_whole(std::uint64_t key, std::span<const std::byte> page) {
  std::array<std::byte, kPageBytesMax> expected;
  const std::uint64_t version = version_in(page);
  const auto wanted = std::span(expected).first(page_bytes_of(version));
  fill_page(key, version, wanted);
  return std::ranges::equal(wanted, page);
}

}  // namespace furrow::crash
