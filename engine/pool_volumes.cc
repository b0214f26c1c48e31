// The volumes of an open pool: made, found, counted and deleted.
#include <algorithm>
#include <bit>

#include "engine/files/staging.h"
#include "engine/page_session.h"
#include "engine/pool_impl.h"
#include "log/metadata_format.h"

namespace furrow {

namespace {

constexpr std::uint64_t kWaitUs = 100'000;
constexpr std::uint64_t kShortStreamZonesMin = 16;
constexpr unsigned kSlotsKept = 4;  // open zones, for volumes to come
constexpr std::uint64_t kChunksOfZone = 64, kChunksOfZoneMin = 4;
constexpr std::uint32_t kFileChunkBytesMin = 4096;  // an LBA, and room for a file's record
constexpr Status kReturning{Code::busy, Origin::engine,
                            "zones of volumes that were deleted are being reset; try again"};
constexpr std::uint64_t kChunkBytesLow = 64 << 10, kChunkBytesHigh = 256 << 10;

VolumeOptions with_defaults(const Geometry& geometry, VolumeOptions options) {
  const bool asks = options.kind == VolumeKind::fs && options.value_bytes_max == 0;
  if (asks) options.value_bytes_max = chunk_bytes_of(geometry);
  return options;
}

}  // namespace

std::uint32_t chunk_bytes_of(const Geometry& geometry) {
  const std::uint64_t zone_bytes = geometry.zone_capacity_bytes();
  const std::uint64_t share = std::bit_floor(zone_bytes / kChunksOfZone);
  const std::uint64_t chunk = std::clamp(share, kChunkBytesLow, kChunkBytesHigh);
  return static_cast<std::uint32_t>(std::min(chunk, std::bit_floor(zone_bytes / kChunksOfZoneMin)));
}

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
  info.options.block_bytes = record.size_mib * kDiskUnitBytes;
  if (record.lba_shift != 0) info.options.block_lba_bytes = 1u << record.lba_shift;
  if (info.options.kind == VolumeKind::zoned) {
    info.options.zones = static_cast<std::uint32_t>(record.quota_zones);
    info.options.open_zones_max = record.open_zones_max;
    info.options.active_zones_max = record.active_zones_max;
  }
  return info;
}

bool value_fits(const Geometry& geometry, std::uint64_t segment_lbas, std::uint32_t bytes) {
  const std::uint64_t last = geometry.zone_capacity_lbas % segment_lbas;
  const std::uint64_t shortest = last == 0 ? segment_lbas : last;
  return geometry.lbas(bytes) + 4 + geometry.lbas(summary_bytes(1, 1, true, true, true)) <=
         shortest;
}

