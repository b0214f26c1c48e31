#include "log/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "log/page_log.h"
#include "log/segment_scan.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

constexpr unsigned kPartitions = 256;  // of the hash's high bits: the unit of sorting
constexpr unsigned kQueueDepth = 64;

using Partitions = std::array<std::vector<RecoveredRecord>, kPartitions>;

// What one thread has gathered of one volume.
struct Gathered {
  Partitions partitions;
  std::vector<RecoveredGroup> groups;
  std::map<std::uint64_t, std::uint64_t> group_tombstones;  // group to highest sequence
};

struct FoundZone {
  ZoneInfo info;
  ZoneHeader header;
  bool newest = false;  // of its stream
};

class Scanner {
 public:
  Scanner(PoolContext& pool, std::unique_ptr<IoQueue> queue)
      : pool_(pool), queue_(std::move(queue)) {}

  Status scan(const FoundZone& zone);

  std::map<std::uint64_t, Gathered> gathered;
  std::map<std::uint64_t, std::map<unsigned, Stream::Resume>> resumes;
  std::vector<ZoneTrim> trims;
  std::vector<ZoneId> to_finish;
  std::vector<std::string> damage;

 private:
  Result<std::span<const std::byte>> read(ZoneId zone, std::uint64_t lba, std::uint32_t lbas);
  SegmentScan scan_segment(const FoundZone& zone, std::uint64_t begin);
  void keep(const FoundZone& zone, const PageRecord& record);
  void end_newest(const FoundZone& zone, std::vector<SegmentScan>& scans);
  std::uint64_t first_bad(const FoundZone& zone, std::vector<PageRecord>& records,
                          std::uint64_t flushed_lba);
  std::uint64_t flush_point(const FoundZone& zone, std::uint32_t batch_lba);

  PoolContext& pool_;
  std::unique_ptr<IoQueue> queue_;
  AlignedBuffer buffer_;
};

Result<std::span<const std::byte>> Scanner::read(ZoneId zone, std::uint64_t lba,
                                                 std::uint32_t lbas) {
  const std::size_t bytes = std::size_t{lbas} * pool_.geometry.lba_bytes;
  if (buffer_.size() < bytes) buffer_ = AlignedBuffer(bytes);
  Io io;
  io.op = Io::Op::read;
  io.lba = Lba{pool_.device_lba(zone, lba)};
  io.set_data(buffer_.data(), lbas, pool_.geometry.lba_bytes);
  const Status status = run_blocking(*queue_, io);
  if (!status.ok()) return status;
  return std::span<const std::byte>(buffer_.data(), bytes);
}

SegmentScan Scanner::scan_segment(const FoundZone& zone, std::uint64_t begin) {
  const std::uint64_t end = std::min(begin + pool_.segment_lbas, pool_.geometry.zone_capacity_lbas);
  SegmentScan scan(
      {zone.header.stamp, begin, end, zone.info.written_lbas, pool_.geometry.lba_bytes});
  while (const std::optional<SegmentScan::Read> wanted = scan.next()) {
    scan.feed(read(zone.info.zone, wanted->lba, wanted->lbas));
  }
  return scan;
}

Status Scanner::scan(const FoundZone& zone) {
  ZoneDirectory& table = pool_.tables[zone.info.zone.value];
  std::vector<SegmentScan> scans;  // of the newest zone: it is looked at as a whole
  for (std::uint64_t begin = 0; begin < zone.info.written_lbas; begin += pool_.segment_lbas) {
    SegmentScan scan = scan_segment(zone, begin);
    if (scan.damaged()) {
      damage.push_back(
          fmt::format("zone {}: the summary of the segment at LBA {} is damaged; its "
                      "batch headers were read instead",
                      zone.info.zone.value, begin));
    }
    table.batch_lbas.insert(table.batch_lbas.end(), scan.batch_lbas().begin(),
                            scan.batch_lbas().end());
    if (zone.newest) {
      scans.push_back(std::move(scan));
    } else {
      for (const PageRecord& record : scan.records()) keep(zone, record);
    }
  }
  if (zone.newest) {
    end_newest(zone, scans);
  } else if (zone.info.state != ZoneState::full) {
    to_finish.push_back(zone.info.zone);
  }
  table.batch_lbas.shrink_to_fit();
  return {};
}

