#define XXH_INLINE_ALL
#include "bench/content.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace furrow::bench {

namespace {

// A piece is the table, each word XORed with the piece's own seed: the compiler makes vector code
// of both loops below.
constexpr std::size_t kWords = 512;
using Table = std::array<std::uint64_t, kWords>;

const Table& table() {
  static const Table kTable = [] {
    Table words;
    for (std::uint64_t i = 0; i < kWords; ++i) words[i] = XXH3_64bits_withSeed(&i, sizeof i, 1);
    return words;
  }();
  return kTable;
}

std::uint64_t hash(std::uint64_t number, std::uint64_t seed) {
  return XXH3_64bits_withSeed(&number, sizeof number, seed);
}

template <class Byte, class Piece>
bool each_piece(std::uint64_t page, std::uint64_t salt, std::span<Byte> bytes, Piece piece) {
  const std::uint64_t seed = hash(page, salt);
  for (std::uint64_t i = 0; !bytes.empty(); ++i) {
    const std::size_t length = std::min(bytes.size(), sizeof(Table));
    if (!piece(bytes.first(length), hash(i, seed))) return false;
    bytes = bytes.subspan(length);
  }
  return true;
}

}  // namespace

Key page_key(std::uint64_t page, std::uint64_t salt) {
  const std::uint64_t words[2] = {hash(page, salt), page};
  return Key::from(std::as_bytes(std::span(words)));
}

void fill_page(std::uint64_t page, std::uint64_t salt, std::span<std::byte> out) {
  const Table& words = table();
  each_piece(page, salt, out, [&](std::span<std::byte> piece, std::uint64_t seed) {
    std::size_t at = 0;
    for (; at + 8 <= piece.size(); at += 8) {
      const std::uint64_t word = words[at / 8] ^ seed;
      std::memcpy(piece.data() + at, &word, 8);
    }
    const std::uint64_t last = at < piece.size() ? words[at / 8] ^ seed : 0;
    if (at < piece.size()) std::memcpy(piece.data() + at, &last, piece.size() - at);
    return true;
  });
}

bool page_matches(std::uint64_t page, std::uint64_t salt, std::span<const std::byte> bytes) {
  const Table& words = table();
  return each_piece(page, salt, bytes, [&](std::span<const std::byte> piece, std::uint64_t seed) {
    std::uint64_t difference = 0;
    std::size_t at = 0;
    for (; at + 8 <= piece.size(); at += 8) {
      std::uint64_t word;
      std::memcpy(&word, piece.data() + at, 8);
      difference |= word ^ words[at / 8] ^ seed;
    }
    if (difference != 0) return false;
    const std::uint64_t last = at < piece.size() ? words[at / 8] ^ seed : 0;
    return at == piece.size() || std::memcmp(piece.data() + at, &last, piece.size() - at) == 0;
  });
}

}  // namespace furrow::bench
