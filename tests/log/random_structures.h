// Random but valid structures, for round trips and as the fuzzers' first corpus.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "log/metadata_format.h"

namespace furrow {

class RandomStructures {
 public:
  explicit RandomStructures(std::uint64_t seed) : random_(seed) {}

  std::uint64_t number() { return random_(); }
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  std::uint64_t sequence() { return below(kOpenCountMax << kSequenceShift); }
  std::uint32_t lba_bytes() { return below(2) == 0 ? 512 : 4096; }

  Uuid uuid() {
    Uuid uuid;
    for (auto& byte : uuid) byte = static_cast<std::uint8_t>(number());
    return uuid;
  }
  ZoneStamp stamp() {
    return {uuid(), ZoneId{static_cast<std::uint32_t>(below(100000))}, sequence()};
  }
  std::string name() {
    static constexpr std::string_view kLetters = "abcXYZ019._-";
    std::string name(1 + below(kNameBytesMax), 'x');
    for (char& c : name) c = kLetters[below(kLetters.size())];
    return name;
  }

  ZoneHeader zone_header() {
    ZoneHeader header{stamp(), number(), sequence()};
    header.stream = static_cast<std::uint8_t>(below(kStreamMax + 1));
    header.previous_opened = below(header.opened_sequence);
    return header;
  }

  // A record without its place. `rich`: with groups, expiries and far sequences.
  PageRecord record(bool rich) {
    PageRecord record;
    record.kind = static_cast<RecordKind>(rich ? 1 + below(3) : 1);
    record.pinned = below(4) == 0;
    if (record.kind != RecordKind::group_tombstone) {
      record.key.length = static_cast<std::uint8_t>(1 + below(16));
      for (unsigned i = 0; i < record.key.length; ++i) {
        record.key.bytes[i] = static_cast<std::byte>(number());
      }
    }
    record.sequence = rich ? sequence() : 1'000'000 + below(1000);
    record.group = record.kind == RecordKind::group_tombstone || (rich && below(2) == 0)
                       ? 1 + below(UINT64_MAX)
                       : 0;
    record.expires_s = rich && below(2) == 0 ? static_cast<std::uint32_t>(number()) : 0;
    if (record.kind == RecordKind::page) {
      record.damaged = below(8) == 0;
      record.length = static_cast<std::uint32_t>(1 + below(below(8) == 0 ? kValueBytesMax : 20000));
      record.checksum = static_cast<std::uint32_t>(number());
    }
    return record;
  }

  struct Batch {
    BatchHeader header;
    std::vector<PageRecord> records;
    std::uint32_t lba_bytes = 0;
    std::vector<std::byte> encode() const {
      std::vector<std::byte> bytes(std::size_t{header.header_lbas} * lba_bytes, std::byte{0xaa});
      furrow::encode(header, records, bytes);
      return bytes;
    }
  };
  Batch batch(const ZoneStamp& stamp, std::uint32_t lba, std::uint32_t lba_size) {
    Batch batch;
    batch.lba_bytes = lba_size;
    const std::size_t count = below(120);
    batch.header = {
        stamp,
        lba,
        static_cast<std::uint32_t>((batch_header_bytes(count) + lba_size - 1) / lba_size),
        0,
        static_cast<std::uint32_t>(below(std::uint64_t{lba} + 1)),
        static_cast<std::uint32_t>(count),
        static_cast<std::uint8_t>(below(kStreamMax + 1))};
    std::uint32_t at = lba + batch.header.header_lbas;
    for (std::size_t i = 0; i < count; ++i) {
      PageRecord next = record(true);
      next.lba = next.kind == RecordKind::page ? at : lba;
      at += (next.length + lba_size - 1) / lba_size;
      batch.records.push_back(next);
    }
    batch.header.batch_lbas = at - lba;
    return batch;
  }

