#include "tests/sim/rot.h"

#include <algorithm>
#include <optional>

#include "log/metadata_format.h"
#include "log/structure.h"

namespace furrow::sim {

namespace {

constexpr unsigned kLooks = 20;
constexpr std::size_t kFooterBytes = 96;

bool ends_with_footer(std::span<const std::byte> lba) {
  return has_magic(lba.last(kFooterBytes), Magic::summary);
}

void flip_bit(std::span<std::byte> bytes, SimRandom& random) {
  bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1u << random.below(8));
}

// Never back again, however often it strikes.
void set_bit(std::span<std::byte> bytes, SimRandom& random) {
  for (unsigned tries = 0; tries < 100; ++tries) {
    std::byte& byte = bytes[random.below(bytes.size())];
    const auto bit = static_cast<std::byte>(1u << random.below(8));
    if ((byte & bit) != std::byte{}) continue;
    byte |= bit;
    return;
  }
}

ZoneId any_zone(const SimMedium& medium, SimRandom& random) {
  return ZoneId{static_cast<std::uint32_t>(random.below(medium.geometry().zone_count))};
}

std::optional<ZoneHeader> header_of(const SimMedium& medium, ZoneId zone) {
  const std::uint32_t lba_bytes = medium.geometry().lba_bytes;
  const std::span<const std::byte> data = medium.durable_data(zone);
  if (data.size() < lba_bytes || !has_magic(data, Magic::zone_header)) return std::nullopt;
  Uuid pool;
  const auto stamp = data.subspan(kPrefixBytes);
  std::ranges::transform(stamp.first(pool.size()), pool.begin(),
                         [](std::byte each) { return static_cast<std::uint8_t>(each); });
  const Result<ZoneHeader> header = decode_zone_header(data.first(lba_bytes), pool, zone);
  return header.ok() ? std::optional(*header) : std::nullopt;
}

// A zone without any is not one yet, even if it is full: recovery resets it.
bool has_batch(const SimMedium& medium, ZoneId zone, const ZoneHeader& header) {
  const std::span<const std::byte> data = medium.durable_data(zone);
  const std::uint32_t lba_bytes = medium.geometry().lba_bytes;
  for (std::size_t at = lba_bytes; at < data.size(); at += lba_bytes) {
    if (BatchView::open(data.subspan(at), header.stamp).ok()) return true;
  }
  return false;
}

// Of its stream.
unsigned newer_zones(const SimMedium& medium, const ZoneHeader& header) {
  unsigned newer = 0;
  for (std::uint32_t i = 0; i < medium.geometry().zone_count; ++i) {
    const std::optional<ZoneHeader> other = header_of(medium, ZoneId{i});
    if (other && other->volume == header.volume && other->stream == header.stream &&
        other->opened_sequence > header.opened_sequence && has_batch(medium, ZoneId{i}, *other)) {
      ++newer;
    }
  }
  return newer;
}

bool is_newest(const SimMedium& medium, const ZoneHeader& header) {
  return newer_zones(medium, header) == 0;
}

// Where in a zone's data there are LBAs of which `is` says so.
template <class Test>
std::vector<std::size_t> find_lbas(std::span<const std::byte> data, std::uint32_t lba_bytes,
                                   Test is) {
  std::vector<std::size_t> found;
  for (std::size_t at = 0; at + lba_bytes <= data.size(); at += lba_bytes) {
    if (is(data.subspan(at, lba_bytes))) found.push_back(at);
  }
  return found;
}

// Not its footer alone, as a power cut may have left, nor that of an earlier life of the zone: it
// has to make up for a batch header.
bool has_whole_summary(std::span<const std::byte> data, const ZoneStamp& stamp,
                       std::uint32_t lba_bytes) {
  const Result<Summary> footer = SummaryView::footer(data.last(lba_bytes), stamp);
  if (!footer.ok()) return false;
  const std::size_t first = std::size_t{footer->first_lba} * lba_bytes;
  return first < data.size() && SummaryView::open(data.subspan(first), stamp).ok();
}

}  // namespace

