// Recovery's last step: of all records of a key the one that counts.
#include <algorithm>
#include <atomic>

#include "log/page_log.h"
#include "log/record_sorter.h"
#include "log/recovery_steps.h"
#include "zone/threads.h"

namespace furrow {

void Recovery::merge() {
  for (const auto& scanner : scanners_) {
    std::ranges::copy(scanner->unverified, std::back_inserter(unverified_));
  }
  std::ranges::sort(unverified_);
  for (const auto& scanner : scanners_) {
    for (auto& [volume, gathered] : scanner->gathered) {
      for (const auto& [group, tombstone] : gathered.group_tombstones) {
        group_tombstones_[volume][group].add(tombstone);
      }
    }
  }
  for (const auto& scanner : scanners_) {
    for (auto& [volume, gathered] : scanner->gathered) {
      for (const auto& [group, tombstone] : gathered.spare_group_tombstones) {
        GroupTombstone& newest = group_tombstones_[volume][group];
        // A copy goes with the zone if that is given back: it does not count as being anywhere.
        if (tombstone.sequence <= newest.sequence) continue;
        spares_.at(volume).needed = true;
        newest.add(tombstone);
      }
    }
  }
  find_deleted_groups();
  for (const std::uint64_t volume : options_.volumes) {
    merge_volume(volume, result_.volumes[volume]);
  }
  for (const auto& scanner : scanners_) result_.memory.push_back(std::move(scanner->memory));
}

// Groups may be millions, and few of them deleted: only pages of zones that have such a one are
// asked for theirs.
void Recovery::find_deleted_groups() {
  deleted_in_.resize(pool_.geometry.zone_count);
  for (const FoundZone& zone : zones_) {
    const auto tombstones = group_tombstones_.find(zone.header.volume);
    if (tombstones == group_tombstones_.end()) continue;
    const ZoneDirectory& table = pool_.tables[zone.info.zone.value];
    const auto has = [&](const auto& deleted) { return table.has_group(deleted.first); };
    const auto is_deleted = [&](const ZoneDirectory::GroupRun& run) {
      return tombstones->second.contains(run.group);
    };
    deleted_in_[zone.info.zone.value] = tombstones->second.size() < table.groups.size()
                                            ? std::ranges::any_of(tombstones->second, has)
                                            : std::ranges::any_of(table.groups, is_deleted);
  }
}

void Recovery::merge_volume(std::uint64_t volume, RecoveredVolume& into) {
  std::vector<Gathered*> gathered;
  for (const auto& scanner : scanners_) {
    const auto found = scanner->gathered.find(volume);
    if (found != scanner->gathered.end()) gathered.push_back(&found->second);
  }
  if (gathered.empty()) return;
  for (const Gathered* one : gathered) into.damaged |= one->damaged;
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
  run_on_threads(static_cast<unsigned>(merged.size()), [&](unsigned i) { work(merged[i]); });
  into.pages = RecoveredPages(std::move(partitions), std::max(1u, options_.threads));
  for (const Merged& one : merged) {
    into.live_bytes += one.live_bytes;
    into.cost_bytes += one.cost_bytes;
    into.pinned_lbas += one.pinned_lbas;
    into.largest_bytes = std::max(into.largest_bytes, one.largest_bytes);
    into.expired |= one.expired;
    for (const ZoneId zone : one.passed_over) keep_unreadable(zone);
    if (one.spare_needed) spares_.at(volume).needed = true;
    if (!one.copied.empty())
      std::ranges::copy(one.copied, std::back_inserter(spares_.at(volume).copied));
    for (const auto& [zone, sequence] : one.strays) {
      pool_.allocator.note_stray(ZoneId{zone}, sequence);
    }
    into.first_expiry_s = std::min(into.first_expiry_s, one.first_expiry_s);
    into.outlived.insert(into.outlived.end(), one.outlived.begin(), one.outlived.end());
    for (std::uint32_t zone = 0; zone < one.live_lbas.size(); ++zone) {
      // The zone's lowest sequence was noted when it was scanned.
      if (one.live_lbas[zone] != 0) {
        pool_.allocator.add_live(ZoneId{zone}, one.live_lbas[zone], ~std::uint64_t{0});
      }
    }
  }
}

// Of all that say the same as a key's newest record, with which `versions` begin, that which was
// written last. What was moved needs no moving again then, nor is its original missed if it rots
// before its zone is reset.
const RecoveredRecord& Recovery::latest_copy(std::span<const RecoveredRecord> versions) const {
  const auto written = [this](const RecoveredRecord& record) {
    const ZoneAllocator::Zone& zone =
        pool_.allocator.zone(pool_.geometry.zone_of(Lba{record.lba()}));
    return std::pair(zone.stream == kCollectionStream, zone.opened_sequence);
  };
  const RecoveredRecord* latest = &versions.front();
  if (latest->kind != RecoveredRecord::Kind::page) return *latest;
  for (const RecoveredRecord& each : versions.subspan(1)) {
    if (!each.same_key(*latest) || each.sequence != latest->sequence) break;
    if (each.kind == RecoveredRecord::Kind::page && written(each) > written(*latest)) {
      latest = &each;
    }
  }
  return *latest;
}

// Of each key in a partition the newest record, if that is a page that nothing has deleted. Of
// copies, the latest that is not in a zone that may be given back.
void Recovery::winners(std::uint64_t volume, std::span<const RecoveredRecord> sorted,
                       RecordPile& into, Merged& sums) {
  const auto spare = spares_.find(volume);
  const bool evicts = !is_store(volume);
  // A disk would not be served at all then, for one block that cannot be read.
  const bool stays_if_torn = !evicts && pool_.blocks_of(volume) == nullptr;
  const RecoveredRecord* newest = nullptr;  // of a key
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (newest != nullptr && sorted[i].same_key(*newest)) {
      note_stray(sorted[i], *newest, evicts, sums);
      continue;
    }
    newest = &sorted[i];
    const RecoveredRecord* winner = &latest_copy(sorted.subspan(i));
    if (spare != spares_.end() &&
        pool_.geometry.zone_of(Lba{winner->lba()}) == spare->second.zone) {
      winner = same_without(volume, spare->second.zone, sorted.subspan(i));
      if (winner == nullptr) {
        sums.spare_needed = true;
        winner = &latest_copy(sorted.subspan(i));
      }
    }
    const RecoveredRecord* whole =
        is_unverified(*winner) ? whole_version(volume, sorted.subspan(i), evicts) : nullptr;
    if (is_unverified(*winner)) {
      note_passed_over(sorted.subspan(i), whole != nullptr ? *whole : *winner, stays_if_torn,
                       sums.passed_over);
    }
    if (whole != nullptr) {
      const ZoneId zone = pool_.geometry.zone_of(Lba{whole->lba()});
      sums.spare_needed |= spare != spares_.end() && zone == spare->second.zone;
      winner = whole;
    } else if (!present(volume, *winner)) {
      if (evicts) note_outlived(volume, sorted.subspan(i), sums.outlived);
      continue;
    }
    // One that has expired may have been swept before, and what was stored since has its room.
    if (expired(*winner)) {
      sums.expired = true;
      continue;
    }
    into.add_in_place(*winner);
    if (spare != spares_.end()) {
      const RecoveredRecord* copy = copy_of(*winner, spare->second.zone, sorted.subspan(i));
      if (copy != nullptr) sums.copied.push_back({&into.last(), copy->lba()});
    }
    const IndexEntry entry = winner->entry();
    const std::uint64_t lbas = pool_.page_lbas(entry.length);
    sums.live_bytes += entry.length;
    sums.largest_bytes = std::max(sums.largest_bytes, entry.length);
    sums.cost_bytes += PageLog::cost_bytes(pool_, entry.length);
    if (entry.pinned) sums.pinned_lbas += lbas;
    if (entry.expires) {
      sums.first_expiry_s = std::min(sums.first_expiry_s, pool_.expiry(entry.lba));
    }
    sums.live_lbas[pool_.geometry.zone_of(Lba{entry.lba}).value] += lbas;
  }
}

