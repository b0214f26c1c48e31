// Random but valid structures that more than a decoder of its own reads: what files keep in pages,
// and two metadata zones. For the fuzz targets' mutators and their seeds.
#pragma once

#include <algorithm>
#include <functional>

#include "engine/files/file_format.h"
#include "tests/fuzz/media_fuzz.h"
#include "zone/types.h"

namespace furrow::fuzz {

inline Bytes valid_file_record(RandomStructures& random) {
  FileRecord record;
  record.inode = 1 + random.below(UINT64_MAX);
  record.directory = random.below(2) == 0;
  record.open = random.below(2) == 0;
  record.durable = random.below(2) == 0;
  record.version = static_cast<std::uint16_t>(random.number());
  record.modified_s = random.number();
  for (std::uint64_t links = random.below(5); links != 0; --links) {
    record.links.push_back({random.number(), random.number(), random.name()});
  }
  for (std::uint64_t chunks = random.below(40); chunks != 0; --chunks) {
    record.chunks.push_back({static_cast<std::uint32_t>(1 + random.below(UINT32_MAX)),
                             static_cast<std::uint32_t>(random.number()),
                             static_cast<std::uint16_t>(random.number())});
  }
  return *encode(record, 1 << 20);
}

inline Bytes valid_first_page(RandomStructures& random) {
  const std::uint64_t mount = random.number();
  const auto slots = static_cast<std::uint32_t>(random.number());
  return encode(FilesSuper{mount, slots, 7, {1, 2, 3}});
}

// metadata_fuzz: the device, and what its first two zones hold. The first byte says after how many
// LBAs the second one's begin.
constexpr std::size_t kMetadataLbaBytes = 512, kMetadataCapacityLbas = 30;
constexpr std::size_t kMetadataZoneLbas = 32, kMetadataZones = 4;

namespace metadata {

inline Uuid pool_uuid() {
  Uuid uuid;
  uuid.fill(7);
  return uuid;
}

inline Superblock superblock(std::uint64_t number) {
  Superblock s;
  s.pool = pool_uuid();
  s.name = "fuzz";
  s.checkpoint = number;
  s.segment_lbas = 8;
  s.lba_bytes = kMetadataLbaBytes;
  s.zone_size_lbas = kMetadataZoneLbas;
  s.zone_capacity_lbas = kMetadataCapacityLbas;
  s.zone_count = kMetadataZones;
  return s;
}

inline void put(Bytes& zone, const std::function<void(std::span<std::byte>)>& encode_into) {
  Bytes lba(kMetadataLbaBytes);
  encode_into(lba);
  zone.insert(zone.end(), lba.begin(), lba.end());
}

// Superblock, checkpoint and some records, numbers small so that zones refer to each other.
inline Bytes zone_of(RandomStructures& random, std::uint64_t number) {
  Bytes zone;
  put(zone, [&](auto lba) { encode(superblock(number), lba); });
  PoolState state = random.state();
  state.open_count = number * 100;
  const std::size_t lbas = (checkpoint_bytes(state) + kMetadataLbaBytes - 1) / kMetadataLbaBytes;
  Bytes checkpoint(lbas * kMetadataLbaBytes);
  encode(Checkpoint{pool_uuid(), number, state}, checkpoint);
  zone.insert(zone.end(), checkpoint.begin(), checkpoint.end());
  for (std::uint64_t index = 0, end = random.below(8); index < end; ++index) {
    JournalEntry entry = random.journal();
    entry.pool = pool_uuid();
    entry.checkpoint = number;
    entry.index = index;
    entry.previous_checkpoint = index == 0 ? number - 1 : 0;
    entry.previous_index = index == 0 ? random.below(6) : 0;
    if (entry.record.kind == JournalRecord::Kind::opened) {
      entry.record.open_count = number * 100 + index;
    }
    for (entry.copy = 0; entry.copy < kJournalCopies; ++entry.copy) {
      if (random.below(8) != 0) put(zone, [&](auto lba) { encode(entry, lba); });
    }
    if (index != 0) continue;
    put(zone, [&](auto lba) { encode(superblock(number), lba); });
  }
  zone.resize(std::min(zone.size(), kMetadataCapacityLbas * kMetadataLbaBytes));
  return zone;
}

}  // namespace metadata

inline Bytes valid_metadata(RandomStructures& random) {
  const Bytes first = metadata::zone_of(random, 1 + random.below(3));
  const Bytes second = metadata::zone_of(random, 1 + random.below(3));
  Bytes input{static_cast<std::byte>(first.size() / kMetadataLbaBytes)};
  input.insert(input.end(), first.begin(), first.end());
  input.insert(input.end(), second.begin(), second.end());
  return input;
}

}  // namespace furrow::fuzz