// Zones are written by one segment each here, so one with a summary at its end has no other.
bool spoil_batch_header(SimMedium& medium, SimRandom& random) {
  const std::uint32_t lba_bytes = medium.geometry().lba_bytes;
  for (unsigned look = 0; look < kLooks; ++look) {
    const ZoneId zone = any_zone(medium, random);
    const std::span<const std::byte> data = medium.durable_data(zone);
    const std::optional<ZoneHeader> header = header_of(medium, zone);
    if (!header || data.size() < medium.geometry().zone_capacity_bytes()) continue;
    if (is_newest(medium, *header)) continue;
    if (!has_whole_summary(data, header->stamp, lba_bytes)) continue;
    if (!medium.spoiled(zone).empty()) continue;
    const auto headers =
        find_lbas(data, lba_bytes, [](auto lba) { return has_magic(lba, Magic::batch_header); });
    if (headers.empty()) continue;
    medium.spoil(zone, headers[random.below(headers.size())] / lba_bytes);
    return true;
  }
  return false;
}

bool rot_summary(SimMedium& medium, Rot how, SimRandom& random) {
  const std::uint32_t lba_bytes = medium.geometry().lba_bytes;
  for (unsigned look = 0; look < kLooks; ++look) {
    const ZoneId zone = any_zone(medium, random);
    const std::span<std::byte> data = medium.durable_data(zone);
    const std::vector<std::size_t> summaries = find_lbas(data, lba_bytes, ends_with_footer);
    if (summaries.empty()) continue;
    const std::size_t at = summaries[random.below(summaries.size())];
    if (how == Rot::unreadable) {
      // Nor may a batch header of the zone be: together they are the records.
      if (!medium.spoiled(zone).empty()) continue;
      medium.spoil(zone, at / lba_bytes);
      return true;
    }
    const std::size_t bytes = random.one_in(2) ? 128 : lba_bytes;  // keys come first
    flip_bit(data.subspan(at, bytes), random);
    return true;
  }
  return false;
}

namespace {

bool has_empty_zone(const SimMedium& medium) {
  for (std::uint32_t i = 2; i < medium.geometry().zone_count; ++i) {
    const ZoneRecord record = medium.record(ZoneId{i});
    if (record.kind == ZoneRecord::Class::writable && record.written_lbas == 0) return true;
  }
  return false;
}

bool rot_superblock(SimMedium& medium, ZoneId zone, SimRandom& random) {
  const std::uint32_t lba_bytes = medium.geometry().lba_bytes;
  const auto superblock = [&](ZoneId each) -> Result<Superblock> {
    const std::span<const std::byte> data = medium.durable_data(each);
    if (data.size() < lba_bytes) return Status(Code::corrupt, Origin::log);
    return decode_superblock(data.first(lba_bytes));
  };
  const Result<Superblock> its = superblock(zone), other = superblock(ZoneId{1 - zone.value});
  if (!its.ok() || !other.ok()) return false;
  // That of the zone that is written to is replaced behind what is there, for which there may be no
  // room any more.
  if (its->checkpoint > other->checkpoint) return false;
  // Nothing needs that of a section that was written anew behind it.
  const auto checkpoints =
      find_lbas(std::span<const std::byte>(medium.durable_data(zone)), lba_bytes,
                [](auto lba) { return has_magic(lba, Magic::checkpoint); });
  if (checkpoints.size() != 1) return false;
  flip_bit(medium.durable_data(zone).first(128), random);
  return true;
}

}  // namespace

namespace {

// Its summary is void then: neither is damage to it any, nor does it make up for a batch header.
bool ends_early(const ZoneHeader& header, std::span<const ZoneTrimRecord> trims,
                const Geometry& geometry) {
  return std::ranges::any_of(trims, [&](const ZoneTrimRecord& trim) {
    return trim.zone == header.stamp.zone.value && trim.generation == header.stamp.generation &&
           trim.end_lba < geometry.zone_capacity_lbas;
  });
}

}  // namespace

