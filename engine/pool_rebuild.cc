#include "engine/pool_rebuild.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/pool_impl.h"
#include "log/recovery.h"

namespace furrow {

namespace {

constexpr unsigned kScanDepth = 16;

// Unless a volume that its user named so has it.
std::string free_name(std::string name, const std::vector<VolumeRecord>& others) {
  while (std::ranges::find(others, name, &VolumeRecord::name) != others.end()) name += '_';
  return name;
}

bool is_zoned(const VolumeRecord& volume) { return volume.kind == kKindZoned; }

// The zones of each volume, none of which is known, but for those that are lent to one that is.
Result<RecoveryResult> zones_by_owner(ZonedDevice& device, Executor& home,
                                      const Superblock& superblock,
                                      const std::vector<LentZones>& lent) {
  Result<std::unique_ptr<IoQueue>> queue = device.create_queue(kScanDepth);
  if (!queue.ok()) return queue.status();
  PoolContext context(device, home, **queue, superblock);
  for (const LentZones& run : lent) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      context.allocator.adopt(ZoneId{run.first + i}, {.use = ZoneUse::lent});
    }
  }
  RecoveryOptions options;
  options.scanners_per_thread = 1;
  options.read_only = true;
  options.next_volume_id = 0;
  return recover(device, context, options);
}

class Assuming {
 public:
  Assuming(const MetadataRing& ring, std::vector<LentZones> lent, Executor& home,
           const RecoveryResult& found)
      : told_(ring.state()), superblock_(ring.superblock()), home_(home), found_(found) {
    assumed_.state.lent = std::move(lent);
    left_zones_ = superblock_.zone_count - superblock_.metadata_zones;
    assumed_.state.next_volume_id = told_.next_volume_id;
    assumed_.state.trims = told_.trims;
    assumed_.state.open_count = told_.open_count;
  }

  // `unclaimed`: zones that hold something, and are not known to be anybody's.
  Result<AssumedPool> run(const std::vector<ZoneInfo>& unclaimed, const Geometry& geometry) {
    for (const VolumeRecord& volume : told_.volumes) {
      if (is_zoned(volume)) take(volume);
    }
    if (!unclaimed.empty()) {
      const Status status = take_unclaimed(unclaimed, geometry);
      if (!status.ok()) return status;
    }
    // Those with zones first: where not all have room, nothing is lost with one that has none.
    for (const VolumeRecord& volume : told_.volumes) {
      if (!is_zoned(volume) && found_.unknown.contains(volume.id)) take(volume);
    }
    for (const auto& [id, zones] : found_.unknown) {
      const Status status = recover_volume(id, zones);
      if (!status.ok()) return status;
    }
    for (const VolumeRecord& volume : told_.volumes) {
      if (!is_zoned(volume) && !found_.unknown.contains(volume.id)) take(volume);
    }
    if ((superblock_.features.incompatible & kFeatureReservations) != 0) {
      assumed_.notes.push_back(
          "which hosts had registered, and what they had reserved, is forgotten");
    }
    std::vector<VolumeRecord>& volumes = assumed_.state.volumes;
    std::ranges::sort(volumes, {}, &VolumeRecord::id);
    for (const VolumeRecord& volume : volumes) {
      assumed_.state.next_volume_id = std::max(assumed_.state.next_volume_id, volume.id + 1);
    }
    return std::move(assumed_);
  }

 private:
  void take(const VolumeRecord& volume) {
    if (volume.quota_zones > left_zones_) {
      assumed_.notes.push_back(
          fmt::format("volume '{}' of {} zones is left out: the others leave no room for it, and "
                      "no zone is its",
                      volume.name, volume.quota_zones));
      return;
    }
    left_zones_ -= volume.quota_zones;
    assumed_.state.volumes.push_back(volume);
    assumed_.notes.push_back(fmt::format("volume '{}' is known from the journal", volume.name));
  }

  // All the rest of the device's open and active zones is its share, but for one for each volume.
  Status take_unclaimed(const std::vector<ZoneInfo>& unclaimed, const Geometry& geometry) {
    VolumeRecord volume;
    volume.id = std::max<std::uint64_t>(told_.next_volume_id, 1);
    if (!found_.unknown.empty()) {
      volume.id = std::max(volume.id, found_.unknown.rbegin()->first + 1);
    }
    volume.uuid = random_uuid(home_);
    volume.name = free_name("recovered-zones", told_.volumes);
    volume.kind = kKindZoned;
    volume.mode = static_cast<std::uint8_t>(VolumeMode::store);
    volume.quota_zones = unclaimed.size();
    volume.nsid = PoolImpl::kNsidMax;  // the highest free one
    const auto& told = told_.volumes;
    while (std::ranges::find(told, volume.nsid, &VolumeRecord::nsid) != told.end()) --volume.nsid;
    std::uint32_t others = 1;  // the ring's
    for (const VolumeRecord& other : told_.volumes) {
      if (!found_.unknown.contains(other.id)) ++others;
    }
    others += static_cast<std::uint32_t>(found_.unknown.size());
    for (const std::uint32_t limit : {geometry.open_zones_max, geometry.active_zones_max}) {
      if (limit == 0 || limit > others) continue;
      return Status(
          Code::too_many_zones, Origin::engine,
          "zones of a zoned volume would be nobody's, and be reset: the device's open and "
          "active zone limits (MOR, MAR) leave none for a volume of them");
    }
    if (geometry.open_zones_max != 0) volume.open_zones_max = geometry.open_zones_max - others;
    if (geometry.active_zones_max != 0) {
      volume.active_zones_max = geometry.active_zones_max - others;
    }
    for (const ZoneInfo& info : unclaimed) {
      assumed_.state.lent.push_back({volume.id, info.zone.value, 1});
    }
    std::ranges::sort(assumed_.state.lent, {}, &LentZones::first);
    left_zones_ -= volume.quota_zones;
    assumed_.state.volumes.push_back(volume);
    assumed_.notes.push_back(
        fmt::format("{} zones that hold something and are nobody's are listed as the zoned volume "
                    "'{}': a zoned volume's may be among them",
                    unclaimed.size(), volume.name));
    return {};
  }

