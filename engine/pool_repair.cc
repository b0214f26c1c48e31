// Pool::repair(): what is damaged and still known is written again, beside what there is.
#include <fmt/format.h>

#include <algorithm>

#include "engine/pool_impl.h"
#include "log/zone_rebuild.h"
#include "zone/blocking.h"
#include "zone/zone_state_machine.h"

namespace furrow {

// A zone that is to be written again, and what is known of it.
struct ZoneWork {
  SurveyedZone zone;
  ZoneSurvey found;
  ZoneHeader header;  // its stamp is the old zone's
  bool full = false;
};

// Where a repair finds room among the zones, and among those that the device allows to be active.
struct RepairRoom {
  // With data that nobody owns: the next open would reset them. Those that may be among the active
  // ones; and others, which may be thousands, of deleted volumes.
  std::vector<ZoneId> unused, spare;
  std::vector<SurveyedZone> active;  // may be finished
};

namespace {

struct Known {  // of a zone, as in ZoneTrimRecord
  bool durable = false, aside = false;
};

// Works on the closed pool's device.
class PoolRepair {
 public:
  PoolRepair(ZonedDevice& device, MetadataRing& ring, IoQueue& queue, RepairRoom room)
      : device_(device), ring_(ring), queue_(queue), room_(std::move(room)) {}

  Status begin(std::uint64_t open_count) {
    JournalRecord opened;
    opened.kind = JournalRecord::Kind::opened;
    opened.open_count = open_count;
    next_generation_ = (open_count << kSequenceShift) + 1;
    return ring_.append(opened);
  }

  // A volume whose zones are there and whose record is lost, in ascending order of ids.
  Status list_again(std::uint64_t id, std::uint64_t held_zones, Executor& home) {
    const Superblock& superblock = ring_.superblock();
    std::uint64_t left = superblock.zone_count - superblock.metadata_zones;
    const std::vector<VolumeRecord>& others = ring_.state().volumes;
    for (const VolumeRecord& other : others) left -= std::min(left, other.quota_zones);
    Result<VolumeRecord> volume = recovered_volume(id, held_zones, left, others, superblock, home);
    if (!volume.ok()) return volume.status();
    JournalRecord created;
    created.kind = JournalRecord::Kind::volume_created;
    created.volume = std::move(*volume);
    return ring_.append(created);
  }

  // The old zone is reset when all that it held is durable in the new one, and not before. Until
  // then the journal says that the new one is void: its headers stand before what they speak of.
  Status rebuild(ZoneWork& work) {
    Status status = make_room(work);
    if (!status.ok()) return status;
    const Result<ZoneId> to = empty_zone();
    if (!to.ok()) return to.status();
    const Geometry& geometry = device_.geometry();
    const ZoneStamp& from = work.zone.stamp;
    const bool aside = was_aside(from.zone);  // so is what is written anew
    ZoneHeader header = work.header;
    header.stamp.zone = *to;
    header.stamp.generation = next_generation_++;
    // What the inspection found torn stays so: with two zones alike either may pass for the newest.
    if (work.zone.end_lba < work.zone.written_lbas) {
      status = trim(from, work.zone.end_lba, {.aside = aside});
    }
    if (status.ok()) status = trim(header.stamp, 0);
    if (!status.ok()) return status;
    const Result<std::uint64_t> end = rebuild_zone(queue_, geometry, work.zone, work.found, header);
    if (!end.ok()) return end.status();
    const bool cut = work.full && *end < geometry.zone_capacity_lbas;
    const std::uint64_t nowhere = aside ? geometry.zone_capacity_lbas : kNowhere;
    status = work.full ? trim(header.stamp, *end, {.durable = true, .aside = aside})
                       : trim(header.stamp, nowhere, {.aside = aside});
    if (cut) {
      if (status.ok()) status = manage_blocking(queue_, Io::Op::finish, *to);
      if (status.ok()) status = flush_blocking(queue_);
    }
    if (status.ok()) status = manage_blocking(queue_, Io::Op::reset, from.zone);
    if (status.ok()) status = flush_blocking(queue_);
    std::erase_if(room_.active, [&](const auto& zone) { return zone.stamp.zone == from.zone; });
    SurveyedZone rebuilt = work.zone;
    rebuilt.stamp = header.stamp;
    rebuilt.written_lbas = rebuilt.end_lba = *end;
    if (!cut && *end < geometry.zone_capacity_lbas) room_.active.push_back(rebuilt);
    return status;
  }

