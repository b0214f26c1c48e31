// Which deletions collection has to write again, as what they delete may come back without them.
#include <algorithm>
#include <bitset>
#include <tuple>
#include <utility>

#include "log/collector.h"
#include "log/page_log.h"
#include "zone/canary.h"

namespace furrow {

namespace {
constexpr std::uint64_t kUnsureShare = 4;  // at most 1/this of a zone deletes what may be hidden
}  // namespace

bool Collector::any_group_deleted() const {
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    if (pool_.allocator.zones()[i].owner != log_.options_.volume) continue;
    if (pool_.tables[i].group_tombstones != 0) return true;
  }
  return false;
}

// A zone may have more tombstones than there are zones. In a turn no record gets a place, and none
// of the volume's zones is reset while its victim is being emptied: in a later one `opened` is no
// higher than it should be.
const Collector::Others& Collector::others() {
  if (!others_) {
    const std::uint64_t volume = log_.options_.volume;
    others_ = {pool_.allocator.min_opened(volume, victim_),
               pool_.allocator.min_sequence(volume, victim_), any_group_deleted()};
  }
  return *others_;
}

// What is left of a page that has expired, or was deleted with its group, while an older version of
// its key may be on the medium: that one would be the newest otherwise.
PageRecord Collector::tombstone_of(const PageRecord& page) {
  PageRecord tombstone;
  tombstone.kind = RecordKind::tombstone;
  tombstone.key = page.key;
  tombstone.sequence = page.sequence;
  return tombstone;
}

void Collector::forget_outlived() {
  const std::uint64_t others = pool_.allocator.min_opened(log_.options_.volume, victim_);
  const std::uint64_t first = std::min(others, pool_.allocator.zone(victim_).opened_sequence);
  std::erase_if(outlived_, [&](const auto& each) { return each.second < first; });
}

bool Collector::is_outlived(const PageRecord& record) const {
  if (outlived_.empty()) return false;
  const bool group = record.kind == RecordKind::group_tombstone;
  const auto found =
      outlived_.find(group ? std::pair(record.group, std::uint64_t{0})
                           : std::pair(std::uint64_t{0}, log_.hash(record.key).order));
  return found != outlived_.end() && pool_.allocator.zone(victim_).opened_sequence < found->second;
}

// Copies of an older version may be hidden now, so that nobody knows of which keys. Where something
// stays hidden for good, each opening has all deletions written again: they must neither fill the
// cache in the end nor, for lack of room, keep a zone from being freed.
bool Collector::may_outlive(const PageRecord& deletion) const {
  if (!log_.older_may_be_hidden(victim_) || !has_room(deletion)) return false;
  const std::uint64_t most =
      pool_.geometry.zone_capacity_bytes() / PageLog::kRecordBytes / kUnsureShare;
  return unsure_deletions_ < most;
}

// In cache mode zones go in the order in which they were written, so nothing older is left, but for
// copies of pages whose group was deleted meanwhile, or of which a newer version was hidden. In
// store mode a record of a lower sequence in another zone may be an older version.
bool Collector::tombstone_needed(const PageRecord& record) {
  if (canary(Canary::tombstone_dropped)) return false;
  if (log_.options_.cache) return is_outlived(record) || may_outlive(record);
  // A key's older versions were all placed, under its lock, before the tombstone's sequence was
  // drawn: only zones that were opened before it can have them.
  if (record.kind == RecordKind::tombstone) return others().opened < record.sequence;
  const bool is_done = record.sequence < unfinished_removal_;
  if (is_done && !std::ranges::binary_search(groups_elsewhere_, record.group)) return false;
  const auto copied_now = [&](const Lane& lane) {  // and not in a zone yet
    return lane.busy && lane.record.sequence < record.sequence;
  };
  return others().sequence < record.sequence || any_lane(copied_now);
}

// A key's, or a group's: whose key is empty, as no page's is.
Collector::Tombstone Collector::deletion_of(const PageRecord& record) {
  const bool group = record.kind == RecordKind::group_tombstone;
  return {record.key, group ? record.group : 0, record.sequence, &record};
}

void Collector::find_newest_tombstones() {
  newest_tombstones_.clear();
  const bool of_pages = log_.older_may_be_hidden(victim_);
  if (log_.options_.cache && !of_pages) return;  // which copies few
  for (const PageRecord& record : scan_->records()) {
    const bool counts = pool_.tables[victim_.value].counts(record);
    if ((record.kind == RecordKind::page && !of_pages) || !counts) continue;
    newest_tombstones_.push_back(deletion_of(record));
  }
  std::ranges::sort(newest_tombstones_, [](const Tombstone& a, const Tombstone& b) {
    return std::tie(a.key, a.group, b.sequence, a.record) <
           std::tie(b.key, b.group, a.sequence, b.record);
  });
  const auto again = std::unique(newest_tombstones_.begin(), newest_tombstones_.end(),
                                 [](const Tombstone& a, const Tombstone& b) { return a.same(b); });
  newest_tombstones_.erase(again, newest_tombstones_.end());
  find_groups_elsewhere();
}

