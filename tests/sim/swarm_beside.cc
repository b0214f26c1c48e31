#include "tests/sim/swarm_beside.h"

#include <fmt/format.h>

#include <algorithm>

namespace furrow::sim {

namespace {

// Zones for a large volume and a small one of pages, which is given back.
VolumeShape& place_beside(Swarm& swarm, std::uint64_t zone_bytes, std::uint32_t zones) {
  Geometry& geometry = swarm.geometry;
  geometry.zone_capacity_lbas = geometry.zone_size_lbas = zone_bytes / geometry.lba_bytes;
  geometry.zone_count = zones;
  if (geometry.active_zones_max != 0 && geometry.active_zones_max < 4) {
    geometry.active_zones_max = geometry.open_zones_max = 4;
  }
  if (geometry.open_zones_max != 0) geometry.open_zones_max = geometry.active_zones_max;
  swarm.volumes.resize(1);
  VolumeShape& beside = swarm.volumes[0];
  beside.options.quota_bytes = 4 * geometry.zone_capacity_bytes();
  beside.keys = std::min<std::uint64_t>(beside.keys, 100);
  return beside;
}

// What cannot be read, or has rotted, in a third of the seeds that have none of that. Not drawn
// either.
void damage_files(Swarm& swarm) {
  const std::uint64_t what = swarm.latency.ns_max % 12;
  const std::uint64_t how = swarm.latency.ns_max / 12;
  if (what < 2) {
    swarm.hide_percent = 10 + static_cast<unsigned>(how % 51);
  } else if (what == 2) {
    swarm.faults.read_errors = how % 3 == 0 ? 0 : 30 + how % 500;
    swarm.faults.unreadable_spells = how % 3 == 1 ? 0 : 30 + how % 400;
  } else if (what == 3) {
    swarm.page_rot_percent = 20 + static_cast<unsigned>(how % 71);
    swarm.summary_rot_percent = static_cast<unsigned>(how % 50);
  } else if (what == 4) {
    swarm.spoil_percent = 20 + static_cast<unsigned>(how % 71);
  }
}

void shrink_pages(VolumeShape& shape, std::uint64_t bytes_max) {
  const auto most = static_cast<std::uint32_t>(bytes_max);
  shape.options.value_bytes_max = std::min(shape.options.value_bytes_max, most);
  shape.value_bytes_max = std::min(shape.value_bytes_max, shape.options.value_bytes_max);
  shape.value_bytes_min = std::min(shape.value_bytes_min, shape.value_bytes_max);
}

ZonesShape draw_zones(const Geometry& geometry, std::uint32_t count, SimRandom& random) {
  ZonesShape zones;
  zones.options.kind = VolumeKind::zoned;
  zones.options.mode = VolumeMode::store;
  zones.options.durability = random.one_in(6) ? Durability::flushed : Durability::none;
  zones.options.zones = count;
  if (geometry.active_zones_max != 0 && random.one_in(2)) {
    const auto most = std::min<std::uint64_t>(geometry.open_zones_max - 4, count);
    zones.options.active_zones_max = static_cast<std::uint32_t>(random.between(1, most));
    zones.options.open_zones_max =
        static_cast<std::uint32_t>(random.between(1, zones.options.active_zones_max));
  }
  zones.depth = random.one_in(3) ? 1 : static_cast<unsigned>(random.log_between(2, 32));
  zones.flushed_percent = random.one_in(3) ? 0 : static_cast<unsigned>(random.below(60));
  zones.lbas_max = random.log_between(2, geometry.zone_capacity_lbas / 2);
  return zones;
}

}  // namespace

// In zones that hold some of a file or several files. What else the pool has is small.
void add_files(Swarm& swarm, SimRandom& random) {
  const std::uint64_t zone_bytes = random.log_between(256 << 10, 1 << 20);
  (void)place_beside(swarm, zone_bytes, static_cast<std::uint32_t>(random.between(14, 30)));
  const Geometry& geometry = swarm.geometry;
  VolumeOptions files;
  files.name = "files";
  files.kind = VolumeKind::fs;
  files.mode = VolumeMode::store;
  files.value_bytes_max =
      static_cast<std::uint32_t>(random.log_between(8 << 10, 64 << 10)) & ~0xFFFu;
  files.quota_bytes = random.between(6, geometry.zone_count - 6) * geometry.zone_capacity_bytes();
  swarm.files = files;
  // Of what may go wrong, what keeps all that is readable so.
  if (random.one_in(3)) {
    swarm.faults.write_errors = random.log_between(50, 2000);
    swarm.faults.flush_errors = random.one_in(2) ? 0 : random.log_between(50, 2000);
    swarm.faults.reset_errors = random.one_in(2) ? 0 : random.log_between(20, 2000);
  }
  // Not drawn, as below: zones that turn read-only, in use or at their reset.
  if (swarm.recovery_cut_percent % 8 == 7) {
    swarm.faults.zone_losses = 5000;
    swarm.faults.reset_losses = 50;
  }
  if (!swarm.faults.any()) damage_files(swarm);
}

// In zones that hold 32 to 128 of its blocks. Its quota is less than it, or up to some times as
// much.
void add_disk(Swarm& swarm, SimRandom& random) {
  const std::uint64_t zone_bytes = random.log_between(128 << 10, 512 << 10);
  VolumeShape& beside =
      place_beside(swarm, zone_bytes, static_cast<std::uint32_t>(random.between(12, 24)));
  const Geometry& geometry = swarm.geometry;
  shrink_pages(beside, 32 << 10);
  DiskShape disk;
  disk.options.name = "disk";
  disk.options.kind = VolumeKind::block;
  disk.options.mode = VolumeMode::store;
  disk.options.durability = random.one_in(6) ? Durability::flushed : Durability::none;
  disk.options.value_bytes_max = kBlockPageBytes;
  disk.options.block_bytes = random.between(1, 2) << 20;
  disk.options.block_lba_bytes = random.one_in(3) ? 4096 : 512;
  disk.options.quota_bytes =
      random.between(4, geometry.zone_count - 6) * geometry.zone_capacity_bytes();
  disk.depth = static_cast<unsigned>(random.log_between(1, 32));
  disk.flushed_percent = random.one_in(3) ? 0 : static_cast<unsigned>(random.below(60));
  disk.blocks_max = random.log_between(1, 32);
  disk.overlaps = random.one_in(3);
  disk.block_cost = geometry.lbas(kBlockPageBytes) * geometry.lba_bytes;
  swarm.disks = {disk};
  const auto rate = [&] { return random.one_in(2) ? 0 : random.log_between(50, 2000); };
  SimFaults& faults = swarm.faults;
  switch (random.below(8)) {
    case 0:
      faults.write_errors = rate();
      faults.write_moves = rate();
      faults.flush_errors = rate();
      faults.reset_errors = rate();
      faults.finish_errors = rate();
      break;
    case 1:
      faults.read_errors = rate();
      faults.misdirected_reads = rate();
      faults.unreadable_spells = rate();
      faults.full_spells = rate();
      break;
    case 2:
      faults.zone_losses = 5000;
      faults.reset_losses = 50;
      break;
    case 3:
      swarm.hide_percent = static_cast<unsigned>(random.between(10, 60));
      break;
    case 4:
      swarm.spoil_percent = static_cast<unsigned>(random.below(100));
      break;
    case 5:
      swarm.page_rot_percent = static_cast<unsigned>(random.between(10, 90));
      swarm.summary_rot_percent = static_cast<unsigned>(random.below(50));
      break;
    default:
      break;
  }
}

// Some of the device's zones, beside pages that leave others behind.
void add_zones(Swarm& swarm, SimRandom& random) {
  const std::uint64_t zone_bytes = random.log_between(128 << 10, 256 << 10);
  VolumeShape& beside =
      place_beside(swarm, zone_bytes, static_cast<std::uint32_t>(random.between(12, 24)));
  Geometry& geometry = swarm.geometry;
  if (random.one_in(2)) geometry.zone_size_lbas += random.below(64);
  geometry.append_lbas_max =
      random.one_in(3) ? 0 : static_cast<std::uint32_t>(random.log_between(2, 64));
  if (geometry.active_zones_max != 0) {
    geometry.active_zones_max = geometry.open_zones_max =
        static_cast<std::uint32_t>(random.between(6, 14));
    if (random.one_in(2)) geometry.open_zones_max -= 1;
  }
  shrink_pages(beside, std::max<std::uint64_t>(zone_bytes / 4, 512));
  const auto count = static_cast<std::uint32_t>(random.between(1, geometry.zone_count - 6));
  swarm.zones = draw_zones(geometry, count, random);
  const auto often = [&](unsigned low) {
    return static_cast<unsigned>(random.log_between(low, 2000));
  };
  if (random.one_in(2)) swarm.zones_change_one_in = often(50);
  if (random.one_in(3)) swarm.reserve_one_in = often(3);
  const auto rate = [&] { return random.one_in(2) ? 0 : random.log_between(20, 2000); };
  SimFaults& faults = swarm.faults;
  switch (random.below(8)) {
    case 0:
      faults.write_errors = rate();
      faults.write_moves = rate();
      faults.limit_errors = rate();
      faults.flush_errors = rate();
      faults.reset_errors = rate();
      faults.finish_errors = rate();
      break;
    case 1:
      faults.read_errors = rate();
      faults.unreadable_spells = rate();
      faults.full_spells = rate();
      break;
    case 2:
    case 3:
      faults.zone_losses = random.log_between(100, 5000);
      faults.reset_losses = random.one_in(2) ? 0 : 50;
      faults.offline = random.one_in(2);
      break;
    default:
      break;
  }
  swarm.zones->loses_zones = faults.loses_zones();
}

// Two to four, and zones of a host in half of the seeds.
void add_disks(Swarm& swarm, SimRandom& random) {
  add_disk(swarm, random);
  Geometry& geometry = swarm.geometry;
  for (std::uint64_t more = random.between(1, 3); more != 0; --more) {
    DiskShape disk = swarm.disks.front();
    const std::uint64_t quota = random.between(4, 7);
    disk.options.name = fmt::format("disk{}", more);
    disk.options.quota_bytes = quota * geometry.zone_capacity_bytes();
    disk.options.block_bytes = random.between(1, 2) << 20;
    disk.options.block_lba_bytes = random.one_in(3) ? 4096 : 512;
    disk.depth = static_cast<unsigned>(random.log_between(1, 32));
    geometry.zone_count += static_cast<std::uint32_t>(quota);
    swarm.disks.push_back(disk);
  }
  // A stream for users and one for copies each, and the metadata ring's.
  if (geometry.active_zones_max != 0) {
    const std::uint64_t least = 2 * swarm.disks.size() + 4;
    geometry.active_zones_max = geometry.open_zones_max =
        static_cast<std::uint32_t>(random.between(least, least + 8));
  }
  if (random.one_in(2)) {
    const auto count = static_cast<std::uint32_t>(random.between(1, 6));
    geometry.zone_count += count;
    if (geometry.active_zones_max != 0) {
      geometry.active_zones_max += 4;
      geometry.open_zones_max += 4;
    }
    swarm.zones = draw_zones(geometry, count, random);
    swarm.zones->loses_zones = swarm.faults.loses_zones();
    swarm.faults.misdirected_reads = 0;  // of which nothing in a host's zone tells
    if (swarm.zones->options.active_zones_max > 3) {
      swarm.zones->options.active_zones_max = swarm.zones->options.open_zones_max = 3;
    }
    swarm.zones_change_one_in = static_cast<unsigned>(random.log_between(50, 2000));
  }
  const auto often = [&](unsigned low) {
    return random.one_in(4) ? 0u : static_cast<unsigned>(random.log_between(low, 1000));
  };
  swarm.disks_change_one_in = often(30);
  swarm.reserve_one_in = often(3);
  swarm.resize_one_in = random.one_in(3) ? static_cast<unsigned>(random.log_between(20, 300)) : 0;
}

}  // namespace furrow::sim
