// Pool state: what checkpoints hold and the journal changes.
#include <algorithm>

#include "log/metadata_format.h"
#include "log/structure.h"

namespace furrow {

namespace {

constexpr std::size_t kVolumeBytes = 8 + 16 + 8 + 4 + 4 + 4 + 4 + kNameBytesMax + 1;
constexpr std::size_t kTrimBytes = 4 + 4 + 8;
constexpr std::size_t kCheckpointFieldsBytes = 16 + 8 + 8 + 8 + 4 + 4;
constexpr std::size_t kJournalFieldsBytes = 16 + 4 * 8 + 8 + 8 + kVolumeBytes + kTrimBytes;

void put_volume(ByteWriter& writer, const VolumeRecord& volume) {
  writer.put(volume.id);
  writer.put_bytes(std::as_bytes(std::span(volume.uuid)));
  writer.put(volume.quota_zones);
  writer.put(volume.nsid);
  writer.put(volume.value_bytes_max);
  writer.put(volume.kind);
  writer.put(volume.mode);
  writer.put(volume.durability);
  writer.put(static_cast<std::uint8_t>(volume.name.size()));
  writer.put(volume.lba_shift | volume.size_mib << 8);
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
  volume.lba_shift = static_cast<std::uint8_t>(size);
  volume.size_mib = size >> 8;
  const auto name = reader.take_bytes(kNameBytesMax + 1);
  if (name_bytes <= kNameBytesMax && name.size() >= name_bytes) {
    volume.name.assign(reinterpret_cast<const char*>(name.data()), name_bytes);
  }
  return volume;
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

bool clashes(const VolumeRecord& a, const VolumeRecord& b) {
  return a.id == b.id || a.name == b.name || (a.nsid != 0 && a.nsid == b.nsid);
}

template <class T>
bool all_differ(std::vector<T>& values) {
  std::ranges::sort(values);
  return std::ranges::adjacent_find(values) == values.end();
}

bool valid_journal(const JournalRecord& record) {
  if (record.kind == JournalRecord::Kind::zone_trimmed) {
    return record.open_count == 0 && record.volume == VolumeRecord{} && valid_trim(record.trim);
  }
  if (record.trim != ZoneTrimRecord{}) return false;
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
         volume.value_bytes_max <= kValueBytesMax && valid_size(volume);
}

std::uint64_t features_needed(const PoolState& state) {
  const bool blocks = std::ranges::any_of(
      state.volumes, [](const VolumeRecord& volume) { return volume.kind == kKindBlock; });
  return blocks ? kFeatureBlockVolumes : 0;
}

bool valid_state(const PoolState& state) {
  if (state.open_count > kOpenCountMax) return false;
  std::vector<std::string_view> names;
  std::vector<std::uint32_t> nsids;
  std::uint64_t last_id = 0;
  for (const VolumeRecord& volume : state.volumes) {
    if (!valid_volume(volume) || volume.id <= last_id) return false;
    last_id = volume.id;
    names.push_back(volume.name);
    if (volume.nsid != 0) nsids.push_back(volume.nsid);
  }
  const auto same_or_later = [](const ZoneTrimRecord& a, const ZoneTrimRecord& b) {
    return a.zone >= b.zone;
  };
  if (std::ranges::adjacent_find(state.trims, same_or_later) != state.trims.end()) return false;
  if (!std::ranges::all_of(state.trims, valid_trim)) return false;
  return state.next_volume_id > last_id && all_differ(names) && all_differ(nsids);
}

std::size_t checkpoint_bytes(std::size_t volumes, std::size_t trims) {
  return kPrefixBytes + kCheckpointFieldsBytes + volumes * kVolumeBytes + trims * kTrimBytes;
}

std::size_t checkpoint_bytes(const PoolState& state) {
  return checkpoint_bytes(state.volumes.size(), state.trims.size());
}

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
  if (std::uint64_t{volumes} * kVolumeBytes + std::uint64_t{trims} * kTrimBytes >
      fields->size() - kCheckpointFieldsBytes) {
    return misfit("a checkpoint is shorter than what it lists");
  }
  checkpoint.state.volumes.reserve(volumes);
  for (std::uint32_t i = 0; i < volumes; ++i) {
    checkpoint.state.volumes.push_back(take_volume(reader));
  }
  checkpoint.state.trims.reserve(trims);
  for (std::uint32_t i = 0; i < trims; ++i) checkpoint.state.trims.push_back(take_trim(reader));
  if (!reader.ok() || !valid_state(checkpoint.state)) {
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
  if (!reader.ok() || !valid_entry(entry)) {
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
      state.volumes.push_back(record.volume);
      state.next_volume_id = record.volume.id + 1;
      return {};
    case JournalRecord::Kind::volume_deleted:
      if (std::erase_if(state.volumes, [&](const VolumeRecord& volume) {
            return volume.id == record.volume.id;
          }) == 0) {
        return misfit("an unknown volume is deleted");
      }
      return {};
    case JournalRecord::Kind::zone_trimmed: {
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