// What the last batch header says was flushed when it was written.
std::uint64_t Scanner::flush_point(const FoundZone& zone, std::uint32_t batch_lba) {
  const Result<std::span<const std::byte>> bytes = read(zone.info.zone, batch_lba, 1);
  if (!bytes.ok()) return 0;
  const Result<std::uint32_t> lbas = BatchView::header_lbas(*bytes, zone.header.stamp);
  if (!lbas.ok() || batch_lba + *lbas > zone.info.written_lbas) return 0;
  const Result<std::span<const std::byte>> whole = read(zone.info.zone, batch_lba, *lbas);
  if (!whole.ok()) return 0;
  const Result<BatchView> view = BatchView::open(*whole, zone.header.stamp);
  return view.ok() ? view->header().flushed_lba : 0;
}

// Decides where the newest zone ends and whether writing can go on in it.
void Scanner::end_newest(const FoundZone& zone, std::vector<SegmentScan>& scans) {
  ZoneDirectory& table = pool_.tables[zone.info.zone.value];
  std::uint64_t flushed_lba = 0;
  std::vector<PageRecord> records;
  for (const SegmentScan& scan : scans) {
    flushed_lba = std::max(flushed_lba, scan.flushed_lba());
    records.insert(records.end(), scan.records().begin(), scan.records().end());
  }
  if (!table.batch_lbas.empty()) {
    flushed_lba = std::max(flushed_lba, flush_point(zone, table.batch_lbas.back()));
  }
  // Behind the flush point the zone ends at the first hole in the chain of batches, or at the first
  // page that is not whole. A hole before it is damage, and takes nothing else with it.
  std::uint64_t cut = first_bad(zone, records, flushed_lba);
  for (std::size_t i = 0; i < scans.size(); ++i) {
    const std::uint64_t end = std::min((i + 1) * pool_.segment_lbas, zone.info.written_lbas);
    if (!scans[i].summarized() && scans[i].end_lba() < end && scans[i].end_lba() >= flushed_lba) {
      cut = std::min(cut, scans[i].end_lba());
    }
  }
  const bool full = zone.info.written_lbas >= pool_.geometry.zone_capacity_lbas;
  if (cut < table.end_lba) {
    table.end_lba = static_cast<std::uint32_t>(cut);
    trims.push_back({zone.info.zone, zone.header.stamp.generation, table.end_lba});
    damage.push_back(
        fmt::format("zone {}: what was not flushed is torn from LBA {} on; it was cut off there",
                    zone.info.zone.value, cut));
  }
  for (const PageRecord& record : records) keep(zone, record);
  if (full) return;
  SegmentScan& tail = scans.back();
  const bool whole = table.end_lba == ~std::uint32_t{0} &&
                     (tail.summarized() || tail.end_lba() == zone.info.written_lbas);
  if (!whole) {
    to_finish.push_back(zone.info.zone);
    return;
  }
  Stream::Resume resume;
  resume.zone = zone.info.zone;
  resume.next_lba = zone.info.written_lbas;
  if (!tail.summarized()) {
    resume.segment_batches = tail.batch_lbas();
    resume.segment_records = tail.take_records();
  }
  resumes[zone.header.volume].emplace(zone.header.stream, std::move(resume));
}

// Verifies the pages behind the flush point; the LBA of the first that is not whole, or ~0.
std::uint64_t Scanner::first_bad(const FoundZone& zone, std::vector<PageRecord>& records,
                                 std::uint64_t flushed_lba) {
  std::ranges::sort(records, {}, &PageRecord::lba);
  constexpr std::uint64_t kWindowBytes = 1 << 20;
  const std::uint32_t lba_bytes = pool_.geometry.lba_bytes;
  std::uint64_t window_begin = 0;
  std::span<const std::byte> window;
  for (const PageRecord& record : records) {
    if (record.kind != RecordKind::page || record.lba < flushed_lba) continue;
    if (record.lba >= pool_.tables[zone.info.zone.value].end_lba) break;
    const std::uint64_t lbas = pool_.page_lbas(record.length);
    if (record.lba + lbas > zone.info.written_lbas) return record.lba;
    if ((record.lba - window_begin + lbas) * lba_bytes > window.size()) {
      const std::uint64_t wanted =
          std::min(std::max(lbas, kWindowBytes / lba_bytes), zone.info.written_lbas - record.lba);
      Result<std::span<const std::byte>> bytes =
          read(zone.info.zone, record.lba, static_cast<std::uint32_t>(wanted));
      // A window with a media error somewhere: this page alone may be readable.
      if (!bytes.ok()) bytes = read(zone.info.zone, record.lba, static_cast<std::uint32_t>(lbas));
      if (!bytes.ok()) return record.lba;
      window = *bytes;
      window_begin = record.lba;
    }
    const KeyHash hash = key_hash(pool_.hash_key, zone.header.volume, record.key);
    const auto page = window.subspan((record.lba - window_begin) * lba_bytes, record.length);
    if (page_checksum(page, hash) != record.checksum) return record.lba;
  }
  return ~std::uint64_t{0};
}

