#include "tests/sim/structure_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "engine/pool_impl.h"

namespace furrow::sim {

namespace {

class StructureCheck {
 public:
  StructureCheck(const Pool& pool, const SimDevice& device, bool faults)
      : pool_(pool),
        context_(static_cast<const PoolImpl&>(pool).context()),
        device_(device),
        faults_(faults),
        live_lbas_(context_.geometry.zone_count) {}

  std::string run() {
    for (PageStore* store : pool_.stores()) volume(static_cast<PageStoreImpl&>(*store));
    overlaps();
    zones();
    limits();
    return wrong_;
  }

 private:
  struct Extent {
    std::uint64_t lba, end;
  };

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (wrong_.empty()) wrong_ = fmt::format(format, std::forward<Args>(args)...);
  }

  void volume(PageStoreImpl& store) {
    const VolumeInfo& info = store.info();
    held_[info.id] = 0;
    if (store.zones() != nullptr) return;
    std::uint64_t pages = 0, bytes = 0, bytes_taken = 0;
    std::vector<IndexEntry> entries;
    std::uint64_t from = 0;
    do {
      from = store.log().index().bucket_entries(from, entries);
      for (const IndexEntry& entry : entries) {
        page(info, entry);
        bytes += entry.length;
        bytes_taken += PageLog::cost_bytes(context_, entry.length);
      }
      pages += entries.size();
    } while (from != 0);
    const VolumeUsage usage = store.usage();
    if (usage.pages != pages || usage.live_bytes != bytes) {
      fail("volume {} counts {} pages and {} bytes; its index has {} and {}", info.options.name,
           usage.pages, usage.live_bytes, pages, bytes);
    }
    if (info.options.mode == VolumeMode::store) free_bytes(store, usage.free_bytes, bytes_taken);
  }

  void free_bytes(PageStoreImpl& store, std::uint64_t free, std::uint64_t taken) {
    const std::uint64_t usable = store.log().stats().usable_bytes;
    if (free <= usable - std::min(usable, taken)) return;
    fail("volume {} has {} bytes free of {}; its pages take {}", store.info().options.name, free,
         usable, taken);
  }

  void page(const VolumeInfo& volume, const IndexEntry& entry) {
    const Geometry& geometry = context_.geometry;
    const ZoneId id = geometry.zone_of(Lba{entry.lba});
    const std::uint64_t lbas = context_.page_lbas(entry.length);
    const std::uint64_t end = context_.relative_lba(entry.lba) + lbas;
    const ZoneAllocator::Zone& zone = context_.allocator.zone(id);
    if (zone.owner != volume.id) {
      fail("volume {} has a page at LBA {} of zone {}, which is not its own ({})",
           volume.options.name, context_.relative_lba(entry.lba), id.value, to_string(zone.use));
    }
    if (zone.use == ZoneUse::free || zone.use == ZoneUse::resetting) {
      fail("zone {} is {} and holds a page", id.value, to_string(zone.use));
    }
    // Of a zone that an opening has finished before it could read it what a power cut took reads as
    // zeroes: as a page of a byte or two may have been.
    const bool finished = faults_ && device_.zones().info(id).state == ZoneState::full;
    if (end > device_.zones().written_lbas(id) && !finished) {
      fail("a page of zone {} ends at LBA {}, behind the write pointer at {}", id.value, end,
           device_.zones().written_lbas(id));
    }
    if (context_.relative_lba(entry.lba) >= context_.tables[id.value].end_lba) {
      fail("a page at LBA {} of zone {}, which is void from {} on",
           context_.relative_lba(entry.lba), id.value, context_.tables[id.value].end_lba);
    }
    if (entry.expires && context_.expiry(entry.lba) == 0) {
      fail("nobody knows when the page at LBA {} of zone {} expires",
           context_.relative_lba(entry.lba), id.value);
    }
    live_lbas_[id.value] += lbas;
    extents_.push_back({entry.lba, entry.lba + lbas});
  }

  void overlaps() {
    std::ranges::sort(extents_, {}, &Extent::lba);
    for (std::size_t i = 1; i < extents_.size(); ++i) {
      if (extents_[i].lba >= extents_[i - 1].end) continue;
      fail("the page at device LBA {} overlaps the one at {}", extents_[i].lba,
           extents_[i - 1].lba);
    }
  }

  void zones() {
    for (std::uint32_t i = 0; i < context_.geometry.zone_count; ++i) zone(ZoneId{i});
    for (const auto& [volume, zones] : held_) {
      const ZoneAllocator& allocator = context_.allocator;
      if (allocator.held(volume) == zones && zones <= allocator.held_max(volume)) continue;
      fail("volume id {} has {} zones and counts {} of {}", volume, zones, allocator.held(volume),
           allocator.held_max(volume));
    }
  }

