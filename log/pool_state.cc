// Pool state: what checkpoints hold and the journal changes.
#include <algorithm>
#include <utility>

#include "log/metadata_format.h"
#include "log/reservation_state.h"
#include "log/structure.h"

namespace furrow {

namespace {

constexpr std::size_t kVolumeBytes = 8 + 16 + 8 + 4 + 4 + 4 + 4 + kNameBytesMax + 1;
constexpr std::size_t kTrimBytes = 4 + 4 + 8;
constexpr std::size_t kLentBytes = 4 + 4 + 8;
constexpr std::size_t kLentCountBytes = 4;
constexpr std::size_t kCheckpointFieldsBytes = 16 + 8 + 8 + 8 + 4 + 4;
constexpr std::size_t kJournalFieldsBytes = 16 + 4 * 8 + 8 + 8 + kVolumeBytes + kTrimBytes;
// Of zones_lent alone.
constexpr std::size_t kJournalLentBytes = 4 + JournalRecord::kRunsMax * 8;
static_assert(kPrefixBytes + kJournalFieldsBytes + kJournalLentBytes <= 512);
static_assert(kPrefixBytes + kJournalFieldsBytes + kReservationChangeBytes <= 512);
constexpr std::uint32_t kAnewBit = std::uint32_t{1} << 31;  // of a journal record's count of runs

// A zoned volume's share stands where others have the size of a page and of a disk.
void put_volume(ByteWriter& writer, const VolumeRecord& volume) {
  const bool zoned = volume.kind == kKindZoned;
  writer.put(volume.id);
  writer.put_bytes(std::as_bytes(std::span(volume.uuid)));
  writer.put(volume.quota_zones);
  writer.put(volume.nsid);
  writer.put(zoned ? volume.active_zones_max : volume.value_bytes_max);
  writer.put(volume.kind);
  writer.put(volume.mode);
  writer.put(volume.durability);
  writer.put(static_cast<std::uint8_t>(volume.name.size()));
  writer.put(zoned ? volume.open_zones_max : volume.lba_shift | volume.size_mib << 8);
  writer.put_bytes(std::as_bytes(std::span(volume.name)));
  writer.put_zeroes(kNameBytesMax + 1 - volume.name.size());
}

// Whatever the bytes say; a name that is too long comes out empty. valid_volume() judges.
VolumeRecord take_volume(ByteReader& reader) {
  VolumeRecord volume;
  volume.id = reader.take<std::uint64_t>();
  reader.take_into(volume.uuid);
  volume.quota_zones = reader.take<std::uint64_t>();
  volume.nsid = reader.take<std::uint32_t>();
  volume.value_bytes_max = reader.take<std::uint32_t>();
  volume.kind = reader.take<std::uint8_t>();
  volume.mode = reader.take<std::uint8_t>();
  volume.durability = reader.take<std::uint8_t>();
  const auto name_bytes = reader.take<std::uint8_t>();
  const auto size = reader.take<std::uint32_t>();
  if (volume.kind == kKindZoned) {
    volume.active_zones_max = std::exchange(volume.value_bytes_max, 0);
    volume.open_zones_max = size;
  } else {
    volume.lba_shift = static_cast<std::uint8_t>(size);
    volume.size_mib = size >> 8;
  }
  const auto name = reader.take_bytes(kNameBytesMax + 1);
  if (name_bytes <= kNameBytesMax && name.size() >= name_bytes) {
    volume.name.assign(reinterpret_cast<const char*>(name.data()), name_bytes);
  }
  return volume;
}

bool valid_share(const VolumeRecord& volume) {
  if (volume.kind != kKindZoned) return volume.open_zones_max == 0 && volume.active_zones_max == 0;
  return volume.quota_zones != 0 && volume.value_bytes_max == 0;
}

bool valid_size(const VolumeRecord& volume) {
  if (volume.kind != kKindBlock) return volume.lba_shift == 0 && volume.size_mib == 0;
  return (volume.lba_shift == 9 || volume.lba_shift == 12) && volume.size_mib != 0 &&
         volume.size_mib <= kSizeMibMax && volume.value_bytes_max == kBlockPageBytes;
}

constexpr std::uint32_t kDurableBit = std::uint32_t{1} << 31;  // of a trim's end_lba

bool valid_trim(const ZoneTrimRecord& trim) {
  return trim.end_lba <= ZoneTrimRecord::kEndLbaMax ||
         (trim.end_lba == ZoneTrimRecord::kNothing && !trim.durable);
}

void put_trim(ByteWriter& writer, const ZoneTrimRecord& trim) {
  writer.put(trim.zone);
  writer.put(trim.durable ? trim.end_lba | kDurableBit : trim.end_lba);
  writer.put(trim.generation);
}

ZoneTrimRecord take_trim(ByteReader& reader) {
  ZoneTrimRecord trim;
  trim.zone = reader.take<std::uint32_t>();
  trim.end_lba = reader.take<std::uint32_t>();
  if (trim.end_lba != ZoneTrimRecord::kNothing) {
    trim.durable = (trim.end_lba & kDurableBit) != 0;
    trim.end_lba &= ~kDurableBit;
  }
  trim.generation = reader.take<std::uint64_t>();
  return trim;
}

std::uint64_t end_of(const LentZones& run) { return std::uint64_t{run.first} + run.count; }

bool valid_lent(const std::vector<LentZones>& lent) {
  std::uint64_t end = 0;
  for (const LentZones& run : lent) {
    if (run.volume == 0 || run.volume == UINT64_MAX || run.count == 0) return false;
    if (run.first < end || end_of(run) > UINT32_MAX) return false;
    end = end_of(run);
  }
  return true;
}

// Of a valid list.
bool is_lent(const PoolState& state, std::uint32_t zone) {
  const auto after = std::ranges::upper_bound(state.lent, zone, {}, &LentZones::first);
  return after != state.lent.begin() && zone < end_of(*(after - 1));
}

std::uint64_t zones_lent_to(const PoolState& state, std::uint64_t volume) {
  std::uint64_t zones = 0;
  for (const LentZones& run : state.lent) zones += run.volume == volume ? run.count : 0;
  return zones;
}

bool clashes(const VolumeRecord& a, const VolumeRecord& b) {
  return a.id == b.id || a.name == b.name || (a.nsid != 0 && a.nsid == b.nsid);
}

template <class T>
bool all_differ(std::vector<T>& values) {
  std::ranges::sort(values);
  return std::ranges::adjacent_find(values) == values.end();
}

VolumeRecord id_alone(const VolumeRecord& volume) {
  VolumeRecord alone;
  alone.id = volume.id;
  return alone;
}

bool valid_journal(const JournalRecord& record) {
  if (record.kind == JournalRecord::Kind::reservations_changed) {
    return !record.anew && record.lent.empty() && record.open_count == 0 &&
           record.trim == ZoneTrimRecord{} && record.volume == id_alone(record.volume) &&
           record.volume.id != 0 && valid_reservation_change(record.reservation);
  }
  if (record.reservation != ReservationChange{}) return false;
  if (record.kind == JournalRecord::Kind::zone_trimmed) {
    return !record.anew && record.lent.empty() && record.open_count == 0 &&
           record.volume == VolumeRecord{} && valid_trim(record.trim);
  }
  if (record.trim != ZoneTrimRecord{}) return false;
  if (record.kind == JournalRecord::Kind::zones_lent) {
    const auto others = [&](const LentZones& run) { return run.volume != record.volume.id; };
    return record.open_count == 0 && record.volume == id_alone(record.volume) &&
           record.volume.id != 0 && record.lent.size() <= JournalRecord::kRunsMax &&
           valid_lent(record.lent) && std::ranges::none_of(record.lent, others);
  }
  if (record.anew || !record.lent.empty()) return false;
  if (record.kind == JournalRecord::Kind::volume_resized) {
    VolumeRecord sizes_alone = id_alone(record.volume);
    sizes_alone.quota_zones = record.volume.quota_zones;
    sizes_alone.size_mib = record.volume.size_mib;
    return record.open_count == 0 && record.volume == sizes_alone && sizes_alone.id != 0 &&
           sizes_alone.quota_zones != 0 && sizes_alone.size_mib <= kSizeMibMax;
  }
  switch (record.kind) {
    case JournalRecord::Kind::opened:
      return record.open_count <= kOpenCountMax && record.volume == VolumeRecord{};
    case JournalRecord::Kind::volume_created:
      return record.open_count == 0 && valid_volume(record.volume);
    case JournalRecord::Kind::formatted:
      return record.open_count == 0 && record.volume == VolumeRecord{};
    case JournalRecord::Kind::volume_deleted:
      return record.open_count == 0 && record.volume.id != 0 &&
             (record.volume.name.empty() || valid_name(record.volume.name));
    case JournalRecord::Kind::zone_trimmed:
    case JournalRecord::Kind::zones_lent:
    case JournalRecord::Kind::volume_resized:
    case JournalRecord::Kind::reservations_changed:
      break;
  }
  return false;
}

bool valid_entry(const JournalEntry& entry) {
  if (entry.copy >= kJournalCopies) return false;
  if (entry.index != 0 && (entry.previous_checkpoint != 0 || entry.previous_index != 0)) {
    return false;
  }
  return valid_journal(entry.record) &&
         (entry.index != 0 || entry.previous_checkpoint < entry.checkpoint);
}

Status misfit(const char* hint) { return Status(Code::corrupt, Origin::log, hint); }

}  // namespace

bool valid_volume(const VolumeRecord& volume) {
  return volume.id != 0 && volume.id != UINT64_MAX && valid_name(volume.name) &&
         volume.value_bytes_max <= kValueBytesMax && valid_size(volume) && valid_share(volume);
}

std::uint64_t features_needed(const PoolState& state) {
  std::uint64_t features = state.lent.empty() ? 0 : kFeatureZonedVolumes;
  if (!state.reservations.empty()) features |= kFeatureReservations;
  for (const VolumeRecord& volume : state.volumes) {
    if (volume.kind == kKindBlock) features |= kFeatureBlockVolumes;
    if (volume.kind == kKindZoned) features |= kFeatureZonedVolumes;
  }
  return features;
}

std::uint64_t features_needed(const JournalRecord& record) {
  switch (record.kind) {
    case JournalRecord::Kind::volume_resized:
      return kFeatureResizedVolumes;
    case JournalRecord::Kind::reservations_changed:
      return kFeatureReservations;
    default:
      return 0;
  }
}

namespace {

bool is_listed(const PoolState& state, std::uint64_t volume) {
  return std::ranges::find(state.volumes, volume, &VolumeRecord::id) != state.volumes.end();
}

bool valid_reservations(const PoolState& state) {
  std::uint64_t last = 0;
  for (const ReservationRecord& record : state.reservations) {
    if (record.volume <= last || !is_listed(state, record.volume)) return false;
    if (!valid_reservation(record)) return false;
    last = record.volume;
  }
  return true;
}

}  // namespace

bool valid_state(const PoolState& state) {
  if (state.open_count > kOpenCountMax) return false;
  std::vector<std::string_view> names;
  std::vector<std::uint32_t> nsids;
  std::uint64_t last_id = 0;
  if (!valid_lent(state.lent)) return false;
  for (const ZoneTrimRecord& trim : state.trims) {
    if (is_lent(state, trim.zone)) return false;
  }
  for (const VolumeRecord& volume : state.volumes) {
    if (!valid_volume(volume) || volume.id <= last_id) return false;
    const bool zoned = volume.kind == kKindZoned;
    if (zones_lent_to(state, volume.id) != (zoned ? volume.quota_zones : 0)) return false;
    last_id = volume.id;
    names.push_back(volume.name);
    if (volume.nsid != 0) nsids.push_back(volume.nsid);
  }
  const auto same_or_later = [](const ZoneTrimRecord& a, const ZoneTrimRecord& b) {
    return a.zone >= b.zone;
  };
  if (std::ranges::adjacent_find(state.trims, same_or_later) != state.trims.end()) return false;
  if (!std::ranges::all_of(state.trims, valid_trim) || !valid_reservations(state)) return false;
  return state.next_volume_id > last_id && all_differ(names) && all_differ(nsids);
}

namespace {

// Where there are none their number is not there either, unless something follows.
bool lists_lent(const PoolState& state) {
  return !state.lent.empty() || !state.reservations.empty();
}

std::size_t lent_bytes(const PoolState& state) {
  return lists_lent(state) ? kLentCountBytes + state.lent.size() * kLentBytes : 0;
}

}  // namespace

// A zone is trimmed or lent, never both.
std::size_t checkpoint_bytes_max(std::size_t volumes, std::size_t zones) {
  static_assert(kLentBytes <= kTrimBytes);
  return kPrefixBytes + kCheckpointFieldsBytes + volumes * kVolumeBytes + zones * kTrimBytes +
         kLentCountBytes;
}

std::size_t checkpoint_bytes(const PoolState& state) {
  return kPrefixBytes + kCheckpointFieldsBytes + state.volumes.size() * kVolumeBytes +
         state.trims.size() * kTrimBytes + lent_bytes(state) +
         reservation_bytes(state.reservations);
}

namespace {

void put_lent(ByteWriter& writer, const PoolState& state) {
  if (!lists_lent(state)) return;
  writer.put(static_cast<std::uint32_t>(state.lent.size()));
  for (const LentZones& run : state.lent) {
    writer.put(run.first);
    writer.put(run.count);
    writer.put(run.volume);
  }
}

// `bytes`: that are left, here and when it is done. False: fewer than are listed.
bool take_lent(ByteReader& reader, std::size_t& bytes, std::vector<LentZones>& lent) {
  if (bytes < kLentCountBytes) return true;
  const auto count = reader.take<std::uint32_t>();
  bytes -= kLentCountBytes;
  if (count > bytes / kLentBytes) return false;
  bytes -= count * kLentBytes;
  lent.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    LentZones run;
    run.first = reader.take<std::uint32_t>();
    run.count = reader.take<std::uint32_t>();
    run.volume = reader.take<std::uint64_t>();
    lent.push_back(run);
  }
  return true;
}

void put_journal_lent(ByteWriter& writer, const JournalRecord& record) {
  writer.put(static_cast<std::uint32_t>(record.lent.size()) | (record.anew ? kAnewBit : 0));
  for (const LentZones& run : record.lent) {
    writer.put(run.first);
    writer.put(run.count);
  }
}

Status resize(PoolState& state, const VolumeRecord& sizes) {
  const auto volume = std::ranges::find(state.volumes, sizes.id, &VolumeRecord::id);
  if (volume == state.volumes.end()) return misfit("an unknown volume is resized");
  if (volume->kind == kKindZoned)
    return misfit("a zoned volume has the zones that were lent to it");
  if ((volume->kind == kKindBlock) != (sizes.size_mib != 0)) {
    return misfit("a size is of volumes of kind block");
  }
  if (sizes.size_mib < volume->size_mib) return misfit("a block volume gets smaller");
  volume->quota_zones = sizes.quota_zones;
  volume->size_mib = sizes.size_mib;
  return {};
}

// False: more than a record holds.
bool take_journal_lent(ByteReader& reader, JournalRecord& record) {
  const auto count = reader.take<std::uint32_t>();
  record.anew = (count & kAnewBit) != 0;
  if ((count & ~kAnewBit) > JournalRecord::kRunsMax) return false;
  for (std::uint32_t i = 0; i < (count & ~kAnewBit); ++i) {
    const auto first = reader.take<std::uint32_t>();
    record.lent.push_back({record.volume.id, first, reader.take<std::uint32_t>()});
  }
  return true;
}

Status lend(PoolState& state, const JournalRecord& record) {
  const std::uint64_t volume = record.volume.id;
  if (is_listed(state, volume)) return misfit("zones are lent to a volume that has its own");
  std::vector<LentZones> lent = state.lent;
  if (record.anew) std::erase_if(lent, [&](const LentZones& run) { return run.volume == volume; });
  lent.insert(lent.end(), record.lent.begin(), record.lent.end());
  std::ranges::sort(lent, {}, &LentZones::first);
  if (!valid_lent(lent)) return misfit("a zone is lent twice");
  state.lent = std::move(lent);
  // Their lives before are over.
  std::erase_if(state.trims, [&](const ZoneTrimRecord& trim) { return is_lent(state, trim.zone); });
  return {};
}

}  // namespace

