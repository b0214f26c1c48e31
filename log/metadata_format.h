// Codecs of what follows the superblock in a metadata zone: checkpoints and journal records.
// Decoders take any bytes, as in log/format.h. Private to log/. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "log/format.h"

namespace furrow {

constexpr std::size_t kNameBytesMax = 63;
constexpr std::uint32_t kMetadataZonesMax = 16;  // superblocks are looked for in so many zones

// Names are 1-63 of [A-Za-z0-9._-], of pools and of volumes.
bool valid_name(std::string_view name);
bool valid_volume(const VolumeRecord& volume);
bool valid_superblock(const Superblock& superblock);
// Volumes ascend by id below next_volume_id; names and, unless 0, NSIDs are there once; as many
// zones are lent to one of kind zoned as it has; reservations are of volumes that there are.
bool valid_state(const PoolState& state);
// By itself; whether it fits a state is for apply().
bool valid_journal(const JournalRecord& record);
// Bits of Features::incompatible that what the state holds needs, and that the record does.
std::uint64_t features_needed(const PoolState& state);
std::uint64_t features_needed(const JournalRecord& record);

// A checkpoint takes whole LBAs.
struct Checkpoint {
  Uuid pool{};
  std::uint64_t number = 0;  // grows by one at each roll of the ring
  PoolState state;
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};
std::size_t checkpoint_bytes(const PoolState& state);
// The largest with so many volumes and zones, each of which is trimmed or lent, and without
// reservations, which are kept only where they find room beside that.
std::size_t checkpoint_bytes_max(std::size_t volumes, std::size_t zones);
void encode(const Checkpoint& checkpoint, std::span<std::byte> lbas);  // checkpoint_bytes() fit
Result<Checkpoint> decode_checkpoint(std::span<const std::byte> lbas, const Uuid& pool);
// What an unchecked first LBA says that the checkpoint takes; 0: it is not one.
std::uint32_t claimed_checkpoint_bytes(std::span<const std::byte> first_lba);

constexpr std::uint8_t kJournalCopies = 2;

// A journal record stands in two LBAs, one behind the other, that differ in `copy` alone: either
// of them is the record. Record 0 repeats the change that made the ring roll and that its
// checkpoint already holds, and says which journal it continues: without the checkpoint, the one
// before it and all journals since then lead to the same state.
struct JournalEntry {
  Uuid pool{};
  std::uint64_t checkpoint = 0;  // number of the checkpoint that it follows
  std::uint64_t index = 0;
  std::uint64_t previous_checkpoint = 0;  // of record 0: whose journal it continues; else 0
  std::uint64_t previous_index = 0;       // of record 0: the last record that counts there; else 0
  JournalRecord record;
  std::uint8_t copy = 0;  // 0, 1
  friend bool operator==(const JournalEntry&, const JournalEntry&) = default;
};
void encode(const JournalEntry& entry, std::span<std::byte> lba);
Result<JournalEntry> decode_journal(std::span<const std::byte> lba, const Uuid& pool);

}  // namespace furrow
