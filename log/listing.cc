#include "log/listing.h"

#include <algorithm>
#include <iterator>

namespace furrow {

void Listing::start(PageLog& log, ListOp& op) {
  (new Listing(log, op))->walk();  // deleted by finish()
}

Listing::Listing(PageLog& log, ListOp& op) : log_(log), op_(op), from_start_(op.after.length == 0) {
  ++log_.running_;
  ++log_.stats_.lists;
  op_.keys_count = 0;
  if (!from_start_) {
    after_ = log_.hash(op.after);
    next_ = after_.order;
  }
  run = [](Task& task) { static_cast<Listing&>(task).walk(); };
  for (Lane& lane : lanes_) {
    lane.listing = this;
    lane.on_read = [](HeaderRead& read, const Result<BatchView>& view) {
      auto& its_lane = static_cast<Lane&>(read);
      its_lane.listing->header_read(its_lane, view);
    };
  }
}

// From one group of buckets to the next, up to one whose headers have to be read: header_read()
// goes on then. Most buckets may be empty.
void Listing::walk() {
  looked_ = 0;
  do {
    find_entries();
    for (Lane& lane : lanes_) read_on(lane);  // none answers from within
    if (reading_ != 0) return;
    if (end_buckets()) return finish();
  } while (looked_ < kBucketsPerTurn);
  log_.pool_.home.post(*this);
}

// As many as it takes to keep all lanes reading, but not many more than the caller wants.
void Listing::find_entries() {
  entries_.clear();
  found_.clear();
  next_entry_ = 0;
  epoch_side_ = log_.epoch_.enter();  // what the buckets name stays until it has been read
  const std::uint64_t now = log_.pool_.home.wall_s();
  const std::uint32_t enough = std::min(kEntriesMin, op_.keys_max - op_.keys_count);
  do {
    next_ = log_.index_.bucket_entries(next_, of_bucket_);
    std::ranges::copy_if(of_bucket_, std::back_inserter(entries_),
                         [&](const IndexEntry& entry) { return !log_.expired(entry, now); });
    ++looked_;
  } while (next_ != 0 && entries_.size() < enough && looked_ < kBucketsPerTurn);
}

void Listing::read_on(Lane& lane) {
  if (next_entry_ == entries_.size()) return;
  lane.entry = next_entry_++;
  lane.page_lba = entries_[lane.entry].lba;
  ++reading_;
  log_.headers_.read(lane);
}

void Listing::header_read(Lane& lane, const Result<BatchView>& view) {
  const IndexEntry& entry = entries_[lane.entry];
  if (!view.ok()) {
    // Damage takes its own keys from the listing and no others.
    if (view.status().code() == Code::corrupt) {
      log_.count_corrupt();
    } else if (status_.ok()) {
      status_ = view.status();
    }
  } else {
    for (std::uint32_t i = 0; i < view->header().record_count; ++i) {
      const PageRecord record = view->record(i);
      if (record.kind != RecordKind::page) continue;
      if (record.lba != log_.pool_.relative_lba(entry.lba)) continue;
      found_.push_back({log_.hash(record.key), record.key});
    }
  }
  read_on(lane);
  if (--reading_ != 0) return;
  end_buckets() ? finish() : walk();
}

// True: those were the last ones.
bool Listing::end_buckets() {
  log_.epoch_.leave(epoch_side_);
  std::ranges::sort(found_, {}, &Found::hash);
  for (const Found& found : found_) {
    if (!from_start_ && found.hash <= after_) continue;
    if (op_.keys_count == op_.keys_max) return true;
    op_.keys[op_.keys_count++] = found.key;
  }
  return next_ == 0 || op_.keys_count == op_.keys_max || !status_.ok();
}

void Listing::finish() {
  ListOp& op = op_;
  const Status status = status_;
  --log_.running_;
  delete this;
  op.status = status;
  op.on_done(op);
}

void PageLog::list(ListOp& op) { Listing::start(*this, op); }

}  // namespace furrow