// What a group's tombstone deletes is in other zones, or on its way there, or nowhere: pages of the
// victim go with it. (Sequences alone would keep it for as long as there is any older page, which
// may be for good.) But where the deletion is still going on, pages of this segment that it has not
// got to may be copied yet.
void Collector::find_groups_elsewhere() {
  constexpr unsigned kFilterBits = 16;
  constexpr std::size_t kRunsForAGroup = 4;  // are looked at while it is asked for in a filter
  const auto place = [](std::uint64_t group) {
    return group * 0x9e3779b97f4a7c15u >> (64 - kFilterBits);
  };
  groups_elsewhere_.clear();
  unfinished_removal_ = ~std::uint64_t{0};
  for (const auto& each : log_.removing_) {
    unfinished_removal_ = std::min(unfinished_removal_, each.sequence);
  }
  std::vector<std::uint64_t> deleted;   // ascending, as they are there
  std::bitset<1 << kFilterBits> among;  // as runs may be millions, and few of them deleted
  for (const Tombstone& each : newest_tombstones_) {
    if (each.group == 0) continue;
    deleted.push_back(each.group);
    among.set(place(each.group));
  }
  if (deleted.empty()) return;
  std::vector<bool> found(deleted.size());
  for (std::uint32_t i = 0; i < pool_.geometry.zone_count; ++i) {
    const ZoneAllocator::Zone& zone = pool_.allocator.zones()[i];
    const bool ours = zone.owner == log_.options_.volume || zone.may_be_of(log_.options_.volume);
    if (!ours || i == victim_.value) continue;
    if (may_have_any_group(ZoneId{i})) {
      groups_elsewhere_ = std::move(deleted);
      return;
    }
    const ZoneDirectory& table = pool_.tables[i];
    const bool few = deleted.size() < table.groups.size() / kRunsForAGroup;
    const auto may_have = [&](std::uint64_t group) { return table.groups_had.may_have(group); };
    if (few && std::ranges::none_of(deleted, may_have)) continue;
    for (const ZoneDirectory::GroupRun& run : table.groups) {
      if (!among.test(place(run.group))) continue;
      const auto at = std::ranges::lower_bound(deleted, run.group);
      if (at != deleted.end() && *at == run.group) found[at - deleted.begin()] = true;
    }
  }
  for (std::size_t i = 0; i < deleted.size(); ++i) {
    const auto holds = [group = deleted[i]](const auto& stream) {
      return stream && stream->holds_group(group);
    };
    if (found[i] || std::ranges::any_of(log_.streams_, holds)) {
      groups_elsewhere_.push_back(deleted[i]);
    }
  }
}

// It was not read as a whole, or was to be reset and may not be.
bool Collector::may_have_any_group(ZoneId id) const {
  const ZoneAllocator::Zone& zone = pool_.allocator.zone(id);
  const ZoneDirectory& table = pool_.tables[id.value];
  if (zone.oldest() == 0 || zone.min_sequence == 0) return true;
  const bool known = zone.use != ZoneUse::bad && table.records != 0 && !table.has_gap;
  return !known && zone.min_sequence != ~std::uint64_t{0};
}

// Of one key's tombstones the newest says what all of them say, and of its copies, which attempts
// that failed have made, any. The others would be written one by one, as each waits for the key's
// lock, in a batch to itself; and collection would take more room than it frees.
bool Collector::said_by_another(const PageRecord& record) const {
  const Tombstone its = deletion_of(record);
  const auto newest =
      std::ranges::lower_bound(newest_tombstones_, its, [](const Tombstone& a, const Tombstone& b) {
        return std::tie(a.key, a.group) < std::tie(b.key, b.group);
      });
  return newest != newest_tombstones_.end() && newest->same(its) &&
         (newest->sequence > its.sequence ||
          (newest->sequence == its.sequence && newest->record != &record));
}

// Zones of a cache go in their order, and a group's tombstone would go with its own before the page
// does. (In a store a page keeps its group's tombstone from going.)
void Collector::note_outlived(const Outlived& page) {
  if (!log_.options_.cache || (page.group == 0 && page.order == 0)) return;
  std::uint64_t& opened = outlived_[{page.group, page.order}];
  opened = std::max(opened, page.opened_sequence);
}

}  // namespace furrow
