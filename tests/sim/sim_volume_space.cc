// What a volume may say of its room: which refusals are in order, what its quota is, what it
// counts.
#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/sim_volume.h"
#include "tests/sim/structure_check.h"

namespace furrow::sim {

// Deletes make room, so they are taken for as long as a zone can be emptied into another.
void SimVolume::delete_refused(const Client& client) {
  ++world_.removes_refused;
  if (veiled_) return;  // a zone that is hidden may be the one that it lacks
  if (world_.hides && has_all_zones(*store_)) return;  // or one that is back, with none to spare
  // What it had no room for has ended zones. verify_healed() sees that they come back.
  if (world_.device->found_no_room() != 0) return;
  const std::uint64_t quota = quota_zones();
  // Power cuts and a device that fails may have sealed all zones of the smallest cache; its pinned
  // pages have nowhere to go then.
  if (cache() && quota < 4 + world_.zones_lost && world_.faults) return;
  if (leaves_zones_alone(*store_) && !unreadable_for_long(*store_)) return;
  const std::uint64_t left_alone = world_.places_spoiled + (world_.reads_fail ? 1 : 0);
  if (quota < 3 + world_.zones_lost + left_alone) return;
  // It was the last zone, the one that copies go to, that was lost, and power cuts had ended the
  // others.
  if (world_.zones_lost != 0 && world_.is_wedged(id())) return;
  // Or that one stays, as an original of its copies has rotted, and the pool has no other zone.
  if (rotted_and_wedged()) return;
  // What it holds was stored when it had those that are lost.
  if (world_.zones_lost != 0 && store_->usage().free_bytes == 0) return;
  fail(client, fmt::format("is refused by a volume of {} zones, of which {} are lost", quota,
                           world_.zones_lost));
}

bool SimVolume::rotted_and_wedged() const { return world_.rotted && world_.is_wedged(id()); }

// A store may refuse what does not fit, and nothing that does. (What was free when it decided, with
// other puts on their way, is not known here: check_usage() compares what is free at rest.)
void SimVolume::refused(const Client& client) {
  ++world_.puts_refused;
  if (world_.faults || world_.device_dead) return;
  if (cache()) {
    if (!client.op.pinned && client.op.kind == PageOp::Kind::put) {
      fail(client, "a cache says no_space to what is not to stay");
    }
    return;
  }
  refused_as_full(client);
  // Of pages that are large beside a zone, few fit where many would by their size.
  if (geometry_.lbas(shape_.value_bytes_max) * 8 > geometry_.zone_capacity_lbas) return;
  const std::uint64_t quota = quota_zones() * geometry_.zone_capacity_lbas;
  // A volume that was made smaller has the streams that it had.
  const std::uint64_t kept = (2 + room_of(*store_).streams) * geometry_.zone_capacity_lbas;
  if (most_used_lbas() * 2 + kept < quota) {
    fail(client, fmt::format("no_space with {} of {} LBAs used", most_used_lbas(), quota));
  }
}

// Admission's rule (PageLog::admit): what pages and tombstones cost, with this page, is more than
// what is usable, which is counted here with pages as large as the volume was made for. A store of
// which that is one page is left to refill().
void SimVolume::refused_as_full(const Client& client) {
  const StoreRoom room = room_of(*store_);
  if (room.usable_bytes <= cost_of(shape_.options.value_bytes_max)) return;
  std::uint64_t cost = cost_of(client.op.length);
  for (const Entry& entry : entries_) {
    std::uint64_t most = 0;
    for (const State& state : entry.history.states()) {
      if (state.version != 0) most = std::max(most, cost_of(state.bytes));
    }
    if (&entry != &entries_[client.key]) cost += most;
  }
  // It was refused a turn ago, or more: of a zone that is free since, tombstones counted then.
  if (stats().zones_reset != client.zones_reset) return;
  const std::uint64_t tombstones =
      std::max(client.tombstones_max, room.tombstones_max) * room.record_bytes;
  if (cost + tombstones > room.apart_bytes) return;
  fail(client, fmt::format("{}: its pages take {} bytes, with this one, and tombstones {}, of {}",
                           client.op.status.describe(), cost, tombstones, room.apart_bytes));
}

// Of a store's page, with all that is written for it.
std::uint64_t SimVolume::cost_of(std::uint64_t bytes) const {
  return geometry_.lbas(bytes) * geometry_.lba_bytes + room_of(*store_).record_bytes;
}

bool SimVolume::must_have_room(std::uint64_t zones_lost) const {
  const std::uint64_t quota = quota_zones();
  if (quota < zones_lost + 6 || shape_.condition_percent != 0) return false;
  if (cache()) return shape_.pinned_percent == 0 && shape_.mix.pin == 0;
  return most_used_lbas() * 2 < (quota - zones_lost - 5) * geometry_.zone_capacity_lbas;
}

std::uint64_t SimVolume::most_used_lbas() const {
  std::uint64_t lbas = 0;
  for (const Entry& entry : entries_) {
    std::uint64_t most = 0;
    for (const State& state : entry.history.states()) {
      if (state.version != 0) most = std::max(most, geometry_.lbas(state.bytes) + 1);
    }
    lbas += most;
  }
  return lbas;
}

// A page that could not be read, or was read wrong, may have been let go of, too.
void SimVolume::note_evictions() {
  if (!attached() || !cache()) return;
  const VolumeStats stats = store_->stats();
  evictions_since_ = stats.evicted_zones;
  const bool dropped = stats.evicted_pages + stats.zones_reset != 0;
  evicts_ |= dropped || world_.rotted || world_.faults;
}

std::uint64_t SimVolume::quota_zones() const {
  return store_->info().options.quota_bytes / geometry_.zone_capacity_bytes();
}

bool SimVolume::has_its_quota() {
  const std::uint64_t zones = quota_zones();
  if (std::ranges::find(quotas_tried_, zones) != quotas_tried_.end()) quota_zones_ = zones;
  quotas_tried_.clear();
  return zones == quota_zones_;
}

void SimVolume::check_quota() {
  // What a zone held that is back was stored anew meanwhile, perhaps; or what had expired had its
  // room taken, and is there again, as the clock was set back.
  if (!attached() || world_.hides || world_.sets_clock) return;
  const VolumeUsage usage = store_->usage();
  // One that cuts have left with its whole quota may have one more to copy to.
  const bool over = zones_when_opened_ >= usage.quota_zones;
  if (usage.zones <= (over ? zones_when_opened_ + 1 : usage.quota_zones)) return;
  world_.fail(
      fmt::format("volume {}: {} zones of a quota of {}", name(), usage.zones, usage.quota_zones));
}

void SimVolume::check_usage() {
  if (cache() || world_.faults) return;
  struct Sums {
    std::uint64_t pages = 0, bytes = 0, cost = 0;
  } least, most;
  const Window now{world_.tick, world_.wall_s(), world_.wall_s()};
  for (const Entry& entry : entries_) {
    const auto shorter = [](const State* a, const State* b) { return a->bytes < b->bytes; };
    std::vector<const State*> pages;
    for (const State& state : entry.history.states()) {
      if (state.dead > now.from && state.version != 0) pages.push_back(&state);
    }
    const auto add = [this](Sums& sums, std::uint64_t bytes) {
      ++sums.pages;
      sums.bytes += bytes;
      sums.cost += cost_of(bytes);
    };
    const std::uint32_t longest =
        pages.empty() ? 0 : (*std::ranges::max_element(pages, shorter))->bytes;
    if (longest != 0) add(most, longest);
    if (pages.empty() || entry.history.may_be_absent(now)) continue;
    add(least, (*std::ranges::min_element(pages, shorter))->bytes);
  }
  const VolumeUsage usage = store_->usage();
  if (usage.pages < least.pages || usage.pages > most.pages || usage.live_bytes < least.bytes ||
      usage.live_bytes > most.bytes) {
    world_.fail(fmt::format("volume {}: usage says {} pages, {} bytes; they are {} to {}, {} to {}",
                            name(), usage.pages, usage.live_bytes, least.pages, most.pages,
                            least.bytes, most.bytes));
  }
  check_free_bytes(usage.free_bytes, least.cost, most.cost);
}

// Exactly what pages and tombstones leave.
void SimVolume::check_free_bytes(std::uint64_t free_bytes, std::uint64_t least,
                                 std::uint64_t most) {
  const StoreRoom room = room_of(*store_);
  const auto left = [&room](std::uint64_t cost) {
    return room.usable_bytes - std::min(room.usable_bytes, cost);
  };
  const std::uint64_t tombstones = room.tombstones_max * room.record_bytes;
  const std::uint64_t taken = left(free_bytes) - least;
  const bool whole = least != most || free_bytes == 0 || taken % room.record_bytes == 0;
  if (whole && free_bytes <= left(least) && free_bytes >= left(most + tombstones)) return;
  world_.fail(fmt::format(
      "volume {}: {} bytes are free of {}; its pages take {} to {}, {} "
      "tombstones at most {} each",
      name(), free_bytes, room.usable_bytes, least, most, room.tombstones_max, room.record_bytes));
}

}  // namespace furrow::sim