// `versions` begin with a key's newest record, which may be torn, and could not be read. Where it
// is torn what it replaced is still promised, and would go with its zone: that counts until the
// page can be read; in a store also where a deletion of its group behind the page says otherwise,
// as that does not count if the page is torn (see is_deleted()). Null: there is none, so the page
// is not there, or damaged, and reading it will tell.
const RecoveredRecord* Recovery::whole_version(std::uint64_t volume,
                                               std::span<const RecoveredRecord> versions,
                                               bool evicts) const {
  for (std::size_t i = 0; i < versions.size() && versions[i].same_key(versions.front()); ++i) {
    const RecoveredRecord& version = versions[i];
    if (is_unverified(version)) continue;
    if (version.kind != RecoveredRecord::Kind::page || expired(version)) return nullptr;
    return is_deleted(volume, versions.first(i + 1), evicts) ? nullptr : &version;
  }
  return nullptr;
}

// The last of `versions`, those before which could not be read. A deletion that may not count takes
// it if the group had the key when it was deleted: of that nothing was to be left then, torn or not
// (and it would be all that is left of the group).
bool Recovery::is_deleted(std::uint64_t volume, std::span<const RecoveredRecord> versions,
                          bool evicts) const {
  const auto* const deletion = deletion_of(volume, versions.back());
  if (deletion == nullptr) return false;
  if (evicts || deletion->second.sure > versions.back().sequence) return true;
  const auto deleted = std::ranges::find_if(versions, [&](const RecoveredRecord& version) {
    return version.sequence < deletion->second.sequence;
  });
  return deletion_of(volume, *deleted) == deletion;
}

