// The structures on the medium and their codecs. log/FORMAT.md is the grammar; this is the code.
//
// Every structure starts with a magic, a version, its checksum (CRC32C over the rest of the
// structure) and, inside a zone, the zone's stamp, so that payload never passes for structure and
// a structure of an earlier life of the zone never passes for one of this life. Little-endian,
// padding zeroed. decode(encode(x)) == x. Decoders take any bytes: they answer `corrupt` or
// `unsupported` (a newer version), never read outside the span, never allocate in proportion to an
// unchecked count. All pure; any thread.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "log/key.h"
#include "zone/status.h"
#include "zone/types.h"

namespace furrow {

using Uuid = std::array<std::uint8_t, 16>;

constexpr std::uint32_t kFormatVersion = 1;
constexpr std::uint32_t kValueBytesMax = 4u << 20;

// Sequences, and the generations of zones, are drawn from open_count << kSequenceShift on.
constexpr unsigned kSequenceShift = 40;
// Of openings; the last one is never begun, so what the medium says can always be counted beyond.
constexpr std::uint64_t kOpenCountMax = (std::uint64_t{1} << 23) - 1;
// False: no pool can have drawn it, and what says so is damaged.
constexpr bool plausible_sequence(std::uint64_t sequence) {
  return sequence >> kSequenceShift < kOpenCountMax;
}

// Whose structure this is. `generation` is drawn anew each time the zone is opened from empty, and
// never repeats in a pool.
struct ZoneStamp {
  Uuid pool{};
  ZoneId zone;
  std::uint64_t generation = 0;
  friend bool operator==(const ZoneStamp&, const ZoneStamp&) = default;
};

// A volume's streams, by the numbers in zone and batch headers: pages that live about as long lie
// together. What users write; what collection found to live longer; and of what users write, pages
// with a time to live or a lifetime that is short, long, or longer than that.
constexpr std::uint8_t kUserStream = 0, kCollectionStream = 1, kShortStream = 2, kLongStream = 3,
                       kExtremeStream = 4;
constexpr std::uint8_t kStreamMax = kExtremeStream;
using StreamSet = std::bitset<kStreamMax + 1>;

// First LBA of a data zone.
struct ZoneHeader {
  ZoneStamp stamp;
  std::uint64_t volume = 0;           // id of the owner
  std::uint64_t opened_sequence = 0;  // the next record's sequence when the zone was opened
  std::uint8_t stream = 0;            // lifetime class, up to kStreamMax
  // Of the owner's zone that was opened before it; 0: there was none, or nobody could tell then.
  std::uint64_t previous_opened = 0;
  friend bool operator==(const ZoneHeader&, const ZoneHeader&) = default;
};
void encode(const ZoneHeader& header, std::span<std::byte> lba);
// `pool` and `zone`: what must be found in the stamp.
Result<ZoneHeader> decode_zone_header(std::span<const std::byte> lba, const Uuid& pool,
                                      ZoneId zone);

enum class RecordKind : std::uint8_t { page = 1, tombstone = 2, group_tombstone = 3 };

// One record of a batch and of a summary.
struct PageRecord {
  RecordKind kind = RecordKind::page;
  bool pinned = false;
  // Of a page of a store: a copy of one that was damaged. Its bytes do not match the checksum, and
  // are not torn for that.
  bool damaged = false;
  Key key;                      // of a group tombstone: length 0
  std::uint64_t sequence = 0;   // pool-wide; relocation keeps it
  std::uint64_t group = 0;      // 0: none
  std::uint32_t lba = 0;        // of the page, from the zone's start; of a tombstone: its batch
                                // header's LBA
  std::uint32_t length = 0;     // true length in bytes, 1..kValueBytesMax; of a tombstone: 0
  std::uint32_t checksum = 0;   // page_checksum() of the page; of a tombstone: 0
  std::uint32_t expires_s = 0;  // Unix time; 0: never
  friend bool operator==(const PageRecord&, const PageRecord&) = default;
};

// The header of a batch: some LBAs that describe the pages that follow it.
struct BatchHeader {
  ZoneStamp stamp;
  std::uint32_t lba = 0;  // of this header, from the zone's start
  std::uint32_t header_lbas = 0;
  std::uint32_t batch_lbas = 0;   // header and pages
  std::uint32_t flushed_lba = 0;  // zone-relative: all below it was flushed before this was written
  std::uint32_t record_count = 0;
  std::uint8_t stream = 0;  // as in the zone header, which may be lost
  friend bool operator==(const BatchHeader&, const BatchHeader&) = default;
};
// Behind the header of a batch without records may stand a summary of the segment's batches before
// it, from one of them on: what their headers say, once more.
constexpr bool is_note(const BatchHeader& header) {
  return header.record_count == 0 && header.batch_lbas > header.header_lbas;
}
constexpr std::size_t kBatchHeaderBytes = 80;  // fixed part
constexpr std::size_t kBatchRecordBytes = 48;
constexpr std::size_t batch_header_bytes(std::size_t records) {
  return kBatchHeaderBytes + records * kBatchRecordBytes;
}
// `out`: header.header_lbas whole LBAs; bytes behind the records are zeroed.
void encode(const BatchHeader& header, std::span<const PageRecord> records,
            std::span<std::byte> out);

// A batch header that was checked, records decoded on demand. Borrows the bytes.
class BatchView {
 public:
  // What one LBA tells: how many the header has, for one thing. The records are not checked.
  static Result<BatchHeader> fixed_part(std::span<const std::byte> first_lba,
                                        const ZoneStamp& stamp);
  static Result<BatchView> open(std::span<const std::byte> bytes, const ZoneStamp& stamp);
  const BatchHeader& header() const { return header_; }
  PageRecord record(std::uint32_t i) const;  // i < header().record_count; fields are in range