namespace {

Status check_block_options(const VolumeOptions& options) {
  const auto invalid = [](const char* hint) {
    return Status(Code::invalid_argument, Origin::engine, hint);
  };
  if (options.kind != VolumeKind::block) {
    if (options.block_bytes == 0 && options.block_lba_bytes == 0) return {};
    return invalid("a size and an LBA size are of volumes of kind block");
  }
  if (options.mode != VolumeMode::store) {
    return invalid("a volume of kind block drops nothing (mode store)");
  }
  if (options.block_bytes == 0 || options.block_bytes % kDiskUnitBytes != 0 ||
      options.block_bytes / kDiskUnitBytes > kSizeMibMax) {
    return invalid("a block volume's size is a multiple of 1 MiB, less than 16 TiB");
  }
  if (options.block_lba_bytes != 512 && options.block_lba_bytes != 4096) {
    return invalid("a block volume's LBAs have 512 or 4096 bytes");
  }
  if (options.value_bytes_max != kBlockPageBytes) {
    return invalid("a block volume's pages have 4096 bytes");
  }
  return {};
}

Status check_zoned_options(const Geometry& geometry, const VolumeOptions& options) {
  const auto invalid = [](const char* hint) {
    return Status(Code::invalid_argument, Origin::engine, hint);
  };
  if (options.kind != VolumeKind::zoned) {
    if (options.zones == 0 && options.open_zones_max == 0 && options.active_zones_max == 0) {
      return {};
    }
    return invalid("zones, and a share of open and active ones, are of volumes of kind zoned");
  }
  if (options.mode != VolumeMode::store) {
    return invalid("a volume of kind zoned drops nothing (mode store)");
  }
  if (options.zones == 0) return invalid("a volume of kind zoned has at least one zone");
  if (options.quota_bytes != 0) return invalid("a zoned volume's zones are all that it has");
  const auto beyond = [](std::uint32_t share, std::uint32_t limit) {
    return limit == 0 ? share != 0 : share >= limit;
  };
  if (beyond(options.open_zones_max, geometry.open_zones_max) ||
      beyond(options.active_zones_max, geometry.active_zones_max)) {
    return invalid(
        "a share of open and active zones is less than the device has (MOR, MAR), and none where "
        "it has no such limit");
  }
  return {};
}

constexpr const char* kLargeValuesHint =
    "a store with values of more than half a zone needs a quota of at least six zones; choose a "
    "smaller value_bytes_max, a larger quota, or larger zones";

std::uint64_t zones_min(const Geometry& geometry, const VolumeOptions& options) {
  const bool cache = options.mode == VolumeMode::cache;
  return PageLog::zones_min(geometry, cache, options.value_bytes_max);
}

// What a volume may be on such a device, whatever else the pool holds.
Status check_options(const Geometry& geometry, std::uint64_t segment_lbas,
                     const VolumeOptions& options) {
  if (!valid_name(options.name)) return {Code::invalid_argument, Origin::engine, kNameHint};
  if (options.nsid > PoolImpl::kNsidMax) {
    return {Code::invalid_argument, Origin::engine, "a namespace id is at most 1024"};
  }
  if (options.kind != VolumeKind::kv && options.kind != VolumeKind::fs &&
      options.kind != VolumeKind::block && options.kind != VolumeKind::zoned) {
    return {Code::unsupported, Origin::engine,
            "this version has volumes of kind kv, fs, block and zoned"};
  }
  if (options.kind == VolumeKind::fs && (options.mode != VolumeMode::store || options.nsid != 0)) {
    return {Code::invalid_argument, Origin::engine,
            "a volume of kind fs drops nothing (mode store) and has no namespace"};
  }
  if (options.mode != VolumeMode::cache && options.mode != VolumeMode::store) {
    return {Code::invalid_argument, Origin::engine, "a volume's mode is cache or store"};
  }
  if (const Status status = check_block_options(options); !status.ok()) return status;
  const Status zoned = check_zoned_options(geometry, options);
  if (!zoned.ok() || options.kind == VolumeKind::zoned) return zoned;
  if (options.value_bytes_max == 0 || options.value_bytes_max > kValueBytesMax) {
    return {Code::invalid_argument, Origin::engine, "value_bytes_max is 1 byte to 4 MiB"};
  }
  if (options.kind == VolumeKind::fs && options.value_bytes_max < kFileChunkBytesMin) {
    return {Code::invalid_argument, Origin::engine,
            "a volume of kind fs keeps files in pieces of value_bytes_max: 4 KiB at least; without "
            "one it has what suits the zones"};
  }
  if (!value_fits(geometry, segment_lbas, options.value_bytes_max)) {
    return {Code::invalid_argument, Origin::engine,
            "value_bytes_max does not fit the pool's zones; choose a smaller one or larger zones"};
  }
  if (options.quota_bytes != 0 &&
      options.quota_bytes / geometry.zone_capacity_bytes() < kVolumeZonesMin) {
    return {Code::invalid_argument, Origin::engine,
            "a volume needs a quota of at least three zones' capacity"};
  }
  const std::uint64_t zones = options.quota_bytes / geometry.zone_capacity_bytes();
  if (options.quota_bytes != 0 && zones < zones_min(geometry, options)) {
    return {Code::invalid_argument, Origin::engine, kLargeValuesHint};
  }
  return {};
}

}  // namespace