void encode(const Checkpoint& checkpoint, std::span<std::byte> lbas) {
  FURROW_CHECK(valid_state(checkpoint.state));
  ByteWriter writer(lbas);
  writer.put_zeroes(kPrefixBytes);
  writer.put_bytes(std::as_bytes(std::span(checkpoint.pool)));
  writer.put(checkpoint.number);
  writer.put(checkpoint.state.next_volume_id);
  writer.put(checkpoint.state.open_count);
  writer.put(static_cast<std::uint32_t>(checkpoint.state.volumes.size()));
  writer.put(static_cast<std::uint32_t>(checkpoint.state.trims.size()));
  for (const VolumeRecord& volume : checkpoint.state.volumes) put_volume(writer, volume);
  for (const ZoneTrimRecord& trim : checkpoint.state.trims) put_trim(writer, trim);
  put_lent(writer, checkpoint.state);
  put_reservations(writer, checkpoint.state.reservations);
  writer.zero_rest();
  seal(lbas, Magic::checkpoint);
}

std::uint32_t claimed_checkpoint_bytes(std::span<const std::byte> first_lba) {
  return claimed_bytes(first_lba, Magic::checkpoint);
}

Result<Checkpoint> decode_checkpoint(std::span<const std::byte> lbas, const Uuid& pool) {
  const auto fields = check_structure(lbas, Magic::checkpoint, kCheckpointFieldsBytes);
  if (!fields) return fields.status();
  ByteReader reader(*fields);
  Checkpoint checkpoint;
  reader.take_into(checkpoint.pool);
  if (checkpoint.pool != pool) return misfit("a checkpoint belongs to another pool");
  checkpoint.number = reader.take<std::uint64_t>();
  checkpoint.state.next_volume_id = reader.take<std::uint64_t>();
  checkpoint.state.open_count = reader.take<std::uint64_t>();
  const auto volumes = reader.take<std::uint32_t>();
  const auto trims = reader.take<std::uint32_t>();
  const std::uint64_t listed =
      std::uint64_t{volumes} * kVolumeBytes + std::uint64_t{trims} * kTrimBytes;
  if (listed > fields->size() - kCheckpointFieldsBytes) {
    return misfit("a checkpoint is shorter than what it lists");
  }
  checkpoint.state.volumes.reserve(volumes);
  for (std::uint32_t i = 0; i < volumes; ++i) {
    checkpoint.state.volumes.push_back(take_volume(reader));
  }
  checkpoint.state.trims.reserve(trims);
  for (std::uint32_t i = 0; i < trims; ++i) checkpoint.state.trims.push_back(take_trim(reader));
  std::size_t left = fields->size() - kCheckpointFieldsBytes - listed;
  const bool all = take_lent(reader, left, checkpoint.state.lent) &&
                   take_reservations(reader, left, checkpoint.state.reservations);
  if (!all || !reader.ok() || !valid_state(checkpoint.state)) {
    return misfit("a checkpoint's fields are out of range");
  }
  return checkpoint;
}

