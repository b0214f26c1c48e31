#include "log/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "log/page_log.h"
#include "log/record_sorter.h"
#include "log/recovery_scan.h"
#include "log/structure.h"
#include "zone/aligned_buffer.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

constexpr unsigned kQueueDepth = 64;
constexpr std::uint64_t kFirstBatchBytes = 8 << 20;

class Recovery {
 public:
  Recovery(ZonedDevice& device, PoolContext& pool, const RecoveryOptions& options)
      : device_(device), pool_(pool), options_(options) {}
  Result<RecoveryResult> run();

 private:
  Status find_zones();
  Status reset(ZoneId zone);
  void set_aside(ZoneId zone, const char* why);
  void finish_aside(const ZoneInfo& info);
  Status read_lba(ZoneId zone, std::uint64_t at, AlignedBuffer& into);
  Result<ZoneHeader> rebuild_header(const ZoneInfo& info);
  Result<std::uint64_t> owner_of(const ZoneInfo& info, const ZoneStamp& stamp, AlignedBuffer& lba);
  bool is_void(const ZoneStamp& stamp) const;
  void mark_newest();
  void mark_spares();
  Status scan_zones();
  Status finish_zones();
  void merge();
  void merge_volume(std::uint64_t volume, RecoveredVolume& into);
  Status give_back_spares();
  // What one thread has counted of a volume's pages.
  struct Merged {
    std::uint64_t live_bytes = 0, cost_bytes = 0, pinned_lbas = 0;
    std::uint32_t largest_bytes = 0;
    std::vector<std::uint64_t> live_lbas;  // by zone
    std::vector<RecoveredVolume::Expiry> expiries;
    bool spare_needed = false;  // something stands in the volume's spare zone only
  };
  // A store's zone that may be given back.
  struct Spare {
    ZoneId zone;
    bool needed = false;
  };
  void winners(std::uint64_t volume, std::span<const RecoveredRecord> sorted, RecordPile& into,
               Merged& sums);
  bool present(std::uint64_t volume, const RecoveredRecord& record) const;
  // A page, among those that its expiry follows.
  bool expired(const RecoveredRecord& page) const {
    return page.entry().expires && (&page)[1].checksum <= pool_.home.wall_s();
  }
  const RecoveredRecord* same_without(std::uint64_t volume, ZoneId spare,
                                      std::span<const RecoveredRecord> versions) const;
  bool group_deleted(std::uint64_t volume, const RecoveredRecord& record) const;
  bool known(std::uint64_t volume) const {
    return std::ranges::find(options_.volumes, volume) != options_.volumes.end();
  }

  ZonedDevice& device_;
  PoolContext& pool_;
  const RecoveryOptions& options_;
  std::unique_ptr<IoQueue> queue_;
  std::vector<FoundZone> zones_;
  std::map<std::uint64_t, Spare> spares_;  // by volume
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
  const Status status = give_back_spares();
  if (!status.ok()) return status;
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
      set_aside(info.zone, "is offline");
      continue;
    }
    if (info.written_lbas == 0) continue;
    if (info.written_lbas == 1 && info.state != ZoneState::read_only) {
      // A header and nothing else: its own or, when that was not made durable, an earlier life's.
      const Status status = reset(info.zone);
      if (!status.ok()) set_aside(info.zone, "cannot be reset");
      continue;
    }
    const Status read = read_lba(info.zone, 0, lba);
    Result<ZoneHeader> header = read.ok() ? decode_zone_header(lba.span(), pool_.pool, info.zone)
                                          : Result<ZoneHeader>(read);
    if (!header.ok()) {
      header = rebuild_header(info);
      if (!header.ok() && header.status().code() != Code::not_found) {
        set_aside(info.zone, "has data, and nothing that tells whose; it is kept and not used");
        finish_aside(info);
        continue;
      }
    }
    if (!header.ok() || !known(header->volume) || is_void(header->stamp)) {
      // Never begun (torn at its first write), of a deleted volume, or never completed by a repair.
      const Status status = reset(info.zone);
      if (!status.ok()) set_aside(info.zone, "cannot be reset");
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
  mark_spares();
  return {};
}

bool Recovery::is_void(const ZoneStamp& stamp) const {
  return std::ranges::any_of(options_.trims, [&](const ZoneTrim& trim) {
    return trim.zone == stamp.zone && trim.generation == stamp.generation && trim.end_lba == 0;
  });
}