 private:
  BatchHeader header_;
  const std::byte* records_ = nullptr;
};

// A summary closes a segment (a fixed slice of a zone): its records, then a footer that ends
// exactly at the segment's last byte. It does not say that their pages are durable: flush points
// do (FORMAT.md, rule 4).
struct Summary {
  ZoneStamp stamp;
  std::uint64_t volume = 0;
  std::uint32_t segment = 0;       // number in its zone
  std::uint32_t first_lba = 0;     // of the summary itself, zone-relative
  std::uint32_t data_end_lba = 0;  // where the segment's batches end
  std::uint32_t summary_lbas = 0;
  std::uint32_t record_count = 0;
  friend bool operator==(const Summary&, const Summary&) = default;
};
// Columns: key 16 B, sequence delta 4, lba 4, {length, key length, kind, flags} 4, checksum 4 = 32
// bytes a record; then, only when some record has one, group 8 and expiry 4; then the offsets of
// the batch headers (4 each). A record whose sequence is further than 2^32 from the base (a
// relocated one) makes the sequence column 8 wide.
std::size_t summary_bytes(std::size_t records, std::size_t batches, bool groups, bool expiries,
                          bool wide_sequences);
// `out` is summary.summary_lbas whole LBAs. `batch_lbas`: zone-relative LBAs of the segment's batch
// headers, ascending. summary_bytes() of the same contents must fit.
void encode(const Summary& summary, std::span<const PageRecord> records,
            std::span<const std::uint32_t> batch_lbas, std::span<std::byte> out);
class SummaryView {
 public:
  // From the segment's last LBA alone: where the summary starts and how long it is.
  static Result<Summary> footer(std::span<const std::byte> last_lba, const ZoneStamp& stamp);
  static Result<SummaryView> open(std::span<const std::byte> bytes, const ZoneStamp& stamp);
  const Summary& summary() const { return summary_; }
  PageRecord record(std::uint32_t i) const;
  std::uint32_t batch_count() const;
  std::uint32_t batch_lba(std::uint32_t i) const;

 private:
  Status check_ranges(std::uint32_t lba_bytes) const;