Status Pool::suits(const Geometry& geometry, const VolumeOptions& asked) {
  const VolumeOptions first = with_defaults(geometry, asked);
  const Status checked = check_options(geometry, segment_lbas_of(geometry), first);
  if (!checked.ok()) return checked;
  const std::uint64_t zones = geometry.zone_count - kMetadataZones;
  const bool takes_all = first.kind != VolumeKind::zoned && first.quota_bytes == 0;
  if (takes_all && zones < zones_min(geometry, first)) {
    return {Code::no_space, Origin::engine, kLargeValuesHint};
  }
  const std::uint64_t wanted = first.kind == VolumeKind::zoned
                                   ? first.zones
                                   : first.quota_bytes / geometry.zone_capacity_bytes();
  if (wanted <= zones) return {};
  return {Code::no_space, Origin::engine,
          "the quota, or the zones, are more than the device has without its two metadata zones"};
}

// A zone that is partly written is room that a small quota has not got.
bool PoolImpl::grant_lifetime(std::uint64_t volume, std::uint8_t stream) {
  const std::uint64_t wanted = stream == kShortStream  ? kShortStreamZonesMin
                               : stream == kLongStream ? 2 * options_.lifetime_zones
                                                       : 4 * options_.lifetime_zones;
  return context_.allocator.quota(volume) >= wanted &&
         context_.allocator.try_add_stream(volume, kSlotsKept);
}

void PoolImpl::add_blocks(const VolumeRecord& record) {
  if (record.kind != kKindBlock) return;
  const std::uint64_t blocks = record.size_mib * (kDiskUnitBytes / kBlockPageBytes);
  context_.blocks.emplace(
      record.id, std::make_unique<PoolContext::Blocks>(context_.hash_key, record.id, blocks));
}

void PoolImpl::add_store(const VolumeRecord& record, StreamSet streams) {
  PageLogOptions options;
  options.volume = record.id;
  options.cache = record.mode == static_cast<std::uint8_t>(VolumeMode::cache);
  options.value_bytes_max = record.value_bytes_max;
  options.victim_policy = options_.victim_policy;
  options.streams = streams;
  options.grant_stream = [this, volume = record.id](std::uint8_t stream, bool room) {
    return room && grant_lifetime(volume, stream);
  };
  stores_.push_back(std::make_unique<PageStoreImpl>(*this, info_of(record, context_.geometry),
                                                    context_, options, take_ordinal()));
}

std::size_t PoolImpl::take_ordinal() {
  std::size_t ordinal = 0;
  while (ordinals_.test(ordinal)) ++ordinal;
  ordinals_.set(ordinal);
  return ordinal;
}

// Above those of volumes that are gone since the pool was opened, as long as there are such: a host
// that is still connected may not have heard, and what it sends to the volume that it knows would
// reach another one.
std::uint32_t PoolImpl::free_nsid() const {
  std::uint32_t nsid = nsid_from_;
  while (nsid <= kNsidMax && find_nsid(nsid) != nullptr) ++nsid;
  if (nsid <= kNsidMax) return nsid;
  nsid = 1;
  while (find_nsid(nsid) != nullptr) ++nsid;
  return nsid;
}

// Nor that of a zoned volume whose creation was cut off: its zones are still to come back.
std::uint64_t PoolImpl::unused_id() const {
  std::uint64_t id = ring_.state().next_volume_id;
  for (const LentZones& run : ring_.state().lent) id = std::max(id, run.volume + 1);
  return id;
}

Status PoolImpl::check_new_volume(const VolumeOptions& options) const {
  if (options_.read_only) {
    return {Code::permission, Origin::engine, "the pool was opened for inspection only"};
  }
  if (find(options.name) != nullptr) {
    return {Code::exists, Origin::engine, "a volume of that name exists"};
  }
  if (options.nsid != 0 && find_nsid(options.nsid) != nullptr) {
    return {Code::exists, Origin::engine, "a volume has that namespace id"};
  }
  if (stores_.size() == kVolumesMax) {
    return {Code::no_space, Origin::engine, "a pool has at most 64 volumes"};
  }
  if (ordinals_.all()) {
    return {
        Code::no_space, Origin::engine,
        "a pool has at most 64 volumes, counting those that were deleted since it was opened: end "
        "what has it open, and start that again"};
  }
  // Zoned ones may be as many as there are zones.
  const std::size_t volumes = std::max(volumes_max(context_.geometry), stores_.size() + 1);
  if (!MetadataRing::has_room_for(context_.geometry, volumes, ring_.state().reservations)) {
    return {Code::no_space, Origin::engine,
            "the pool's metadata zones are too small for one more volume"};
  }
  return check_options(context_.geometry, context_.segment_lbas, options);
}

