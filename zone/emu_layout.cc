#include "zone/emu_layout.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace furrow::emu {

namespace {

constexpr char kMagic[8] = {'F', 'u', 'r', 'r', 'o', 'w', 'Z', 'D'};
constexpr std::size_t kChecksumOffset = kSuperblockBytes - 8;

constexpr unsigned kWrittenBits = 25;
constexpr unsigned kGenerationBits = 21;
constexpr unsigned kClassShift = kWrittenBits + kGenerationBits;
constexpr unsigned kCheckShift = kClassShift + 2;
static_assert(kCheckShift == 48);
constexpr std::uint64_t kWrittenMask = (1u << kWrittenBits) - 1;
constexpr std::uint64_t kTells = 1u << (kWrittenBits - 1);  // with anything below it
constexpr std::uint32_t kGenerationMask = (1u << kGenerationBits) - 1;

// Reads or writes integers one after the other, least significant byte first.
template <class Byte>
class Cursor {
 public:
  explicit Cursor(Byte* at) : at_(at) {}
  void put(std::uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) *at_++ = static_cast<std::byte>(value >> (8 * i));
  }
  std::uint64_t get(unsigned bytes) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < bytes; ++i) value |= std::to_integer<std::uint64_t>(*at_++) << (8 * i);
    return value;
  }
  std::uint32_t get32() { return static_cast<std::uint32_t>(get(4)); }
  Byte* skip(std::size_t bytes) { return std::exchange(at_, at_ + bytes); }

 private:
  Byte* at_;
};

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

// Could this superblock have been made by make_superblock()? Guards all arithmetic on its fields.
bool plausible(const Superblock& superblock) {
  const Geometry& geometry = superblock.geometry;
  if (geometry.lba_bytes != 512 && geometry.lba_bytes != 4096) return false;
  if (geometry.zone_count == 0 || geometry.zone_count > 1u << 24) return false;
  if (geometry.zone_size_lbas == 0 || geometry.zone_size_lbas > std::uint64_t{1} << 32)
    return false;
  if (geometry.zone_capacity_lbas == 0 || geometry.zone_capacity_lbas > 1u << 24) return false;
  if (geometry.zone_capacity_lbas > geometry.zone_size_lbas) return false;
  if (geometry.zone_writes_max == 0 || geometry.append_lbas_max == 0) return false;
  if (geometry.active_zones_max != 0 &&
      (geometry.open_zones_max == 0 || geometry.open_zones_max > geometry.active_zones_max)) {
    return false;
  }
  const Superblock expected = make_superblock(geometry, superblock.uuid);
  return superblock.table_offset[0] == expected.table_offset[0] &&
         superblock.table_offset[1] == expected.table_offset[1] &&
         superblock.table_bytes == expected.table_bytes &&
         superblock.data_offset == expected.data_offset &&
         superblock.stride_bytes == expected.stride_bytes;
}

}  // namespace

Superblock make_superblock(const Geometry& geometry, const std::array<std::byte, 16>& uuid) {
  Superblock made;
  made.incompatible = kDataTells;
  made.uuid = uuid;
  made.geometry = geometry;
  made.table_bytes = round_up(std::uint64_t{geometry.zone_count} * 8, kPageBytes);
  made.table_offset[0] = kTableOffset;
  made.table_offset[1] = kTableOffset + made.table_bytes;
  made.data_offset = round_up(made.table_offset[1] + made.table_bytes, kDataAlignment);
  made.stride_bytes = round_up(geometry.zone_capacity_bytes(), kPageBytes);
  return made;
}

void encode(const Superblock& superblock, std::span<std::byte, kSuperblockBytes> to) {
  std::ranges::fill(to, std::byte{0});
  Cursor cursor(to.data());
  std::memcpy(cursor.skip(sizeof kMagic), kMagic, sizeof kMagic);
  cursor.put(kVersion, 4);
  cursor.put(kSuperblockBytes, 4);
  cursor.put(superblock.compatible, 8);
  cursor.put(superblock.read_only, 8);
  cursor.put(superblock.incompatible, 8);
  std::memcpy(cursor.skip(16), superblock.uuid.data(), 16);
  const Geometry& geometry = superblock.geometry;
  cursor.put(geometry.lba_bytes, 4);
  cursor.put(geometry.zone_count, 4);
  cursor.put(geometry.zone_size_lbas, 8);
  cursor.put(geometry.zone_capacity_lbas, 8);
  cursor.put(geometry.open_zones_max, 4);
  cursor.put(geometry.active_zones_max, 4);
  cursor.put(geometry.append_lbas_max, 4);
  cursor.put(geometry.zone_writes_max, 4);
  cursor.put(superblock.table_offset[0], 8);
  cursor.put(superblock.table_offset[1], 8);
  cursor.put(superblock.table_bytes, 8);
  cursor.put(superblock.data_offset, 8);
  cursor.put(superblock.stride_bytes, 8);
  Cursor(to.data() + kChecksumOffset).put(XXH3_64bits(to.data(), kChecksumOffset), 8);
}