  void zone(ZoneId id) {
    const ZoneAllocator::Zone& zone = context_.allocator.zone(id);
    if (zone.live_lbas != live_lbas_[id.value]) {
      fail("zone {} ({}) counts {} live LBAs; the index has {} there", id.value,
           to_string(zone.use), zone.live_lbas, live_lbas_[id.value]);
    }
    const auto holder = held_.find(zone.owner);
    const bool owned = holder != held_.end();
    if (owned) ++holder->second;
    const bool needs_owner =
        zone.use != ZoneUse::free && zone.use != ZoneUse::metadata && zone.use != ZoneUse::bad;
    const bool returning = zone.use == ZoneUse::resetting && zone.owner == 0;
    if (owned != needs_owner && zone.use != ZoneUse::bad && !returning) {
      fail("zone {} is {} and {} owner", id.value, to_string(zone.use),
           owned ? "has an" : "has no");
    }
    if (faults_) return;
    const ZoneState state = device_.zones().info(id).state;
    if (zone.use == ZoneUse::free && state != ZoneState::empty) {
      fail("zone {} is free; the device says {}", id.value, furrow::to_string(state));
    }
    const bool ended = zone.use == ZoneUse::sealed || zone.use == ZoneUse::draining;
    if (ended && state != ZoneState::full) {
      fail("zone {} is {}; the device says {}", id.value, to_string(zone.use),
           furrow::to_string(state));
    }
  }

  void limits() {
    std::uint32_t open = 0, active = 0;
    for (std::uint32_t i = 0; i < context_.geometry.zone_count; ++i) {
      const ZoneState state = device_.zones().info(ZoneId{i}).state;
      open += is_open(state) ? 1 : 0;
      active += is_active(state) ? 1 : 0;
    }
    const Geometry& geometry = context_.geometry;
    const auto above = [](std::uint32_t zones, std::uint32_t most) {
      return most != 0 && zones > most;
    };
    if (above(open, geometry.open_zones_max) || above(active, geometry.active_zones_max)) {
      fail("{} zones are open and {} active", open, active);
    }
  }

  const Pool& pool_;
  const PoolContext& context_;
  const SimDevice& device_;
  const bool faults_;
  std::vector<std::uint64_t> live_lbas_;         // by zone
  std::vector<Extent> extents_;                  // of all pages
  std::map<std::uint64_t, std::uint64_t> held_;  // zones, by volume id
  std::string wrong_;
};

}  // namespace

std::string check_structure_of(const Pool& pool, const SimDevice& device, bool faults) {
  return StructureCheck(pool, device, faults).run();
}

bool is_wedged(const Pool& pool, std::uint64_t volume) {
  const PoolContext& context = static_cast<const PoolImpl&>(pool).context();
  const ZoneAllocator& allocator = context.allocator;
  if (allocator.held(volume) < allocator.held_max(volume)) return false;
  for (std::uint32_t i = 0; i < context.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = allocator.zones()[i];
    if (zone.owner != volume || zone.use == ZoneUse::bad) continue;
    if (zone.use != ZoneUse::sealed) return false;
    const ZoneDirectory& table = context.tables[i];
    const bool says_something =
        table.tombstones + table.group_tombstones + table.expiring != 0 || !table.groups.empty();
    const bool oldest = allocator.min_opened(volume, ZoneId{i}) > zone.opened_sequence;
    if (zone.live_lbas == 0 && (oldest || !says_something)) return false;
  }
  return true;
}

StoreRoom room_of(PageStore& store) {
  auto& its = static_cast<PageStoreImpl&>(store);
  const PoolContext& context = its.context();
  StoreRoom room;
  room.usable_bytes = its.log().stats().usable_bytes;
  room.apart_bytes = its.log().usable_apart_bytes();
  room.streams = its.log().users_streams_made();
  room.record_bytes = PageLog::cost_bytes(context, 1) - context.geometry.lba_bytes;
  for (std::uint32_t i = 0; i < context.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = context.allocator.zones()[i];
    if (zone.owner != its.info().id) continue;
    // One that is just being reset says nothing any more, and is counted until it is free.
    const bool going = zone.use != ZoneUse::open && zone.use != ZoneUse::sealed;
    const ZoneDirectory& table = context.tables[i];
    room.tombstones_max += going ? context.geometry.zone_capacity_lbas * 100
                                 : table.tombstones + table.group_tombstones;
  }
  return room;
}

bool has_all_zones(PageStore& store) {
  auto& its = static_cast<PageStoreImpl&>(store);
  const ZoneAllocator& allocator = its.context().allocator;
  const std::uint64_t volume = its.info().id;
  return allocator.held(volume) >= allocator.held_max(volume) && allocator.unpromised() == 0;
}

bool leaves_zones_alone(PageStore& store) {
  return static_cast<PageStoreImpl&>(store).log().leaves_zones_alone();
}

bool has_damaged_copies(PageStore& store) {
  return static_cast<PageStoreImpl&>(store).log().has_damaged_copies();
}

bool unreadable_for_long(PageStore& store) {
  return static_cast<PageStoreImpl&>(store).log().unreadable_for_long();
}

std::uint64_t owner_of(const Pool& pool, ZoneId zone) {
  return static_cast<const PoolImpl&>(pool).context().allocator.zone(zone).owner;
}

}  // namespace furrow::sim