Result<PageStore*> PoolImpl::create_volume(const VolumeOptions& asked) {
  const VolumeOptions options = with_defaults(context_.geometry, asked);
  const Status checked = check_new_volume(options);
  if (!checked.ok()) return checked;
  const bool more_to_come = returns_.zones() != 0;
  const bool takes_all = options.kind != VolumeKind::zoned && options.quota_bytes == 0;
  // Of the zones that may be open each has what it finds, for as long as it is there.
  if ((more_to_come && takes_all) || returns_.limits()) return kReturning;
  Result<PageStore*> made = make_volume(options);
  const Code code = made.status().code();
  const bool lacks = code == Code::no_space || code == Code::too_many_zones;
  if (more_to_come && lacks) return kReturning;
  return code == Code::no_space && sheds_zones() ? kShedding : std::move(made);
}

Result<PageStore*> PoolImpl::make_volume(const VolumeOptions& options) {
  const std::uint64_t zone_bytes = context_.geometry.zone_capacity_bytes();
  VolumeRecord record;
  record.id = unused_id();
  record.uuid = random_uuid(context_.home);
  record.name = options.name;
  record.kind = static_cast<std::uint8_t>(options.kind);
  record.mode = static_cast<std::uint8_t>(options.mode);
  record.durability = static_cast<std::uint8_t>(options.durability);
  if (options.kind != VolumeKind::fs) record.nsid = options.nsid != 0 ? options.nsid : free_nsid();
  if (options.kind == VolumeKind::zoned) return create_zoned(std::move(record), options);
  record.quota_zones =
      options.quota_bytes != 0 ? options.quota_bytes / zone_bytes : context_.allocator.unpromised();
  record.value_bytes_max = options.value_bytes_max;
  record.size_mib = static_cast<std::uint32_t>(options.block_bytes / kDiskUnitBytes);
  if (options.kind == VolumeKind::block) {
    record.lba_shift = static_cast<std::uint8_t>(std::countr_zero(options.block_lba_bytes));
  }
  if (record.quota_zones < kVolumeZonesMin) {
    return Status(
        Code::no_space, Origin::engine,
        "the other volumes' quotas leave less than three zones, the least a volume needs; "
        "a volume made without a quota takes all that is left");
  }
  if (record.quota_zones < zones_min(context_.geometry, options)) {
    return Status(Code::no_space, Origin::engine, kLargeValuesHint);
  }
  Status status = context_.allocator.admit(record.id, record.quota_zones, 1);
  if (!status.ok()) return status;
  JournalRecord created;
  created.kind = JournalRecord::Kind::volume_created;
  created.volume = record;
  status = journal(created);
  if (!status.ok()) {
    context_.allocator.dismiss(record.id);
    return status;
  }
  StreamSet streams;
  const bool collects = options.mode == VolumeMode::store;
  streams.set(kCollectionStream, collects && context_.allocator.try_add_stream(record.id));
  add_blocks(record);
  add_store(record, streams);
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
  if ((*found)->zones() != nullptr) return delete_zoned(**found);
  PageLog& log = (*found)->log();
  log.stop_background();
  // A note, or a flush, that nobody asked for is no use of the volume.
  const std::uint64_t until_ns = context_.home.now_ns() + kWaitUs * 1000;
  while (!log.operating() && !log.idle() && queue_->busy() && context_.home.now_ns() < until_ns) {
    queue_->wait(kWaitUs);
  }
  if (!log.idle()) {
    log.start_background();
    return {Code::busy, Origin::engine, "the volume is in use; stop its clients and try again"};
  }
  const std::uint64_t id = (*found)->info().id;
  JournalRecord deleted;
  deleted.kind = JournalRecord::Kind::volume_deleted;
  deleted.volume.id = id;
  const Status journaled = journal(deleted);
  if (!journaled.ok()) {
    log.start_background();
    return journaled;
  }
  (*found)->mark_deleted();
  if ((*found)->info().options.kind == VolumeKind::fs) {
    Staging::discard((*found)->info().uuid, device_identity(context_.device.uri()));
  }
  log.clear();
  set_aside(**found);
  // What reads one of its zones now is the scrubber alone; it begins no other.
  while (scrubber_ && scrubber_->reading()) queue_->wait(kWaitUs);
  const std::vector<ZoneId> zones = context_.allocator.vacate(id);
  for (const ZoneId zone : zones) context_.forget(zone);
  returns_.add({.id = id, .zones = zones});
  return {};
}

