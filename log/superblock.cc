#include <algorithm>

#include "log/metadata_format.h"
#include "log/structure.h"

namespace furrow {

namespace {
constexpr std::size_t kSuperblockFieldsBytes =
    3 * 16 + 3 * 8 + 4 * 8 + 3 * 4 + 1 + 3 + kNameBytesMax + 1;
constexpr std::uint64_t kSegmentBytesMax = 64u << 20;
constexpr std::uint64_t kPoolLbasMax = std::uint64_t{1} << 40;  // positions have 40 bits

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}
}  // namespace

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax &&
         std::ranges::all_of(name, is_name_character);
}

bool valid_superblock(const Superblock& s) {
  return valid_name(s.name) && valid_lba_bytes(s.lba_bytes) && s.metadata_zones >= 2 &&
         s.metadata_zones <= kMetadataZonesMax && s.metadata_zones <= s.zone_count &&
         s.zone_capacity_lbas >= 2 && s.zone_capacity_lbas <= s.zone_size_lbas &&
         s.zone_capacity_lbas <= ZoneTrimRecord::kEndLbaMax &&
         s.zone_size_lbas <= kPoolLbasMax / s.zone_count && s.segment_lbas >= 2 &&
         s.segment_lbas <= kSegmentBytesMax / s.lba_bytes;
}

void encode(const Superblock& superblock, std::span<std::byte> lba) {
  FURROW_CHECK(valid_superblock(superblock));
  ByteWriter writer(lba);
  writer.put_zeroes(kPrefixBytes);
  writer.put_bytes(std::as_bytes(std::span(superblock.pool)));
  writer.put_bytes(std::as_bytes(std::span(superblock.device_set)));
  writer.put_bytes(std::as_bytes(std::span(superblock.hash_key)));
  writer.put(superblock.features.compatible);
  writer.put(superblock.features.read_only);
  writer.put(superblock.features.incompatible);
  writer.put(superblock.checkpoint);
  writer.put(superblock.segment_lbas);
  writer.put(superblock.zone_size_lbas);
  writer.put(superblock.zone_capacity_lbas);
  writer.put(superblock.zone_count);
  writer.put(superblock.metadata_zones);
  writer.put(superblock.lba_bytes);
  writer.put(static_cast<std::uint8_t>(superblock.name.size()));
  writer.put_zeroes(3);
  writer.put_bytes(std::as_bytes(std::span(superblock.name)));
  writer.put_zeroes(kNameBytesMax + 1 - superblock.name.size());
  FURROW_CHECK(writer.position() == kPrefixBytes + kSuperblockFieldsBytes);
  writer.zero_rest();
  seal(lba, Magic::superblock);
}

Result<Superblock> decode_superblock(std::span<const std::byte> lba) {
  const auto fields = check_structure(lba, Magic::superblock, kSuperblockFieldsBytes);
  if (!fields) return fields.status();
  ByteReader reader(*fields);
  Superblock superblock;
  reader.take_into(superblock.pool);
  reader.take_into(superblock.device_set);
  reader.take_into(superblock.hash_key);
  superblock.features.compatible = reader.take<std::uint64_t>();
  superblock.features.read_only = reader.take<std::uint64_t>();
  superblock.features.incompatible = reader.take<std::uint64_t>();
  superblock.checkpoint = reader.take<std::uint64_t>();
  superblock.segment_lbas = reader.take<std::uint64_t>();
  superblock.zone_size_lbas = reader.take<std::uint64_t>();
  superblock.zone_capacity_lbas = reader.take<std::uint64_t>();
  superblock.zone_count = reader.take<std::uint32_t>();
  superblock.metadata_zones = reader.take<std::uint32_t>();
  superblock.lba_bytes = reader.take<std::uint32_t>();
  const auto name_bytes = reader.take<std::uint8_t>();
  reader.take_bytes(3);
  const auto name = reader.take_bytes(std::min<std::size_t>(name_bytes, kNameBytesMax));
  superblock.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  if (!reader.ok() || name_bytes > kNameBytesMax || !valid_superblock(superblock)) {
    return Status(Code::corrupt, Origin::log, "a superblock's fields are out of range");
  }
  return superblock;
}

}  // namespace furrow
