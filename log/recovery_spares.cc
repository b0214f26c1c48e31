// A volume's last zone, when its power failed while it emptied another one into it: what it holds
// are copies. Where their originals are whole, it is free again.
#include <algorithm>

#include "log/page_window.h"
#include "log/recovery_steps.h"
#include "zone/check.h"

namespace furrow {

// The last zone of a quota is taken by relocation alone, and given back when the zone that it
// empties has been reset. Was it not, then all that the last zone holds is still there as well.
// What zones that are lost leave of a quota counts: any volume's may become smaller by them.
void Recovery::mark_spares() {
  if (options_.read_only) return;
  const std::uint64_t missing = pool_.allocator.missing();
  std::vector<std::uint64_t> volumes = options_.stores;
  volumes.insert(volumes.end(), options_.caches.begin(), options_.caches.end());
  for (const std::uint64_t volume : volumes) {
    if (pool_.allocator.held(volume) + missing < pool_.allocator.quota(volume)) continue;
    FoundZone* last = nullptr;
    for (FoundZone& zone : zones_) {
      if (zone.header.volume != volume || zone.info.state == ZoneState::read_only) continue;
      if (last == nullptr || last->header.opened_sequence < zone.header.opened_sequence) {
        last = &zone;
      }
    }
    if (last == nullptr) continue;
    last->spare = true;
    spares_[volume].zone = last->info.zone;
  }
}

// `versions` begin with a key's newest record, which is in `spare`. The record that says the same
// without that zone; the newest itself where it says that the key is absent, and so would nothing;
// null: the zone is needed.
const RecoveredRecord* Recovery::same_without(std::uint64_t volume, ZoneId spare,
                                              std::span<const RecoveredRecord> versions) const {
  const RecoveredRecord& newest = versions.front();
  const RecoveredRecord* rest = nullptr;
  for (const RecoveredRecord& version : versions) {
    if (!version.same_key(newest)) break;
    if (pool_.geometry.zone_of(Lba{version.lba()}) == spare) continue;
    rest = &version;
    break;
  }
  const bool rest_present = rest != nullptr && present(volume, *rest);
  if (!present(volume, newest)) {
    // What was deleted may be in a zone that is lost just now: then that must be said elsewhere.
    const bool said = rest != nullptr && rest->sequence == newest.sequence;
    if (!rest_present) return said || result_.lost.empty() ? &newest : nullptr;
    // A tombstone that stands for an expired page has that page's sequence. Where the clock was set
    // back since, the page may be itself again.
    return rest->sequence == newest.sequence && rest->entry().expires ? rest : nullptr;
  }
  return rest_present && rest->sequence == newest.sequence ? rest : nullptr;
}

// Of a page in another zone, among its key's `versions`; null: there is none.
const RecoveredRecord* Recovery::copy_of(const RecoveredRecord& page, ZoneId spare,
                                         std::span<const RecoveredRecord> versions) const {
  if (pool_.geometry.zone_of(Lba{page.lba()}) == spare) return nullptr;
  for (const RecoveredRecord& version : versions) {
    if (!version.same_key(page) || version.sequence < page.sequence) break;
    if (version.kind == RecoveredRecord::Kind::page && version.sequence == page.sequence &&
        pool_.geometry.zone_of(Lba{version.lba()}) == spare) {
      return &version;
    }
  }
  return nullptr;
}

// The keys, which the checksums are keyed with, stand in the copies' own records.
std::vector<Recovery::CopiedPage> Recovery::copied_pages(Spare& spare) {
  std::vector<CopiedPage> pages;
  const auto zone =
      std::ranges::find(zones_, spare.zone, [](const FoundZone& each) { return each.info.zone; });
  FURROW_CHECK(zone != zones_.end());
  std::ranges::sort(spare.copied, {}, &Copied::copy_lba);
  for (const PageRecord& record : scanners_.front()->records_of(*zone)) {
    const std::uint64_t lba = pool_.device_lba(spare.zone, record.lba);
    const auto copied = std::ranges::lower_bound(spare.copied, lba, {}, &Copied::copy_lba);
    const bool page = record.kind == RecordKind::page;
    if (!page || copied == spare.copied.end() || copied->copy_lba != lba) continue;
    pages.push_back(
        {copied->original, lba, key_hash(pool_.hash_key, zone->header.volume, record.key)});
  }
  if (pages.size() != spare.copied.size()) spare.needed = true;  // it reads otherwise than before
  std::ranges::sort(pages, {}, [](const CopiedPage& page) { return page.original->lba(); });
  return pages;
}

// That a record of the original is there does not say that its page is. One that has rotted since
// it was copied must not take the copy with it. Of a zone that stays all copies count: made again
// at each opening that a power cut ends, they would fill what is kept for them, and no zone could
// be emptied any more.
void Recovery::verify_originals() {
  for (auto& [volume, spare] : spares_) {
    PageWindow originals(*queue_, pool_.geometry), copies(*queue_, pool_.geometry);
    const auto whole = [&](PageWindow& window, std::uint64_t lba, const CopiedPage& page) {
      const IndexEntry entry = page.original->entry();
      const std::uint64_t zone = lba / pool_.geometry.zone_size_lbas;
      const std::uint64_t end =
          zone * pool_.geometry.zone_size_lbas + pool_.geometry.zone_capacity_lbas;
      const auto bytes = window.read(lba, pool_.page_lbas(entry.length), end);
      return bytes.ok() && page_checksum(bytes->first(entry.length), page.hash) == entry.checksum;
    };
    const auto is_left_alone = [&](const CopiedPage& page) {  // where neither is, nothing is gained
      return !whole(originals, page.original->lba(), page) && whole(copies, page.copy_lba, page);
    };
    const std::vector<CopiedPage> pages = copied_pages(spare);
    spare.needed = spare.needed || std::ranges::any_of(pages, is_left_alone);
    if (!spare.needed) continue;
    for (const CopiedPage& page : pages) {
      if (whole(copies, page.copy_lba, page)) take_copy(page);
    }
  }
}

// The copy counts instead of the original.
void Recovery::take_copy(const CopiedPage& page) {
  IndexEntry entry = page.original->entry();
  const std::uint64_t lbas = pool_.page_lbas(entry.length);
  pool_.allocator.remove_live(pool_.geometry.zone_of(Lba{entry.lba}), lbas);
  entry.lba = page.copy_lba;
  pool_.allocator.add_live(pool_.geometry.zone_of(Lba{entry.lba}), lbas, page.original->sequence);
  page.original->position = pack(entry);
}

// Without the newest zone of a stream the one before it is the newest. It was flushed before
// anything followed that one's header, or by this recovery, which nothing would say any more.
Status Recovery::note_durable_before(ZoneId newest) {
  const ZoneAllocator::Zone& gone = pool_.allocator.zone(newest);
  const FoundZone* before = nullptr;
  for (const FoundZone& zone : zones_) {
    if (zone.info.zone == newest || zone.header.volume != gone.owner) continue;
    if (zone.header.stream != gone.stream) continue;
    if (before == nullptr || before->header.opened_sequence < zone.header.opened_sequence) {
      before = &zone;
    }
  }
  if (before == nullptr || !options_.note_trim) return {};
  const ZoneId id = before->info.zone;
  ZoneDirectory& table = pool_.tables[id.value];
  if (table.durable || table.unverified) return {};
  const auto capacity = static_cast<std::uint32_t>(pool_.geometry.zone_capacity_lbas);
  const Status status =
      options_.note_trim({id, before->header.stamp.generation, std::min(table.end_lba, capacity),
                          true, table.evicted});
  if (status.ok()) table.durable = true;
  return status;
}

// Zones that turned out to hold copies alone are free again.
Status Recovery::give_back_spares() {
  bool any = false;
  for (const auto& [volume, spare] : spares_) {
    if (spare.needed) continue;
    const ZoneId zone = spare.zone;
    FURROW_CHECK(pool_.allocator.zone(zone).live_lbas == 0);
    const Status noted = note_durable_before(zone);
    if (!noted.ok()) return noted;
    const Status status = reset(zone);
    if (!status.ok()) {
      result_.lost.push_back({zone, "cannot be reset: " + status.describe()});
      continue;
    }
    any = true;
    pool_.allocator.release(zone);
    pool_.allocator.allow_no_more(volume, 0);  // as it held that one beyond its quota, perhaps
    pool_.forget(zone);
    std::erase_if(result_.volumes[volume].resumes,
                  [&](const auto& resume) { return resume.second.zone == zone; });
    std::erase_if(result_.new_trims, [&](const ZoneTrim& trim) { return trim.zone == zone; });
  }
  if (!any) return {};
  // Before the zone is written again: a power cut could leave its old write pointer.
  return flush_blocking(*queue_);
}

}  // namespace furrow
