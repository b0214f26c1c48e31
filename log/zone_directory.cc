#include <algorithm>

#include "log/pool_context.h"
#include "log/zone_survey.h"

namespace furrow {

bool ZoneDirectory::counts(std::uint64_t lba) const {
  return lba < end_lba && !std::ranges::binary_search(torn, lba);
}

bool ZoneDirectory::counts(const PageRecord& record) const {
  return record_counts(record, end_lba, torn);
}

std::uint32_t ZoneDirectory::batch_of(std::uint32_t lba) const {
  const std::optional<std::uint32_t> batch = batches.last_before(lba);
  FURROW_CHECK(batch);
  return *batch;
}

void ZoneDirectory::count(const PageRecord& record) {
  ++records;
  switch (record.kind) {
    case RecordKind::tombstone:
      ++tombstones;
      last_tombstone = std::max(last_tombstone, record.sequence);
      return;
    case RecordKind::group_tombstone:
      ++group_tombstones;
      return;
    case RecordKind::page:
      break;
  }
  if (record.group != 0) add_group(record.group, record.lba);
  if (record.expires_s != 0) ++expiring;
  last_expiry_s =
      std::max(last_expiry_s, record.expires_s != 0 ? record.expires_s : ~std::uint32_t{0});
}

void ZoneDirectory::add_group(std::uint64_t group, std::uint32_t lba) {
  if (!groups.empty() && groups.back().group == group) {
    groups.back().last_lba = lba;
  } else {
    groups.push_back({lba, lba, group});
    groups_had = GroupFilter();
  }
}

bool ZoneDirectory::has_group(std::uint64_t group) const {
  return groups_had.may_have(group) &&
         std::ranges::find(groups, group, &GroupRun::group) != groups.end();
}

std::uint64_t ZoneDirectory::group_of(std::uint32_t lba) const {
  const auto behind = std::ranges::upper_bound(groups, lba, {}, &GroupRun::first_lba);
  return behind == groups.begin() ? 0 : std::prev(behind)->group;
}

void ZoneDirectory::truncate(std::uint32_t lba) {
  batches.truncate(lba);
  if (batches.empty()) records = tombstones = group_tombstones = expiring = 0;
  groups.erase(std::ranges::lower_bound(groups, lba, {}, &GroupRun::first_lba), groups.end());
  if (!groups.empty()) groups.back().last_lba = std::min(groups.back().last_lba, lba - 1);
}

void ZoneDirectory::compact() {
  batches.compact();
  groups.shrink_to_fit();
  constexpr std::size_t kFew = 16;  // are looked at as fast
  if (groups.size() < kFew) return;
  groups_had = GroupFilter(groups.size());
  for (const GroupRun& run : groups) groups_had.add(run.group);
}

void PoolContext::note_record(ZoneId zone, const PageRecord& record) {
  tables[zone.value].count(record);
  const bool expires = record.kind == RecordKind::page && record.expires_s != 0;
  if (expires) expiries.add(zone, record.lba, record.expires_s);
}

void PoolContext::forget(ZoneId zone) {
  tables[zone.value] = ZoneDirectory();
  expiries.drop(zone);
}

}  // namespace furrow
