// Recovery's last step: of all records of a key the one that counts.
#include <algorithm>
#include <atomic>
#include <thread>

#include "log/page_log.h"
#include "log/record_sorter.h"
#include "log/recovery_steps.h"

namespace furrow {

void Recovery::merge() {
  for (const auto& scanner : scanners_) {
    for (auto& [volume, gathered] : scanner->gathered) {
      std::ranges::move(gathered.groups, std::back_inserter(groups_[volume]));
      for (const auto& [group, sequence] : gathered.group_tombstones) {
        std::uint64_t& highest = group_tombstones_[volume][group];
        highest = std::max(highest, sequence);
      }
    }
  }
  for (const auto& scanner : scanners_) {
    for (auto& [volume, gathered] : scanner->gathered) {
      for (const auto& [group, sequence] : gathered.spare_group_tombstones) {
        std::uint64_t& highest = group_tombstones_[volume][group];
        if (sequence > highest) spares_.at(volume).needed = true;
        highest = std::max(highest, sequence);
      }
    }
  }
  for (auto& [volume, groups] : groups_) std::ranges::sort(groups, {}, &RecoveredGroup::lba);
  for (const std::uint64_t volume : options_.volumes) {
    merge_volume(volume, result_.volumes[volume]);
  }
  for (const auto& scanner : scanners_) result_.memory.push_back(std::move(scanner->memory));
}

void Recovery::merge_volume(std::uint64_t volume, RecoveredVolume& into) {
  std::vector<Gathered*> gathered;
  for (const auto& scanner : scanners_) {
    const auto found = scanner->gathered.find(volume);
    if (found != scanner->gathered.end()) gathered.push_back(&found->second);
  }
  if (gathered.empty()) return;
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
  {
    std::vector<std::jthread> running;
    for (std::size_t i = 1; i < merged.size(); ++i) {
      running.emplace_back([&work, &mine = merged[i]] { work(mine); });
    }
    work(merged[0]);
  }
  into.pages = RecoveredPages(std::move(partitions), std::max(1u, options_.threads));
  for (const Merged& one : merged) {
    into.live_bytes += one.live_bytes;
    into.cost_bytes += one.cost_bytes;
    into.pinned_lbas += one.pinned_lbas;
    into.largest_bytes = std::max(into.largest_bytes, one.largest_bytes);
    into.expired |= one.expired;
    if (one.spare_needed) spares_.at(volume).needed = true;
    if (!one.copied.empty())
      std::ranges::copy(one.copied, std::back_inserter(spares_.at(volume).copied));
    into.expiries.insert(into.expiries.end(), one.expiries.begin(), one.expiries.end());
    for (std::uint32_t zone = 0; zone < one.live_lbas.size(); ++zone) {
      // The zone's lowest sequence was noted when it was scanned.
      if (one.live_lbas[zone] != 0) {
        pool_.allocator.add_live(ZoneId{zone}, one.live_lbas[zone], ~std::uint64_t{0});
      }
    }
  }
}

// Of each key in a partition the newest record, if that is a page that nothing has deleted. Of
// copies, the one that is not in a zone that may be given back.
void Recovery::winners(std::uint64_t volume, std::span<const RecoveredRecord> sorted,
                       RecordPile& into, Merged& sums) {
  const auto spare = spares_.find(volume);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i != 0 && sorted[i].same_key(sorted[i - 1])) continue;
    const RecoveredRecord* winner = &sorted[i];
    if (spare != spares_.end() &&
        pool_.geometry.zone_of(Lba{winner->lba()}) == spare->second.zone) {
      winner = same_without(volume, spare->second.zone, sorted.subspan(i));
      if (winner == nullptr) {
        sums.spare_needed = true;
        winner = &sorted[i];
      }
    }
    if (!present(volume, *winner)) continue;
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
    if (entry.expires) sums.expiries.push_back({entry.lba, winner[1].checksum});
    sums.live_lbas[pool_.geometry.zone_of(Lba{entry.lba}).value] += lbas;
  }
}

bool Recovery::present(std::uint64_t volume, const RecoveredRecord& record) const {
  return record.kind == RecoveredRecord::Kind::page && !group_deleted(volume, record);
}

bool Recovery::group_deleted(std::uint64_t volume, const RecoveredRecord& record) const {
  if (!record.grouped) return false;
  const auto tombstones = group_tombstones_.find(volume);
  if (tombstones == group_tombstones_.end()) return false;
  const auto group =
      std::ranges::lower_bound(groups_.at(volume), record.lba(), {}, &RecoveredGroup::lba);
  const auto deleted = tombstones->second.find(group->group);
  return deleted != tombstones->second.end() && deleted->second > record.sequence;
}

}  // namespace furrow
