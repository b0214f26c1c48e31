#include "engine/pool.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <set>
#include <thread>

#include "engine/page_session.h"
#include "engine/pool_impl.h"
#include "zone/blocking.h"

namespace furrow {

namespace {

constexpr std::uint32_t kMetadataZones = 2;
constexpr std::uint64_t kSegmentBytesMax = 64 << 20;
constexpr std::uint64_t kVolumeZonesMin = 3;
constexpr unsigned kHomeQueueDepth = 256;
constexpr unsigned kSequenceShift = 40;  // records of one opening
constexpr std::size_t kNameBytesMax = 63;

Uuid random_uuid(Executor& executor) {
  Uuid uuid{};
  for (std::size_t i = 0; i < uuid.size(); i += 8) {
    const std::uint64_t word = executor.random();
    std::memcpy(uuid.data() + i, &word, 8);
  }
  uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0f) | 0x40);  // RFC 4122, version 4
  uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

constexpr const char* kNameHint = "a name has 1 to 63 of the characters A-Z a-z 0-9 . _ -";

VolumeInfo info_of(const VolumeRecord& record, const Geometry& geometry) {
  VolumeInfo info;
  info.id = record.id;
  info.uuid = record.uuid;
  info.options.name = record.name;
  info.options.kind = static_cast<VolumeKind>(record.kind);
  info.options.mode = static_cast<VolumeMode>(record.mode);
  info.options.durability = static_cast<Durability>(record.durability);
  info.options.nsid = record.nsid;
  info.options.quota_bytes = record.quota_zones * geometry.zone_capacity_bytes();
  info.options.value_bytes_max = record.value_bytes_max;
  return info;
}

// A segment must hold at least one page of the largest size, its headers and its summary.
bool value_fits(const Geometry& geometry, std::uint64_t segment_lbas, std::uint32_t bytes) {
  const std::uint64_t last = geometry.zone_capacity_lbas % segment_lbas;
  const std::uint64_t shortest = last == 0 ? segment_lbas : last;
  return geometry.lbas(bytes) + 4 + geometry.lbas(summary_bytes(1, 1, true, true, true)) <=
         shortest;
}

}  // namespace

Status Pool::suits(const Geometry& geometry) {
  if (geometry.zone_count < kMetadataZones + kVolumeZonesMin) {
    return {
        Code::invalid_argument, Origin::engine,
        "too few zones: a pool needs two metadata zones and three for a volume; make the device "
        "larger or its zones smaller"};
  }
  if (geometry.open_zones_max == 1 || geometry.active_zones_max == 1) {
    return {Code::too_many_zones, Origin::engine,
            "a pool needs two open and active zones (MOR and MAR at least 2)"};
  }
  return {};
}

Status Pool::format(ZonedDevice& device, std::string_view name, Executor& executor) {
  if (!valid_name(name)) return {Code::invalid_argument, Origin::engine, kNameHint};
  const Geometry& geometry = device.geometry();
  if (const Status status = suits(geometry); !status.ok()) return status;
  Result<std::vector<ZoneInfo>> report = device.report();
  if (!report.ok()) return report.status();
  Result<std::unique_ptr<IoQueue>> queue = device.create_queue(kHomeQueueDepth);
  if (!queue.ok()) return queue.status();
  for (const ZoneInfo& info : *report) {
    if (info.state == ZoneState::empty || info.state == ZoneState::offline) continue;
    Io io;
    io.op = Io::Op::reset;
    io.zone = info.zone;
    io.lba = geometry.zone_start(info.zone);
    const Status status = run_blocking(**queue, io);
    if (!status.ok() && info.zone.value < kMetadataZones) return status;
  }
  Superblock superblock;
  superblock.pool = random_uuid(executor);
  superblock.device_set = random_uuid(executor);
  superblock.name = name;
  if (sodium_init() < 0) return {Code::io_error, Origin::engine, "no random source"};
  randombytes_buf(superblock.hash_key.data(), superblock.hash_key.size());
  superblock.metadata_zones = kMetadataZones;
  // Equal segments: a short one at the zone's end could be too small for a page.
  const std::uint64_t segment_lbas_max = kSegmentBytesMax / geometry.lba_bytes;
  const std::uint64_t segments =
      (geometry.zone_capacity_lbas + segment_lbas_max - 1) / segment_lbas_max;
  superblock.segment_lbas = (geometry.zone_capacity_lbas + segments - 1) / segments;
  superblock.lba_bytes = geometry.lba_bytes;
  superblock.zone_size_lbas = geometry.zone_size_lbas;
  superblock.zone_capacity_lbas = geometry.zone_capacity_lbas;
  superblock.zone_count = geometry.zone_count;
  return MetadataRing::format(device, superblock, PoolState());
}

