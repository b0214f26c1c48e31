#include "log/structure.h"

namespace furrow {

namespace {
constexpr std::size_t kZoneHeaderFieldsBytes = kStampBytes + 8 + 8 + 1 + 8;
}  // namespace

void encode(const ZoneHeader& header, std::span<std::byte> lba) {
  ByteWriter writer(lba);
  writer.put_zeroes(kPrefixBytes);
  put_stamp(writer, header.stamp);
  writer.put(header.volume);
  writer.put(header.opened_sequence);
  writer.put(header.stream);
  writer.put(header.previous_opened);
  writer.zero_rest();
  seal(lba, Magic::zone_header);
}

Result<ZoneHeader> decode_zone_header(std::span<const std::byte> lba, const Uuid& pool,
                                      ZoneId zone) {
  const auto found = check_stamped(lba, Magic::zone_header, kZoneHeaderFieldsBytes);
  if (!found) return found.status();
  ZoneHeader header;
  header.stamp = found->stamp;
  if (header.stamp.pool != pool || header.stamp.zone != zone) {
    return Status(Code::corrupt, Origin::log, "a zone header belongs to another pool or zone");
  }
  const Status out_of_range(Code::corrupt, Origin::log, "a zone header's fields are out of range");
  if (!plausible_sequence(header.stamp.generation)) return out_of_range;
  if (!found->version.ok()) return found->version;
  ByteReader reader(found->fields);
  header.volume = reader.take<std::uint64_t>();
  header.opened_sequence = reader.take<std::uint64_t>();
  header.stream = reader.take<std::uint8_t>();
  header.previous_opened = reader.take<std::uint64_t>();
  FURROW_CHECK(reader.ok());  // check_stamped() promised the length
  if (!plausible_sequence(header.opened_sequence)) return out_of_range;
  // All ones where an earlier version took a zone that had been given up for one of the owner's.
  if (header.previous_opened >= header.opened_sequence) header.previous_opened = 0;
  if (header.stream > kStreamMax) {
    return Status(Code::corrupt, Origin::log, "a zone header names a stream that there is not");
  }
  return header;
}

}  // namespace furrow