  struct SummaryParts {
    Summary summary;
    std::vector<PageRecord> records;
    std::vector<std::uint32_t> batch_lbas;
    std::uint32_t lba_bytes = 0;
    std::vector<std::byte> encode() const {
      std::vector<std::byte> bytes(std::size_t{summary.summary_lbas} * lba_bytes, std::byte{0xaa});
      furrow::encode(summary, records, batch_lbas, bytes);
      return bytes;
    }
  };
  SummaryParts summary() {
    SummaryParts parts;
    parts.lba_bytes = lba_bytes();
    const bool rich = below(2) == 0;
    std::uint32_t at = static_cast<std::uint32_t>(1 + below(1000));
    for (std::uint64_t batches = below(8); batches != 0; --batches) {
      const std::uint32_t header = at++;
      parts.batch_lbas.push_back(header);
      for (std::uint64_t records = below(12); records != 0; --records) {
        PageRecord next = record(rich);
        next.lba = next.kind == RecordKind::page ? at : header;
        at += (next.length + parts.lba_bytes - 1) / parts.lba_bytes;
        parts.records.push_back(next);
      }
    }
    const std::size_t bytes = bytes_of(parts);
    parts.summary = {
        stamp(),
        number(),
        static_cast<std::uint32_t>(below(100)),
        at + static_cast<std::uint32_t>(below(100)),
        at,
        static_cast<std::uint32_t>((bytes + parts.lba_bytes - 1) / parts.lba_bytes + below(2)),
        static_cast<std::uint32_t>(parts.records.size())};
    return parts;
  }