// `versions` begin with those of a key that could not be read, of which `winner` may be one. Each
// may turn out to be the one that counts, or, where nothing is in its place, the page torn: all
// stay but those that say the same as one that is whole, and a single one if `stays_if_torn`.
void Recovery::note_passed_over(std::span<const RecoveredRecord> versions,
                                const RecoveredRecord& winner, bool stays_if_torn,
                                std::vector<ZoneId>& into) const {
  const auto zone_of = [this](const RecoveredRecord& each) {
    return pool_.geometry.zone_of(Lba{each.lba()});
  };
  bool stays = stays_if_torn;
  for (const RecoveredRecord& version : versions) {
    if (!version.same_key(versions.front()) || !is_unverified(version)) break;
    if (&version == &winner) continue;
    if (version.sequence == winner.sequence && !is_unverified(winner)) continue;
    into.push_back(zone_of(version));
    stays = true;
  }
  if (stays && is_unverified(winner)) into.push_back(zone_of(winner));
}

bool Recovery::present(std::uint64_t volume, const RecoveredRecord& record) const {
  return record.kind == RecoveredRecord::Kind::page && deletion_of(volume, record) == nullptr;
}

const GroupTombstones::value_type* Recovery::deletion_of(std::uint64_t volume,
                                                         const RecoveredRecord& record) const {
  const ZoneId zone = pool_.geometry.zone_of(Lba{record.lba()});
  if (!record.grouped || !deleted_in_[zone.value]) return nullptr;
  const GroupTombstones& tombstones = group_tombstones_.at(volume);
  const auto deleted =
      tombstones.find(pool_.tables[zone.value].group_of(pool_.relative_lba(record.lba())));
  const bool is_older = deleted != tombstones.end() && deleted->second.sequence > record.sequence;
  return is_older ? &*deleted : nullptr;
}

// A zone opened later than a key's newest record was written has no older version of it, but where
// that was collected while the newest could not be read. (A tombstone may have the sequence of what
// it deletes; of pages of one sequence each is the newest.)
void Recovery::note_stray(const RecoveredRecord& older, const RecoveredRecord& newest, bool evicts,
                          Merged& sums) const {
  using Kind = RecoveredRecord::Kind;
  if (older.kind != Kind::page) return;
  if (newest.kind == Kind::page && older.sequence == newest.sequence) return;
  const ZoneId zone = pool_.geometry.zone_of(Lba{older.lba()});
  const std::uint64_t opened = pool_.allocator.zone(zone).opened_sequence;
  if (opened < newest.sequence) return;
  if (evicts) return sums.outlived.push_back({0, older.order, opened});
  std::uint64_t& lowest = sums.strays.try_emplace(zone.value, ~std::uint64_t{0}).first->second;
  lowest = std::min(lowest, older.sequence);
}

// Of the first key: a copy that came too late, as it was on its way when its group was deleted.
void Recovery::note_outlived(std::uint64_t volume, std::span<const RecoveredRecord> versions,
                             std::vector<Outlived>& into) const {
  for (const RecoveredRecord& version : versions) {
    if (!version.same_key(versions.front())) return;
    const auto* const deletion = deletion_of(volume, version);
    if (deletion == nullptr) continue;
    const ZoneId zone = pool_.geometry.zone_of(Lba{version.lba()});
    const std::uint64_t opened = pool_.allocator.zone(zone).opened_sequence;
    if (opened > deletion->second.opened_sequence) into.push_back({deletion->first, 0, opened});
  }
}

}  // namespace furrow