void encode(const JournalEntry& entry, std::span<std::byte> lba) {
  FURROW_CHECK(valid_entry(entry));
  ByteWriter writer(lba);
  writer.put_zeroes(kPrefixBytes);
  writer.put_bytes(std::as_bytes(std::span(entry.pool)));
  writer.put(entry.checkpoint);
  writer.put(entry.index);
  writer.put(entry.previous_checkpoint);
  writer.put(entry.previous_index);
  writer.put(static_cast<std::uint8_t>(entry.record.kind));
  writer.put(entry.copy);
  writer.put_zeroes(6);
  writer.put(entry.record.open_count);
  put_volume(writer, entry.record.volume);
  put_trim(writer, entry.record.trim);
  if (entry.record.kind == JournalRecord::Kind::zones_lent) put_journal_lent(writer, entry.record);
  if (entry.record.kind == JournalRecord::Kind::reservations_changed) {
    put_reservation_change(writer, entry.record.reservation);
  }
  writer.zero_rest();
  seal(lba, Magic::journal);
}

Result<JournalEntry> decode_journal(std::span<const std::byte> lba, const Uuid& pool) {
  const auto fields = check_structure(lba, Magic::journal, kJournalFieldsBytes);
  if (!fields) return fields.status();
  ByteReader reader(*fields);
  JournalEntry entry;
  reader.take_into(entry.pool);
  if (entry.pool != pool) return misfit("a journal record belongs to another pool");
  entry.checkpoint = reader.take<std::uint64_t>();
  entry.index = reader.take<std::uint64_t>();
  entry.previous_checkpoint = reader.take<std::uint64_t>();
  entry.previous_index = reader.take<std::uint64_t>();
  entry.record.kind = static_cast<JournalRecord::Kind>(reader.take<std::uint8_t>());
  entry.copy = reader.take<std::uint8_t>();
  reader.take_bytes(6);
  entry.record.open_count = reader.take<std::uint64_t>();
  entry.record.volume = take_volume(reader);
  entry.record.trim = take_trim(reader);
  bool fits = true;
  if (entry.record.kind == JournalRecord::Kind::zones_lent) {
    fits = take_journal_lent(reader, entry.record);
  } else if (entry.record.kind == JournalRecord::Kind::reservations_changed) {
    fits = take_reservation_change(reader, entry.record.reservation);
  }
  if (!fits || !reader.ok() || !valid_entry(entry)) {
    return misfit("a journal record's fields are out of range");
  }
  return entry;
}