std::optional<ZoneId> rot_structure(SimMedium& medium, std::span<const ZoneTrimRecord> trims,
                                    SimRandom& random) {
  const std::uint32_t lba_bytes = medium.geometry().lba_bytes;
  if (!has_empty_zone(medium)) return std::nullopt;  // which a repair needs
  const std::uint64_t capacity = medium.geometry().zone_capacity_bytes();
  if (random.one_in(6)) {
    const ZoneId zone{static_cast<std::uint32_t>(random.below(2))};
    return rot_superblock(medium, zone, random) ? std::optional(zone) : std::nullopt;
  }
  for (unsigned look = 0; look < kLooks; ++look) {
    const ZoneId zone = any_zone(medium, random);
    const std::span<std::byte> data = medium.durable_data(zone);
    const std::optional<ZoneHeader> header = header_of(medium, zone);
    if (!header || data.size() < capacity || is_newest(medium, *header)) continue;
    if (!has_whole_summary(data, header->stamp, lba_bytes)) continue;
    if (ends_early(*header, trims, medium.geometry())) continue;
    // The header of a zone that was rebuilt is the only one that knows when its pages were written.
    const bool rebuilt = header->opened_sequence != header->stamp.generation;
    const std::uint64_t what = random.between(rebuilt ? 1 : 0, 2);
    std::size_t at = what == 0 ? 0 : data.size() - lba_bytes;
    if (what == 1) {
      const auto headers =
          find_lbas(data, lba_bytes, [](auto lba) { return has_magic(lba, Magic::batch_header); });
      if (headers.empty()) continue;
      at = headers[random.below(headers.size())];
    }
    flip_bit(what == 2 ? data.last(kFooterBytes) : data.subspan(at, 80), random);
    return zone;
  }
  return std::nullopt;
}

namespace {

// Where pages are in a full zone's data. A batch header takes several LBAs, and so does the
// summary, for which they could pass.
std::vector<std::size_t> page_lbas(std::span<const std::byte> data, const ZoneStamp& stamp,
                                   std::uint32_t lba_bytes) {
  std::size_t end = data.size();
  const std::span<const std::byte> last = data.last(lba_bytes);
  if (const Result<Summary> footer = SummaryView::footer(last, stamp); footer.ok()) {
    end = std::size_t{footer->first_lba} * lba_bytes;
  } else if (ends_with_footer(last)) {
    return {};  // damaged itself: who knows where it begins
  }
  std::vector<std::size_t> found;
  std::size_t header_end = lba_bytes;  // the zone's own
  for (std::size_t at = 0; at + lba_bytes <= end; at += lba_bytes) {
    const std::span<const std::byte> lba = data.subspan(at, lba_bytes);
    const Result<BatchHeader> batch = BatchView::fixed_part(lba, stamp);
    if (batch.ok()) header_end = at + std::size_t{batch->header_lbas} * lba_bytes;
    const auto is_zero = [](std::byte each) { return each == std::byte{}; };
    if (at >= header_end && !std::ranges::all_of(lba, is_zero)) found.push_back(at);
  }
  return found;
}

// The page that the byte at `at` of the zone's data is of.
StruckPage page_at(std::span<const std::byte> data, const ZoneHeader& header,
                   std::uint32_t lba_bytes, std::size_t at) {
  const std::size_t lba = at / lba_bytes;
  for (std::size_t begin = lba_bytes; begin < at; begin += lba_bytes) {
    const Result<BatchView> batch = BatchView::open(data.subspan(begin), header.stamp);
    if (!batch.ok()) continue;
    for (std::uint32_t i = 0; i < batch->header().record_count; ++i) {
      const PageRecord record = batch->record(i);
      const std::size_t end = record.lba + (record.length + lba_bytes - 1) / lba_bytes;
      if (record.kind != RecordKind::page || lba < record.lba || lba >= end) continue;
      const auto bytes = data.subspan(std::size_t{record.lba} * lba_bytes, record.length);
      return {header.volume, record.key, {bytes.begin(), bytes.end()}};
    }
  }
  return {};
}

}  // namespace

