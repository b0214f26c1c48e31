// How a pool is opened: its metadata, what the zones hold, and each volume from both.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "engine/pool_impl.h"
#include "zone/blocking.h"

namespace furrow {

namespace {
constexpr unsigned kHomeQueueDepth = 256;
}

Result<std::unique_ptr<Pool>> Pool::open(ZonedDevice& device, Executor& home,
                                         const OpenOptions& options) {
  if (options.victim_policy == VictimPolicy::fifo) {
    return Status(Code::invalid_argument, Origin::engine,
                  "a store's zones are collected greedy or cost_benefit");
  }
  const bool as_repaired = options.read_only && options.as_repaired;
  Result<MetadataRing> ring = MetadataRing::open(device, options.read_only, as_repaired);
  if (!ring.ok()) return ring.status();
  const Superblock& superblock = ring->superblock();
  const Geometry& geometry = device.geometry();
  if (superblock.lba_bytes != geometry.lba_bytes || superblock.zone_count != geometry.zone_count ||
      superblock.zone_size_lbas != geometry.zone_size_lbas ||
      superblock.zone_capacity_lbas != geometry.zone_capacity_lbas) {
    return Status(Code::corrupt, Origin::engine,
                  "the device's geometry is not the one that the pool was made with");
  }
  Result<std::unique_ptr<IoQueue>> queue = device.create_queue(kHomeQueueDepth);
  if (!queue.ok()) return queue.status();
  if (options.may_block) (*queue)->may_block();
  auto pool =
      std::make_unique<PoolImpl>(device, home, std::move(*ring), std::move(*queue), options);
  Status status;
  if (pool->lost()) {
    Result<AssumedPool> assumed = assume_pool(device, home, pool->ring());
    status = assumed.ok() ? pool->assume(std::move(*assumed)) : assumed.status();
  }
  if (status.ok()) status = pool->open_volumes();
  if (!status.ok()) return status;
  return std::unique_ptr<Pool>(std::move(pool));
}

Status PoolImpl::assume(AssumedPool assumed) {
  unknown_ = std::move(assumed.recovered);
  notes_ = std::move(assumed.notes);
  return ring_.assume(std::move(assumed.state));
}

// Each gets its quota, and of the zones that the device allows to be open what it cannot do
// without.
Status PoolImpl::admit_volumes(RecoveryOptions& options) {
  if (ring_.state().volumes.size() > kVolumesMax) {
    return {Code::corrupt, Origin::engine, "its metadata tells of more than 64 volumes"};
  }
  if (options_.read_only) context_.allocator.opens_none();
  Status status = take_lent_zones();
  for (const VolumeRecord& record : ring_.state().volumes) {
    if (!status.ok()) break;
    if (record.kind == kKindZoned) continue;
    status = context_.allocator.admit(record.id, record.quota_zones, 1);
    options.volumes.push_back(record.id);
    add_blocks(record);
    const bool store = record.mode == static_cast<std::uint8_t>(VolumeMode::store);
    (store ? options.stores : options.caches).push_back(record.id);
  }
  if (status.code() != Code::too_many_zones) return status;
  return {Code::too_many_zones, Origin::engine,
          "the device allows fewer open and active zones (MOR, MAR) than the pool's volumes need: "
          "one for the metadata, one for each volume, and what volumes of kind zoned were given; "
          "bring the pool to a device that allows as many as the one that it was made on"};
}

Status PoolImpl::open_volumes() {
  const std::uint64_t started_ns = context_.home.now_ns();
  RecoveryOptions options;
  options.read_only = options_.read_only;
  options.threads = options_.recovery_threads != 0
                        ? options_.recovery_threads
                        : std::max(1u, std::thread::hardware_concurrency());
  if (options_.recovery_threads == OpenOptions::kCallingThread) {
    options.threads = 1;
    options.scanners_per_thread = 1;
  }
  if (const Status status = admit_volumes(options); !status.ok()) return status;
  for (const ZoneTrimRecord& trim : ring_.state().trims) {
    options.trims.push_back(
        {ZoneId{trim.zone}, trim.generation, trim.end_lba, trim.durable, trim.aside});
  }
  options.next_volume_id = ring_.state().next_volume_id;
  options.had_others = ring_.state().volumes.size() + 1 < options.next_volume_id;
  for (const std::uint32_t zone : options_.give_up) options.give_up.push_back(ZoneId{zone});
  options.note_trim = [this](const ZoneTrim& trim) {
    return note_trim({trim.zone.value, trim.end_lba, trim.generation, trim.durable, trim.aside});
  };
  options.trims_lost = ring_.lost();
  damage_ = ring_.damage();
  notes_.insert(notes_.begin(), ring_.notes().begin(), ring_.notes().end());
  Result<RecoveryResult> recovered = recover(device_, context_, options);
  if (!recovered.ok()) return recovered.status();
  lost_ = std::move(recovered->lost);
  for (const RecoveryResult::Gap& gap : recovered->gaps) {
    gaps_.push_back(
        fmt::format("zone {}: the batch header at LBA {} is damaged; the pages that it named are "
                    "lost, and older ones may be there in their place",
                    gap.zone.value, gap.lba));
  }
  unknown_.merge(recovered->unknown);
  const Status counted = count_opening(recovered->highest_sequence);
  if (!counted.ok()) return counted;
  for (const ZoneTrim& trim : recovered->new_trims) {
    if (trim.end_lba < context_.geometry.zone_capacity_lbas) {
      notes_.push_back(
          fmt::format("zone {}: nothing counts from LBA {} on: writing ended there, or "
                      "was torn before it was flushed",
                      trim.zone.value, trim.end_lba));
    }
    const Status status =
        note_trim({trim.zone.value, trim.end_lba, trim.generation, trim.durable, trim.aside});
    if (!status.ok()) return status;
  }
  const Status dropped = drop_trims();
  if (!dropped.ok()) return dropped;
  const Status status = load(*recovered);
  recovery_us_ = (context_.home.now_ns() - started_ns) / 1000;
  return status;
}

// Before anything is written: what this opening draws must be beyond all that any zone has seen,
// also where the metadata is older than the zones.
Status PoolImpl::count_opening(std::uint64_t highest_sequence) {
  const std::uint64_t known = ring_.state().open_count;
  const std::uint64_t seen = highest_sequence >> kSequenceShift;
  if (seen > known && !ring_.lost()) {
    const std::string text = fmt::format(
        "zones hold records of opening {}, and the metadata knows of {} only: its journal has lost "
        "its end",
        seen, known);
    (options_.read_only ? damage_ : notes_).push_back(text);
  }
  open_count_ = std::max(known, seen) + 1;
  context_.next_sequence = (open_count_ << kSequenceShift) + 1;
  if (options_.read_only) return {};
  if (open_count_ >= kOpenCountMax) {
    return {Code::unsupported, Origin::engine,
            "the pool's numbers are used up; open it read-only and copy it"};
  }
  JournalRecord opened;
  opened.kind = JournalRecord::Kind::opened;
  opened.open_count = open_count_;
  return ring_.append(opened);
}

// A store has a stream for copies, where there is an open zone to spare, and those by lifetime that
// have a zone open; others are granted when the first page comes. A cache evicts zones in the order
// in which they were opened, which is that of its pages in one stream only.
std::map<std::uint64_t, StreamSet> PoolImpl::share_streams(const RecoveryResult& recovered) {
  std::map<std::uint64_t, StreamSet> streams;
  const auto share = [&](std::uint8_t stream, bool with_zone) {
    for (const VolumeRecord& record : ring_.state().volumes) {
      const bool cache = record.mode == static_cast<std::uint8_t>(VolumeMode::cache);
      if (record.kind == kKindZoned || cache) continue;
      const auto found = recovered.volumes.find(record.id);
      const bool there = found != recovered.volumes.end();
      const bool has_zone = there && found->second.resumes.contains(stream);
      StreamSet& its = streams[record.id];
      const std::uint64_t by_lifetime = its.count() - (its.test(kCollectionStream) ? 1 : 0);
      const bool few = stream != kCollectionStream &&
                       context_.allocator.quota(record.id) <= kVolumeZonesMin + by_lifetime;
      if (has_zone != with_zone || few) continue;
      if (context_.allocator.try_add_stream(record.id)) its.set(stream);
    }
  };
  for (std::uint8_t stream = kCollectionStream; stream <= kStreamMax; ++stream) {
    share(stream, true);
  }
  share(kCollectionStream, false);
  return streams;
}

Status PoolImpl::load(const RecoveryResult& recovered) {
  const std::uint64_t lost = context_.allocator.shrink_quotas();
  if (lost != 0) {
    notes_.push_back(
        fmt::format("{} zones are lost: quotas are smaller by as much until they are back", lost));
  }
  std::map<std::uint64_t, StreamSet> streams = share_streams(recovered);
  const Result<std::vector<ZoneInfo>> report = device_.report();
  if (!report.ok()) return report.status();
  // A copy: ending a zone adds to the journal, which makes the state anew.
  const std::vector<VolumeRecord> volumes = ring_.state().volumes;
  for (const VolumeRecord& record : volumes) {
    if (record.kind == kKindZoned) {
      add_zoned(record, *report);
      continue;
    }
    add_store(record, streams[record.id]);
    const auto found = recovered.volumes.find(record.id);
    if (found == recovered.volumes.end()) continue;
    const RecoveredVolume& volume = found->second;
    PageLog& log = stores_.back()->log();
    for (const auto& [stream, resume] : volume.resumes) {
      const bool granted = stream == kUserStream || streams[record.id].test(stream);
      const Status ended = granted ? Status() : end_zone(resume);
      if (!ended.ok()) return ended;
      log.resume(stream, Stream::Resume(resume));
    }
    log.load({volume.pages, volume.live_bytes, volume.pinned_lbas, volume.cost_bytes,
              volume.largest_bytes, volume.first_expiry_s, volume.expired, volume.hidden,
              volume.lost, volume.outlived, volume.damaged});
    recovered_pages_ += volume.pages.size();
    // It was said before the first of these was written, and may have gone with a superblock since.
    const bool say_so = volume.damaged && !options_.read_only;
    const Status said = say_so ? ring_.need(kFeatureDamagedPages) : Status();
    if (!said.ok()) return said;
  }
  if (!options_.read_only) {
    spare_for_copies();
    for (const auto& store : stores_) {
      if (store->zones() == nullptr) store->log().start();
    }
    return_orphans();
    if (!recovered.vacated.empty()) returns_.add({.zones = recovered.vacated, .admitted = false});
    begin_giving_up();
    start_scrubber();
  }
  return {};
}

// Of a stream that there is no open zone for any more: it must not take one of the device's.
Status PoolImpl::end_zone(const Stream::Resume& resume) {
  if (options_.read_only) return {};
  const std::uint64_t generation = context_.allocator.zone(resume.zone).generation;
  const Status status =
      note_trim({resume.zone.value, static_cast<std::uint32_t>(resume.next_lba), generation});
  if (!status.ok()) return status;
  const Status finished = manage_blocking(*queue_, Io::Op::finish, resume.zone);
  if (!finished.ok()) {  // no reason not to open the pool
    notes_.push_back(
        fmt::format("zone {} cannot be finished: {}", resume.zone.value, finished.describe()));
  }
  return {};
}

}  // namespace furrow
