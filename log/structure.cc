#include "log/structure.h"

namespace furrow {

namespace {
constexpr std::size_t kVersionAt = 4, kCrcAt = 8, kCoveredAt = 12;

std::uint32_t structure_crc(std::span<const std::byte> structure) {
  return crc32c(structure.subspan(kCoveredAt), crc32c(structure.first(kCrcAt)));
}

// All of it, whatever its version.
Result<std::span<const std::byte>> intact_structure(std::span<const std::byte> bytes, Magic magic) {
  if (!has_magic(bytes, magic)) {
    return Status(Code::corrupt, Origin::log, "no structure of the expected kind is here");
  }
  const std::uint32_t covered = claimed_bytes(bytes, magic);
  if (covered < kPrefixBytes || covered > bytes.size()) {
    return Status(Code::corrupt, Origin::log, "a structure's length is out of range");
  }
  const auto structure = bytes.first(covered);
  if (load_le<std::uint32_t>(bytes.data() + kCrcAt) != structure_crc(structure)) {
    return Status(Code::corrupt, Origin::log, "a structure's checksum does not match");
  }
  return structure;
}

Status check_version(std::span<const std::byte> structure, std::size_t fields_bytes_min) {
  const auto version = load_le<std::uint32_t>(structure.data() + kVersionAt);
  if (version > kFormatVersion) {
    return {Code::unsupported, Origin::log,
            "written by a newer version of Furrow; use that version or newer"};
  }
  if (version == 0 || structure.size() - kPrefixBytes < fields_bytes_min) {
    return {Code::corrupt, Origin::log, "a structure is shorter than its version demands"};
  }
  return {};
}
}  // namespace

bool has_magic(std::span<const std::byte> bytes, Magic magic) {
  return bytes.size() >= kPrefixBytes &&
         load_le<std::uint32_t>(bytes.data()) == static_cast<std::uint32_t>(magic);
}

void seal(std::span<std::byte> structure, Magic magic, std::uint32_t version) {
  FURROW_CHECK(structure.size() >= kPrefixBytes && structure.size() <= UINT32_MAX);
  store_le(structure.data(), static_cast<std::uint32_t>(magic));
  store_le(structure.data() + kVersionAt, version);
  store_le(structure.data() + kCoveredAt, static_cast<std::uint32_t>(structure.size()));
  store_le(structure.data() + kCrcAt, structure_crc(structure));
}

std::uint32_t claimed_bytes(std::span<const std::byte> bytes, Magic magic) {
  return has_magic(bytes, magic) ? load_le<std::uint32_t>(bytes.data() + kCoveredAt) : 0;
}

Result<std::span<const std::byte>> check_structure(std::span<const std::byte> bytes, Magic magic,
                                                   std::size_t fields_bytes_min) {
  const auto structure = intact_structure(bytes, magic);
  if (!structure) return structure.status();
  const Status version = check_version(*structure, fields_bytes_min);
  if (!version.ok()) return version;
  return structure->subspan(kPrefixBytes);
}

Result<Stamped> check_stamped(std::span<const std::byte> bytes, Magic magic,
                              std::size_t fields_bytes_min) {
  const auto structure = intact_structure(bytes, magic);
  if (!structure) return structure.status();
  const Status version = check_version(*structure, fields_bytes_min);
  if (version.code() == Code::corrupt) return version;
  if (structure->size() < kPrefixBytes + kStampBytes) {
    return Status(Code::corrupt, Origin::log, "a structure is too short to say whose it is");
  }
  ByteReader reader(structure->subspan(kPrefixBytes));
  const ZoneStamp stamp = take_stamp(reader);
  return Stamped{stamp, structure->subspan(kPrefixBytes + kStampBytes), version};
}

void put_stamp(ByteWriter& writer, const ZoneStamp& stamp) {
  writer.put_bytes(std::as_bytes(std::span(stamp.pool)));
  writer.put(stamp.zone.value);
  writer.put(stamp.generation);
}

ZoneStamp take_stamp(ByteReader& reader) {
  ZoneStamp stamp;
  reader.take_into(stamp.pool);
  stamp.zone.value = reader.take<std::uint32_t>();
  stamp.generation = reader.take<std::uint64_t>();
  return stamp;
}

}  // namespace furrow