Result<std::unique_ptr<Pool>> Pool::open(ZonedDevice& device, Executor& home,
                                         const OpenOptions& options) {
  Result<MetadataRing> ring = MetadataRing::open(device, options.read_only);
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
  auto pool =
      std::make_unique<PoolImpl>(device, home, std::move(*ring), std::move(*queue), options);
  const Status status = pool->open_volumes();
  if (!status.ok()) return status;
  return std::unique_ptr<Pool>(std::move(pool));
}

PoolImpl::PoolImpl(ZonedDevice& device, Executor& home, MetadataRing ring,
                   std::unique_ptr<IoQueue> queue, const OpenOptions& options)
    : device_(device),
      ring_(std::move(ring)),
      queue_(std::move(queue)),
      context_(device, home, *queue_, ring_.superblock()),
      options_(options),
      ended_(std::make_unique<GetCounters[]>(kVolumesMax)) {
  context_.home.add(*queue_);
  context_.on_zone_cut = [this](ZoneId zone, std::uint32_t end_lba) {
    cuts_.push_back({zone.value, end_lba, context_.allocator.zone(zone).generation});
    note_cuts();
  };
}

// Where the file system is full, the journal may not take them either: until it does, the next
// recovery finds out by itself, and calls it torn.
void PoolImpl::note_cuts() {
  while (!cuts_.empty()) {
    JournalRecord record;
    record.kind = JournalRecord::Kind::zone_trimmed;
    record.trim = cuts_.front();
    if (!ring_.append(record).ok()) return;
    cuts_.erase(cuts_.begin());
  }
}

PoolImpl::~PoolImpl() {
  FURROW_CHECK(sessions_.empty());
  stores_.clear();
  deleted_.clear();
  context_.home.remove(*queue_);
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
  for (const VolumeRecord& record : ring_.state().volumes) {
    const Status status = context_.allocator.admit(record.id, record.quota_zones, 1);
    if (!status.ok()) return status;
    options.volumes.push_back(record.id);
    if (record.mode == static_cast<std::uint8_t>(VolumeMode::store)) {
      options.stores.push_back(record.id);
    }
  }
  for (const ZoneTrimRecord& trim : ring_.state().trims) {
    options.trims.push_back({ZoneId{trim.zone}, trim.generation, trim.end_lba});
  }
  damage_ = ring_.damage();
  if (!options_.read_only) {
    JournalRecord opened;
    opened.kind = JournalRecord::Kind::opened;
    opened.open_count = ring_.state().open_count + 1;
    const Status status = ring_.append(opened);
    if (!status.ok()) return status;
  }
  context_.next_sequence = (ring_.state().open_count << kSequenceShift) + 1;
  Result<RecoveryResult> recovered = recover(device_, context_, options);
  if (!recovered.ok()) return recovered.status();
  lost_ = std::move(recovered->lost);
  for (const ZoneTrim& trim : recovered->new_trims) {
    notes_.push_back(
        fmt::format("zone {}: nothing counts from LBA {} on: writing ended there, or "
                    "was torn before it was flushed",
                    trim.zone.value, trim.end_lba));
    if (options_.read_only) continue;
    JournalRecord record;
    record.kind = JournalRecord::Kind::zone_trimmed;
    record.trim = {trim.zone.value, trim.end_lba, trim.generation};
    const Status status = ring_.append(record);
    if (!status.ok()) return status;
  }
  const Status status = load(*recovered);
  recovery_us_ = (context_.home.now_ns() - started_ns) / 1000;
  return status;
}