void Scanner::keep(const FoundZone& zone, const PageRecord& record) {
  const ZoneId id = zone.info.zone;
  ZoneDirectory& table = pool_.tables[id.value];
  if (record.lba >= table.end_lba) return;
  Gathered& into = gathered[zone.header.volume];
  const std::uint64_t lba = pool_.device_lba(id, record.lba);
  pool_.allocator.note_sequence(id, record.sequence);  // one thread has this zone
  if (record.kind == RecordKind::group_tombstone) {
    std::uint64_t& highest = into.group_tombstones[record.group];
    highest = std::max(highest, record.sequence);
    ++table.tombstones;
    return;
  }
  if (record.kind == RecordKind::tombstone) ++table.tombstones;
  RecoveredRecord kept{key_hash(pool_.hash_key, zone.header.volume, record.key),
                       record.sequence,
                       lba,
                       record.length,
                       record.checksum,
                       record.expires_s,
                       record.kind,
                       record.pinned,
                       record.group != 0};
  if (record.group != 0 && record.kind == RecordKind::page) {
    into.groups.push_back({lba, record.group});
    table.add_group(record.group, record.lba);
  }
  into.partitions[kept.hash.order >> 56].push_back(kept);
}

// --- steps
// -----------------------------------------------------------------------------------------

class Recovery {
 public:
  Recovery(ZonedDevice& device, PoolContext& pool, const RecoveryOptions& options)
      : device_(device), pool_(pool), options_(options) {}
  Result<RecoveryResult> run();

 private:
  Status find_zones();
  Status reset(ZoneId zone);
  void mark_newest();
  Status scan_zones();
  Status finish_zones();
  void merge();
  void merge_volume(std::uint64_t volume, RecoveredVolume& into);
  void winners(std::uint64_t volume, unsigned partition, std::vector<RecoveredRecord>& out);
  bool known(std::uint64_t volume) const {
    return std::ranges::find(options_.volumes, volume) != options_.volumes.end();
  }

  ZonedDevice& device_;
  PoolContext& pool_;
  const RecoveryOptions& options_;
  std::unique_ptr<IoQueue> queue_;
  std::vector<FoundZone> zones_;
  std::vector<std::unique_ptr<Scanner>> scanners_;
  std::map<std::uint64_t, std::map<std::uint64_t, std::uint64_t>> group_tombstones_;
  std::map<std::uint64_t, std::vector<RecoveredGroup>> groups_;
  RecoveryResult result_;
};

Result<RecoveryResult> Recovery::run() {
  Result<std::unique_ptr<IoQueue>> queue = device_.create_queue(kQueueDepth);
  if (!queue.ok()) return queue.status();
  queue_ = std::move(*queue);
  using Step = Status (Recovery::*)();
  for (const Step step : {&Recovery::find_zones, &Recovery::scan_zones, &Recovery::finish_zones}) {
    const Status status = (this->*step)();
    if (!status.ok()) return status;
  }
  merge();
  return std::move(result_);
}

Status Recovery::reset(ZoneId zone) {
  if (options_.read_only) return {};
  Io io;
  io.op = Io::Op::reset;
  io.zone = zone;
  io.lba = pool_.geometry.zone_start(zone);
  return run_blocking(*queue_, io);
}

