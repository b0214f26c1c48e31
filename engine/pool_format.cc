// Pool::format(): which devices can hold a pool, and how an empty one begins.
#include <sodium.h>

#include <algorithm>

#include "engine/files/staging.h"
#include "engine/pool.h"
#include "engine/pool_impl.h"
#include "log/metadata_format.h"
#include "log/structure.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

constexpr unsigned kFormatDepth = 4;
constexpr std::uint64_t kSegmentBytesMax = 64 << 20;
constexpr std::uint64_t kFormatBytesMax = 64 << 10;  // that Pool::format() writes to a zone

// The first LBA may be what was torn; what others have written may begin with zeroes as well.
bool may_be_torn_format(std::span<const std::byte> data, std::uint32_t lba_bytes) {
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (!std::ranges::all_of(data.first(lba_bytes), is_zero)) return false;
  if (std::ranges::all_of(data, is_zero)) return true;
  for (; !data.empty(); data = data.subspan(lba_bytes)) {
    if (has_magic(data, Magic::checkpoint) || has_magic(data, Magic::journal)) return true;
  }
  return false;
}

}  // namespace

std::uint64_t segment_lbas_of(const Geometry& geometry) {
  const std::uint64_t segment_lbas_max = kSegmentBytesMax / geometry.lba_bytes;
  const std::uint64_t segments =
      (geometry.zone_capacity_lbas + segment_lbas_max - 1) / segment_lbas_max;
  return (geometry.zone_capacity_lbas + segments - 1) / segments;
}

Uuid random_uuid(Executor& executor) {
  Uuid uuid{};
  for (std::size_t i = 0; i < uuid.size(); i += 8) {
    const std::uint64_t word = executor.random();
    std::memcpy(uuid.data() + i, &word, 8);
  }
  uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0f) | 0x40);  // RFC 4122, version 4
  uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

Status Pool::suits(const Geometry& geometry) {
  if (geometry.zone_count < kMetadataZones + kVolumeZonesMin) {
    return {
        Code::invalid_argument, Origin::engine,
        "too few zones: a pool needs two metadata zones and three for a volume; make the device "
        "larger or its zones smaller"};
  }
  constexpr std::uint64_t kLbasMax = std::uint64_t{1} << 40;  // an index entry's position
  if (geometry.zone_size_lbas > kLbasMax / geometry.zone_count) {
    return {Code::invalid_argument, Origin::engine,
            "the device has more than 2^40 LBAs, which a pool cannot address; make it smaller, or "
            "its LBAs 4096 bytes"};
  }
  if (geometry.open_zones_max == 1 || geometry.active_zones_max == 1) {
    return {Code::too_many_zones, Origin::engine,
            "a pool needs two open and active zones (MOR and MAR at least 2)"};
  }
  return MetadataRing::suits(geometry, volumes_max(geometry));
}

Result<bool> Pool::is_blank(ZonedDevice& device) {
  const Result<std::vector<ZoneInfo>> report = device.report();
  if (!report.ok()) return report.status();
  const Result<std::unique_ptr<IoQueue>> queue = device.create_queue(kFormatDepth);
  if (!queue.ok()) return queue.status();
  const std::uint32_t lba_bytes = device.geometry().lba_bytes;
  bool any = false;  // a format that was cut off has written to metadata zones alone
  for (const ZoneInfo& info : *report) {
    if (info.state == ZoneState::empty) continue;
    const bool data_zone = info.zone.value >= kMetadataZones;
    if (info.state == ZoneState::offline) {
      if (data_zone) continue;
      return false;  // who knows what it held; of emu: the zone table alone may be lost
    }
    if (data_zone && info.state == ZoneState::read_only) continue;  // nothing could overwrite it
    any = true;
    if (data_zone) return false;
    AlignedBuffer start(std::min<std::uint64_t>(info.written_lbas * lba_bytes, kFormatBytesMax));
    if (start.size() == 0) continue;
    Io io;
    io.op = Io::Op::read;
    io.zone = info.zone;
    io.lba = device.geometry().zone_start(info.zone);
    io.set_data(start.data(), static_cast<std::uint32_t>(start.size() / lba_bytes), lba_bytes);
    if (const Status status = run_blocking(**queue, io); !status.ok()) return status;
    const bool all_of_it = start.size() == info.written_lbas * lba_bytes;
    if (has_magic(start.span(), Magic::superblock)) continue;
    if (!all_of_it || !may_be_torn_format(start.span(), lba_bytes)) return false;
  }
  if (!any) return true;
  const Code code = MetadataRing::open(device, true).status().code();
  return code == Code::corrupt || code == Code::foreign;
}

Status Pool::format(ZonedDevice& device, std::string_view name, Executor& executor) {
  if (!valid_name(name)) return {Code::invalid_argument, Origin::engine, kNameHint};
  const Geometry& geometry = device.geometry();
  if (const Status status = suits(geometry); !status.ok()) return status;
  Result<std::vector<ZoneInfo>> report = device.report();
  if (!report.ok()) return report.status();
  Result<std::unique_ptr<IoQueue>> queue = device.create_queue(kFormatDepth);
  if (!queue.ok()) return queue.status();
  for (const ZoneInfo& info : *report) {
    if (info.state == ZoneState::empty || info.state == ZoneState::offline) continue;
    const Status status = manage_blocking(**queue, Io::Op::reset, info.zone);
    if (!status.ok() && info.zone.value < kMetadataZones) return status;
  }
  Superblock superblock;
  superblock.pool = random_uuid(executor);
  superblock.device_set = random_uuid(executor);
  superblock.name = name;
  if (sodium_init() < 0) return {Code::io_error, Origin::engine, "no random source"};
  randombytes_buf(superblock.hash_key.data(), superblock.hash_key.size());
  superblock.metadata_zones = kMetadataZones;
  superblock.segment_lbas = segment_lbas_of(geometry);
  superblock.lba_bytes = geometry.lba_bytes;
  superblock.zone_size_lbas = geometry.zone_size_lbas;
  superblock.zone_capacity_lbas = geometry.zone_capacity_lbas;
  superblock.zone_count = geometry.zone_count;
  PoolState state;
  for (const ZoneInfo& info : *report) {  // nothing of this pool's is lost with them
    const bool gone = info.state == ZoneState::offline && info.zone.value >= kMetadataZones;
    if (gone) state.trims.push_back({info.zone.value, 0, ZoneTrimRecord::kAnyLife});
  }
  const Status formatted = MetadataRing::format(device, superblock, state);
  if (formatted.ok()) Staging::discard_all(device_identity(device.uri()));
  return formatted;
}

}  // namespace furrow