void Recovery::set_aside(ZoneId zone, const char* why) {
  ZoneAllocator::Zone bad;
  bad.use = ZoneUse::bad;
  pool_.allocator.adopt(zone, bad);
  result_.lost.push_back({zone, why});
}

// What it holds stays readable, and it must not hold one of the device's active zones.
void Recovery::finish_aside(const ZoneInfo& info) {
  if (options_.read_only || info.state == ZoneState::full || info.state == ZoneState::read_only) {
    return;
  }
  Io io;
  io.op = Io::Op::finish;
  io.zone = info.zone;
  io.lba = pool_.geometry.zone_start(info.zone);
  const Status status = run_blocking(*queue_, io);
  if (status.ok()) return;
  result_.lost.push_back({info.zone, "cannot be finished: " + status.describe()});
}

Status Recovery::read_lba(ZoneId zone, std::uint64_t at, AlignedBuffer& into) {
  Io io;
  io.op = Io::Op::read;
  io.lba = Lba{pool_.device_lba(zone, at)};
  io.set_data(into.data(), 1, pool_.geometry.lba_bytes);
  return run_blocking(*queue_, io);
}

// A zone whose header cannot be read: a batch header has its stamp, and a summary (or the pool's
// having one volume only) its owner. not_found: there is no batch either, nothing was ever
// acknowledged in it; corrupt: there may be data, but whose it is nobody can tell.
Result<ZoneHeader> Recovery::rebuild_header(const ZoneInfo& info) {
  AlignedBuffer lba(pool_.geometry.lba_bytes);
  const Status lost(Code::corrupt, Origin::log);
  // The first batch begins before this, if there is one.
  const std::uint64_t end = std::min(info.written_lbas, kFirstBatchBytes / lba.size());
  bool unreadable = end < info.written_lbas;
  for (std::uint64_t at = 1; at < end; ++at) {
    if (!read_lba(info.zone, at, lba).ok()) {
      unreadable = true;  // and not empty
      continue;
    }
    const auto fields = check_structure(lba.span(), Magic::batch_header, kStampBytes);
    if (!fields.ok()) continue;
    ByteReader reader(*fields);
    ZoneHeader header;
    header.stamp = take_stamp(reader);
    if (header.stamp.pool != pool_.pool || header.stamp.zone != info.zone) continue;
    const Result<BatchHeader> batch = BatchView::fixed_part(lba.span(), header.stamp);
    if (!batch.ok()) continue;
    header.stream = batch->stream;
    header.opened_sequence = header.stamp.generation;  // Stream draws both at once
    const Result<std::uint64_t> owner = owner_of(info, header.stamp, lba);
    if (!owner.ok()) return owner.status();
    header.volume = *owner;
    return header;
  }
  return unreadable ? lost : Status(Code::not_found, Origin::log);
}