// Reads every written zone's header, and adopts those that are the pool's.
Status Recovery::find_zones() {
  Result<std::vector<ZoneInfo>> report = device_.report();
  if (!report.ok()) return report.status();
  AlignedBuffer lba(pool_.geometry.lba_bytes);
  for (const ZoneInfo& info : *report) {
    if (pool_.allocator.zone(info.zone).use == ZoneUse::metadata) continue;
    if (info.state == ZoneState::offline) {
      ZoneAllocator::Zone bad;
      bad.use = ZoneUse::bad;
      pool_.allocator.adopt(info.zone, bad);
      result_.damage.push_back(fmt::format("zone {} is offline", info.zone.value));
      continue;
    }
    if (info.written_lbas == 0) continue;
    Io io;
    io.op = Io::Op::read;
    io.lba = pool_.geometry.zone_start(info.zone);
    io.set_data(lba.data(), 1, pool_.geometry.lba_bytes);
    const Status read = run_blocking(*queue_, io);
    const Result<ZoneHeader> header = read.ok()
                                          ? decode_zone_header(lba.span(), pool_.pool, info.zone)
                                          : Result<ZoneHeader>(read);
    if (!header.ok() || !known(header->volume)) {
      // Never begun (torn at its first write), or of a deleted volume.
      const Status status = reset(info.zone);
      if (!status.ok()) {
        ZoneAllocator::Zone bad;
        bad.use = ZoneUse::bad;
        pool_.allocator.adopt(info.zone, bad);
        result_.damage.push_back(
            fmt::format("zone {} cannot be reset: {}", info.zone.value, status.describe()));
      }
      continue;
    }
    ZoneAllocator::Zone state;
    state.use = ZoneUse::sealed;
    state.stream = header->stream;
    state.owner = header->volume;
    state.generation = header->stamp.generation;
    state.opened_sequence = header->opened_sequence;
    pool_.allocator.adopt(info.zone, state);
    zones_.push_back({info, *header, false});
    for (const ZoneTrim& trim : options_.trims) {
      if (trim.zone == info.zone && trim.generation == state.generation) {
        pool_.tables[info.zone.value].end_lba = trim.end_lba;
      }
    }
  }
  mark_newest();
  return {};
}

void Recovery::mark_newest() {
  std::map<std::pair<std::uint64_t, unsigned>, FoundZone*> newest;
  for (FoundZone& zone : zones_) {
    FoundZone*& best = newest[{zone.header.volume, zone.header.stream}];
    if (best == nullptr || best->header.opened_sequence < zone.header.opened_sequence) {
      best = &zone;
    }
  }
  for (auto& [stream, zone] : newest) zone->newest = true;
}