Status PoolImpl::load(const RecoveryResult& recovered) {
  const std::uint64_t lost = context_.allocator.shrink_quotas();
  if (lost != 0) {
    notes_.push_back(fmt::format(
        "{} zones are lost: the largest quotas are smaller by as much until they are back", lost));
  }
  // Volumes that have a collection zone open keep it; what is left goes to the others.
  std::set<std::uint64_t> collecting;
  for (const auto& [id, volume] : recovered.volumes) {
    if (volume.resumes.contains(kCollectionStream) && context_.allocator.try_add_stream(id))
      collecting.insert(id);
  }
  for (const VolumeRecord& record : ring_.state().volumes) {
    const Status status = add_store(record, collecting.contains(record.id));
    if (!status.ok()) return status;
    const auto found = recovered.volumes.find(record.id);
    if (found == recovered.volumes.end()) continue;
    const RecoveredVolume& volume = found->second;
    PageLog& log = stores_.back()->log();
    for (const RecoveredVolume::Expiry& expiry : volume.expiries) {
      log.load_expiry(expiry.lba, expiry.expires_s);
    }
    for (const auto& [stream, resume] : volume.resumes) {
      log.resume(stream, Stream::Resume(resume));
    }
    log.load({volume.pages, volume.live_bytes, volume.pinned_lbas, volume.cost_bytes,
              volume.largest_bytes});
    recovered_pages_ += volume.pages.size();
  }
  if (!options_.read_only) {
    for (const auto& store : stores_) store->log().start();
  }
  return {};
}

Status PoolImpl::add_store(const VolumeRecord& record, bool has_collection_stream) {
  PageLogOptions options;
  options.volume = record.id;
  options.cache = record.mode == static_cast<std::uint8_t>(VolumeMode::cache);
  options.value_bytes_max = record.value_bytes_max;
  options.own_collection_stream =
      !options.cache && (has_collection_stream || context_.allocator.try_add_stream(record.id));
  stores_.push_back(std::make_unique<PageStoreImpl>(*this, info_of(record, context_.geometry),
                                                    context_, options, next_ordinal_));
  ++next_ordinal_;
  return {};
}

bool PoolImpl::quiesce() {
  bool idle = !queue_->busy() && !context_.flusher.busy();
  for (const auto& store : stores_) {
    store->log().stop_background();
    idle = idle && store->log().idle();
  }
  if (!idle || options_.read_only) return idle;
  note_cuts();
  bool closed = true;
  for (const auto& store : stores_) closed = store->log().close() && closed;
  return closed;
}

PoolInfo PoolImpl::info() const {
  PoolInfo info;
  const Superblock& superblock = ring_.superblock();
  info.name = superblock.name;
  info.uuid = superblock.pool;
  info.format_version = kFormatVersion;
  info.geometry = context_.geometry;
  const ZoneAllocator& allocator = context_.allocator;
  info.zones_free = allocator.count(ZoneUse::free);
  info.zones_metadata = allocator.count(ZoneUse::metadata);
  info.zones_bad = allocator.count(ZoneUse::bad);
  info.zones_data =
      context_.geometry.zone_count - info.zones_free - info.zones_metadata - info.zones_bad;
  info.device_full = context_.device_full;
  info.recovery_us = recovery_us_;
  info.recovered_pages = recovered_pages_;
  return info;
}

std::uint32_t PoolImpl::free_nsid() const {
  std::uint32_t nsid = 1;
  while (find_nsid(nsid) != nullptr) ++nsid;
  return nsid;
}

