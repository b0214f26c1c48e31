// Fuzzes the decoders of an emulated device's media: any superblock and any slot is decoded or
// refused, and what was decoded encodes to the same meaning. The checksum is put right in half of
// the inputs, so that the checks behind it are reached.
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "zone/check.h"
#include "zone/emu_layout.h"

namespace {

using furrow::emu::kSuperblockBytes;

void superblock(std::span<const std::byte> input, bool mend) {
  std::array<std::byte, kSuperblockBytes> bytes{};
  std::memcpy(bytes.data(), input.data(), std::min(input.size(), bytes.size()));
  if (mend) {
    std::memcpy(bytes.data(), "FurrowZD\1\0\0", 12);
    const XXH64_hash_t sum = XXH3_64bits(bytes.data(), kSuperblockBytes - 8);
    std::memcpy(bytes.data() + kSuperblockBytes - 8, &sum, sizeof sum);
  }
  const auto decoded = furrow::emu::decode(bytes);
  if (!decoded.ok()) return;
  std::array<std::byte, kSuperblockBytes> first, second;
  furrow::emu::encode(*decoded, first);
  const auto again = furrow::emu::decode(first);
  FURROW_CHECK(again.ok());
  furrow::emu::encode(*again, second);
  FURROW_CHECK(first == second);
  // What an opener computes from it does not overflow.
  const furrow::emu::Superblock& super = *decoded;
  FURROW_CHECK(super.end_offset() > super.data_offset);
  FURROW_CHECK(super.data_offset >= super.table_offset[1] + super.table_bytes);
}

// A superblock of any geometry that the format can hold comes back as it was.
void geometry_round_trip(std::span<const std::byte> input) {
  std::array<std::byte, 56> bytes{};
  std::memcpy(bytes.data(), input.data(), std::min(input.size(), bytes.size()));
  const auto number = [&bytes](std::size_t index) {
    std::uint64_t value;
    std::memcpy(&value, bytes.data() + 8 * index, 8);
    return value;
  };
  furrow::Geometry geometry;
  geometry.lba_bytes = number(0) % 2 == 0 ? 512 : 4096;
  geometry.zone_count = 1 + static_cast<std::uint32_t>(number(1) % (1u << 24));
  geometry.zone_capacity_lbas = 1 + number(2) % (1u << 24);
  geometry.zone_size_lbas = geometry.zone_capacity_lbas + number(3) % (1u << 24);
  geometry.open_zones_max = static_cast<std::uint32_t>(number(4));
  geometry.append_lbas_max = 1 + static_cast<std::uint32_t>(number(5) % (1u << 24));
  std::array<std::byte, kSuperblockBytes> encoded;
  furrow::emu::encode(furrow::emu::make_superblock(geometry, {}), encoded);
  const auto decoded = furrow::emu::decode(encoded);
  FURROW_CHECK(decoded.ok());
  FURROW_CHECK(decoded->geometry.zone_count == geometry.zone_count);
  FURROW_CHECK(decoded->geometry.zone_capacity_lbas == geometry.zone_capacity_lbas);
  superblock(encoded, false);
}

void slot(std::span<const std::byte> input) {
  furrow::Geometry geometry;
  geometry.zone_count = 64;
  geometry.zone_size_lbas = geometry.zone_capacity_lbas = 4096;
  const furrow::emu::SlotCodec codec(furrow::emu::make_superblock(geometry, {}));
  std::uint64_t value = 0;
  std::memcpy(&value, input.data(), std::min<std::size_t>(input.size(), 8));
  const furrow::ZoneId zone{static_cast<std::uint32_t>(value % 64)};
  const auto record = codec.decode(zone, value);
  if (!record) return;
  FURROW_CHECK(record->written_lbas <= 4096);
  FURROW_CHECK(codec.encode(zone, *record) == value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span input(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  switch (data[0] % 4) {
    case 0:
      slot(input);
      break;
    case 1:
      geometry_round_trip(input);
      break;
    default:
      superblock(input, data[0] % 4 == 2);
  }
  return 0;
}