Status Recovery::scan_zones() {
  const unsigned threads = std::max(1u, options_.threads);
  for (unsigned i = 0; i < threads; ++i) {
    Result<std::unique_ptr<IoQueue>> queue = device_.create_queue(kQueueDepth);
    if (!queue.ok()) return queue.status();
    scanners_.push_back(std::make_unique<Scanner>(pool_, std::move(*queue)));
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status first_error;
  const auto work = [&](Scanner& scanner) {
    for (std::size_t i = next++; i < zones_.size(); i = next++) {
      const Status status = scanner.scan(zones_[i]);
      const std::lock_guard lock(mutex);
      if (!status.ok() && first_error.ok()) first_error = status;
    }
  };
  {
    std::vector<std::jthread> running;
    for (unsigned i = 1; i < threads; ++i) {
      running.emplace_back([&work, scanner = scanners_[i].get()] { work(*scanner); });
    }
    work(*scanners_[0]);
  }
  return first_error;
}

// A zone that will not be written again must not hold one of the device's active zones.
Status Recovery::finish_zones() {
  for (const auto& scanner : scanners_) {
    for (const ZoneId zone : scanner->to_finish) {
      if (options_.read_only) continue;
      Io io;
      io.op = Io::Op::finish;
      io.zone = zone;
      io.lba = pool_.geometry.zone_start(zone);
      const Status status = run_blocking(*queue_, io);
      if (!status.ok()) {
        result_.damage.push_back(
            fmt::format("zone {} cannot be finished: {}", zone.value, status.describe()));
      }
    }
    for (auto& [volume, resumes] : scanner->resumes) {
      for (auto& [stream, resume] : resumes) {
        pool_.allocator.set_use(resume.zone, ZoneUse::open);
        result_.volumes[volume].resumes.emplace(stream, std::move(resume));
      }
    }
    std::ranges::move(scanner->trims, std::back_inserter(result_.new_trims));
    std::ranges::move(scanner->damage, std::back_inserter(result_.damage));
  }
  if (options_.read_only) return {};
  // What was found whole is durable from here on.
  Io flush;
  flush.op = Io::Op::flush;
  return run_blocking(*queue_, flush);
}

void Recovery::merge() {
  for (const auto& scanner : scanners_) {
    for (auto& [volume, gathered] : scanner->gathered) {
      std::ranges::move(gathered.groups, std::back_inserter(groups_[volume]));
      for (const auto& [group, sequence] : gathered.group_tombstones) {
        std::uint64_t& highest = group_tombstones_[volume][group];
        highest = std::max(highest, sequence);
      }
    }
  }
  for (auto& [volume, groups] : groups_) std::ranges::sort(groups, {}, &RecoveredGroup::lba);
  for (const std::uint64_t volume : options_.volumes) {
    merge_volume(volume, result_.volumes[volume]);
  }
}

void Recovery::merge_volume(std::uint64_t volume, RecoveredVolume& into) {
  std::array<std::vector<RecoveredRecord>, kPartitions> live;
  std::atomic<unsigned> next{0};
  const auto work = [&] {
    for (unsigned i = next++; i < kPartitions; i = next++) winners(volume, i, live[i]);
  };
  {
    std::vector<std::jthread> running;
    for (unsigned i = 1; i < options_.threads; ++i) running.emplace_back(work);
    work();
  }
  std::size_t pages = 0;
  for (const auto& partition : live) pages += partition.size();
  into.pages.reserve(pages);
  for (auto& partition : live) {
    for (const RecoveredRecord& record : partition) {
      into.pages.push_back(
          {record.hash.order,
           {record.lba, record.length, record.checksum, record.pinned, record.expires_s != 0}});
      if (record.expires_s != 0) into.expiries.push_back({record.lba, record.expires_s});
      into.live_bytes += record.length;
      into.cost_bytes += PageLog::cost_bytes(pool_, record.length);
      const std::uint64_t lbas = pool_.page_lbas(record.length);
      if (record.pinned) into.pinned_lbas += lbas;
      pool_.allocator.add_live(pool_.geometry.zone_of(Lba{record.lba}), lbas, record.sequence);
    }
    partition = {};
  }
}

// Of each key in a partition the newest record, if that is a page that nothing has deleted.
void Recovery::winners(std::uint64_t volume, unsigned partition,
                       std::vector<RecoveredRecord>& out) {
  std::vector<RecoveredRecord> all;
  for (const auto& scanner : scanners_) {
    const auto found = scanner->gathered.find(volume);
    if (found == scanner->gathered.end()) continue;
    auto& records = found->second.partitions[partition];
    if (all.empty()) {
      all = std::move(records);
    } else {
      all.insert(all.end(), records.begin(), records.end());
    }
    records = {};
  }
  // Copies of one record (relocated, the original not yet reset) are equal: either will do.
  std::ranges::sort(all, [](const RecoveredRecord& a, const RecoveredRecord& b) {
    if (a.hash != b.hash) return a.hash < b.hash;
    if (a.sequence != b.sequence) return a.sequence > b.sequence;
    return a.lba < b.lba;
  });
  const auto tombstones = group_tombstones_.find(volume);
  const auto groups = groups_.find(volume);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != 0 && all[i].hash == all[i - 1].hash) continue;
    if (all[i].kind != RecordKind::page) continue;
    if (all[i].grouped && tombstones != group_tombstones_.end()) {
      const auto group =
          std::ranges::lower_bound(groups->second, all[i].lba, {}, &RecoveredGroup::lba);
      const auto deleted = tombstones->second.find(group->group);
      if (deleted != tombstones->second.end() && deleted->second > all[i].sequence) continue;
    }
    out.push_back(all[i]);
  }
}

}  // namespace

Result<RecoveryResult> recover(ZonedDevice& device, PoolContext& pool,
                               const RecoveryOptions& options) {
  return Recovery(device, pool, options).run();
}

}  // namespace furrow