Status PoolImpl::check_new_volume(const VolumeOptions& options) const {
  if (options_.read_only) {
    return {Code::permission, Origin::engine, "the pool was opened for inspection only"};
  }
  if (!valid_name(options.name)) return {Code::invalid_argument, Origin::engine, kNameHint};
  if (find(options.name) != nullptr) {
    return {Code::exists, Origin::engine, "a volume of that name exists"};
  }
  if (options.nsid != 0 && find_nsid(options.nsid) != nullptr) {
    return {Code::exists, Origin::engine, "a volume has that namespace id"};
  }
  if (options.nsid > kVolumesMax * 16) {
    return {Code::invalid_argument, Origin::engine, "a namespace id is at most 1024"};
  }
  if (options.kind != VolumeKind::kv) {
    return {Code::unsupported, Origin::engine, "this version has volumes of kind kv"};
  }
  if (options.mode != VolumeMode::cache && options.mode != VolumeMode::store) {
    return {Code::invalid_argument, Origin::engine, "a volume's mode is cache or store"};
  }
  if (next_ordinal_ == kVolumesMax) {
    return {Code::no_space, Origin::engine,
            "a pool has at most 64 volumes; reopen it if some were deleted"};
  }
  if (options.value_bytes_max == 0 || options.value_bytes_max > kValueBytesMax) {
    return {Code::invalid_argument, Origin::engine, "value_bytes_max is 1 byte to 4 MiB"};
  }
  if (!value_fits(context_.geometry, context_.segment_lbas, options.value_bytes_max)) {
    return {Code::invalid_argument, Origin::engine,
            "value_bytes_max does not fit the pool's zones; choose a smaller one or larger zones"};
  }
  return {};
}

Result<PageStore*> PoolImpl::create_volume(const VolumeOptions& options) {
  const Status checked = check_new_volume(options);
  if (!checked.ok()) return checked;
  const std::uint64_t zone_bytes = context_.geometry.zone_capacity_bytes();
  VolumeRecord record;
  record.id = ring_.state().next_volume_id;
  record.uuid = random_uuid(context_.home);
  record.name = options.name;
  record.kind = static_cast<std::uint8_t>(options.kind);
  record.mode = static_cast<std::uint8_t>(options.mode);
  record.durability = static_cast<std::uint8_t>(options.durability);
  record.nsid = options.nsid != 0 ? options.nsid : free_nsid();
  record.quota_zones =
      options.quota_bytes != 0 ? options.quota_bytes / zone_bytes : context_.allocator.unpromised();
  record.value_bytes_max = options.value_bytes_max;
  if (record.quota_zones < kVolumeZonesMin) {
    if (options.quota_bytes != 0) {
      return Status(Code::invalid_argument, Origin::engine,
                    "a volume needs a quota of at least three zones' capacity");
    }
    return Status(
        Code::no_space, Origin::engine,
        "the other volumes' quotas leave less than three zones, the least a volume needs; "
        "a volume made without a quota takes all that is left");
  }
  Status status = context_.allocator.admit(record.id, record.quota_zones, 1);
  if (!status.ok()) return status;
  JournalRecord created;
  created.kind = JournalRecord::Kind::volume_created;
  created.volume = record;
  status = ring_.append(created);
  if (!status.ok()) {
    context_.allocator.dismiss(record.id);
    return status;
  }
  status = add_store(record, false);
  if (!status.ok()) return status;
  stores_.back()->log().start();
  return static_cast<PageStore*>(stores_.back().get());
}