Result<Superblock> decode(std::span<const std::byte, kSuperblockBytes> from) {
  const auto fail = [](Code code, const char* hint) { return Status(code, Origin::zone, hint); };
  Cursor cursor(from.data());
  if (std::memcmp(cursor.skip(sizeof kMagic), kMagic, sizeof kMagic) != 0) {
    return fail(Code::foreign, "not an emulated zoned device; make one with `pool create`");
  }
  if (std::memcmp(from.data(), kUnfinished.data(), kUnfinished.size()) == 0) {
    return fail(Code::foreign, "the making of this emulated device was cut off; make it again");
  }
  // The version and the checksum stand where every version has them.
  const std::uint32_t version = cursor.get32();
  if (Cursor(from.data() + kChecksumOffset).get(8) != XXH3_64bits(from.data(), kChecksumOffset)) {
    return fail(Code::corrupt, "the emulated device's superblock is damaged");
  }
  if (version != kVersion) {
    return fail(Code::unsupported, "the emulated device's format is newer; use a newer Furrow");
  }
  (void)cursor.get32();
  Superblock superblock;
  superblock.compatible = cursor.get(8);
  superblock.read_only = cursor.get(8);
  superblock.incompatible = cursor.get(8);
  if ((superblock.incompatible & ~kKnownIncompatible) != 0) {
    return fail(Code::unsupported, "the emulated device uses a newer feature; use a newer Furrow");
  }
  std::memcpy(superblock.uuid.data(), cursor.skip(16), 16);
  Geometry& geometry = superblock.geometry;
  geometry.lba_bytes = cursor.get32();
  geometry.zone_count = cursor.get32();
  geometry.zone_size_lbas = cursor.get(8);
  geometry.zone_capacity_lbas = cursor.get(8);
  geometry.open_zones_max = cursor.get32();
  geometry.active_zones_max = cursor.get32();
  geometry.append_lbas_max = cursor.get32();
  geometry.zone_writes_max = cursor.get32();
  superblock.table_offset[0] = cursor.get(8);
  superblock.table_offset[1] = cursor.get(8);
  superblock.table_bytes = cursor.get(8);
  superblock.data_offset = cursor.get(8);
  superblock.stride_bytes = cursor.get(8);
  if (!plausible(superblock)) {
    return fail(Code::corrupt, "the emulated device's superblock has impossible values");
  }
  return superblock;
}

SlotCodec::SlotCodec(const Superblock& superblock)
    : seed_(XXH3_64bits(superblock.uuid.data(), superblock.uuid.size())),
      capacity_lbas_(superblock.geometry.zone_capacity_lbas),
      may_tell_((superblock.incompatible & kDataTells) != 0) {}

std::uint64_t SlotCodec::check(ZoneId zone, std::uint64_t payload) const {
  std::byte bytes[12];
  Cursor cursor(bytes);
  cursor.put(payload, 8);
  cursor.put(zone.value, 4);
  return XXH3_64bits_withSeed(bytes, sizeof bytes, seed_) >> kCheckShift;
}

std::uint64_t SlotCodec::encode(ZoneId zone, const ZoneRecord& record) const {
  const std::uint64_t payload = record.written_lbas | (record.data_tells ? kTells : 0) |
                                std::uint64_t{record.generation & kGenerationMask} << kWrittenBits |
                                static_cast<std::uint64_t>(record.kind) << kClassShift;
  return payload | check(zone, payload) << kCheckShift;
}

std::optional<ZoneRecord> SlotCodec::decode(ZoneId zone, std::uint64_t slot) const {
  const std::uint64_t payload = slot & ((std::uint64_t{1} << kCheckShift) - 1);
  ZoneRecord record;
  record.written_lbas = payload & kWrittenMask;
  record.generation = static_cast<std::uint32_t>(payload >> kWrittenBits) & kGenerationMask;
  record.kind = static_cast<ZoneRecord::Class>(payload >> kClassShift);
  record.data_tells = record.written_lbas > kTells;
  if (record.data_tells) record.written_lbas -= kTells;
  if (record.data_tells && (!may_tell_ || record.kind != ZoneRecord::Class::writable)) {
    return std::nullopt;
  }
  if (slot >> kCheckShift != check(zone, payload) || record.written_lbas > capacity_lbas_) {
    return std::nullopt;
  }
  return record;
}

bool SlotCodec::newer(const ZoneRecord& a, const ZoneRecord& b) {
  const std::uint32_t ahead = (a.generation - b.generation) & kGenerationMask;
  if (ahead != 0) return ahead <= kGenerationMask / 2;
  if (a.kind != b.kind) return a.kind > b.kind;
  return a.written_lbas > b.written_lbas;
}

}  // namespace furrow::emu
