// What tells what a zone is: its header or, where that cannot be read, what stands behind it.
#include <algorithm>

#include "log/recovery_steps.h"
#include "log/structure.h"
#include "zone/blocking.h"
#include "zone/canary.h"

namespace furrow {

namespace {
constexpr std::uint64_t kFirstBatchBytes = 8 << 20;
}

// not_found: nothing in the zone counts; corrupt: nobody can tell whose it is; unsupported: a
// structure that counts is of a newer version.
Result<ZoneHeader> Recovery::read_header(const ZoneInfo& info, AlignedBuffer& lba) {
  if (info.written_lbas == 1 && info.state != ZoneState::read_only &&
      !canary(Canary::header_counts)) {
    // A header and nothing else: its own or, when that was not made durable, an earlier life's.
    return Status(Code::not_found, Origin::log);
  }
  const bool unreadable = !read_lba(info.zone, 0, lba).ok();
  if (!unreadable) {
    Result<ZoneHeader> header = decode_zone_header(lba.span(), pool_.pool, info.zone);
    if (header.ok()) return header;
    if (header.status().code() == Code::unsupported) {
      if (info.written_lbas == 1) return Status(Code::not_found, Origin::log);
      const Result<Stamped> found = check_stamped(lba.span(), Magic::zone_header, kStampBytes);
      if (!is_void(found->stamp, 0)) return header;
      return Status(Code::not_found, Origin::log);
    }
  }
  Result<ZoneHeader> rebuilt = rebuild_header(info);
  if (unreadable && rebuilt.ok() && is_guess(rebuilt->stamp, info, lba)) {
    guessed_.push_back(info.zone);
  }
  return rebuilt;
}

Status Recovery::read_lba(ZoneId zone, std::uint64_t at, AlignedBuffer& into) {
  const Lba lba{pool_.device_lba(zone, at)};
  return read_patiently(*queue_, lba, 1, pool_.geometry.lba_bytes, into, patience_).status();
}

// A zone whose header cannot be read: a batch header has its stamp, and a summary (or the pool's
// having had one volume only) its owner. not_found: there is no batch either, nothing was ever
// acknowledged in it; corrupt: there may be data, but whose it is nobody can tell.
Result<ZoneHeader> Recovery::rebuild_header(const ZoneInfo& info) {
  AlignedBuffer lba(pool_.geometry.lba_bytes);
  const Status lost(Code::corrupt, Origin::log);
  // The first batch begins before this, if there is one.
  const std::uint64_t end = std::min(info.written_lbas, kFirstBatchBytes / lba.size());
  bool unreadable = end < info.written_lbas;
  for (std::uint64_t at = 1; at < end; ++at) {
    if (!read_lba(info.zone, at, lba).ok()) {
      unreadable = true;  // and not empty
      continue;
    }
    const Result<Stamped> found = check_stamped(lba.span(), Magic::batch_header, kStampBytes);
    if (!found.ok()) continue;
    ZoneHeader header;
    header.stamp = found->stamp;
    if (header.stamp.pool != pool_.pool || header.stamp.zone != info.zone) continue;
    if (!plausible_sequence(header.stamp.generation)) continue;
    if (is_over(header.stamp, info, unreadable)) return lost;
    const Result<BatchHeader> batch = BatchView::fixed_part(lba.span(), header.stamp);
    if (batch.status().code() == Code::unsupported) {
      if (is_void(header.stamp, at)) continue;
      return batch.status();
    }
    if (!batch.ok()) {
      unreadable = true;  // it is of this pool and zone, whatever it says
      continue;
    }
    header.stream = batch->stream;
    header.opened_sequence = header.stamp.generation;  // Stream draws both at once
    const Result<std::uint64_t> owner = owner_of(info, header.stamp, lba);
    if (!owner.ok()) return owner.status();
    header.volume = *owner;
    return header;
  }
  // A zone that is full had a header, but for one that has been finished without anything. (The
  // write of that one's header may have failed half done.) And nothing counts behind that where the
  // journal says so, of this life or of one before.
  const bool cut = std::ranges::any_of(
      trims_of(info.zone), [](const ZoneTrim& trim) { return trim.end_lba <= 1 && !trim.aside; });
  const bool had = unreadable || (info.state == ZoneState::full && !cut);
  return had && !is_blank(info, unreadable ? 0 : 1) ? lost : Status(Code::not_found, Origin::log);
}

// Full of zeroes, wherever a structure would be from `begin` on: nothing was written to it before
// it was finished, as where a device seals the zone that does not take its header.
bool Recovery::is_blank(const ZoneInfo& info, std::uint64_t begin) {
  if (info.state != ZoneState::full) return false;
  AlignedBuffer lba(pool_.geometry.lba_bytes);
  const auto blank = [&](std::uint64_t at) {
    const auto is_zero = [](std::byte each) { return each == std::byte{0}; };
    return read_lba(info.zone, at, lba).ok() && std::ranges::all_of(lba.span(), is_zero);
  };
  const std::uint64_t capacity = pool_.geometry.zone_capacity_lbas;
  const std::uint64_t end = std::min(capacity, kFirstBatchBytes / lba.size());
  for (std::uint64_t at = begin; at < end; ++at) {
    if (!blank(at)) return false;
  }
  for (std::uint64_t at = pool_.segment_lbas; at < capacity; at += pool_.segment_lbas) {
    if (!blank(at - 1) || !blank(at)) return false;
  }
  return blank(capacity - 1);
}

// Behind the data of a zone that was finished stands what an earlier life of it has left, which
// must not pass for the present one where that cannot be read.
bool Recovery::is_over(const ZoneStamp& stamp, const ZoneInfo& info, bool unreadable) const {
  if (info.state != ZoneState::full && info.state != ZoneState::read_only) return false;
  return std::ranges::any_of(trims_of(stamp.zone), [&](const ZoneTrim& trim) {
    if (trim.generation == stamp.generation) return false;
    return trim.generation > stamp.generation || (trim.aside && unreadable);
  });
}

// Of a zone that was written to when the power failed, what an earlier life of it has left may
// stand in the place of its first batch, as a file keeps any of its sectors. Its header would tell,
// so it is asked again at the next opening. One that was filled has its footer there, of one that
// was finished the journal knows where it ends.
bool Recovery::is_guess(const ZoneStamp& stamp, const ZoneInfo& info, AlignedBuffer& lba) {
  if (info.state != ZoneState::full && info.state != ZoneState::read_only) return true;
  const std::span<const ZoneTrim> trims = trims_of(stamp.zone);
  if (std::ranges::any_of(trims, &ZoneTrim::aside)) return true;
  if (std::ranges::find(trims, stamp.generation, &ZoneTrim::generation) != trims.end())
    return false;
  const bool read = read_lba(stamp.zone, pool_.geometry.zone_capacity_lbas - 1, lba).ok();
  return !read || !SummaryView::footer(lba.span(), stamp).ok();
}

Result<std::uint64_t> Recovery::owner_of(const ZoneInfo& info, const ZoneStamp& stamp,
                                         AlignedBuffer& lba) {
  const std::uint64_t capacity = pool_.geometry.zone_capacity_lbas;
  for (std::uint64_t begin = 0; begin < capacity; begin += pool_.segment_lbas) {
    const std::uint64_t end = std::min(begin + pool_.segment_lbas, capacity);
    if (end > info.written_lbas) break;
    if (!read_lba(info.zone, end - 1, lba).ok()) continue;
    const Result<Summary> footer = SummaryView::footer(lba.span(), stamp);
    if (footer.ok()) return footer->volume;
    const bool newer = footer.status().code() == Code::unsupported;
    if (newer && !is_void(stamp, end - 1)) return footer.status();
  }
  if (options_.volumes.size() == 1 && !options_.had_others) return options_.volumes.front();
  return Status(Code::corrupt, Origin::log);
}

// Did anything follow its header? The zone before it was flushed by then.
bool Recovery::has_batch(const FoundZone& zone) {
  AlignedBuffer lba(pool_.geometry.lba_bytes);
  const std::uint64_t end = std::min(zone.info.written_lbas, kFirstBatchBytes / lba.size());
  for (std::uint64_t at = 1; at < end; ++at) {
    const bool read = read_lba(zone.info.zone, at, lba).ok();
    if (read && BatchView::fixed_part(lba.span(), zone.header.stamp).ok()) return true;
  }
  return false;
}

}  // namespace furrow