  Status reset_unused() {
    for (const ZoneId zone : room_.unused) {
      const Status status = manage_blocking(queue_, Io::Op::reset, zone);
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  static constexpr std::uint64_t kNowhere = ~std::uint32_t{0};

  // The zone to come is one more of the device's active zones than the pool has: where that is too
  // much, another one is finished, the one that is rebuilt last.
  Status make_room(ZoneWork& work) {
    const std::uint32_t most = device_.geometry().active_zones_max;
    for (;;) {
      const Result<std::vector<ZoneInfo>> zones = device_.report();
      if (!zones.ok()) return zones.status();
      const auto active = std::ranges::count_if(*zones, [&](const ZoneInfo& info) {
        return is_active(info.state) && info.zone.value >= ring_.superblock().metadata_zones;
      });
      if (most == 0 || active + 1 < most) return {};  // one is the ring's, now or when it rolls
      if (room_.active.empty()) {
        return {Code::too_many_zones, Origin::engine,
                "every zone that the device allows to be active (MAR) is"};
      }
      const auto other = std::ranges::find_if(room_.active, [&](const SurveyedZone& zone) {
        return zone.stamp.zone != work.zone.stamp.zone;
      });
      const auto finished = other == room_.active.end() ? room_.active.begin() : other;
      // A full zone does not say where its data ends, so that is noted first.
      Status status = trim(finished->stamp, std::min(finished->end_lba, finished->written_lbas),
                           {.aside = was_aside(finished->stamp.zone)});
      if (status.ok()) status = manage_blocking(queue_, Io::Op::finish, finished->stamp.zone);
      if (!status.ok()) return status;
      if (finished->stamp.zone == work.zone.stamp.zone) work.full = true;
      room_.active.erase(finished);
    }
  }

  // Durable when it returns.
  Status trim(const ZoneStamp& zone, std::uint64_t end_lba, Known known = {}) {
    JournalRecord record;
    record.kind = JournalRecord::Kind::zone_trimmed;
    record.trim = {zone.zone.value, static_cast<std::uint32_t>(end_lba), zone.generation,
                   known.durable, known.aside};
    return ring_.append(record);
  }
  bool was_aside(ZoneId zone) const {
    return std::ranges::any_of(ring_.state().trims, [zone](const ZoneTrimRecord& trim) {
      return trim.zone == zone.value && trim.aside;
    });
  }
  Result<ZoneId> empty_zone() {
    const Result<std::vector<ZoneInfo>> zones = device_.report();
    if (!zones.ok()) return zones.status();
    for (const ZoneInfo& info : *zones) {
      const std::uint32_t zone = info.zone.value;
      const bool metadata = zone < ring_.superblock().metadata_zones;
      const bool lent = std::ranges::any_of(ring_.state().lent, [zone](const LentZones& run) {
        return zone >= run.first && zone - run.first < run.count;
      });
      if (!metadata && !lent && info.state == ZoneState::empty) return info.zone;
    }
    while (!room_.spare.empty()) {
      const ZoneId zone = room_.spare.back();
      room_.spare.pop_back();
      // Durable with the record that the zone is void, before anything is written to it.
      if (manage_blocking(queue_, Io::Op::reset, zone).ok()) return zone;
    }
    return Status(Code::no_space, Origin::engine,
                  "no zone of the device is empty; delete a volume, or pages, and try again (those "
                  "of a zoned volume that was deleted are so when the pool was open for a while)");
  }

  ZonedDevice& device_;
  MetadataRing& ring_;
  IoQueue& queue_;
  RepairRoom room_;
  std::uint64_t next_generation_ = 0;
};

}  // namespace

Result<std::vector<ZoneWork>> PoolImpl::zones_to_rebuild() {
  std::vector<ZoneWork> all;
  const Result<std::vector<ZoneInfo>> zones = device_.report();
  if (!zones.ok()) return zones.status();
  CheckOptions structures;
  structures.pages = false;
  const Result<CheckReport> report = check(structures);
  if (!report.ok()) return report.status();
  std::vector<std::uint32_t> wanted;
  for (const Finding& finding : report->damage) {
    if (finding.repairable && finding.zone) wanted.push_back(*finding.zone);
  }
  for (const ZoneInfo& info : *zones) {
    if (std::ranges::find(wanted, info.zone.value) == wanted.end()) continue;
    const ZoneAllocator::Zone& zone = context_.allocator.zone(info.zone);
    ZoneWork work;
    work.zone = surveyed(info);
    CheckReport unused;
    work.found = survey_zone(info, structures, unused);
    work.header = {work.zone.stamp, zone.owner, zone.opened_sequence, zone.stream,
                   work.found.previous_opened};
    work.full = info.state == ZoneState::full;
    all.push_back(std::move(work));
  }
  return all;
}

Result<RepairRoom> PoolImpl::room_for_repair() {
  const Result<std::vector<ZoneInfo>> zones = device_.report();
  if (!zones.ok()) return zones.status();
  RepairRoom room;
  for (const ZoneInfo& info : *zones) {
    const ZoneAllocator::Zone& zone = context_.allocator.zone(info.zone);
    if (zone.use == ZoneUse::lent) continue;
    if (zone.owner != 0 && is_active(info.state)) room.active.push_back(surveyed(info));
    const bool is_void = std::ranges::any_of(ring_.state().trims, [&](const ZoneTrimRecord& trim) {
      return trim.zone == info.zone.value && trim.end_lba == 0;
    });
    const bool written = is_active(info.state) || (is_void && info.state == ZoneState::full);
    const bool unknown = std::ranges::any_of(unknown_, [&](const auto& volume) {
      return std::ranges::find(volume.second, info.zone) != volume.second.end();
    });
    if (zone.use != ZoneUse::free || unknown) continue;
    if (written) room.unused.push_back(info.zone);
    const bool spare = !written && info.state == ZoneState::full && !ring_.lost();
    if (spare) room.spare.push_back(info.zone);
  }
  return room;
}

Result<RepairReport> Pool::repair(ZonedDevice& device, Executor& home, unsigned recovery_threads) {
  std::vector<ZoneWork> works;
  RepairRoom room;
  std::map<std::uint64_t, std::vector<ZoneId>> unknown;
  std::uint64_t open_count = 0;
  bool metadata = false;
  std::optional<PoolState> lost;  // every checkpoint is: the state that is to be written
  {
    OpenOptions inspect;
    inspect.read_only = inspect.as_repaired = true;
    inspect.recovery_threads = recovery_threads;
    Result<std::unique_ptr<Pool>> opened = Pool::open(device, home, inspect);
    if (!opened.ok()) return opened.status();
    auto& pool = static_cast<PoolImpl&>(**opened);
    Result<std::vector<ZoneWork>> found = pool.zones_to_rebuild();
    if (!found.ok()) return found.status();
    works = std::move(*found);
    Result<RepairRoom> its_room = pool.room_for_repair();
    if (!its_room.ok()) return its_room.status();
    room = std::move(*its_room);
    metadata = pool.metadata_damaged();
    unknown = pool.unknown_volumes();
    open_count = pool.open_count();
    if (pool.lost()) lost = pool.assumed_state();
  }
  Result<MetadataRing> ring = MetadataRing::open(device, false, lost.has_value());
  if (!ring.ok()) return ring.status();
  Result<std::unique_ptr<IoQueue>> queue = device.create_queue(32);
  if (!queue.ok()) return queue.status();
  RepairReport report;
  PoolRepair repair(device, *ring, **queue, std::move(room));
  const auto tell = [&](const std::string& what, const Status& status) {
    (status.ok() ? report.done : report.failed)
        .push_back(status.ok() ? what : what + ": " + status.describe());
  };
  if (!device.damage().empty()) {
    tell("the device's superblock, or zone table, was written anew", device.mend());
  }
  // First: a power cut can leave one with its header more than the device may have active (MAR),
  // and the metadata ring needs one.
  Status status = repair.reset_unused();
  if (!status.ok()) tell("zones that hold nothing were reset", status);
  status = lost ? ring->rebuild(std::move(*lost)) : Status();
  if (status.ok()) status = repair.begin(open_count);
  if (!status.ok()) return status;
  if (metadata) {
    tell("the metadata zones were written anew", lost ? Status() : ring->repair());
  }
  for (const auto& [id, zones] : unknown) {
    const Status listed = lost ? Status() : repair.list_again(id, zones.size(), home);
    const auto& volumes = ring->state().volumes;
    const auto again = std::ranges::find(volumes, id, &VolumeRecord::id);
    tell(fmt::format("volume {} was listed again, as '{}'", id,
                     again != volumes.end() ? again->name : recovered_name(id)),
         listed);
  }
  for (ZoneWork& work : works) {
    tell(fmt::format("zone {} was written anew to another zone", work.zone.stamp.zone.value),
         repair.rebuild(work));
  }
  return report;
}

std::vector<std::string> repair_plan(const CheckReport& report) {
  std::vector<std::string> plan;
  std::optional<std::uint32_t> last;
  for (const Finding& finding : report.damage) {
    if (!finding.repairable) continue;
    std::string step;
    if (finding.structure == Finding::Structure::device) {
      step = "write what is damaged of the device's superblocks and zone table anew";
    } else if (finding.volume) {
      step = fmt::format("volume {}: list it again, as the store '{}', with what its zones hold",
                         *finding.volume, recovered_name(*finding.volume));
    } else if (!finding.zone) {
      step = "write the metadata zones anew: superblocks, checkpoints and journal";
    } else if (finding.zone != last) {
      step = fmt::format(
          "zone {}: write its headers, pages and summaries anew to an empty zone, then reset it",
          *finding.zone);
    }
    last = finding.zone;
    if (!step.empty() && std::ranges::find(plan, step) == plan.end()) {
      plan.push_back(std::move(step));
    }
  }
  return plan;
}

}  // namespace furrow