std::optional<StruckPage> rot_page(SimMedium& medium, Rot how, SimRandom& random) {
  const std::uint32_t lba_bytes = medium.geometry().lba_bytes;
  const unsigned seconds = random.one_in(2) ? kLooks / 2 : 0;  // looks for one that is the next
  for (unsigned look = 0; look < kLooks; ++look) {
    const ZoneId zone = any_zone(medium, random);
    const std::span<std::byte> data = medium.durable_data(zone);
    const std::optional<ZoneHeader> header = header_of(medium, zone);
    if (!header || data.size() < medium.geometry().zone_capacity_bytes()) continue;
    const unsigned newer = newer_zones(medium, *header);
    if (newer == 0 || (newer != 1 && look < seconds)) continue;
    const std::vector<std::size_t> pages = page_lbas(data, header->stamp, lba_bytes);
    if (pages.empty()) continue;
    const std::size_t at = pages[random.below(pages.size())];
    const std::span<std::byte> lba = data.subspan(at, lba_bytes);
    if (how == Rot::unreadable) {
      // It may be one of the summary's, which a batch header that is gone needs.
      const bool needed = std::ranges::any_of(medium.spoiled(zone), [&](std::uint64_t spoiled) {
        return has_magic(data.subspan(spoiled * lba_bytes, lba_bytes), Magic::batch_header);
      });
      if (needed) continue;
    }
    StruckPage page = page_at(data, *header, lba_bytes, at);
    page.zone = zone;
    page.at = at;
    if (how == Rot::unreadable) {
      medium.spoil(zone, at / lba_bytes);
      return page;
    }
    const std::size_t struck = std::min<std::size_t>(lba_bytes, random.one_in(2) ? 16 : 4096);
    page.lba_before.assign(lba.begin(), lba.end());
    set_bit(lba.first(struck), random);
    page.lba_after.assign(lba.begin(), lba.end());
    return page;
  }
  return std::nullopt;
}

void mend(SimMedium& medium, const StruckPage& page) {
  const std::span<std::byte> data = medium.durable_data(page.zone);
  if (data.size() < page.at + page.lba_after.size()) return;
  const std::span<std::byte> lba = data.subspan(page.at, page.lba_after.size());
  if (std::ranges::equal(lba, page.lba_after)) std::ranges::copy(page.lba_before, lba.begin());
}

std::optional<JournalEntry> journal_entry(std::span<const std::byte> data, std::uint32_t lba_bytes,
                                          std::size_t at) {
  if (at >= data.size()) return std::nullopt;  // before the zone's begin, too
  const auto lba = data.subspan(at, lba_bytes);
  Uuid pool;
  std::ranges::transform(lba.subspan(kPrefixBytes, pool.size()), pool.begin(),
                         [](std::byte each) { return static_cast<std::uint8_t>(each); });
  const Result<JournalEntry> entry = decode_journal(lba, pool);
  return entry.ok() ? std::optional(*entry) : std::nullopt;
}

// With both copies gone a record is lost, which is more than one fault.
bool stands_twice(std::span<const std::byte> data, std::uint32_t lba_bytes, std::size_t at) {
  const auto entry = journal_entry(data, lba_bytes, at);
  if (!entry) return false;
  auto other = journal_entry(data, lba_bytes, entry->copy == 0 ? at + lba_bytes : at - lba_bytes);
  if (!other) return false;
  other->copy = entry->copy;
  return *other == *entry;
}

