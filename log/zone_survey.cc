#include "log/zone_survey.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace furrow {

namespace {

constexpr std::uint32_t kSurveyGuessBytes = 16 << 10;
constexpr std::uint32_t kSurveySearchBytes = 256 << 10;

// What an intact summary says, copied out of the read buffer.
struct KnownRecords {
  std::vector<PageRecord> records;        // ascending by LBA
  std::vector<std::uint32_t> batch_lbas;  // ascending
  std::uint64_t data_end_lba = 0;
};

class SegmentSurvey {
 public:
  SegmentSurvey(const SurveyedZone& zone, const ZoneRead& read, std::uint64_t begin)
      : zone_(zone), read_(read) {
    segment_.begin_lba = begin;
    segment_.end_lba = std::min(begin + zone.segment_lbas, zone.capacity_lbas);
  }

  SurveyedSegment run() {
    const std::uint64_t limit = std::min(segment_.end_lba, zone_.end_lba);
    if (segment_.end_lba <= limit) {
      known_ = read_summary();
      segment_.closing =
          known_ ? SurveyedSegment::Closing::intact : SurveyedSegment::Closing::damaged;
    }
    walk(known_ ? known_->data_end_lba : limit);
    if (known_) segment_.contradicts = contradicts();
    drop_void_records();
    return std::move(segment_);
  }

 private:
  std::optional<KnownRecords> read_summary() {
    const auto last = read_(segment_.end_lba - 1, 1);
    if (!last.ok()) return std::nullopt;
    const Result<Summary> footer = SummaryView::footer(*last, zone_.stamp);
    note_version(footer.status());
    if (!footer.ok() || footer->first_lba < segment_.begin_lba ||
        footer->first_lba + std::uint64_t{footer->summary_lbas} != segment_.end_lba) {
      return std::nullopt;
    }
    const auto bytes = read_(footer->first_lba, footer->summary_lbas);
    if (!bytes.ok()) return std::nullopt;
    const Result<SummaryView> view = SummaryView::open(*bytes, zone_.stamp);
    if (!view.ok()) return std::nullopt;
    return known_from(*view);
  }

  static KnownRecords known_from(const SummaryView& view) {
    KnownRecords known;
    known.data_end_lba = view.summary().data_end_lba;
    for (std::uint32_t i = 0; i < view.summary().record_count; ++i) {
      known.records.push_back(view.record(i));
    }
    std::ranges::stable_sort(known.records, {}, &PageRecord::lba);
    for (std::uint32_t i = 0; i < view.batch_count(); ++i) {
      known.batch_lbas.push_back(view.batch_lba(i));
    }
    return known;
  }

  // By what a note repeats of the batches before it, from its first one on.
  void fill_gaps(const BatchHeader& note) {
    const std::uint32_t first = note.lba + note.header_lbas;
    const auto bytes = read_(first, note.batch_lbas - note.header_lbas);
    if (!bytes.ok()) return;
    const Result<SummaryView> view = SummaryView::open(*bytes, zone_.stamp);
    note_version(view.status());
    if (!view.ok() || view->summary().first_lba != first ||
        view->summary().data_end_lba != note.lba) {
      return;
    }
    const KnownRecords told = known_from(*view);
    std::vector<std::uint64_t> left;
    for (const std::uint64_t gap : segment_.gaps) {
      if (const auto rest = fill_gap(gap, told, note.flushed_lba)) left.push_back(*rest);
    }
    segment_.gaps = std::move(left);
  }

  // Where what is left of the gap begins: what is not known to be durable may be torn.
  std::optional<std::uint64_t> fill_gap(std::uint64_t gap, const KnownRecords& told,
                                        std::uint64_t flushed_lba) {
    const auto behind = std::ranges::lower_bound(segment_.batches, gap, {}, lba_of);
    const std::uint64_t next =
        behind == segment_.batches.end() ? told.data_end_lba : behind->header.lba;
    const std::uint64_t end = std::min(next, flushed_lba);
    if (gap >= end) return gap;
    std::vector<SurveyedBatch> filled;
    for (std::uint64_t lba = gap; lba < end;
         lba = filled.back().header.lba + std::uint64_t{filled.back().header.batch_lbas}) {
      const BatchHeader* before = behind == segment_.batches.begin() ? nullptr : &behind[-1].header;
      std::optional<SurveyedBatch> batch = known_batch(told, lba, before);
      if (!batch) return gap;
      filled.push_back(std::move(*batch));
    }
    segment_.batches.insert(behind, std::make_move_iterator(filled.begin()),
                            std::make_move_iterator(filled.end()));
    return end == next ? std::nullopt : std::optional(end);
  }

