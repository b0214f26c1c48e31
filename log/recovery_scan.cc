#include "log/recovery_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "log/key_hashes.h"
#include "zone/blocking.h"
#include "zone/canary.h"

namespace furrow {

namespace {
RecordPile& partition_of(Gathered& gathered, const KeyHash& hash) {
  return gathered.partitions[hash.order >> (64 - kPartitionBits)];
}
}  // namespace

Result<std::span<const std::byte>> Scanner::read(ZoneId zone, std::uint64_t lba,
                                                 std::uint32_t lbas) {
  const Lba first{pool_.device_lba(zone, lba)};
  return read_patiently(*queue_, first, lbas, pool_.geometry.lba_bytes, buffer_, patience_);
}

SegmentScan Scanner::scan_segment(const FoundZone& zone, std::uint64_t begin) {
  SegmentScan scan({zone.header.stamp, begin, segment_end(begin), zone.info.written_lbas,
                    pool_.geometry.lba_bytes, !zone.newest && !zone.unsure});
  while (const std::optional<SegmentScan::Read> wanted = scan.next()) {
    scan.feed(read(zone.info.zone, wanted->lba, wanted->lbas));
  }
  return scan;
}

std::vector<PageRecord> Scanner::records_of(const FoundZone& zone) {
  std::vector<PageRecord> all;
  for (std::uint64_t begin = 0; begin < zone.info.written_lbas; begin += pool_.segment_lbas) {
    scan_segment(zone, begin).for_each([&](std::span<const PageRecord> records) {
      all.insert(all.end(), records.begin(), records.end());
    });
  }
  return all;
}

Status Scanner::scan(const FoundZone& zone) {
  ZoneDirectory& table = pool_.tables[zone.info.zone.value];
  table.evicted = zone.evicted;
  unread_lba_ = unknown_lba_ = ~std::uint32_t{0};
  std::vector<SegmentScan> scans;  // of the newest zone: it is looked at as a whole
  std::vector<std::uint64_t> missing;
  bool all_read = !zone.guessed;
  for (std::uint64_t begin = 0; begin < zone.info.written_lbas; begin += pool_.segment_lbas) {
    SegmentScan scan = scan_segment(zone, begin);
    const Status version = scan.version_before(table.end_lba);
    if (!version.ok()) return version;
    std::ranges::set_difference(scan.gaps(), scan.unreadable_gaps(), std::back_inserter(missing));
    all_read &= !scan.unreadable_before(table.end_lba);
    for (const std::uint32_t lba : scan.batch_lbas()) table.batches.push_back(lba);
    if (zone.newest || zone.unsure) {
      scans.push_back(std::move(scan));
    } else {
      scan.for_each([&](std::span<const PageRecord> records) { keep(zone, records); });
    }
  }
  // One that was filled to its end was flushed before anything went to the next one.
  const bool filled = scans.size() * pool_.segment_lbas >= pool_.geometry.zone_capacity_lbas &&
                      scans.back().summarized();
  if (zone.newest || zone.guessed || (zone.unsure && (zone.aside || !filled))) {
    all_read = end_newest(zone, scans);
  } else if (zone.unsure) {
    for (const SegmentScan& scan : scans) keep(zone, scan.records());
  } else if (zone.info.state != ZoneState::full) {
    finish(zone);
  }
  if (!all_read) unreadable.push_back(zone.info.zone);
  note_gaps(zone.info.zone, missing);
  table.compact();
  return {};
}

// Those that are left when it is known where the zone ends.
void Scanner::note_gaps(ZoneId zone, const std::vector<std::uint64_t>& lbas) {
  for (const std::uint64_t lba : lbas) {
    if (!pool_.tables[zone.value].counts(lba)) continue;
    gaps.push_back({zone, lba});
    pool_.tables[zone.value].has_gap = true;
  }
}

// Once for a zone; `aside`: not all of it could be verified. (One that was evicted stays so.)
void Scanner::note_end(const FoundZone& zone, bool aside) {
  aside |= zone.evicted;
  const auto capacity = static_cast<std::uint32_t>(pool_.geometry.zone_capacity_lbas);
  const std::uint32_t end_lba = pool_.tables[zone.info.zone.value].end_lba;
  std::erase_if(trims, [&](const ZoneTrim& trim) { return trim.zone == zone.info.zone; });
  trims.push_back({zone.info.zone, zone.header.stamp.generation,
                   aside ? std::min(end_lba, capacity) : end_lba, false, aside});
}

// A full zone does not say where its data ends, so that is noted first.
void Scanner::finish(const FoundZone& zone, bool aside) {
  std::uint32_t& end_lba = pool_.tables[zone.info.zone.value].end_lba;
  if (end_lba > zone.info.written_lbas) {
    end_lba = static_cast<std::uint32_t>(zone.info.written_lbas);
    note_end(zone, aside);
  }
  to_finish.push_back(zone.info.zone);
}

Result<BatchHeader> Scanner::batch_header(const FoundZone& zone, std::uint32_t batch_lba) {
  const ZoneId id = zone.info.zone;
  const Result<std::span<const std::byte>> first = read(id, batch_lba, 1);
  if (!first.ok()) return first.status();
  const Result<BatchHeader> fixed = BatchView::fixed_part(*first, zone.header.stamp);
  if (!fixed.ok()) return fixed.status();
  if (batch_lba + fixed->header_lbas > zone.info.written_lbas)
    return Status(Code::corrupt, Origin::log);
  const Result<std::span<const std::byte>> whole = read(id, batch_lba, fixed->header_lbas);
  if (!whole.ok()) return whole.status();
  const Result<BatchView> view = BatchView::open(*whole, zone.header.stamp);
  if (!view.ok()) return view.status();
  if (view->header().lba != batch_lba) return Status(Code::corrupt, Origin::log);
  return view->header();
}

// What the last batch header that is whole says was flushed when it was written.
std::uint64_t Scanner::flush_point(const FoundZone& zone) {
  const BatchStarts& batches = pool_.tables[zone.info.zone.value].batches;
  for (auto batch = batches.last_before(~std::uint32_t{0}); batch;
       batch = batches.last_before(*batch)) {
    const Result<BatchHeader> header = batch_header(zone, *batch);
    if (header.ok()) return header->flushed_lba;
  }
  return 0;
}

// Batch headers behind the flush point that are not whole, the first or, of a zone that was
// counted, all. Before it, such a header is damage, and takes nothing else with it; nor does one
// that cannot be read, which is no proof of a torn write. Those that a summary names count without
// being read (`unread`: they may be torn), and where they have, go on counting.
Scanner::Tail Scanner::verify_headers(const FoundZone& zone, const std::vector<SegmentScan>& scans,
                                      std::uint64_t flushed_lba) {
  Tail tail;
  for (const SegmentScan& scan : scans) {
    for (const std::uint64_t gap : scan.gaps()) {
      if (gap < flushed_lba || std::ranges::binary_search(scan.unreadable_gaps(), gap)) continue;
      tail.torn.push_back(static_cast<std::uint32_t>(gap));
      if (!zone.counted) return tail;
    }
    if (!scan.summarized()) continue;
    // The summary names batches that it does not make durable.
    const std::vector<std::uint32_t>& batches = scan.batch_lbas();
    for (auto at = std::ranges::lower_bound(batches, flushed_lba); at != batches.end(); ++at) {
      const Status header = batch_header(zone, *at).status();
      if (header.ok()) continue;
      if (header.code() == Code::corrupt && !zone.counted) {
        tail.torn.push_back(*at);
        return tail;
      }
      tail.unread.push_back(*at);
    }
  }
  return tail;
}

// Where behind the flush point a batch header may be that cannot be read; ~0: nowhere. It may have
// taken any key out of its group.
std::uint32_t Scanner::first_unknown(const std::vector<SegmentScan>& scans,
                                     std::uint64_t flushed_lba) {
  for (std::size_t i = 0; i < scans.size(); ++i) {
    const std::vector<std::uint32_t>& batches = scans[i].batch_lbas();
    for (const std::uint64_t gap : scans[i].unreadable_gaps()) {
      const auto next = std::ranges::upper_bound(batches, gap);
      const std::uint64_t end = next != batches.end() ? *next : segment_end(i * pool_.segment_lbas);
      if (end > flushed_lba) return static_cast<std::uint32_t>(gap);
    }
  }
  return ~std::uint32_t{0};
}

// Decides where the newest zone ends, which is at the first page or header behind the flush point
// that is not whole, and whether writing can go on in it. One that was counted ends where it did,
// and what is not whole is void by itself. False: something before that end cannot be read.
bool Scanner::end_newest(const FoundZone& zone, std::vector<SegmentScan>& scans) {
  ZoneDirectory& table = pool_.tables[zone.info.zone.value];
  std::uint64_t flushed_lba = 0;
  std::vector<PageRecord> records;
  for (const SegmentScan& scan : scans) {
    flushed_lba = std::max(flushed_lba, scan.flushed_lba());
    records.insert(records.end(), scan.records().begin(), scan.records().end());
  }
  flushed_lba = std::max(flushed_lba, flush_point(zone));
  Tail tail = verify(zone, records, flushed_lba);
  Tail headers = verify_headers(zone, scans, flushed_lba);
  std::ranges::copy(headers.torn, std::back_inserter(tail.torn));
  std::ranges::sort(tail.torn);
  const bool full = zone.info.written_lbas >= pool_.geometry.zone_capacity_lbas;
  const bool ends = !zone.counted && !tail.torn.empty() && tail.torn.front() < table.end_lba;
  if (ends) table.end_lba = tail.torn.front();
  const bool all_read = !zone.guessed && std::ranges::none_of(scans, [&](const SegmentScan& scan) {
    return scan.unreadable_before(table.end_lba);
  });
  const auto is_void = [&](std::uint32_t lba) { return lba >= table.end_lba; };
  std::erase_if(tail.torn, is_void);
  std::erase_if(tail.unread, is_void);
  std::erase_if(headers.unread, is_void);
  table.torn = std::move(tail.torn);  // none, but where it was counted
  table.to_empty = !table.torn.empty() || (!headers.unread.empty() && tail.unread.empty());
  if (!tail.unread.empty()) unread_lba_ = tail.unread.front();
  if (zone.stores && !table.given_up) unknown_lba_ = first_unknown(scans, flushed_lba);
  for (const std::uint32_t lba : tail.unread) {
    unverified.push_back(pool_.device_lba(zone.info.zone, lba));
  }
  const bool verified =
      all_read && tail.unread.empty() && headers.unread.empty() && table.torn.empty();
  table.unverified = !verified;
  keep(zone, records);
  if (ends || zone.aside || !verified) note_end(zone, !verified);
  if (full) return all_read;
  SegmentScan& last = scans.back();
  // A segment with a gap takes no more: its summary would leave out what the gap hides, for good,
  // and that may be readable another time.
  const bool whole =
      table.end_lba == ~std::uint32_t{0} && last.gaps().empty() && verified && !table.given_up;
  if (zone.unsure || zone.followed || zone.evicted || !whole) {
    finish(zone, !verified);
    return all_read;
  }
  Stream::Resume resume;
  resume.zone = zone.info.zone;
  resume.next_lba = zone.info.written_lbas;
  resume.flush_noted = records.empty() || records.back().lba < flushed_lba;
  if (!last.summarized()) {
    resume.segment_batches = last.batch_lbas();
    resume.segment_records = last.take_records();
  }
  resumes[zone.header.volume].emplace(zone.header.stream, std::move(resume));
  return true;
}

// Of the pages behind the flush point: up to the first torn one, but of a zone that was counted.
Scanner::Tail Scanner::verify(const FoundZone& zone, std::vector<PageRecord>& records,
                              std::uint64_t flushed_lba) {
  Tail tail;
  std::ranges::sort(records, {}, &PageRecord::lba);
  if (canary(Canary::tail_unchecked)) return tail;
  PageWindow window(*queue_, pool_.geometry);
  for (const PageRecord& record : records) {
    if (record.kind != RecordKind::page || record.lba < flushed_lba) continue;
    if (record.damaged) continue;  // whatever stands there, it is never served
    if (record.lba >= pool_.tables[zone.info.zone.value].end_lba) break;
    const Look look = look_at(zone, record, window);
    // Unreadable is no proof of a torn write, nor of a whole one: see Recovery::whole_version().
    if (look == Look::unread) tail.unread.push_back(record.lba);
    if (look == Look::torn) tail.torn.push_back(record.lba);
    if (look == Look::torn && !zone.counted) break;
  }
  return tail;
}

Scanner::Look Scanner::look_at(const FoundZone& zone, const PageRecord& record,
                               PageWindow& window) {
  const std::uint64_t lbas = pool_.page_lbas(record.length);
  if (record.lba + lbas > zone.info.written_lbas) return Look::torn;
  const std::uint64_t written = pool_.device_lba(zone.info.zone, zone.info.written_lbas);
  auto page = window.read(pool_.device_lba(zone.info.zone, record.lba), lbas, written);
  if (!page.ok()) page = read(zone.info.zone, record.lba, static_cast<std::uint32_t>(lbas));
  if (!page.ok()) return Look::unread;
  const KeyHash hash = key_hash(pool_.hash_key, zone.header.volume, record.key);
  const bool whole = page_checksum(page->first(record.length), hash) == record.checksum;
  return whole ? Look::whole : Look::torn;
}

namespace {

// False: of a block volume nothing writes that.
bool is_of_block(const PoolContext::Blocks& blocks, const PageRecord& record) {
  if (!blocks.order.is_block(record.key)) return false;
  if (record.kind != RecordKind::page) return record.kind == RecordKind::tombstone;
  return record.length == kBlockPageBytes && !record.pinned && record.expires_s == 0;
}

}  // namespace

void Scanner::keep(const FoundZone& zone, std::span<const PageRecord> records) {
  constexpr std::size_t kBlock = 64;
  std::array<KeyHash, kBlock> hashes;
  Gathered& into = gathered[zone.header.volume];
  PoolContext::Blocks* const blocks = pool_.blocks_of(zone.header.volume);
  for (; !records.empty(); records = records.subspan(std::min(kBlock, records.size()))) {
    const auto block = records.first(std::min(kBlock, records.size()));
    key_hashes(pool_.hash_key, zone.header.volume, block, std::span(hashes).first(block.size()));
    for (std::size_t i = 0; blocks != nullptr && i < block.size(); ++i) {
      hashes[i] = blocks->order.hash(block[i].key, hashes[i]);
    }
    for (std::size_t i = 0; i < block.size(); ++i) partition_of(into, hashes[i]).prefetch();
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (blocks != nullptr) {
        if (!is_of_block(*blocks, block[i])) continue;
        // Also where another page has replaced it since: what is noted may hold something.
        blocks->map.note(block_of(block[i].key));
      }
      keep(zone, block[i], hashes[i], into);
    }
  }
}