Result<std::uint64_t> Recovery::owner_of(const ZoneInfo& info, const ZoneStamp& stamp,
                                         AlignedBuffer& lba) {
  const std::uint64_t capacity = pool_.geometry.zone_capacity_lbas;
  for (std::uint64_t begin = 0; begin < capacity; begin += pool_.segment_lbas) {
    const std::uint64_t end = std::min(begin + pool_.segment_lbas, capacity);
    if (end > info.written_lbas) break;
    if (!read_lba(info.zone, end - 1, lba).ok()) continue;
    const Result<Summary> footer = SummaryView::footer(lba.span(), stamp);
    if (footer.ok()) return footer->volume;
  }
  if (options_.volumes.size() == 1) return options_.volumes.front();
  return Status(Code::corrupt, Origin::log);
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

// The last zone of a quota is taken by relocation alone, and given back when the zone that it
// empties has been reset. Was it not, then all that the last zone holds is still there as well.
void Recovery::mark_spares() {
  if (options_.read_only) return;
  for (const std::uint64_t volume : options_.stores) {
    if (pool_.allocator.held(volume) < pool_.allocator.quota(volume)) continue;
    FoundZone* last = nullptr;
    for (FoundZone& zone : zones_) {
      if (zone.header.volume != volume || zone.info.state == ZoneState::read_only) continue;
      if (last == nullptr || last->header.opened_sequence < zone.header.opened_sequence) {
        last = &zone;
      }
    }
    if (last == nullptr) continue;
    last->spare = true;
    spares_[volume] = {last->info.zone};
  }
}

Status Recovery::scan_zones() {
  // A scanner waits for the device most of its time; beyond a dozen the device would only queue.
  constexpr unsigned kScannersMax = 12;
  const unsigned threads = std::max(1u, options_.threads);
  const unsigned wanted =
      std::max(threads, std::min(threads * options_.scanners_per_thread, kScannersMax));
  const auto scanners = std::max(1u, std::min(wanted, static_cast<unsigned>(zones_.size())));
  for (unsigned i = 0; i < scanners; ++i) {
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
    for (unsigned i = 1; i < scanners; ++i) {
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
        result_.lost.push_back({zone, "cannot be finished: " + status.describe()});
      }
    }
    for (auto& [volume, resumes] : scanner->resumes) {
      for (auto& [stream, resume] : resumes) {
        pool_.allocator.set_use(resume.zone, ZoneUse::open);
        result_.volumes[volume].resumes.emplace(stream, std::move(resume));
      }
    }
    std::ranges::move(scanner->trims, std::back_inserter(result_.new_trims));
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
  for (const auto& scanner : scanners_) {
    for (auto& [volume, gathered] : scanner->gathered) {
      for (const auto& [group, sequence] : gathered.spare_group_tombstones) {
        std::uint64_t& highest = group_tombstones_[volume][group];
        if (sequence > highest) spares_.at(volume).needed = true;
        highest = std::max(highest, sequence);
      }
    }
  }
  for (auto& [volume, groups] : groups_) std::ranges::sort(groups, {}, &RecoveredGroup::lba);
  for (const std::uint64_t volume : options_.volumes) {
    merge_volume(volume, result_.volumes[volume]);
  }
  for (const auto& scanner : scanners_) result_.memory.push_back(std::move(scanner->memory));
}

void Recovery::merge_volume(std::uint64_t volume, RecoveredVolume& into) {
  std::vector<Gathered*> gathered;
  for (const auto& scanner : scanners_) {
    const auto found = scanner->gathered.find(volume);
    if (found != scanner->gathered.end()) gathered.push_back(&found->second);
  }
  if (gathered.empty()) return;
  auto partitions = std::make_unique<RecordPartitions>();
  std::vector<Merged> merged(std::max(1u, options_.threads));
  std::atomic<unsigned> next{0};
  const auto work = [&](Merged& mine) {
    mine.live_lbas.resize(pool_.geometry.zone_count);
    RecordSorter sorter;
    for (unsigned i = next++; i < kPartitions; i = next++) {
      sorter.clear();
      for (Gathered* one : gathered) sorter.add(one->partitions[i]);
      const std::span<const RecoveredRecord> sorted = sorter.sort();
      RecordPile& pile = (*partitions)[i];
      for (Gathered* one : gathered) pile.clear_and_take(one->partitions[i]);
      winners(volume, sorted, pile, mine);
    }
  };
  {
    std::vector<std::jthread> running;
    for (std::size_t i = 1; i < merged.size(); ++i) {
      running.emplace_back([&work, &mine = merged[i]] { work(mine); });
    }
    work(merged[0]);
  }
  into.pages = RecoveredPages(std::move(partitions), std::max(1u, options_.threads));
  for (const Merged& one : merged) {
    into.live_bytes += one.live_bytes;
    into.cost_bytes += one.cost_bytes;
    into.pinned_lbas += one.pinned_lbas;
    into.largest_bytes = std::max(into.largest_bytes, one.largest_bytes);
    if (one.spare_needed) spares_.at(volume).needed = true;
    into.expiries.insert(into.expiries.end(), one.expiries.begin(), one.expiries.end());
    for (std::uint32_t zone = 0; zone < one.live_lbas.size(); ++zone) {
      // The zone's lowest sequence was noted when it was scanned.
      if (one.live_lbas[zone] != 0) {
        pool_.allocator.add_live(ZoneId{zone}, one.live_lbas[zone], ~std::uint64_t{0});
      }
    }
  }
}

// Of each key in a partition the newest record, if that is a page that nothing has deleted. Of
// copies, the one that is not in a zone that may be given back.
void Recovery::winners(std::uint64_t volume, std::span<const RecoveredRecord> sorted,
                       RecordPile& into, Merged& sums) {
  const auto spare = spares_.find(volume);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i != 0 && sorted[i].same_key(sorted[i - 1])) continue;
    const RecoveredRecord* winner = &sorted[i];
    if (spare != spares_.end() &&
        pool_.geometry.zone_of(Lba{winner->lba()}) == spare->second.zone) {
      winner = same_without(volume, spare->second.zone, sorted.subspan(i));
      if (winner == nullptr) {
        sums.spare_needed = true;
        winner = &sorted[i];
      }
    }
    if (!present(volume, *winner)) continue;
    // One that has expired may have been swept before, and what was stored since has its room.
    if (expired(*winner)) continue;
    into.add_in_place(*winner);
    const IndexEntry entry = winner->entry();
    const std::uint64_t lbas = pool_.page_lbas(entry.length);
    sums.live_bytes += entry.length;
    sums.largest_bytes = std::max(sums.largest_bytes, entry.length);
    sums.cost_bytes += PageLog::cost_bytes(pool_, entry.length);
    if (entry.pinned) sums.pinned_lbas += lbas;
    if (entry.expires) sums.expiries.push_back({entry.lba, winner[1].checksum});
    sums.live_lbas[pool_.geometry.zone_of(Lba{entry.lba}).value] += lbas;
  }
}

