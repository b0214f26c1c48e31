// What all structures on the medium have in common: the 16-byte prefix and the zone stamp.
//
//   magic u32, version u32, crc u32, covered u32
//
// `crc` is the CRC32C over the first `covered` bytes but itself. The prefix keeps its place and
// meaning in every version, so that "newer" is told apart from "damaged". Private to log/. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "log/codec.h"
#include "log/format.h"

namespace furrow {

constexpr std::size_t kPrefixBytes = 16;
constexpr std::size_t kStampBytes = 28;

// Four letters each, readable in a hex dump.
enum class Magic : std::uint32_t {
  superblock = 0x42535546,    // FUSB
  checkpoint = 0x50435546,    // FUCP
  journal = 0x4e4a5546,       // FUJN
  zone_header = 0x485a5546,   // FUZH
  batch_header = 0x48425546,  // FUBH
  summary = 0x4d535546,       // FUSM
};

// LBAs of 512 bytes to 4 KiB are what devices have; a structure that claims another size is bad.
constexpr bool valid_lba_bytes(std::uint64_t bytes) { return bytes == 512 || bytes == 4096; }

bool has_magic(std::span<const std::byte> bytes, Magic magic);

// Fills the prefix of a structure that takes all of `structure`; the rest must be written already.
void seal(std::span<std::byte> structure, Magic magic, std::uint32_t version = kFormatVersion);

// Checks the prefix of whatever lies at the start of `bytes`. Returns the fields behind the prefix,
// up to the end of what the checksum covers, at least `fields_bytes_min` of them. corrupt: wrong
// magic, length or checksum; unsupported: an intact structure of a newer version.
Result<std::span<const std::byte>> check_structure(std::span<const std::byte> bytes, Magic magic,
                                                   std::size_t fields_bytes_min);

// Of a structure in a zone: whose it is, which all versions say in the same place. A newer one that
// is another pool's, or of an earlier life of the zone, is nothing to anybody here.
struct Stamped {
  ZoneStamp stamp;
  std::span<const std::byte> fields;  // behind the stamp
  Status version;                     // unsupported: a newer one, whose fields are not known
};
// corrupt as above. `fields_bytes_min`: with the stamp.
Result<Stamped> check_stamped(std::span<const std::byte> bytes, Magic magic,
                              std::size_t fields_bytes_min);

// The `covered` field of a prefix that was not checked yet; 0 if there is no such prefix.
std::uint32_t claimed_bytes(std::span<const std::byte> bytes, Magic magic);

void put_stamp(ByteWriter& writer, const ZoneStamp& stamp);
ZoneStamp take_stamp(ByteReader& reader);

}  // namespace furrow