void Scanner::keep(const FoundZone& zone, const PageRecord& record, const KeyHash& hash,
                   Gathered& into) {
  const ZoneId id = zone.info.zone;
  ZoneDirectory& table = pool_.tables[id.value];
  highest_sequence = std::max(highest_sequence, record.sequence);
  if (!table.counts(record)) return;
  const std::uint64_t lba = pool_.device_lba(id, record.lba);
  pool_.allocator.note_sequence(id, record.sequence);  // one thread has this zone
  pool_.note_record(id, record);
  into.damaged |= record.damaged;
  if (record.kind == RecordKind::group_tombstone) {
    if (record.lba > unknown_lba_) return;
    GroupTombstone& newest =
        (zone.spare ? into.spare_group_tombstones : into.group_tombstones)[record.group];
    const std::uint64_t sure = record.lba < unread_lba_ ? record.sequence : 0;
    newest.add({record.sequence, zone.header.opened_sequence, sure});
    return;
  }
  const bool page = record.kind == RecordKind::page;
  const IndexEntry entry{lba, page ? record.length : 1, record.checksum, record.pinned,
                         record.expires_s != 0};
  using Kind = RecoveredRecord::Kind;
  RecordPile& pile = partition_of(into, hash);
  if (record.kind == RecordKind::page && zone.evicted) {  // a copy that was made of it counts
    return pile.add({hash, record.sequence - 1, entry, Kind::tombstone, false}, *memory);
  }
  pile.add({hash, record.sequence, entry, page ? Kind::page : Kind::tombstone, record.group != 0},
           *memory);
}

}  // namespace furrow