bool Recovery::present(std::uint64_t volume, const RecoveredRecord& record) const {
  return record.kind == RecoveredRecord::Kind::page && !group_deleted(volume, record);
}

// `versions` begin with a key's newest record, which is in `spare`. The record that says the same
// without that zone; the newest itself where it says that the key is absent, and so would nothing;
// null: the zone is needed.
const RecoveredRecord* Recovery::same_without(std::uint64_t volume, ZoneId spare,
                                              std::span<const RecoveredRecord> versions) const {
  const RecoveredRecord& newest = versions.front();
  const RecoveredRecord* rest = nullptr;
  for (const RecoveredRecord& version : versions) {
    if (!version.same_key(newest)) break;
    if (version.kind == RecoveredRecord::Kind::expiry) continue;
    if (pool_.geometry.zone_of(Lba{version.lba()}) == spare) continue;
    rest = &version;
    break;
  }
  const bool rest_present = rest != nullptr && present(volume, *rest);
  if (!present(volume, newest)) {
    if (!rest_present) return &newest;
    // A tombstone that stands for an expired page has that page's sequence.
    return rest->sequence == newest.sequence && expired(*rest) ? rest : nullptr;
  }
  return rest_present && rest->sequence == newest.sequence ? rest : nullptr;
}

// Zones that turned out to hold copies alone are free again.
Status Recovery::give_back_spares() {
  bool any = false;
  for (const auto& [volume, spare] : spares_) {
    if (spare.needed) continue;
    const ZoneId zone = spare.zone;
    FURROW_CHECK(pool_.allocator.zone(zone).live_lbas == 0);
    const Status status = reset(zone);
    if (!status.ok()) {
      result_.lost.push_back({zone, "cannot be reset: " + status.describe()});
      continue;
    }
    any = true;
    pool_.allocator.release(zone);
    pool_.tables[zone.value] = ZoneDirectory();
    std::erase_if(result_.volumes[volume].resumes,
                  [&](const auto& resume) { return resume.second.zone == zone; });
    std::erase_if(result_.new_trims, [&](const ZoneTrim& trim) { return trim.zone == zone; });
  }
  if (!any) return {};
  // Before the zone is written again: a power cut could leave its old write pointer.
  Io flush;
  flush.op = Io::Op::flush;
  return run_blocking(*queue_, flush);
}

bool Recovery::group_deleted(std::uint64_t volume, const RecoveredRecord& record) const {
  if (!record.grouped) return false;
  const auto tombstones = group_tombstones_.find(volume);
  if (tombstones == group_tombstones_.end()) return false;
  const auto group =
      std::ranges::lower_bound(groups_.at(volume), record.lba(), {}, &RecoveredGroup::lba);
  const auto deleted = tombstones->second.find(group->group);
  return deleted != tombstones->second.end() && deleted->second > record.sequence;
}

}  // namespace

Result<RecoveryResult> recover(ZonedDevice& device, PoolContext& pool,
                               const RecoveryOptions& options) {
  return Recovery(device, pool, options).run();
}

}  // namespace furrow
