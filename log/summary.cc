// Summary: columns of the segment's records from its first byte, zero padding, and a footer that
// ends with its last byte. The footer has a checksum of its own and holds the columns'.
#include <algorithm>

#include "log/record_codec.h"
#include "log/structure.h"
#include "zone/canary.h"

namespace furrow {

namespace {

constexpr std::uint32_t kHasGroups = 1, kHasExpiries = 2, kWideSequences = 4;
constexpr std::uint32_t kKnownColumns = kHasGroups | kHasExpiries | kWideSequences;

constexpr std::size_t kFooterBytes = 96;
constexpr std::size_t kFooterFieldsBytes = kFooterBytes - kPrefixBytes;

struct Footer {
  Summary summary;
  std::uint32_t batch_count = 0;
  std::uint32_t columns = 0;  // kHasGroups | ...
  std::uint64_t base_sequence = 0;
  std::uint32_t total_bytes = 0;  // summary_lbas in bytes
  std::uint32_t body_crc = 0;     // of everything before the footer
};

// Offsets of the columns; `end` is where they end.
struct Columns {
  std::size_t sequences, lbas, shapes, checksums, groups, expiries, batches, end;
};

Columns columns_of(std::uint64_t records, std::uint64_t batches, std::uint32_t columns) {
  Columns at{};
  at.sequences = records * Key::kBytesMax;
  at.lbas = at.sequences + records * ((columns & kWideSequences) != 0 ? 8 : 4);
  at.shapes = at.lbas + records * 4;
  at.checksums = at.shapes + records * 4;
  at.groups = at.checksums + records * 4;
  at.expiries = at.groups + ((columns & kHasGroups) != 0 ? records * 8 : 0);
  at.batches = at.expiries + ((columns & kHasExpiries) != 0 ? records * 4 : 0);
  at.end = at.batches + batches * 4;
  return at;
}

bool valid_footer(const Footer& footer) {
  const Summary& s = footer.summary;
  if (s.summary_lbas == 0 || s.data_end_lba > s.first_lba) return false;
  if (std::uint64_t{s.first_lba} + s.summary_lbas > UINT32_MAX) return false;
  if (footer.total_bytes % s.summary_lbas != 0) return false;
  if (!valid_lba_bytes(footer.total_bytes / s.summary_lbas)) return false;
  if ((footer.columns & ~kKnownColumns) != 0) return false;
  if (s.record_count != 0 && footer.batch_count == 0) return false;
  const Columns at = columns_of(s.record_count, footer.batch_count, footer.columns);
  return at.end + kFooterBytes <= footer.total_bytes;
}

bool valid_batches(const Summary& summary, std::span<const std::uint32_t> lbas) {
  return std::ranges::adjacent_find(lbas, std::ranges::greater_equal()) == lbas.end() &&
         (lbas.empty() || lbas.back() < summary.data_end_lba);
}

// No page lies before the first batch header.
RecordBounds bounds_of(const Footer& footer, std::uint32_t first_batch, std::uint32_t last_batch) {
  return {footer.total_bytes / footer.summary.summary_lbas, first_batch + 1,
          footer.summary.data_end_lba, first_batch, last_batch};
}

Result<Footer> take_footer(std::span<const std::byte> last_lba, const ZoneStamp& stamp) {
  if (last_lba.size() < kFooterBytes) {
    return Status(Code::corrupt, Origin::log, "no structure of the expected kind is here");
  }
  const auto found = check_stamped(last_lba.last(kFooterBytes), Magic::summary, kFooterFieldsBytes);
  if (!found) return found.status();
  if (found->stamp != stamp) {
    return Status(Code::corrupt, Origin::log, "a summary belongs to another life of its zone");
  }
  if (!found->version.ok()) return found->version;
  ByteReader reader(found->fields);
  Footer footer;
  Summary& summary = footer.summary;
  summary.stamp = stamp;
  summary.volume = reader.take<std::uint64_t>();
  footer.base_sequence = reader.take<std::uint64_t>();
  for (std::uint32_t* field : {&summary.segment, &summary.first_lba, &summary.data_end_lba,
                               &summary.summary_lbas, &summary.record_count, &footer.batch_count,
                               &footer.columns, &footer.total_bytes, &footer.body_crc}) {
    *field = reader.take<std::uint32_t>();
  }
  if (!valid_footer(footer)) {
    return Status(Code::corrupt, Origin::log, "a summary's fields are out of range");
  }
  return footer;
}

void put_footer(const Footer& footer, std::span<std::byte> out) {
  ByteWriter writer(out);
  writer.put_zeroes(kPrefixBytes);
  const Summary& summary = footer.summary;
  put_stamp(writer, summary.stamp);
  writer.put(summary.volume);
  writer.put(footer.base_sequence);
  for (const std::uint32_t field : {summary.segment, summary.first_lba, summary.data_end_lba,
                                    summary.summary_lbas, summary.record_count, footer.batch_count,
                                    footer.columns, footer.total_bytes, footer.body_crc}) {
    writer.put(field);
  }
  writer.zero_rest();
  seal(out, Magic::summary);
}

Footer footer_for(const Summary& summary, std::span<const PageRecord> records, std::size_t batches,
                  std::size_t total_bytes) {
  FURROW_CHECK(total_bytes <= UINT32_MAX && batches <= UINT32_MAX);
  Footer footer{summary, static_cast<std::uint32_t>(batches),     0,
                0,       static_cast<std::uint32_t>(total_bytes), 0};
  if (records.empty()) return footer;
  const auto [low, high] = std::ranges::minmax(records, {}, &PageRecord::sequence);
  footer.base_sequence = low.sequence;
  const auto has_group = [](const PageRecord& record) { return record.group != 0; };
  const auto has_expiry = [](const PageRecord& record) { return record.expires_s != 0; };
  if (high.sequence - low.sequence > UINT32_MAX) footer.columns |= kWideSequences;
  if (std::ranges::any_of(records, has_group)) footer.columns |= kHasGroups;
  if (std::ranges::any_of(records, has_expiry)) footer.columns |= kHasExpiries;
  return footer;
}

void put_record(const PageRecord& record, std::size_t i, const Footer& footer, const Columns& at,
                std::byte* out) {
  std::memcpy(out + i * Key::kBytesMax, record.key.bytes.data(), Key::kBytesMax);
  const std::uint64_t sequence = record.sequence - footer.base_sequence;
  if ((footer.columns & kWideSequences) != 0) {
    store_le(out + at.sequences + i * 8, sequence);
  } else {
    store_le(out + at.sequences + i * 4, static_cast<std::uint32_t>(sequence));
  }
  store_le(out + at.lbas + i * 4, record.lba);
  store_le(out + at.shapes + i * 4, pack_shape(record));
  store_le(out + at.checksums + i * 4, record.checksum);
  if ((footer.columns & kHasGroups) != 0) store_le(out + at.groups + i * 8, record.group);
  if ((footer.columns & kHasExpiries) != 0) store_le(out + at.expiries + i * 4, record.expires_s);
}

}  // namespace

std::size_t summary_bytes(std::size_t records, std::size_t batches, bool groups, bool expiries,
                          bool wide_sequences) {
  const std::uint32_t columns = (groups ? kHasGroups : 0) | (expiries ? kHasExpiries : 0) |
                                (wide_sequences ? kWideSequences : 0);
  return columns_of(records, batches, columns).end + kFooterBytes;
}

void encode(const Summary& summary, std::span<const PageRecord> records,
            std::span<const std::uint32_t> batch_lbas, std::span<std::byte> out) {
  FURROW_CHECK(summary.record_count == records.size());
  Footer footer = footer_for(summary, records, batch_lbas.size(), out.size());
  FURROW_CHECK(valid_footer(footer) && valid_batches(summary, batch_lbas));
  const Columns at = columns_of(records.size(), batch_lbas.size(), footer.columns);
  for (std::size_t i = 0; i < records.size(); ++i) {
    FURROW_CHECK(
        valid_record(records[i], bounds_of(footer, batch_lbas.front(), batch_lbas.back())));
    put_record(records[i], i, footer, at, out.data());
  }
  for (std::size_t i = 0; i < batch_lbas.size(); ++i) {
    store_le(out.data() + at.batches + i * 4, batch_lbas[i]);
  }
  const auto body = out.first(out.size() - kFooterBytes);
  std::ranges::fill(body.subspan(at.end), std::byte{0});
  footer.body_crc = crc32c(body);
  put_footer(footer, out.last(kFooterBytes));
}

Result<Summary> SummaryView::footer(std::span<const std::byte> last_lba, const ZoneStamp& stamp) {
  const auto footer = take_footer(last_lba, stamp);
  if (!footer) return footer.status();
  return footer->summary;
}

Result<SummaryView> SummaryView::open(std::span<const std::byte> bytes, const ZoneStamp& stamp) {
  const auto footer = take_footer(bytes, stamp);
  if (!footer) return footer.status();
  const Summary& summary = footer->summary;
  if (footer->total_bytes != bytes.size() ||
      (crc32c(bytes.first(bytes.size() - kFooterBytes)) != footer->body_crc &&
       !canary(Canary::summary_unchecked))) {
    return Status(Code::corrupt, Origin::log, "the checksum of a summary's records does not match");
  }
  const Columns at = columns_of(summary.record_count, footer->batch_count, footer->columns);
  SummaryView view;
  view.summary_ = summary;
  view.bytes_ = bytes.data();
  view.batch_count_ = footer->batch_count;
  view.base_sequence_ = footer->base_sequence;
  view.wide_sequences_ = (footer->columns & kWideSequences) != 0;
  view.sequences_ = at.sequences;
  view.lbas_ = at.lbas;
  view.shapes_ = at.shapes;
  view.checksums_ = at.checksums;
  view.groups_ = (footer->columns & kHasGroups) != 0 ? at.groups : 0;
  view.expiries_ = (footer->columns & kHasExpiries) != 0 ? at.expiries : 0;
  view.batches_ = at.batches;
  const Status in_range = view.check_ranges(footer->total_bytes / summary.summary_lbas);
  if (!in_range.ok()) return in_range;
  return view;
}

Status SummaryView::check_ranges(std::uint32_t lba_bytes) const {
  for (std::uint32_t i = 0; i < batch_count_; ++i) {
    const bool ascending = i == 0 || batch_lba(i) > batch_lba(i - 1);
    if (!ascending || batch_lba(i) >= summary_.data_end_lba) {
      return Status(Code::corrupt, Origin::log, "a summary's batches are out of order");
    }
  }
  if (summary_.record_count == 0) return {};
  const RecordBounds bounds{lba_bytes, batch_lba(0) + 1, summary_.data_end_lba, batch_lba(0),
                            batch_lba(batch_count_ - 1)};
  std::uint32_t pages_lba = 0;  // from here on pages may come
  for (std::uint32_t i = 0; i < summary_.record_count; ++i) {
    const PageRecord r = record(i);
    // The sum of base and delta must not wrap: no encoder writes that.
    if (!valid_record(r, bounds) || r.sequence < base_sequence_) {
      return Status(Code::corrupt, Origin::log, "a summary's record is out of range");
    }
    if (r.kind != RecordKind::page) continue;
    if (r.lba < pages_lba) {
      return Status(Code::corrupt, Origin::log, "a summary's pages are out of order");
    }
    pages_lba = r.lba + 1;
  }
  return {};
}

PageRecord SummaryView::record(std::uint32_t i) const {
  FURROW_CHECK(i < summary_.record_count);
  const std::size_t n = i;
  PageRecord record;
  std::memcpy(record.key.bytes.data(), bytes_ + n * Key::kBytesMax, Key::kBytesMax);
  record.sequence =
      base_sequence_ + (wide_sequences_ ? load_le<std::uint64_t>(bytes_ + sequences_ + n * 8)
                                        : load_le<std::uint32_t>(bytes_ + sequences_ + n * 4));
  record.lba = load_le<std::uint32_t>(bytes_ + lbas_ + n * 4);
  unpack_shape(load_le<std::uint32_t>(bytes_ + shapes_ + n * 4), record);
  record.checksum = load_le<std::uint32_t>(bytes_ + checksums_ + n * 4);
  if (groups_ != 0) record.group = load_le<std::uint64_t>(bytes_ + groups_ + n * 8);
  if (expiries_ != 0) record.expires_s = load_le<std::uint32_t>(bytes_ + expiries_ + n * 4);
  return record;
}

std::uint32_t SummaryView::batch_count() const { return batch_count_; }

std::uint32_t SummaryView::batch_lba(std::uint32_t i) const {
  FURROW_CHECK(i < batch_count_);
  return load_le<std::uint32_t>(bytes_ + batches_ + std::size_t{i} * 4);
}

}  // namespace furrow
