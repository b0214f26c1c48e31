// The media layout of an emulated zoned device (emu:), and its codec. zone/FORMAT.md is the
// grammar; this is the code.
//
// A slot is one 8-byte store, so that a process that dies, or a sector that is written while the
// slot changes, leaves the old or the new one and never a mixture. Updates alternate between the
// copies. The check, together with the range of the other fields, lets a damaged slot pass about
// once in 2^30.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "zone/status.h"
#include "zone/types.h"
#include "zone/zone_table.h"

namespace furrow::emu {

inline constexpr std::size_t kSuperblockBytes = 512;
inline constexpr std::uint64_t kSuperblockOffsets[2] = {0, 4096};
inline constexpr std::uint64_t kTableOffset = 8192;
inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::uint64_t kDataAlignment = 1u << 20;
inline constexpr std::uint32_t kVersion = 1;
// Stands in a superblock's place while the device is being made: what a crash leaves of that is
// nobody's data.
inline constexpr std::string_view kUnfinished = "FurrowZD unfinished";
// Features of this build. Unknown incompatible ones: cannot be opened; unknown read-only ones: can
// be inspected; unknown compatible ones: ignored.
inline constexpr std::uint64_t kKnownReadOnly = 0;
inline constexpr std::uint64_t kPreallocated = 1;  // compatible: the file keeps all its blocks
inline constexpr std::uint64_t kDataTells = 1;  // incompatible: slots may say that the data tells
inline constexpr std::uint64_t kKnownIncompatible = kDataTells;

inline constexpr std::uint64_t kAheadBytes = 256 << 10;
// Where zeroes ahead of a zone that is written up to `written_lbas` end.
inline std::uint64_t ahead_end_lbas(const Geometry& geometry, std::uint64_t written_lbas) {
  const std::uint64_t lbas = kAheadBytes / geometry.lba_bytes;
  return std::min((written_lbas / lbas + 1) * lbas, geometry.zone_capacity_lbas);
}

struct Superblock {
  std::uint64_t compatible = 0;
  std::uint64_t read_only = 0;
  std::uint64_t incompatible = 0;
  std::array<std::byte, 16> uuid{};
  Geometry geometry;
  std::uint64_t table_offset[2]{};
  std::uint64_t table_bytes = 0;  // of one copy
  std::uint64_t data_offset = 0;
  std::uint64_t stride_bytes = 0;

  std::uint64_t end_offset() const { return data_offset + geometry.zone_count * stride_bytes; }
  // Where an LBA below its zone's capacity lies.
  std::uint64_t offset_of(ZoneId zone, std::uint64_t lba_in_zone) const {
    return data_offset + zone.value * stride_bytes + lba_in_zone * geometry.lba_bytes;
  }
};

Superblock make_superblock(const Geometry& geometry, const std::array<std::byte, 16>& uuid);
void encode(const Superblock& superblock, std::span<std::byte, kSuperblockBytes> to);
// Errors: foreign (no magic, or kUnfinished), corrupt (checksum, impossible fields), unsupported
// (newer version or feature).
Result<Superblock> decode(std::span<const std::byte, kSuperblockBytes> from);

inline bool all_zeroes(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

class SlotCodec {
 public:
  explicit SlotCodec(const Superblock& superblock);
  std::uint64_t encode(ZoneId zone, const ZoneRecord& record) const;
  // Nothing: the slot is damaged.
  std::optional<ZoneRecord> decode(ZoneId zone, std::uint64_t slot) const;
  // Is `a` the later state of a zone? Generations wrap.
  static bool newer(const ZoneRecord& a, const ZoneRecord& b);

 private:
  std::uint64_t check(ZoneId zone, std::uint64_t payload) const;
  std::uint64_t seed_;
  std::uint64_t capacity_lbas_;
  bool may_tell_;
};

}  // namespace furrow::emu