void PoolImpl::on_limits_returned(std::uint64_t volume, unsigned still_active) {
  context_.allocator.dismiss(volume, still_active);
}

// It is reset at the next opening. Where it is offline then, it held nothing of the volumes that
// are left.
void PoolImpl::on_kept(ZoneId zone) {
  cuts_.push_back({zone.value, 0, ZoneTrimRecord::kAnyLife});
  (void)note_cuts();  // asked for again before it matters
}

void PoolImpl::set_aside(PageStoreImpl& store) {
  const std::uint32_t nsid = store.info().options.nsid;
  if (nsid >= nsid_from_) nsid_from_ = nsid % kNsidMax + 1;
  const auto found =
      std::ranges::find_if(stores_, [&](const auto& each) { return each.get() == &store; });
  deleted_.push_back(std::move(*found));
  stores_.erase(found);
}

void PoolImpl::forget_deleted() {
  for (std::unique_ptr<PageStoreImpl>& store : std::exchange(deleted_, {})) {
    media_errors_forgotten_ += store->media_errors();
    reset_counters(store->ordinal());
    ordinals_.reset(store->ordinal());
    const std::uint64_t id = store->info().id;
    store.reset();
    context_.blocks.erase(id);
  }
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
  if (nsid == 0) return nullptr;
  for (const auto& store : stores_) {
    if (store->info().options.nsid == nsid) return store.get();
  }
  return nullptr;
}

VolumeUsage PageStoreImpl::usage() const {
  VolumeUsage usage;
  usage.quota_zones = info().options.quota_bytes / context_.geometry.zone_capacity_bytes();
  if (zones_ != nullptr) {
    const Geometry& geometry = zones_->geometry();
    usage.zones = geometry.zone_count;
    for (std::uint32_t i = 0; i < geometry.zone_count; ++i) {
      const ZoneInfo zone = zones_->zone(i);
      if (zone.state == ZoneState::offline) continue;
      usage.live_bytes += zone.written_lbas * geometry.lba_bytes;
      const bool writable = zone.state == ZoneState::empty || is_active(zone.state);
      const std::uint64_t left = geometry.zone_capacity_lbas - zone.written_lbas;
      if (writable) usage.free_bytes += left * geometry.lba_bytes;
    }
    return usage;
  }
  const PageLogStats& stats = log_->stats();
  usage.pages = stats.pages;
  usage.live_bytes = stats.live_bytes;
  usage.incomplete = log_->incomplete();
  usage.zones = stats.zones;
  const std::uint64_t cost = stats.cost_bytes, usable = stats.usable_bytes;
  usage.free_bytes = usable - std::min(usable, cost);
  return usage;
}

std::uint64_t PageStoreImpl::media_errors() const {
  const VolumeStats its = stats();
  return its.corrupt_pages + its.failed_reads;
}

VolumeStats PageStoreImpl::stats() const {
  GetCounters gets;
  pool_.sum_gets(ordinal_, gets);
  VolumeStats stats;
  stats.gets = gets.gets;
  stats.get_hits = gets.hits;
  stats.get_misses = gets.misses;
  stats.get_bytes = gets.bytes;
  stats.failed_reads = gets.failed_reads;
  if (zones_ != nullptr) {
    const ZonedVolume::Stats& zones = zones_->stats();
    stats.puts = zones.writes;
    stats.put_bytes = stats.device_bytes_written = zones.bytes_written;
    stats.flushes = zones.flushes;
    stats.zones_reset = zones.resets;
    return stats;
  }
  const PageLogStats& log = log_->stats();
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
  stats.index_bytes = log_->index_bytes() + log.table_bytes;
  return stats;
}

}  // namespace furrow