Status apply(PoolState& state, const JournalRecord& record) {
  if (!valid_journal(record)) return misfit("a journal record's fields are out of range");
  switch (record.kind) {
    case JournalRecord::Kind::formatted:
      return {};
    case JournalRecord::Kind::opened:
      if (record.open_count <= state.open_count) return misfit("an opening is counted twice");
      state.open_count = record.open_count;
      return {};
    case JournalRecord::Kind::volume_created:
      if (record.volume.id < state.next_volume_id) return misfit("a volume's id was used before");
      for (const VolumeRecord& volume : state.volumes) {
        if (clashes(volume, record.volume)) return misfit("a volume's name or NSID is taken");
      }
      if (record.volume.kind != kKindZoned) {  // zones may be lent to one that was not made then
        std::erase_if(state.lent,
                      [&](const LentZones& run) { return run.volume == record.volume.id; });
      } else if (zones_lent_to(state, record.volume.id) != record.volume.quota_zones) {
        return misfit("a zoned volume has other zones than were lent to it");
      }
      state.volumes.push_back(record.volume);
      state.next_volume_id = record.volume.id + 1;
      return {};
    case JournalRecord::Kind::volume_deleted:
      if (std::erase_if(state.volumes, [&](const VolumeRecord& volume) {
            return volume.id == record.volume.id;
          }) == 0) {
        return misfit("an unknown volume is deleted");
      }
      std::erase_if(state.reservations, [&](const ReservationRecord& reservation) {
        return reservation.volume == record.volume.id;
      });
      return {};
    case JournalRecord::Kind::zones_lent:
      return lend(state, record);
    case JournalRecord::Kind::volume_resized:
      return resize(state, record.volume);
    case JournalRecord::Kind::reservations_changed:
      if (!is_listed(state, record.volume.id)) {
        return misfit("an unknown volume's reservations change");
      }
      return apply_reservation_change(state.reservations, record.volume.id, record.reservation);
    case JournalRecord::Kind::zone_trimmed: {
      if (is_lent(state, record.trim.zone)) return {};  // that life of the zone is over
      auto at = std::ranges::lower_bound(state.trims, record.trim.zone, {}, &ZoneTrimRecord::zone);
      const bool there = at != state.trims.end() && at->zone == record.trim.zone;
      if (record.trim.end_lba == ZoneTrimRecord::kNothing) {
        if (there) state.trims.erase(at);
      } else if (there) {
        const bool durable = at->durable && at->generation == record.trim.generation;
        *at = record.trim;
        at->durable |= durable;
      } else {
        state.trims.insert(at, record.trim);
      }
      return {};
    }
  }
  return misfit("a journal record's kind is unknown");
}

}  // namespace furrow
