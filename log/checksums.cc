// CRC32C of structures (ISA-L), keyed hashes of keys (libsodium), keyed checksums of pages
// (xxHash).
#include <isa-l/crc.h>
#include <sodium/crypto_shorthash_siphash24.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // picks AVX2 or AVX-512 when the processor has it; same results
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <bit>

#include "log/codec.h"
#include "log/format.h"

namespace furrow {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  constexpr std::size_t kPieceBytes = 1u << 30;  // crc32_iscsi() counts in an int
  std::uint32_t crc = ~seed;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPieceBytes));
    // The function only reads; its prototype lacks the const.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    crc = crc32_iscsi(data, static_cast<int>(piece.size()), crc);
    bytes = bytes.subspan(piece.size());
  }
  return ~crc;
}

KeyHash key_hash(const std::array<std::uint8_t, 16>& secret, std::uint64_t volume, const Key& key) {
  static_assert(crypto_shorthash_siphashx24_KEYBYTES == 16);
  static_assert(crypto_shorthash_siphashx24_BYTES == 16);
  FURROW_CHECK(key.length <= Key::kBytesMax);
  std::array<std::byte, 8 + 1 + Key::kBytesMax> text;
  ByteWriter writer(text);
  writer.put(volume);
  writer.put(key.length);
  writer.put_bytes(key.view());
  std::array<std::byte, 16> hash;
  const int failed = crypto_shorthash_siphashx24(
      reinterpret_cast<unsigned char*>(hash.data()),
      reinterpret_cast<const unsigned char*>(text.data()), writer.position(), secret.data());
  FURROW_CHECK(failed == 0);
  return {load_le<std::uint64_t>(hash.data()), load_le<std::uint64_t>(hash.data() + 8)};
}

std::uint32_t page_checksum(std::span<const std::byte> page, const KeyHash& hash) {
  const std::uint64_t seed = hash.order ^ std::rotl(hash.identity, 32);
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(page.data(), page.size(), seed));
}

}  // namespace furrow