// Half of the time the last record, which nothing follows.
bool rot_journal(SimMedium& medium, SimRandom& random) {
  const std::uint32_t lba_bytes = medium.geometry().lba_bytes;
  const ZoneId zone{random.one_in(2) ? 1u : 0u};  // of the ring
  const std::span<std::byte> data = medium.durable_data(zone);
  const auto records =
      find_lbas(data, lba_bytes, [](auto lba) { return has_magic(lba, Magic::journal); });
  if (records.empty()) return false;
  const std::size_t last = records.size() - 1;
  const std::size_t at = random.one_in(2)
                             ? last - random.below(std::min<std::size_t>(2, records.size()))
                             : random.below(records.size());
  if (!stands_twice(data, lba_bytes, records[at])) return false;
  flip_bit(data.subspan(records[at], std::min<std::uint32_t>(lba_bytes, 200)), random);
  return true;
}

std::vector<std::uint64_t> hidden_lbas(const SimMedium& medium, SimRandom& random) {
  const Geometry& geometry = medium.geometry();
  const auto is_structure = [](std::span<const std::byte> lba) {
    return has_magic(lba, Magic::zone_header) || has_magic(lba, Magic::batch_header) ||
           ends_with_footer(lba);
  };
  std::vector<std::uint64_t> hidden;
  std::uint64_t zones = random.between(1, 2);
  for (unsigned look = 0; look < kLooks && zones != 0; ++look) {
    const ZoneId zone = any_zone(medium, random);
    const std::span<const std::byte> data = medium.durable_data(zone);
    if (zone.value < 2 || data.size() <= geometry.lba_bytes) continue;
    --zones;
    const std::uint64_t start = geometry.zone_start(zone).value;
    const auto found = find_lbas(data, geometry.lba_bytes, is_structure);
    const std::uint64_t what = random.below(3);
    if (what == 0) {
      for (std::uint64_t i = 0; i < geometry.zone_capacity_lbas; ++i) hidden.push_back(start + i);
      continue;
    }
    if (what == 1) hidden.push_back(start);
    if (found.empty()) continue;
    for (std::uint64_t count = random.between(1, 4); count != 0; --count) {
      hidden.push_back(start + found[random.below(found.size())] / geometry.lba_bytes);
    }
  }
  return hidden;
}

std::vector<std::uint64_t> hidden_ends(const SimMedium& medium, SimRandom& random) {
  const Geometry& geometry = medium.geometry();
  std::vector<std::uint64_t> hidden;
  std::uint64_t zones = random.between(1, 3);
  for (unsigned look = 0; look < kLooks && zones != 0; ++look) {
    const ZoneId zone = any_zone(medium, random);
    const std::uint64_t lbas = medium.durable_data(zone).size() / geometry.lba_bytes;
    const bool is_full = lbas >= geometry.zone_capacity_lbas;
    if (zone.value < 2 || lbas < 2 || (is_full && !random.one_in(8))) continue;
    --zones;
    const std::uint64_t last = random.log_between(1, lbas - 1);
    for (std::uint64_t count = random.between(1, 4); count != 0; --count) {
      hidden.push_back(geometry.zone_start(zone).value + lbas - random.between(1, last));
    }
  }
  return hidden;
}

std::vector<std::uint64_t> hidden_pages(const SimMedium& medium, SimRandom& random) {
  const Geometry& geometry = medium.geometry();
  std::vector<std::uint64_t> hidden;
  std::uint64_t zones = random.between(1, 4);
  for (unsigned look = 0; look < kLooks && zones != 0; ++look) {
    const ZoneId zone = any_zone(medium, random);
    const std::span<const std::byte> data = medium.durable_data(zone);
    const std::optional<ZoneHeader> header = header_of(medium, zone);
    if (!header) continue;
    const std::vector<std::size_t> pages = page_lbas(data, header->stamp, geometry.lba_bytes);
    if (pages.empty()) continue;
    --zones;
    for (std::uint64_t count = random.log_between(1, pages.size()); count != 0; --count) {
      hidden.push_back(geometry.zone_start(zone).value +
                       pages[random.below(pages.size())] / geometry.lba_bytes);
    }
  }
  return hidden;
}

}  // namespace furrow::sim
