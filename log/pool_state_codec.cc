// Codecs of checkpoints and journal records.
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
constexpr std::uint32_t kDurableBit = std::uint32_t{1} << 31;  // of a trim's end_lba
constexpr std::uint64_t kAsideBit = std::uint64_t{1} << 63;    // of its generation

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

void put_trim(ByteWriter& writer, const ZoneTrimRecord& trim) {
  writer.put(trim.zone);
  writer.put(trim.durable ? trim.end_lba | kDurableBit : trim.end_lba);
  writer.put(trim.aside ? trim.generation | kAsideBit : trim.generation);
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
  trim.aside = (trim.generation & kAsideBit) != 0;
  trim.generation &= ~kAsideBit;
  return trim;
}

// Where there are none their number is not there either, unless something follows.
bool lists_lent(const PoolState& state) {
  return !state.lent.empty() || !state.reservations.empty();
}

std::size_t lent_bytes(const PoolState& state) {
  return lists_lent(state) ? kLentCountBytes + state.lent.size() * kLentBytes : 0;
}

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

bool valid_entry(const JournalEntry& entry) {
  if (entry.copy >= kJournalCopies) return false;
  if (entry.index != 0 && (entry.previous_checkpoint != 0 || entry.previous_index != 0)) {
    return false;
  }
  return valid_journal(entry.record) &&
         (entry.index != 0 || entry.previous_checkpoint < entry.checkpoint);
}

Status misread(const char* hint) { return Status(Code::corrupt, Origin::log, hint); }

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
  if (checkpoint.pool != pool) return misread("a checkpoint belongs to another pool");
  checkpoint.number = reader.take<std::uint64_t>();
  checkpoint.state.next_volume_id = reader.take<std::uint64_t>();
  checkpoint.state.open_count = reader.take<std::uint64_t>();
  const auto volumes = reader.take<std::uint32_t>();
  const auto trims = reader.take<std::uint32_t>();
  const std::uint64_t listed =
      std::uint64_t{volumes} * kVolumeBytes + std::uint64_t{trims} * kTrimBytes;
  if (listed > fields->size() - kCheckpointFieldsBytes) {
    return misread("a checkpoint is shorter than what it lists");
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
    return misread("a checkpoint's fields are out of range");
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
  if (entry.pool != pool) return misread("a journal record belongs to another pool");
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
    return misread("a journal record's fields are out of range");
  }
  return entry;
}

}  // namespace furrow