Status PoolImpl::delete_volume(std::string_view name) {
  const auto found = std::ranges::find_if(
      stores_, [&](const auto& store) { return store->info().options.name == name; });
  if (found == stores_.end()) {
    return {Code::not_found, Origin::engine, "no volume of that name"};
  }
  if (options_.read_only) {
    return {Code::permission, Origin::engine, "the pool was opened for inspection only"};
  }
  PageLog& log = (*found)->log();
  log.stop_background();
  if (!log.idle()) {
    log.start_background();
    return {Code::busy, Origin::engine, "the volume is in use; stop its clients and try again"};
  }
  const std::uint64_t id = (*found)->info().id;
  JournalRecord deleted;
  deleted.kind = JournalRecord::Kind::volume_deleted;
  deleted.volume.id = id;
  const Status journaled = ring_.append(deleted);
  if (!journaled.ok()) {
    log.start_background();
    return journaled;
  }
  (*found)->mark_deleted();
  log.clear();
  deleted_.push_back(std::move(*found));
  stores_.erase(found);
  // From here on the volume is gone; a zone that cannot be reset now is reset at the next open.
  for (std::uint32_t i = 0; i < context_.geometry.zone_count; ++i) {
    if (context_.allocator.zones()[i].owner != id) continue;
    Io io;
    io.op = Io::Op::reset;
    io.zone = ZoneId{i};
    io.lba = context_.geometry.zone_start(io.zone);
    if (run_blocking(*queue_, io).ok()) {
      context_.allocator.release(io.zone);
      context_.tables[i] = ZoneDirectory();
    } else {
      context_.allocator.retire(io.zone);
    }
  }
  context_.allocator.dismiss(id);
  return {};
}

std::vector<PageStore*> PoolImpl::stores() const {
  std::vector<PageStore*> all;
  for (const auto& store : stores_) all.push_back(store.get());
  return all;
}

PageStore* PoolImpl::find(std::string_view name) const {
  for (const auto& store : stores_) {
    if (store->info().options.name == name) return store.get();
  }
  return nullptr;
}

PageStore* PoolImpl::find_nsid(std::uint32_t nsid) const {
  for (const auto& store : stores_) {
    if (store->info().options.nsid == nsid) return store.get();
  }
  return nullptr;
}

Result<std::unique_ptr<PageSession>> PoolImpl::create_session(Executor& executor, unsigned depth) {
  Result<std::unique_ptr<IoQueue>> queue = device_.create_queue(depth);
  if (!queue.ok()) return queue.status();
  return std::unique_ptr<PageSession>(
      std::make_unique<PageSessionImpl>(*this, context_, executor, std::move(*queue)));
}

void PoolImpl::attach(PageSessionImpl& session) {
  const std::lock_guard lock(sessions_mutex_);
  sessions_.push_back(&session);
}

void PoolImpl::detach(PageSessionImpl& session) {
  const std::lock_guard lock(sessions_mutex_);
  std::erase(sessions_, &session);
  for (std::size_t i = 0; i < kVolumesMax; ++i) session.counters(i).add_to(ended_[i]);
}

void PoolImpl::sum_gets(std::size_t ordinal, GetCounters& sum) const {
  const std::lock_guard lock(sessions_mutex_);
  ended_[ordinal].add_to(sum);
  for (const PageSessionImpl* session : sessions_) session->counters(ordinal).add_to(sum);
}

VolumeUsage PageStoreImpl::usage() const {
  const PageLogStats& stats = log_.stats();
  VolumeUsage usage;
  usage.pages = stats.pages;
  usage.live_bytes = stats.live_bytes;
  usage.zones = stats.zones;
  usage.quota_zones = info_.options.quota_bytes / context_.geometry.zone_capacity_bytes();
  return usage;
}

VolumeStats PageStoreImpl::stats() const {
  const PageLogStats& log = log_.stats();
  GetCounters gets;
  pool_.sum_gets(ordinal_, gets);
  VolumeStats stats;
  stats.gets = gets.gets;
  stats.get_hits = gets.hits;
  stats.get_misses = gets.misses;
  stats.get_bytes = gets.bytes;
  stats.puts = log.puts;
  stats.put_bytes = log.put_bytes;
  stats.removes = log.removes;
  stats.exists = log.exists;
  stats.lists = log.lists;
  stats.flushes = log.flushes;
  stats.corrupt_pages = log.corrupt_pages;
  stats.device_bytes_written = log.device_bytes_written;
  stats.relocated_bytes = log.relocated_bytes;
  stats.evicted_pages = log.evicted_pages;
  stats.evicted_zones = log.evicted_zones;
  stats.zones_reset = log.zones_reset;
  stats.header_reads = log.header_reads;
  stats.index_bytes = log_.index_bytes() + log.table_bytes;
  return stats;
}

}  // namespace furrow
