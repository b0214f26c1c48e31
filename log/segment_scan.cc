#include "log/segment_scan.h"

#include <algorithm>
#include <iterator>

namespace furrow {

namespace {
constexpr std::uint32_t kHeaderGuessBytes = 16 << 10;
constexpr std::uint32_t kSearchBytes = 256 << 10;
}  // namespace

SegmentScan::SegmentScan(const Bounds& bounds) : bounds_(bounds) {
  if (bounds_.end_lba <= bounds_.written_lba) {
    next_ = Read{bounds_.end_lba - 1, 1};
  } else {
    start_chain();
  }
}

void SegmentScan::feed(const Result<std::span<const std::byte>>& bytes) {
  if (step_ == Step::search) return feed_search(bytes);
  if (step_ == Step::note) return feed_note(bytes);
  if (!bytes.ok()) {
    damaged_ = true;
    if (step_ != Step::batch) return start_chain();
    // It may be an LBA of a page behind the header.
    if (next_->lbas > 1 && extent_ == Extent::guess) return read_batch_at(next_->lba, 1);
    gaps_.push_back(next_->lba);
    note_unreadable(next_->lba);
    return search_from(next_->lba + 1, kSearchBytes / bounds_.lba_bytes);
  }
  switch (step_) {
    case Step::footer:
      return feed_footer(*bytes);
    case Step::summary:
      return feed_summary(*bytes);
    case Step::batch:
      return feed_batch(*bytes);
    case Step::note:
    case Step::search:
    case Step::done:
      break;
  }
}

void SegmentScan::feed_footer(std::span<const std::byte> bytes) {
  const Result<Summary> footer = SummaryView::footer(bytes, bounds_.stamp);
  note_version(footer.status(), bounds_.end_lba - 1);
  if (!footer.ok() || footer->first_lba < bounds_.begin_lba ||
      footer->first_lba + std::uint64_t{footer->summary_lbas} != bounds_.end_lba) {
    damaged_ = true;
    return start_chain();
  }
  step_ = Step::summary;
  next_ = Read{footer->first_lba, footer->summary_lbas};
}

void SegmentScan::feed_summary(std::span<const std::byte> bytes) {
  const Result<SummaryView> view = SummaryView::open(bytes, bounds_.stamp);
  if (!view.ok() || view->summary().first_lba != next_->lba ||
      (view->batch_count() != 0 && view->batch_lba(0) < bounds_.begin_lba)) {
    damaged_ = true;
    return start_chain();
  }
  if (bounds_.borrow) {
    borrowed_ = *view;
  } else {
    records_.reserve(view->summary().record_count);
    for (std::uint32_t i = 0; i < view->summary().record_count; ++i) {
      const PageRecord record = view->record(i);
      if (inside(record)) records_.push_back(record);
    }
  }
  for (std::uint32_t i = 0; i < view->batch_count(); ++i) batch_lbas_.push_back(view->batch_lba(i));
  summarized_ = true;
  step_ = Step::done;
  next_.reset();
}

void SegmentScan::start_chain() {
  step_ = Step::batch;
  records_.clear();
  batch_lbas_.clear();
  gaps_.clear();
  unreadable_gaps_.clear();
  read_batch_at(bounds_.begin_lba == 0 ? 1 : bounds_.begin_lba,
                kHeaderGuessBytes / bounds_.lba_bytes);
}

void SegmentScan::read_batch_at(std::uint64_t lba, std::uint32_t lbas, Extent extent) {
  step_ = Step::batch;
  extent_ = extent;
  if (lba >= limit()) return end_chain();
  next_ = Read{lba, static_cast<std::uint32_t>(std::min<std::uint64_t>(lbas, limit() - lba))};
}

void SegmentScan::feed_batch(std::span<const std::byte> bytes) {
  const std::uint64_t lba = next_->lba;
  const auto gap = [this, lba] {
    gaps_.push_back(lba);
    search_from(lba + 1, kSearchBytes / bounds_.lba_bytes);
  };
  const Result<BatchHeader> fixed =
      BatchView::fixed_part(bytes.first(bounds_.lba_bytes), bounds_.stamp);
  note_version(fixed.status(), lba);
  if (!fixed.ok() || lba + fixed->header_lbas > limit()) return gap();
  if (std::uint64_t{fixed->header_lbas} * bounds_.lba_bytes > bytes.size()) {
    if (fixed->header_lbas > next_->lbas) {
      return read_batch_at(lba, fixed->header_lbas, Extent::known);
    }
    return gap();
  }
  const Result<BatchView> view = BatchView::open(bytes, bounds_.stamp);
  if (!view.ok()) return gap();
  const BatchHeader& header = view->header();
  if (header.lba != lba || header.batch_lbas < header.header_lbas ||
      lba + header.batch_lbas > limit()) {
    return gap();
  }
  batch_lbas_.push_back(header.lba);
  flushed_lba_ = std::max<std::uint64_t>(flushed_lba_, header.flushed_lba);
  for (std::uint32_t i = 0; i < header.record_count; ++i) {
    const PageRecord record = view->record(i);
    const bool inside = record.lba >= lba && record.lba < lba + header.batch_lbas;
    if (inside) records_.push_back(record);
  }
  if (is_note(header) && !gaps_.empty()) {
    step_ = Step::note;
    next_ = Read{lba + header.header_lbas, header.batch_lbas - header.header_lbas};
    return;
  }
  read_batch_at(lba + header.batch_lbas, kHeaderGuessBytes / bounds_.lba_bytes);
}

void SegmentScan::feed_note(const Result<std::span<const std::byte>>& bytes) {
  const Read read = *next_;
  const Result<SummaryView> view =
      bytes.ok() ? SummaryView::open(*bytes, bounds_.stamp) : Result<SummaryView>(bytes.status());
  note_version(view.status(), read.lba);
  if (!view.ok()) {
    damaged_ = true;
  } else if (view->summary().first_lba == read.lba &&
             view->summary().data_end_lba == batch_lbas_.back()) {
    fill_gaps(*view);
  }
  read_batch_at(read.lba + read.lbas, kHeaderGuessBytes / bounds_.lba_bytes);
}

// A note names all batches from its first one up to itself. Behind what it knows to be durable a
// header that is not whole may be torn.
void SegmentScan::fill_gaps(const SummaryView& note) {
  std::vector<std::uint32_t> batches(note.batch_count());
  for (std::uint32_t i = 0; i < batches.size(); ++i) batches[i] = note.batch_lba(i);
  std::vector<std::uint64_t> left;
  std::uint64_t filled = 0;  // up to here
  for (const std::uint64_t gap : gaps_) {
    if (gap < filled) continue;  // a header that was not whole either, or what a page looked like
    const std::uint64_t next = *std::ranges::upper_bound(batch_lbas_, gap);  // the note, or before
    const std::uint64_t end = std::min(next, flushed_lba_);
    if (gap >= end || !std::ranges::binary_search(batches, gap)) {
      left.push_back(gap);
      continue;
    }
    const auto missing = [&](std::uint64_t lba) { return lba >= gap && lba < end; };
    std::ranges::copy_if(batches, std::back_inserter(batch_lbas_), missing);
    for (std::uint32_t i = 0; i < note.summary().record_count; ++i) {
      const PageRecord record = note.record(i);
      if (missing(record.lba)) records_.push_back(record);
    }
    std::ranges::sort(batch_lbas_);
    filled = end;
    if (end == next) continue;
    left.push_back(end);
    const auto unreadable = std::ranges::find(unreadable_gaps_, gap);
    if (unreadable != unreadable_gaps_.end()) *unreadable = end;
  }
  gaps_ = std::move(left);
  std::erase_if(unreadable_gaps_,
                [this](std::uint64_t gap) { return !std::ranges::binary_search(gaps_, gap); });
  std::ranges::stable_sort(records_, {}, &PageRecord::lba);
}

void SegmentScan::search_from(std::uint64_t lba, std::uint32_t lbas) {
  step_ = Step::search;
  if (lba >= limit()) return end_chain();
  next_ = Read{lba, static_cast<std::uint32_t>(std::min<std::uint64_t>(lbas, limit() - lba))};
}

// Whatever looks like the fixed part of a header of ours is one: feed_batch() checks all of it, and
// comes back here if it is not.
void SegmentScan::feed_search(const Result<std::span<const std::byte>>& bytes) {
  const Read read = *next_;
  const std::uint32_t whole = kSearchBytes / bounds_.lba_bytes;
  if (!bytes.ok()) {  // one LBA of these, perhaps: one at a time
    damaged_ = true;
    if (read.lbas != 1) return search_from(read.lba, 1);
    note_unreadable(read.lba);
    return search_from(read.lba + 1, 1);
  }
  for (std::uint32_t i = 0; i < read.lbas; ++i) {
    const auto lba = bytes->subspan(std::size_t{i} * bounds_.lba_bytes, bounds_.lba_bytes);
    const Status found = BatchView::fixed_part(lba, bounds_.stamp).status();
    if (found.ok()) return read_batch_at(read.lba + i, kHeaderGuessBytes / bounds_.lba_bytes);
    note_version(found, read.lba + i);
  }
  search_from(read.lba + read.lbas, whole);
}

// In the last gap. Where the segment's summary stands there is no batch header.
void SegmentScan::note_unreadable(std::uint64_t lba) {
  if (bounds_.end_lba <= bounds_.written_lba) {
    const std::size_t bytes =
        summary_bytes(records_.size(), batch_lbas_.size(), false, false, false);
    const std::uint64_t lbas = (bytes + bounds_.lba_bytes - 1) / bounds_.lba_bytes;
    if (lba + lbas >= bounds_.end_lba) return;
  }
  if (unreadable_gaps_.empty() || unreadable_gaps_.back() != gaps_.back()) {
    unreadable_gaps_.push_back(gaps_.back());
  }
}

void SegmentScan::note_version(const Status& decoded, std::uint64_t lba) {
  if (decoded.code() != Code::unsupported || lba >= newer_lba_) return;
  newer_lba_ = lba;
  newer_ = decoded;
}

void SegmentScan::end_chain() {
  step_ = Step::done;
  next_.reset();
}

}  // namespace furrow