  static std::uint64_t lba_of(const SurveyedBatch& batch) { return batch.header.lba; }

  // From batch to batch; over a damaged header by what the summary says, or to the next that is
  // one of ours.
  void walk(std::uint64_t stop) {
    std::uint64_t lba = std::max<std::uint64_t>(segment_.begin_lba, 1);  // behind the zone header
    while (lba < stop) {
      std::optional<SurveyedBatch> batch = batch_at(lba, kSurveyGuessBytes);
      if (!batch && known_) {
        const bool first = segment_.batches.empty();
        batch = known_batch(*known_, lba, first ? nullptr : &segment_.batches.back().header);
      }
      if (batch) {
        lba += batch->header.batch_lbas;
        if (is_note(batch->header) && !segment_.gaps.empty()) fill_gaps(batch->header);
        segment_.batches.push_back(std::move(*batch));
        continue;
      }
      const std::uint64_t next = known_ ? next_known(*known_, lba) : search(lba + 1, stop);
      const bool all_read =
          next >= stop && segment_.closing == SurveyedSegment::Closing::damaged && is_padding(lba);
      if (all_read) break;
      segment_.gaps.push_back(lba);
      if (next >= stop) break;
      lba = next;
    }
    segment_.data_end_lba = lba;
  }

  // `known`: that many bytes are the header's.
  std::optional<SurveyedBatch> batch_at(std::uint64_t lba, std::uint32_t guess_bytes,
                                        bool known = false) {
    const std::uint64_t bound = std::min(segment_.end_lba, zone_.written_lbas);
    const auto wanted = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::max(guess_bytes / zone_.lba_bytes, 1u), bound - lba));
    const auto bytes = read_(lba, wanted);
    if (!bytes.ok()) {
      // What follows is bad, perhaps.
      return wanted == 1 || known ? std::nullopt : batch_at(lba, zone_.lba_bytes);
    }
    const Result<BatchHeader> fixed =
        BatchView::fixed_part(bytes->first(zone_.lba_bytes), zone_.stamp);
    note_version(fixed.status());
    if (!fixed.ok() || fixed->lba != lba || fixed->batch_lbas > bound - lba) return std::nullopt;
    if (fixed->header_lbas > wanted) {
      return fixed->header_lbas > bound - lba
                 ? std::nullopt
                 : batch_at(lba, fixed->header_lbas * zone_.lba_bytes, true);
    }
    const Result<BatchView> view = BatchView::open(*bytes, zone_.stamp);
    if (!view.ok()) return std::nullopt;
    SurveyedBatch batch;
    batch.header = view->header();
    for (std::uint32_t i = 0; i < batch.header.record_count; ++i) {
      batch.records.push_back(view->record(i));
    }
    return batch;
  }

  static std::uint64_t next_known(const KnownRecords& known, std::uint64_t lba) {
    const auto next = std::ranges::upper_bound(known.batch_lbas, lba);
    return next == known.batch_lbas.end() ? known.data_end_lba : *next;
  }

  // A damaged header again, from a summary. Its flush point is that of the one before: a lower one
  // is never wrong.
  std::optional<SurveyedBatch> known_batch(const KnownRecords& known, std::uint64_t lba,
                                           const BatchHeader* before) const {
    if (!std::ranges::binary_search(known.batch_lbas, lba)) return std::nullopt;
    const std::uint64_t next = next_known(known, lba);
    const auto first = std::ranges::lower_bound(known.records, lba, {}, &PageRecord::lba);
    const auto last = std::ranges::lower_bound(known.records, next, {}, &PageRecord::lba);
    SurveyedBatch batch;
    batch.intact = false;
    batch.records.assign(first, last);
    const std::size_t bytes = batch_header_bytes(batch.records.size());
    batch.header = {zone_.stamp,
                    static_cast<std::uint32_t>(lba),
                    static_cast<std::uint32_t>((bytes + zone_.lba_bytes - 1) / zone_.lba_bytes),
                    static_cast<std::uint32_t>(next - lba),
                    before == nullptr ? 0 : before->flushed_lba,
                    static_cast<std::uint32_t>(batch.records.size()),
                    before == nullptr ? std::uint8_t{0} : before->stream};
    return batch.header.header_lbas > batch.header.batch_lbas ? std::nullopt
                                                              : std::optional(std::move(batch));
  }

  // The first LBA from `lba` on that is a batch header of ours; `stop`: there is none.
  std::uint64_t search(std::uint64_t lba, std::uint64_t stop) {
    std::uint32_t lbas = kSurveySearchBytes / zone_.lba_bytes;
    while (lba < stop) {
      const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(lbas, stop - lba));
      const auto bytes = read_(lba, count);
      if (!bytes.ok()) {  // one LBA of these, perhaps
        if (count == 1) ++lba;
        lbas = 1;
        continue;
      }
      for (std::uint32_t i = 0; i < count; ++i) {
        const auto one = bytes->subspan(std::size_t{i} * zone_.lba_bytes, zone_.lba_bytes);
        const Result<BatchHeader> fixed = BatchView::fixed_part(one, zone_.stamp);
        if (fixed.ok() && fixed->lba == lba + i) return lba + i;
        note_version(fixed.status());
      }
      lba += count;
    }
    return stop;
  }

  // Is all from `lba` on up to where the damaged summary would begin zeroes, as a stream pads?
  bool is_padding(std::uint64_t lba) {
    std::size_t records = 0;
    bool groups = false, expiries = false;
    for (const SurveyedBatch& batch : segment_.batches) {
      records += batch.records.size();
      for (const PageRecord& record : batch.records) {
        groups |= record.group != 0;
        expiries |= record.expires_s != 0;
      }
    }
    const std::size_t bytes =
        summary_bytes(records, segment_.batches.size(), groups, expiries, true);
    const std::uint64_t lbas = (bytes + zone_.lba_bytes - 1) / zone_.lba_bytes;
    if (lba + lbas > segment_.end_lba) return false;
    for (; lba < segment_.end_lba - lbas; ++lba) {
      const auto one = read_(lba, 1);
      const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
      if (!one.ok() || !std::ranges::all_of(*one, is_zero)) return false;
    }
    return true;
  }

  bool contradicts() const {
    std::vector<PageRecord> records;
    for (const SurveyedBatch& batch : segment_.batches) {
      records.insert(records.end(), batch.records.begin(), batch.records.end());
    }
    std::ranges::stable_sort(records, {}, &PageRecord::lba);
    return segment_.gaps.empty() && records != known_->records;
  }

  void drop_void_records() {
    for (SurveyedBatch& batch : segment_.batches) {
      std::erase_if(batch.records, [&](const PageRecord& record) {
        return !record_counts(record, zone_.end_lba, zone_.torn);
      });
    }
  }

  void note_version(const Status& decoded) {
    if (decoded.code() == Code::unsupported) segment_.version = decoded;
  }

  const SurveyedZone& zone_;
  const ZoneRead& read_;
  SurveyedSegment segment_;
  std::optional<KnownRecords> known_;
};

}  // namespace

bool record_counts(const PageRecord& record, std::uint64_t end_lba,
                   std::span<const std::uint32_t> torn) {
  if (record.lba >= end_lba || std::ranges::binary_search(torn, record.lba)) return false;
  return record.kind != RecordKind::group_tombstone || torn.empty() || record.lba < torn.front();
}

ZoneSurvey survey(const SurveyedZone& zone, const ZoneRead& read) {
  ZoneSurvey found;
  const auto first = read(0, 1);
  if (first.ok()) {
    const Result<ZoneHeader> header = decode_zone_header(*first, zone.stamp.pool, zone.stamp.zone);
    found.header_intact = header.ok() && header->stamp == zone.stamp;
    if (found.header_intact) found.previous_opened = header->previous_opened;
    if (header.status().code() == Code::unsupported) found.version = header.status();
  }
  const std::uint64_t end = std::min(zone.written_lbas, zone.end_lba);
  SurveyedZone bounded = zone;
  bounded.end_lba = end;
  for (std::uint64_t begin = 0; begin < end; begin += zone.segment_lbas) {
    found.segments.push_back(SegmentSurvey(bounded, read, begin).run());
    if (found.version.ok()) found.version = found.segments.back().version;
  }
  return found;
}

}  // namespace furrow
