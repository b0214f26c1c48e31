#include "log/record_codec.h"

#include <algorithm>

namespace furrow {

namespace {
constexpr unsigned kPageLengthBits = 22, kKeyLengthBits = 5;
constexpr unsigned kKeyLengthAt = kPageLengthBits, kKindAt = kKeyLengthAt + kKeyLengthBits;
constexpr unsigned kPinnedAt = kKindAt + 2, kDamagedAt = kPinnedAt + 1;
static_assert(kValueBytesMax == 1u << kPageLengthBits);
static_assert(Key::kBytesMax < 1u << kKeyLengthBits);

bool key_fits(const PageRecord& record) {
  if (record.kind == RecordKind::group_tombstone) {
    return record.key == Key{} && record.group != 0;
  }
  return record.key.valid() &&
         std::all_of(record.key.bytes.begin() + record.key.length, record.key.bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}
}  // namespace

std::uint32_t pack_shape(const PageRecord& record) {
  const std::uint32_t length = record.kind == RecordKind::page ? record.length - 1 : 0;
  return length | std::uint32_t{record.key.length} << kKeyLengthAt |
         static_cast<std::uint32_t>(record.kind) << kKindAt |
         std::uint32_t{record.pinned} << kPinnedAt | std::uint32_t{record.damaged} << kDamagedAt;
}

void unpack_shape(std::uint32_t shape, PageRecord& record) {
  record.kind = static_cast<RecordKind>(shape >> kKindAt & 3);
  record.pinned = (shape >> kPinnedAt & 1) != 0;
  record.damaged = (shape >> kDamagedAt & 1) != 0;
  record.key.length =
      static_cast<std::uint8_t>(shape >> kKeyLengthAt & ((1u << kKeyLengthBits) - 1));
  const std::uint32_t length = shape & ((1u << kPageLengthBits) - 1);
  record.length = record.kind == RecordKind::page ? length + 1 : length;
}

bool valid_record(const PageRecord& record, const RecordBounds& bounds) {
  if (!plausible_sequence(record.sequence)) return false;
  switch (record.kind) {
    case RecordKind::page: {
      if (record.length < 1 || record.length > kValueBytesMax) return false;
      const std::uint64_t lbas = (record.length + bounds.lba_bytes - 1) / bounds.lba_bytes;
      return key_fits(record) && record.lba >= bounds.pages_lba &&
             record.lba + lbas <= bounds.end_lba;
    }
    case RecordKind::tombstone:
    case RecordKind::group_tombstone:
      return key_fits(record) && !record.damaged && record.length == 0 && record.checksum == 0 &&
             record.lba >= bounds.tombstone_lba_min && record.lba <= bounds.tombstone_lba_max;
  }
  return false;
}

}  // namespace furrow