  // The volumes that follow need room for their zones as well.
  Status recover_volume(std::uint64_t id, const std::vector<ZoneId>& zones) {
    const auto is_told = [this](std::uint64_t volume) {
      return std::ranges::find(assumed_.state.volumes, volume, &VolumeRecord::id) !=
             assumed_.state.volumes.end();
    };
    if (is_told(id)) return {};
    std::uint64_t others = 0;
    for (const auto& [other, its] : found_.unknown) {
      if (other > id && !is_told(other)) others += std::max(its.size(), kVolumeZonesMin);
    }
    std::vector<VolumeRecord> known = assumed_.state.volumes;
    known.insert(known.end(), told_.volumes.begin(), told_.volumes.end());  // taken later perhaps
    const Result<VolumeRecord> volume = recovered_volume(
        id, zones.size(), left_zones_ - std::min(left_zones_, others), known, superblock_, home_);
    if (!volume.ok()) return volume.status();
    left_zones_ -= volume->quota_zones;
    assumed_.state.volumes.push_back(*volume);
    assumed_.recovered.emplace(id, zones);
    return {};
  }

  const PoolState& told_;
  const Superblock& superblock_;
  Executor& home_;
  const RecoveryResult& found_;
  std::uint64_t left_zones_ = 0;
  AssumedPool assumed_;
};

}  // namespace

std::string recovered_name(std::uint64_t volume) { return fmt::format("recovered-{}", volume); }

Result<VolumeRecord> recovered_volume(std::uint64_t id, std::uint64_t held_zones,
                                      std::uint64_t left_zones,
                                      const std::vector<VolumeRecord>& others,
                                      const Superblock& superblock, Executor& home) {
  VolumeRecord volume;
  volume.nsid = 1;
  while (std::ranges::find(others, volume.nsid, &VolumeRecord::nsid) != others.end()) ++volume.nsid;
  volume.id = id;
  volume.uuid = random_uuid(home);
  volume.name = free_name(recovered_name(id), others);
  volume.kind = static_cast<std::uint8_t>(VolumeKind::kv);
  volume.mode = static_cast<std::uint8_t>(VolumeMode::store);
  volume.quota_zones = std::max(held_zones, kVolumeZonesMin);
  if (volume.quota_zones > left_zones) {
    return Status(Code::no_space, Origin::engine,
                  "the other volumes' quotas leave it less than its zones; delete one, and try "
                  "again");
  }
  volume.quota_zones = std::min(left_zones, volume.quota_zones + kVolumeZonesMin);
  Geometry geometry;
  geometry.lba_bytes = superblock.lba_bytes;
  geometry.zone_capacity_lbas = superblock.zone_capacity_lbas;
  volume.value_bytes_max = kValueBytesMax;
  while (volume.value_bytes_max > 1 &&
         !value_fits(geometry, superblock.segment_lbas, volume.value_bytes_max)) {
    volume.value_bytes_max /= 2;
  }
  return volume;
}

Result<AssumedPool> assume_pool(ZonedDevice& device, Executor& home, const MetadataRing& lost) {
  const Superblock& superblock = lost.superblock();
  std::vector<LentZones> lent = lost.state().lent;
  std::erase_if(lent, [&](const LentZones& run) {
    const auto& volumes = lost.state().volumes;
    const bool there = std::ranges::find(volumes, run.volume, &VolumeRecord::id) != volumes.end();
    return !there || run.first < superblock.metadata_zones ||
           std::uint64_t{run.first} + run.count > superblock.zone_count;
  });
  const Result<RecoveryResult> found = zones_by_owner(device, home, superblock, lent);
  if (!found.ok()) return found.status();
  std::vector<ZoneInfo> unclaimed;
  if ((superblock.features.incompatible & kFeatureZonedVolumes) != 0) {
    const Result<std::vector<ZoneInfo>> report = device.report();
    if (!report.ok()) return report.status();
    for (const ZoneInfo& info : *report) {
      const auto in_run = [&](const LentZones& run) {
        return info.zone.value >= run.first && info.zone.value - run.first < run.count;
      };
      const auto has_it = [&](const auto& volume) {
        return std::ranges::find(volume.second, info.zone) != volume.second.end();
      };
      const bool nothing = info.state == ZoneState::empty || info.written_lbas == 0;
      if (nothing || info.zone.value < superblock.metadata_zones) continue;
      if (std::ranges::any_of(lent, in_run)) continue;
      if (std::ranges::none_of(found->unknown, has_it)) unclaimed.push_back(info);
    }
  }
  return Assuming(lost, std::move(lent), home, *found).run(unclaimed, device.geometry());
}

}  // namespace furrow