  Summary summary_;
  const std::byte* bytes_ = nullptr;
  std::uint32_t batch_count_ = 0;
  std::uint64_t base_sequence_ = 0;
  bool wide_sequences_ = false;
  // Where the columns start, in bytes from the summary's start; 0: there is no such column.
  std::size_t sequences_ = 0, lbas_ = 0, shapes_ = 0, checksums_ = 0, groups_ = 0, expiries_ = 0;
  std::size_t batches_ = 0;
};

// Feature masks: compatible (may be ignored), read-only (an old program may only read),
// incompatible (an old program must refuse).
struct Features {
  std::uint64_t compatible = 0, read_only = 0, incompatible = 0;
  friend bool operator==(const Features&, const Features&) = default;
};

// First LBA of each metadata zone.
struct Superblock {
  Uuid pool{};
  Uuid device_set{};
  std::string name;                         // up to 63 bytes
  std::array<std::uint8_t, 16> hash_key{};  // secret of key_hash()
  Features features;
  std::uint32_t metadata_zones = 2;
  std::uint64_t checkpoint = 0;    // number of the checkpoint that follows in this zone
  std::uint64_t segment_lbas = 0;  // of data zones
  std::uint32_t lba_bytes = 0;
  std::uint64_t zone_size_lbas = 0, zone_capacity_lbas = 0;
  std::uint32_t zone_count = 0;
  friend bool operator==(const Superblock&, const Superblock&) = default;
};
void encode(const Superblock& superblock, std::span<std::byte> lba);
Result<Superblock> decode_superblock(std::span<const std::byte> lba);

// Bits of Features::incompatible.
constexpr std::uint64_t kFeatureBlockVolumes = 1;    // there is, or was, a volume of kind block
constexpr std::uint64_t kFeatureZonedVolumes = 2;    // likewise of kind zoned; zones may be lent
constexpr std::uint64_t kFeatureResizedVolumes = 4;  // a journal may say that a volume was resized
constexpr std::uint64_t kFeatureReservations = 8;    // reservations of hosts are, or were, kept
constexpr std::uint64_t kFeatureDamagedPages = 16;   // a record may say that its page is damaged

// A volume of kind block keeps 4 KiB blocks, each a page, whatever its LBA size.
constexpr std::uint8_t kKindBlock = 3;
constexpr std::uint32_t kBlockPageBytes = 4096;
constexpr std::uint32_t kSizeMibMax = (1u << 24) - 1;

// A volume of kind zoned has zones lent, which its user writes.
constexpr std::uint8_t kKindZoned = 4;

// What the metadata ring keeps of a volume. Values of kind and mode as in engine/pool.h.
struct VolumeRecord {
  std::uint64_t id = 0;
  Uuid uuid{};
  std::string name;
  std::uint8_t kind = 0, mode = 0, durability = 0;
  std::uint32_t nsid = 0;
  std::uint64_t quota_zones = 0;
  std::uint32_t value_bytes_max = 0;
  std::uint8_t lba_shift = 0;  // of kind block: 9 or 12; else 0
  std::uint32_t size_mib = 0;  // of kind block: up to kSizeMibMax; else 0
  // Of kind zoned, its share of the device's zones (0: no limit); else 0. Its value_bytes_max is 0.
  std::uint32_t open_zones_max = 0, active_zones_max = 0;
  friend bool operator==(const VolumeRecord&, const VolumeRecord&) = default;
};

// From `end_lba` on (zone-relative) the records of a zone's life `generation` are void: they were
// torn when a crash cut the zone's unflushed end, or were drained before the zone went bad.
struct ZoneTrimRecord {
  static constexpr std::uint32_t kNothing = ~std::uint32_t{0};  // end_lba: no record is void
  static constexpr std::uint32_t kEndLbaMax = (std::uint32_t{1} << 31) - 2;  // others
  // Generation, with end_lba 0: whatever life of the zone it is, nothing in it counts.
  static constexpr std::uint64_t kAnyLife = (std::uint64_t{1} << 63) - 1;
  // Generation of one that was set aside, below this and not 0: the zone is offline, or nobody can
  // tell whose it is, and has been so since before the volumes with ids from that one on were made.
  static constexpr std::uint64_t kVolumesEnd = std::uint64_t{1} << 40;
  std::uint32_t zone = 0;
  std::uint32_t end_lba = 0;
  std::uint64_t generation = 0;
  bool durable = false;  // all below end_lba was flushed; the capacity: all of the zone
  bool aside = false;    // an opening could not read whose the zone is, or not all of it
  friend bool operator==(const ZoneTrimRecord&, const ZoneTrimRecord&) = default;
};

// Zones [first, first + count) are lent to a volume of kind zoned: its zones, in ascending order.
// Those of a volume that is not there (deleted, or never made) are to be reset before they are
// anybody's.
struct LentZones {
  std::uint64_t volume = 0;
  std::uint32_t first = 0, count = 0;
  friend bool operator==(const LentZones&, const LentZones&) = default;
};

// Which hosts have registered with a volume's namespace, and who holds a reservation on it, where
// that is to outlive the server (NVMe Base specification 2.0, 8.19: Persist Through Power Loss).
struct ReservationRecord {
  using Host = std::array<std::uint8_t, 16>;  // Host Identifier, not zero
  struct Registrant {
    Host host{};
    std::uint64_t key = 0;
    friend bool operator==(const Registrant&, const Registrant&) = default;
  };
  static constexpr std::size_t kRegistrantsMax = 256;
  static constexpr std::uint8_t kTypeMax = 6;       // RTYPE; 0: nobody holds it
  static constexpr std::uint8_t kTypeOfOneMax = 4;  // up to here one registrant holds it, else all
  std::uint64_t volume = 0;
  bool persists = false;  // false: what is here is not all of it yet, and counts for nothing
  std::uint32_t generation = 0;
  std::uint8_t type = 0;
  Host holder{};                        // where one holds it; else zero
  std::vector<Registrant> registrants;  // ascending by host
  friend bool operator==(const ReservationRecord&, const ReservationRecord&) = default;
};

// From one ReservationRecord of a volume to the next.
struct ReservationChange {
  static constexpr std::size_t kPutMax = 10;  // so that a record fits 512 bytes
  bool persists = false;
  std::uint32_t generation = 0;
  std::uint8_t type = 0;
  ReservationRecord::Host holder{};
  // Bit i % 8 of byte i / 8: registrant i of those before stays as it is.
  std::array<std::uint8_t, ReservationRecord::kRegistrantsMax / 8> kept{};
  std::vector<ReservationRecord::Registrant> put;  // beside those; ascending by host
  friend bool operator==(const ReservationChange&, const ReservationChange&) = default;
};

// The state that checkpoints hold and the journal changes.
struct PoolState {
  std::uint64_t next_volume_id = 1;
  std::uint64_t open_count = 0;  // sequences of this opening start at open_count << 40
  std::vector<VolumeRecord> volumes;
  std::vector<ZoneTrimRecord> trims;  // ascending, one a zone at most, none of a lent zone
  std::vector<LentZones> lent;        // ascending by zone, disjoint
  std::vector<ReservationRecord> reservations;  // ascending by volume, of volumes that there are
  friend bool operator==(const PoolState&, const PoolState&) = default;
};

struct JournalRecord {
  enum class Kind : std::uint8_t {
    opened = 1,
    volume_created = 2,
    volume_deleted = 3,
    zone_trimmed = 4,    // replaces an earlier trim of the zone, but of the same life what was
                         // durable stays so; kNothing: there is none any more
    formatted = 5,       // changes nothing: begins the journal of a new pool
    zones_lent = 6,      // to the volume, which is created afterwards, or was deleted
    volume_resized = 7,  // to another quota and, of kind block, a size that is not less
    reservations_changed = 8,
  };
  static constexpr std::size_t kRunsMax = 32;  // so that a record fits 512 bytes
  Kind kind = Kind::opened;
  std::uint64_t open_count = 0;  // opened
  // volume_created; volume_deleted, zones_lent, reservations_changed: its id; volume_resized: its
  // id, quota_zones and size_mib, as they are from then on.
  VolumeRecord volume;
  ZoneTrimRecord trim;            // zone_trimmed
  bool anew = false;              // zones_lent: what was lent to the volume before is so no more
  std::vector<LentZones> lent;    // zones_lent: up to kRunsMax, of that volume, as in PoolState
  ReservationChange reservation;  // reservations_changed
  friend bool operator==(const JournalRecord&, const JournalRecord&) = default;
};
// corrupt: the record does not fit the state (unknown volume, an id used twice, a zone lent twice).
Status apply(PoolState& state, const JournalRecord& record);

// CRC32C (Castagnoli), for structures.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

// The keyed 128-bit hash of a key in a volume: SipHash-2-4-128 with the pool's secret. `order` is
// the listing order and picks the index bucket and tag; both words together identify the key in
// recovery.
struct KeyHash {
  std::uint64_t order = 0;
  std::uint64_t identity = 0;
  friend auto operator<=>(const KeyHash&, const KeyHash&) = default;
};
KeyHash key_hash(const std::array<std::uint8_t, 16>& secret, std::uint64_t volume, const Key& key);

// Checksum of a page, keyed with its key's hash (XXH3), so that the wrong page never passes.
std::uint32_t page_checksum(std::span<const std::byte> page, const KeyHash& hash);

}  // namespace furrow