  Superblock superblock() {
    Superblock s;
    s.pool = uuid();
    s.device_set = uuid();
    s.name = name();
    s.hash_key = uuid();
    s.features = {number(), number(), number()};
    s.metadata_zones = static_cast<std::uint32_t>(2 + below(3));
    s.checkpoint = number();
    s.lba_bytes = lba_bytes();
    s.segment_lbas = 2 + below((64u << 20) / s.lba_bytes - 1);
    s.zone_capacity_lbas = 2 + below(1u << 20);
    s.zone_size_lbas = s.zone_capacity_lbas + below(1000);
    s.zone_count = s.metadata_zones + static_cast<std::uint32_t>(below(100000));
    return s;
  }
  VolumeRecord volume(std::uint64_t id) {
    VolumeRecord volume{id,
                        uuid(),
                        name(),
                        static_cast<std::uint8_t>(below(4)),
                        static_cast<std::uint8_t>(number()),
                        static_cast<std::uint8_t>(number()),
                        static_cast<std::uint32_t>(number()),
                        number(),
                        static_cast<std::uint32_t>(below(kValueBytesMax + 1))};
    if (volume.kind == kKindBlock) {
      volume.value_bytes_max = kBlockPageBytes;
      volume.lba_shift = below(2) == 0 ? 9 : 12;
      volume.size_mib = 1 + static_cast<std::uint32_t>(below(kSizeMibMax));
    }
    return volume;
  }
  void make_zoned(VolumeRecord& volume) {
    volume.kind = kKindZoned;
    volume.value_bytes_max = 0;
    volume.lba_shift = 0;
    volume.size_mib = 0;
    volume.open_zones_max = static_cast<std::uint32_t>(number());
    volume.active_zones_max = static_cast<std::uint32_t>(number());
  }
  PoolState state() {
    PoolState state;
    for (std::uint64_t volumes = below(6); volumes != 0; --volumes) {
      const VolumeRecord next = volume(state.next_volume_id + below(5));
      const auto clash = [&](const VolumeRecord& other) {
        return other.name == next.name || (other.nsid == next.nsid && next.nsid != 0);
      };
      if (std::ranges::any_of(state.volumes, clash)) continue;
      state.volumes.push_back(next);
      state.next_volume_id = next.id + 1;
    }
    state.open_count = below(kOpenCountMax + 1);
    for (std::uint32_t zone = 0; zone < 20; ++zone) {
      if (below(4) == 0) state.trims.push_back(trim(zone));
    }
    for (const VolumeRecord& each : state.volumes) {
      if (below(3) == 0) state.reservations.push_back(reservation(each.id, below(6)));
    }
    // To one volume that there is, as a rule, and to one that was deleted.
    if (below(2) == 0) return state;
    VolumeRecord zoned = volume(state.next_volume_id);
    zoned.name = "zoned";
    zoned.nsid = 0;
    make_zoned(zoned);
    const auto count = static_cast<std::uint32_t>(1 + below(9));
    state.lent.push_back({zoned.id, 30, count});
    state.lent.push_back({zoned.id + 1, 30 + count, 7});
    state.lent.push_back({zoned.id, 1000, 1});
    zoned.quota_zones = count + 1;
    state.volumes.push_back(zoned);
    state.next_volume_id = zoned.id + 2;
    return state;
  }
  std::vector<ReservationRecord::Registrant> registrants(std::uint64_t count) {
    std::vector<ReservationRecord::Registrant> made(count);
    for (std::size_t i = 0; i < count; ++i) {
      made[i].host = uuid();
      made[i].host[0] = static_cast<std::uint8_t>(i / 250);
      made[i].host[1] = static_cast<std::uint8_t>(1 + i % 250);
      made[i].key = number();
    }
    return made;
  }
  ReservationRecord reservation(std::uint64_t volume, std::uint64_t hosts) {
    ReservationRecord record;
    record.volume = volume;
    record.generation = static_cast<std::uint32_t>(number());
    record.registrants = registrants(hosts);
    record.persists = hosts == 0 || below(8) != 0;
    if (hosts == 0 || !record.persists) return record;
    record.type = static_cast<std::uint8_t>(below(ReservationRecord::kTypeMax + 1));
    if (record.type != 0 && record.type <= ReservationRecord::kTypeOfOneMax) {
      record.holder = record.registrants[below(hosts)].host;
    }
    return record;
  }
  ReservationChange reservation_change() {
    ReservationChange change;
    change.persists = below(4) != 0;
    change.generation = static_cast<std::uint32_t>(number());
    change.put = registrants(below(ReservationChange::kPutMax + 1));
    for (auto& byte : change.kept) byte = below(4) == 0 ? static_cast<std::uint8_t>(number()) : 0;
    if (!change.persists) return change;
    change.type = static_cast<std::uint8_t>(below(ReservationRecord::kTypeMax + 1));
    if (change.type != 0 && change.type <= ReservationRecord::kTypeOfOneMax) {
      change.holder = registrants(1 + below(10)).back().host;
    }
    return change;
  }
  ZoneTrimRecord trim(std::uint32_t zone) {
    ZoneTrimRecord trim;
    trim.zone = zone;
    trim.end_lba = static_cast<std::uint32_t>(number());
    trim.durable = below(2) == 0;
    if (trim.durable || trim.end_lba != ZoneTrimRecord::kNothing) {
      trim.end_lba = std::min(trim.end_lba / 2, ZoneTrimRecord::kEndLbaMax);
    }
    trim.generation = number() >> 1;
    trim.aside = below(4) == 0;
    return trim;
  }
  JournalEntry journal() {
    JournalEntry entry{uuid(), number() | 1, below(2) == 0 ? 0 : number(), 0, 0, {}};
    if (entry.index == 0) {
      entry.previous_checkpoint = below(entry.checkpoint);
      entry.previous_index = number();
    }
    entry.record.kind = static_cast<JournalRecord::Kind>(1 + below(8));
    if (entry.record.kind == JournalRecord::Kind::zones_lent) {
      entry.record.volume.id = 1 + below(1000);
      entry.record.anew = below(2) == 0;
      std::uint32_t first = 0;
      for (std::uint64_t runs = below(JournalRecord::kRunsMax + 1); runs != 0; --runs) {
        first += static_cast<std::uint32_t>(below(1000));
        const auto count = static_cast<std::uint32_t>(1 + below(1000));
        entry.record.lent.push_back({entry.record.volume.id, first, count});
        first += count;
      }
    } else if (entry.record.kind == JournalRecord::Kind::volume_resized) {
      entry.record.volume.id = 1 + below(1000);
      entry.record.volume.quota_zones = number() | 1;
      entry.record.volume.size_mib = static_cast<std::uint32_t>(below(kSizeMibMax + 1));
    } else if (entry.record.kind == JournalRecord::Kind::reservations_changed) {
      entry.record.volume.id = 1 + below(8);
      entry.record.reservation = reservation_change();
    } else if (entry.record.kind == JournalRecord::Kind::opened) {
      entry.record.open_count = below(kOpenCountMax + 1);
    } else if (entry.record.kind == JournalRecord::Kind::zone_trimmed) {
      entry.record.trim = trim(static_cast<std::uint32_t>(number()));
    } else if (entry.record.kind != JournalRecord::Kind::formatted) {
      entry.record.volume = volume(1 + below(1000));
    }
    entry.copy = static_cast<std::uint8_t>(below(kJournalCopies));
    return entry;
  }

 private:
  static std::size_t bytes_of(const SummaryParts& parts) {
    bool groups = false, expiries = false;
    std::uint64_t low = UINT64_MAX, high = 0;
    for (const PageRecord& record : parts.records) {
      groups |= record.group != 0;
      expiries |= record.expires_s != 0;
      low = std::min(low, record.sequence);
      high = std::max(high, record.sequence);
    }
    const bool wide = !parts.records.empty() && high - low > UINT32_MAX;
    return summary_bytes(parts.records.size(), parts.batch_lbas.size(), groups, expiries, wide);
  }

  std::mt19937_64 random_;
};

}  // namespace furrow
