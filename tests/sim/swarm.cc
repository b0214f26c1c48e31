#include "tests/sim/swarm.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/swarm_beside.h"

namespace furrow::sim {

namespace {

Geometry draw_geometry(SimRandom& random) {
  Geometry geometry;
  geometry.lba_bytes = random.one_in(2) ? 4096 : 512;
  const std::uint64_t lbas_min = geometry.lba_bytes == 512 ? 64 : 32;
  geometry.zone_capacity_lbas =
      random.log_between(lbas_min, geometry.lba_bytes == 512 ? 1024 : 256);
  geometry.zone_size_lbas = geometry.zone_capacity_lbas + (random.one_in(2) ? random.below(64) : 0);
  geometry.zone_count = static_cast<std::uint32_t>(random.log_between(5, 48));
  geometry.active_zones_max =
      random.one_in(4) ? 0 : static_cast<std::uint32_t>(random.log_between(2, 14));
  geometry.open_zones_max = geometry.active_zones_max;
  if (geometry.active_zones_max > 2 && random.one_in(3)) {
    geometry.open_zones_max =
        static_cast<std::uint32_t>(random.between(2, geometry.active_zones_max));
  }
  geometry.zone_writes_max = random.one_in(3) ? 1 : 8;
  return geometry;
}

// Hundreds or thousands of small zones.
Geometry draw_large_geometry(SimRandom& random) {
  Geometry geometry = draw_geometry(random);
  geometry.zone_count = static_cast<std::uint32_t>(random.log_between(49, 3000));
  geometry.zone_capacity_lbas = random.between(geometry.lba_bytes == 512 ? 64 : 32, 128);
  // So many that the metadata's lists of them need larger ones.
  while (!Pool::suits(geometry).ok()) geometry.zone_capacity_lbas *= 2;
  geometry.zone_size_lbas = geometry.zone_capacity_lbas + (random.one_in(2) ? 0 : random.below(64));
  return geometry;
}

// `zones`: the quota, about.
VolumeShape draw_volume(const Geometry& geometry, std::uint64_t zones, SimRandom& random) {
  VolumeShape shape;
  shape.options.mode = random.one_in(2) ? VolumeMode::store : VolumeMode::cache;
  shape.options.durability = random.one_in(6) ? Durability::flushed : Durability::none;
  const std::uint64_t zone_bytes = geometry.zone_capacity_bytes();
  const std::uint64_t largest =
      std::min<std::uint64_t>(zone_bytes / (random.one_in(3) ? 2 : 4), 96 << 10);
  shape.options.value_bytes_max = static_cast<std::uint32_t>(std::max<std::uint64_t>(largest, 512));
  shape.value_bytes_max =
      static_cast<std::uint32_t>(random.log_between(1, shape.options.value_bytes_max));
  shape.value_bytes_min = random.one_in(2) ? 1 : shape.value_bytes_max;
  // All keys together fill from a tenth of the quota to a half more than it has.
  const std::uint64_t page =
      geometry.lbas((shape.value_bytes_min + shape.value_bytes_max) / 2 + 1) * geometry.lba_bytes;
  const std::uint64_t room = zones * zone_bytes / page;
  shape.keys = std::clamp<std::uint64_t>(room * random.between(1, 15) / 10, 4, 600);
  shape.depth = static_cast<unsigned>(random.log_between(1, 32));
  const auto maybe = [&](unsigned most) {
    return random.one_in(2) ? 0u : static_cast<unsigned>(random.between(1, most));
  };
  shape.mix.put = static_cast<unsigned>(random.between(5, 20));
  shape.mix.get = maybe(15);
  shape.mix.remove = maybe(8);
  shape.mix.exist = maybe(4);
  shape.mix.list = random.one_in(3) ? 1 : 0;
  shape.mix.flush = maybe(4);
  shape.flushed_percent = random.one_in(3) ? 0 : static_cast<unsigned>(random.below(60));
  shape.condition_percent = maybe(50);
  shape.ttl_percent = maybe(40);
  if (random.one_in(2)) {
    shape.group_percent = static_cast<unsigned>(random.between(10, 100));
    shape.groups = static_cast<unsigned>(random.between(1, 12));
    shape.mix.remove_group = 1;
  }
  if (random.one_in(2)) {
    shape.pinned_percent = static_cast<unsigned>(random.below(30));
    shape.mix.pin = shape.mix.unpin = 1;
  }
  return shape;
}

void draw_volumes(Swarm& swarm, SimRandom& random) {
  std::uint64_t zones = swarm.geometry.zone_count - 2;
  const std::uint64_t slots =
      swarm.geometry.active_zones_max == 0
          ? 8
          : std::min(swarm.geometry.open_zones_max, swarm.geometry.active_zones_max) - 1;
  const std::uint64_t most = std::min<std::uint64_t>({zones / 3, slots, 4});
  const std::uint64_t count = random.one_in(2) ? 1 : random.between(1, most);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t left = zones - 3 * (count - 1 - i);
    const std::uint64_t quota =
        i + 1 == count && random.one_in(2) ? zones : random.between(3, left);
    VolumeShape shape = draw_volume(swarm.geometry, quota, random);
    shape.options.name = fmt::format("v{}", i);
    shape.options.quota_bytes = quota * swarm.geometry.zone_capacity_bytes();
    swarm.volumes.push_back(shape);
    zones -= quota;
    if (zones < 3) break;
  }
}

// Several batches are in flight in a zone when many large pages are put.
void enlarge(Swarm& swarm, SimRandom& random) {
  const std::uint64_t before = swarm.geometry.zone_capacity_bytes();
  swarm.geometry.lba_bytes = 4096;
  swarm.geometry.zone_capacity_lbas = swarm.geometry.zone_size_lbas = random.between(300, 800);
  for (VolumeShape& shape : swarm.volumes) {
    const std::uint64_t zones = shape.options.quota_bytes / before;
    shape.options.quota_bytes = zones * swarm.geometry.zone_capacity_bytes();
    shape.options.value_bytes_max = 96 << 10;
    shape.value_bytes_min = 1;
    shape.value_bytes_max = static_cast<std::uint32_t>(random.between(20 << 10, 96 << 10));
    shape.keys = std::min<std::uint64_t>(shape.keys, 100);
    shape.depth = static_cast<unsigned>(random.between(16, 32));
  }
}

void specialise(std::string_view scenario, Swarm& swarm, SimRandom& random) {
  for (VolumeShape& shape : swarm.volumes) {
    if (scenario == "store" || scenario == "full") shape.options.mode = VolumeMode::store;
    if (scenario == "cache") shape.options.mode = VolumeMode::cache;
    if (scenario == "tight") {
      shape.options.mode = VolumeMode::store;
      shape.options.value_bytes_max = std::max(shape.value_bytes_max, 512u);
    }
    // Else nothing would ever be collected.
    if (scenario == "large" && random.one_in(2)) {
      shape.options.quota_bytes = random.between(3, 6) * swarm.geometry.zone_capacity_bytes();
    }
    if (scenario == "full" || scenario == "tight") {
      shape.keys = std::min<std::uint64_t>(shape.keys * 4, 800);
      shape.mix.remove = std::max(shape.mix.remove, 1u);
    }
  }
  if (scenario == "volumes") {
    swarm.volume_change_one_in = static_cast<unsigned>(random.between(20, 200));
  }
  if (scenario == "resized") {
    swarm.resize_one_in = static_cast<unsigned>(random.log_between(3, 100));
    for (VolumeShape& shape : swarm.volumes) {
      if (random.one_in(2)) shape.keys = std::min<std::uint64_t>(shape.keys * 2, 800);
    }
  }
  if (scenario == "metadata") {
    swarm.cut_events_max = 60;
    swarm.recovery_cut_percent = 60;
    swarm.volume_change_one_in = 10;
  }
  if (scenario == "faults" || scenario == "flaky") {
    const auto rate = [&](std::uint64_t most_often) {
      return random.one_in(2) ? 0 : random.log_between(most_often, 2000);
    };
    SimFaults& faults = swarm.faults;
    faults.write_errors = rate(20);
    faults.write_moves = rate(20);
    faults.limit_errors = rate(5);
    faults.read_errors = rate(20);
    faults.misdirected_reads = rate(20);
    faults.flush_errors = rate(20);
    faults.reset_errors = rate(20);
    faults.finish_errors = rate(5);
    if (scenario == "flaky") {
      faults.unreadable_spells = random.one_in(3) ? 0 : random.log_between(10, 1000);
      faults.full_spells = random.one_in(3) ? 0 : random.log_between(30, 3000);
    }
  }
  if (scenario == "worn" || scenario == "offline") {
    swarm.faults.zone_losses = random.one_in(4) ? 0 : random.log_between(100, 10'000);
    swarm.faults.reset_losses = random.one_in(2) ? 0 : random.log_between(5, 100);
    swarm.faults.offline = scenario == "offline";
    if (scenario == "worn") swarm.spoil_percent = static_cast<unsigned>(random.below(100));
  }
  if (scenario == "misplaced") {
    swarm.emu = false;
    enlarge(swarm, random);
    swarm.geometry.zone_writes_max = 8;
    swarm.geometry.together_lbas_max = random.one_in(2) ? 0 : 64;
    swarm.faults.misplaced_writes = random.between(1, 8);
  }
  if (scenario == "shrunk") swarm.faults.capacity_losses = random.between(1, 6);
  if (scenario == "rot") {
    swarm.summary_rot_percent = static_cast<unsigned>(random.between(10, 90));
    swarm.page_rot_percent = random.one_in(2) ? static_cast<unsigned>(random.below(100)) : 0;
    swarm.journal_rot_percent = random.one_in(2) ? static_cast<unsigned>(random.below(100)) : 0;
  }
  if (scenario == "repair") {
    swarm.repair_percent = static_cast<unsigned>(random.between(20, 100));
  }
  if (scenario == "hidden" || scenario == "unread") {
    swarm.hide_percent = static_cast<unsigned>(random.between(10, 60));
    swarm.hides_ends = scenario == "unread";
    // A cache of less than five zones has none to spare for those with deletions that nobody can
    // read, so pinned pages can come back.
    for (VolumeShape& shape : swarm.volumes) {
      const std::uint64_t zone_bytes = swarm.geometry.zone_capacity_bytes();
      if (shape.options.mode == VolumeMode::store) continue;
      if (shape.options.quota_bytes >= 5 * zone_bytes) continue;
      shape.mix.pin = shape.mix.unpin = 0;
      shape.pinned_percent = 0;
    }
  }
  // Often, and with much that is collected before the next one.
  if (scenario == "unread") {
    swarm.hide_percent = static_cast<unsigned>(random.between(30, 70));
    swarm.emu = !random.one_in(4);
    swarm.cut_events_max = random.log_between(500, 4000);
    for (VolumeShape& shape : swarm.volumes) {
      if (random.one_in(4)) continue;
      shape.options.mode = VolumeMode::store;
      shape.options.quota_bytes = std::min(
          shape.options.quota_bytes, random.between(3, 4) * swarm.geometry.zone_capacity_bytes());
      shape.mix.put = 20;
      shape.flushed_percent /= 4;
    }
  }
  if (scenario == "files" || scenario == "rocksdb") add_files(swarm, random);
  swarm.files_by_rocksdb = scenario == "rocksdb";
  if (scenario == "disk" || scenario == "thin") add_disk(swarm, random);
  if (scenario == "zoned") add_zones(swarm, random);
  if (scenario == "shared") add_disks(swarm, random);
  if (scenario == "thin") swarm.resize_one_in = static_cast<unsigned>(random.log_between(4, 200));
  if (scenario == "calm") {
    swarm.cut_events_max = 0;
    swarm.close_percent = 100;
  }
}

// Any of the others, or several at once, and with more calls.
void widen(Swarm& swarm, SimRandom& random) {
  constexpr std::string_view kLike[] = {"mixed", "store", "full",   "cache",    "volumes", "faults",
                                        "worn",  "rot",   "tight",  "offline",  "flaky",   "calm",
                                        "rot",   "worn",  "shrunk", "misplaced"};
  const auto like = [&] { return kLike[random.below(std::size(kLike))]; };
  specialise(like(), swarm, random);
  if (random.one_in(3)) swarm.resize_one_in = static_cast<unsigned>(random.log_between(10, 300));
  if (random.one_in(3)) {
    swarm.volume_change_one_in = static_cast<unsigned>(random.log_between(20, 300));
  }
  if (random.one_in(3)) swarm.inspect_percent = static_cast<unsigned>(random.between(10, 80));
  swarm.wide = true;
  for (VolumeShape& shape : swarm.volumes) shape.wide = true;
}

// Either so often that what has expired is asked for, deleted and stored, and the clock set back
// then; or, with small volumes that are full, less often than the power fails.
void add_clock(Swarm& swarm, SimRandom& random) {
  const bool often = random.one_in(2);
  swarm.clock_set_one_in = static_cast<unsigned>(random.log_between(often ? 4 : 50, 500));
  for (VolumeShape& shape : swarm.volumes) {
    shape.ttl_percent = static_cast<unsigned>(random.between(10, 90));
    shape.mix.get = std::max(shape.mix.get, 3u);
    shape.mix.remove = std::max(shape.mix.remove, often ? 3u : 1u);
    if (often) shape.keys = std::min<std::uint64_t>(shape.keys, 24);
    const std::uint64_t zone_bytes = swarm.geometry.zone_capacity_bytes();
    if (!often) {
      shape.options.quota_bytes =
          std::min(shape.options.quota_bytes, random.between(3, 5) * zone_bytes);
      shape.options.mode = VolumeMode::store;
    }
  }
}

}  // namespace

bool is_scenario(std::string_view name) {
  return std::ranges::find(kScenarios, name) != std::end(kScenarios);
}

Swarm draw_swarm(std::string_view scenario, SimRandom& random) {
  Swarm swarm;
  swarm.geometry = scenario == "large" ? draw_large_geometry(random) : draw_geometry(random);
  draw_volumes(swarm, random);
  swarm.emu = random.one_in(2);
  swarm.kill_percent = random.one_in(3) ? static_cast<unsigned>(random.below(100)) : 0;
  swarm.cut_events_max = random.log_between(20, 4000);
  swarm.recovery_cut_percent = static_cast<unsigned>(random.below(50));
  swarm.verify_percent = static_cast<unsigned>(random.between(10, 100));
  swarm.close_percent = random.one_in(3) ? static_cast<unsigned>(random.below(30)) : 0;
  if (scenario == "mixed" && random.one_in(4)) {
    swarm.volume_change_one_in = static_cast<unsigned>(random.between(50, 500));
  }
  if (random.one_in(2)) swarm.clock_jump_one_in = static_cast<unsigned>(random.between(20, 500));
  swarm.latency.ns_min = 1000;
  swarm.latency.ns_max = random.log_between(1000, 100'000);
  if (random.one_in(3)) swarm.latency.slow_one_in = random.log_between(5, 100);
  specialise(scenario, swarm, random);
  if (scenario == "wide" || scenario == "clock") widen(swarm, random);
  if (scenario == "clock") add_clock(swarm, random);
  if (scenario == "unread" && swarm.verify_percent % 4 == 0) {  // beside a disk
    const unsigned hide_percent = swarm.hide_percent;
    add_disk(swarm, random);
    swarm.faults = {};
    swarm.spoil_percent = swarm.page_rot_percent = swarm.summary_rot_percent = 0;
    swarm.hide_percent = hide_percent;
  }
  // Not drawn from `random`: what else a seed is stays as it was.
  if (swarm.recovery_cut_percent % 2 != 0) swarm.victim_policy = VictimPolicy::cost_benefit;
  if (swarm.verify_percent % 4 != 0) swarm.lifetime_zones = 8;
  // From a zone or so in a run on to many passes in one.
  constexpr std::uint64_t kScrubRates[] = {0, 0, 0, 10'000'000, 1'000'000'000, 100'000'000'000};
  swarm.scrub_bytes_per_s = kScrubRates[swarm.verify_percent % std::size(kScrubRates)];
  return swarm;
}

std::string describe(const Swarm& swarm) {
  const Geometry& geometry = swarm.geometry;
  std::string text = fmt::format(
      "{} zones of {} LBAs of {} B, MOR {} MAR {}, {} writes a zone, {}, cuts within {} events, "
      "kills {}%, recovery cuts {}%, {}, scrubs {} B/s, one resize in {}",
      geometry.zone_count, geometry.zone_capacity_lbas, geometry.lba_bytes, geometry.open_zones_max,
      geometry.active_zones_max, geometry.zone_writes_max, swarm.emu ? "emu" : "drive",
      swarm.cut_events_max, swarm.kill_percent, swarm.recovery_cut_percent,
      swarm.victim_policy == VictimPolicy::greedy ? "greedy" : "cost_benefit",
      swarm.scrub_bytes_per_s, swarm.resize_one_in);
  const SimFaults& faults = swarm.faults;
  if (faults.any()) {
    text += fmt::format(
        "\n  one in: {} writes fail, {} fail and move, {} change places, {} over MOR or MAR, {} "
        "reads fail, {} go "
        "astray, {} flushes, {} resets, {} finishes fail, {} writes and {} resets lose a zone "
        "({}), {} "
        "resets some of its capacity, {} reads find an LBA unreadable for a while, {} writes the "
        "device full",
        faults.write_errors, faults.write_moves, faults.misplaced_writes, faults.limit_errors,
        faults.read_errors, faults.misdirected_reads, faults.flush_errors, faults.reset_errors,
        faults.finish_errors, faults.zone_losses, faults.reset_losses,
        faults.offline ? "offline" : "read-only", faults.capacity_losses, faults.unreadable_spells,
        faults.full_spells);
  }
  if (swarm.files) {
    text += fmt::format("\n  files{}: quota {} zones, chunks of {} B",
                        swarm.files_by_rocksdb ? " by RocksDB's FileSystem" : "",
                        swarm.files->quota_bytes / geometry.zone_capacity_bytes(),
                        swarm.files->value_bytes_max);
  }
  for (const DiskShape& disk : swarm.disks) {
    const VolumeOptions& options = disk.options;
    text += fmt::format(
        "\n  disk{}: {} MiB, LBAs of {} B, quota {} zones, depth {}, flushed {}%, up to {} blocks "
        "at once{}",
        options.durability == Durability::flushed ? " flushed" : "", options.block_bytes >> 20,
        options.block_lba_bytes, options.quota_bytes / geometry.zone_capacity_bytes(), disk.depth,
        disk.flushed_percent, disk.blocks_max, disk.overlaps ? ", overlapping" : "");
  }
  if (swarm.zones) {
    const VolumeOptions& options = swarm.zones->options;
    text += fmt::format(
        "\n  {} zones{}, {} open and {} active, depth {}, flushed {}%, up to {} LBAs at once, "
        "appends of {}, comes or goes one in {}",
        options.zones, options.durability == Durability::flushed ? " flushed" : "",
        options.open_zones_max, options.active_zones_max, swarm.zones->depth,
        swarm.zones->flushed_percent, swarm.zones->lbas_max, geometry.append_lbas_max,
        swarm.zones_change_one_in);
  }
  if (swarm.disks_change_one_in + swarm.reserve_one_in != 0) {
    text += fmt::format("\n  disks come or go one in {}, reservations change one in {}",
                        swarm.disks_change_one_in, swarm.reserve_one_in);
  }
  if (swarm.hide_percent + swarm.spoil_percent != 0) {
    text +=
        fmt::format("\n  {}% of the openings cannot read something, {}% of the stops spoil LBAs",
                    swarm.hide_percent, swarm.spoil_percent);
  }
  for (const VolumeShape& shape : swarm.volumes) {
    const Mix& mix = shape.mix;
    text += fmt::format(
        "\n  {} {}{} quota {} zones, {} keys of {}-{} B, depth {}, put {} get {} remove {} exist "
        "{} list {} flush {} group {} pin {}, flushed {}% if {}% ttl {}% grouped {}% of {} pinned "
        "{}%",
        shape.options.name, shape.options.mode == VolumeMode::cache ? "cache" : "store",
        shape.options.durability == Durability::flushed ? " flushed" : "",
        shape.options.quota_bytes / geometry.zone_capacity_bytes(), shape.keys,
        shape.value_bytes_min, shape.value_bytes_max, shape.depth, mix.put, mix.get, mix.remove,
        mix.exist, mix.list, mix.flush, mix.remove_group, mix.pin, shape.flushed_percent,
        shape.condition_percent, shape.ttl_percent, shape.group_percent, shape.groups,
        shape.pinned_percent);
  }
  return text;
}

}  // namespace furrow::sim
